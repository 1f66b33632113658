"""What others reach on the same machine: TCP by sockperf and qperf, shared memory by UCX's own benchmark."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from .errors import MeasurementError
from .measure import Values
from .perf import pinned

START_S, RUN_S = 10.0, 60.0
# What sockperf sends in one message at most.
SOCKPERF_BYTES_MAX = 65507
# Within the host, without a copy by the kernel where it can.
UCX = {"UCX_TLS": "posix,sysv,cma,self", "UCX_WARN_UNUSED_ENV_VARS": "n"}
# Iterations are given, not time: guesses that make a run last about as long as asked.
UCX_OVERHEAD_S, UCX_BYTES_S = 0.5e-6, 4e9
UCX_ITERATIONS = range(50, 1_000_000)

Cores = tuple[int | None, int | None]

# Subject -> (program, Debian package, its figures for a message size in bytes, over seconds, on these cores).
Peer = Callable[[int, float, Cores], Values | None]


def latency_peers() -> dict[str, tuple[str, str, Peer]]:
    return {
        "ucx stream": ("ucx_perftest", "ucx-utils", lambda *how: ucx("stream_lat", *how)),
        "ucx tag": ("ucx_perftest", "ucx-utils", lambda *how: ucx("tag_lat", *how)),
        "tcp": ("sockperf", "sockperf", tcp_latency),
    }


def bandwidth_peers() -> dict[str, tuple[str, str, Peer]]:
    return {
        "ucx stream": ("ucx_perftest", "ucx-utils", lambda *how: ucx("stream_bw", *how)),
        "ucx tag": ("ucx_perftest", "ucx-utils", lambda *how: ucx("tag_bw", *how)),
        "tcp": ("qperf", "qperf", tcp_bandwidth),
    }


def installed(peers: dict[str, tuple[str, str, Peer]]) -> tuple[dict[str, Peer], list[str]]:
    """Those that are, and a sentence about each that is not."""
    found = {name: peer for name, (program, _, peer) in peers.items() if shutil.which(program)}
    absent = [
        f"{name} is left out, {program} is not installed (on Debian: scripts/deps bench, or apt install {package})"
        for name, (program, package, _) in peers.items() if name not in found
    ]
    return found, absent


def ucx(test: str, size: int, seconds: float, cores: Cores) -> Values:
    port = free_port()
    guess = round(seconds / (UCX_OVERHEAD_S + size / UCX_BYTES_S))
    iterations = min(max(guess, UCX_ITERATIONS.start), UCX_ITERATIONS.stop)
    command = ["ucx_perftest", "-t", test, "-s", str(size), "-n", str(iterations), "-w", str(iterations // 10 + 1),
               "-p", str(port)]
    environment = os.environ | UCX
    # UCX counts both sides' cores, so each is told one.
    with listening(pinned(command, cores[1]), port, environment):
        text = output([*pinned([*command, "-f"], cores[0]), "127.0.0.1"], environment)
    numbers = [line.split() for line in text.splitlines() if re.fullmatch(r"[\s\d.]+", line) and line.strip()]
    if not numbers or len(numbers[-1]) < 8:
        raise MeasurementError(f"ucx_perftest said nothing that can be read:\n{text}")
    _, median, _, mean, _, bandwidth, _, rate = map(float, numbers[-1][:8])
    if test.endswith("_lat"):
        return {"p50": median, "mean": mean}
    return {"bandwidth": bandwidth * (1 << 20) / 1e6, "rate": rate}


def tcp_latency(size: int, seconds: float, cores: Cores) -> Values | None:
    # Smaller messages have no room for its own head.
    if not 16 <= size <= SOCKPERF_BYTES_MAX:
        return None
    port = free_port()
    to = ["--tcp", "-i", "127.0.0.1", "-p", str(port)]
    with listening(pinned(["sockperf", "server", *to], cores[1]), port):
        whole = str(max(1, round(seconds)))
        text = output(pinned(["sockperf", "ping-pong", *to, "-t", whole, "-m", str(size)], cores[0]))
    found = {
        "min": r"<MIN> observation =\s*([\d.]+)", "p50": r"percentile 50\.000 =\s*([\d.]+)",
        "p99": r"percentile 99\.000 =\s*([\d.]+)", "mean": r"avg-latency=([\d.]+)",
    }
    return {name: number_in(text, pattern, "sockperf") for name, pattern in found.items()}


def tcp_bandwidth(size: int, seconds: float, cores: Cores) -> Values:
    port = free_port()
    listen = ["-lp", str(port)]
    with listening(pinned(["qperf", *listen], cores[1]), port):
        whole = str(max(1, round(seconds)))
        command = ["qperf", "127.0.0.1", *listen, "-t", whole, "-m", str(size), "-uu", "tcp_bw"]
        text = output(pinned(command, cores[0]))
    bandwidth = number_in(text, r"bw\s*=\s*([\d.]+) bytes/sec", "qperf")
    return {"bandwidth": bandwidth / 1e6, "rate": bandwidth / size}


def number_in(text: str, pattern: str, program: str) -> float:
    found = re.search(pattern, text)
    if not found:
        raise MeasurementError(f"{program} said nothing that can be read:\n{text}")
    return float(found[1])


def output(command: list[str], environment: dict[str, str] | None = None) -> str:
    try:
        done = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=RUN_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise MeasurementError(f"{command} did not end within {RUN_S:.0f} s") from error
    if done.returncode != 0:
        raise MeasurementError(f"{' '.join(command)}: status {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


@contextmanager
def listening(command: list[str], port: int, environment: dict[str, str] | None = None) -> Iterator[None]:
    """The program, from when it listens on the TCP port."""
    process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + START_S
        while not listens(port):
            if process.poll() is not None or time.monotonic() > deadline:
                raise MeasurementError(f"{' '.join(command)} does not listen")
            time.sleep(0.01)
        yield
    finally:
        process.kill()
        process.wait()


def listens(port: int) -> bool:
    """Seen in the kernel's tables: to try it would be a client."""
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        if not Path(table).exists():
            continue
        for line in Path(table).read_text(encoding="ascii").splitlines()[1:]:
            fields = line.split()
            if fields[1].endswith(f":{port:04X}") and fields[3] == "0A":
                return True
    return False


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
