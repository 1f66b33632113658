"""OTP's own benchmark of the distribution, ssl_dist_bench_SUITE, over TCP, TLS and inet_rdma.

The suite is in the test sources of OTP's application ssl, which no binary package has. It is compiled as it is, from a
directory that is given, or from the source package of the installed Debian package. inet_rdma_otp_SUITE runs its cases.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path

from . import paths, sheet
from .cases import bytes_text
from .errors import BenchError, MeasurementError
from .measure import Values
from .sweep import Figure, Point, Series, Subject

SUITE = "inet_rdma_otp_SUITE"
OUT = paths.OUT / "otp"
# Files of lib/ssl/test; OTP's suite does not call the others.
SOURCES = ["ssl_dist_bench_SUITE.erl", "ssl_bench_test_lib.erl", "ssl_dist_test_lib.erl", "ssl_dist_test_lib.hrl"]
CARRIERS = ["tcp", "tls", "inet_rdma"]


def less(name: str, title: str, unit: str, logarithmic: bool = False) -> Figure:
    return Figure(name, title, unit, higher_is_better=False, logarithmic=logarithmic)


# Series -> figure, the name that the case reports it by (`Plain Throughput_64: VALUE UNIT`), what makes it the unit.
FIGURES = {
    "throughput": [
        (Figure("throughput", "one process sends to one", "MB/s", logarithmic=True), "Throughput", 1.024e-3),
        (less("sender", "busy time of the sender's VM threads", "ns per byte", True), "Sender", 1e-3),
        (less("receiver", "busy time of the receiver's VM threads", "ns per byte", True), "Receiver", 1e-3),
    ],
    "roundtrip": [(Figure("rate", "one pair of processes", "per second"), "Roundtrip", 1.0)],
    "setup": [
        (Figure("setup", "from no connection to an answer", "per second"), "Setup", 1e-3),
        (Figure("cycle", "the same with the disconnect", "per second"), "Setup Cycle", 1e-3),
    ],
    "load": [
        (less("client", "VM threads of the sender busy", "%"), "Sched Utilization Client", 1e-2),
        (less("server", "VM threads of the receiver busy", "%"), "Sched Utilization Server", 1e-2),
    ],
}
LOAD = "Load, 250 processes that each send a message every 10 ms"
SIZES = [0, 64, 1024, 4096, 16_384, 65_536, 262_144, 1_048_576]
QUICK_SIZES = [64, 65_536]
ROUNDS, QUICK_ROUNDS = 5, 1
TIMEOUT_S = 400.0


def run(options: argparse.Namespace) -> int:
    ebin = paths.local_build() / "ebin"
    compile_suite(options.sources or fetched())
    sizes = QUICK_SIZES if options.quick else SIZES
    axes = {
        "throughput": ("Throughput", "message", [Point(size, bytes_text(size), {"case": f"throughput_{size}"})
                                                 for size in sizes]),
        "roundtrip": ("Round trips", "", [Point(1, "-", {"case": "roundtrip"})]),
        "setup": ("Set-up of connections", "", [Point(1, "-", {"case": "setup"})]),
        "load": (LOAD, "", [Point(1, "-", {"case": "sched_utilization"})]),
    }
    series = [Series(name, title, axis, [figure for figure, _, _ in FIGURES[name]], points, ["inet_rdma", "tcp"])
              for name, (title, axis, points) in axes.items()]
    subjects = {carrier: subject(carrier, ebin) for carrier in CARRIERS}
    rounds = options.rounds or (QUICK_ROUNDS if options.quick else ROUNDS)
    notes = [no_ktls()]
    return sheet.measure_and_report("otp", series, subjects, rounds, {}, notes, options.out, chart=False)


def no_ktls() -> str:
    available = Path("/proc/sys/net/ipv4/tcp_available_ulp")
    known = available.read_text(encoding="ascii").split() if available.exists() else []
    kernel = "" if "tls" in known else "; this kernel has no TLS sockets either (module tls)"
    return f"ktls is left out: the distribution has it from OTP 26 on, the suite of OTP 25 has no group for it{kernel}"


def fetched() -> Path:
    """The sources of lib/ssl/test from the source package of the installed erlang-base."""
    if not (shutil.which("apt-get") and shutil.which("dpkg-query")):
        raise BenchError("name the directory lib/ssl/test of OTP's sources: --sources DIR")
    query = ["dpkg-query", "-W", "-f", "${source:Version}", "erlang-base"]
    version = subprocess.run(query, capture_output=True, text=True, check=False).stdout
    target = OUT / version.replace(":", "_")
    if not version:
        raise BenchError("the package erlang-base is not installed: name OTP's lib/ssl/test with --sources DIR")
    if not all((target / name).exists() for name in SOURCES):
        with tempfile.TemporaryDirectory(prefix="inet_rdma_otp_") as directory:
            command = ["apt-get", "source", "-qq", "--download-only", f"erlang={version}"]
            done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
            archives = list(Path(directory).glob("erlang_*.orig.tar.*"))
            if done.returncode != 0 or not archives:
                raise BenchError(f"{' '.join(command)} fails; it needs a line deb-src of Debian (sources.list(5)), or "
                                 f"--sources DIR:\n{done.stderr.strip()}")
            unpack(archives[0], target)
    return target


def unpack(archive: Path, target: Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    with tarfile.open(archive) as files:
        for member in files:
            directory, name = os.path.split(member.name)
            if name in SOURCES and directory.endswith("lib/ssl/test"):
                content = files.extractfile(member)
                assert content is not None
                (target / name).write_bytes(content.read())


def compile_suite(sources: Path) -> None:
    missing = [name for name in SOURCES if not (sources / name).exists()]
    if missing:
        raise BenchError(f"{sources} has no {missing[0]}: it must be lib/ssl/test of the sources of OTP 25")
    modules = [sources / name for name in SOURCES if name.endswith(".erl")]
    paths.compile_erlang([*modules, paths.BENCH / "src" / "otp" / f"{SUITE}.erl"], OUT / "ebin", "-I", str(sources))


def subject(carrier: str, ebin: Path) -> Subject:
    def measure(each: Series, point: Point) -> Values:
        said = run_case(carrier, point.order["case"], ebin)
        values = {}
        for figure, name, factor in FIGURES[each.name]:
            found = re.findall(rf"^\S+ {name}[\w?]*(?: \?+)?: (\d+) ", said, re.MULTILINE)
            if not found:
                raise MeasurementError(f"no {name!r} in what the suite said:\n{said[-2000:]}")
            values[figure.name] = int(found[0]) * factor
        return values
    return measure


def run_case(carrier: str, case: str, ebin: Path) -> str:
    """What Common Test prints of one case."""
    with tempfile.TemporaryDirectory(prefix="inet_rdma_otp_") as directory:
        command = [
            paths.tool("ct_run"), "-noinput", "-sname", f"otp_bench_{os.getpid()}", "-pa", str(OUT / "ebin"),
            "-inet_rdma_ebin", str(ebin), "-dir", str(OUT / "ebin"), "-suite", SUITE, "-group", carrier, "-case", case,
            "-no_auto_compile", "-logdir", directory,
        ]
        try:
            done = subprocess.run(command, cwd=directory, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                                  errors="replace", timeout=TIMEOUT_S, check=False)
        except subprocess.TimeoutExpired as error:
            raise MeasurementError(f"{case} over {carrier} did not end within {TIMEOUT_S:.0f} s") from error
    if done.returncode != 0 or "1 ok, 0 failed" not in done.stdout:
        raise MeasurementError(f"{case} over {carrier} failed:\n{done.stdout[-3000:]}{done.stderr[-500:]}")
    return done.stdout
