"""Whose code the nodes run: samples of their processors by `perf`, summed over the file that the code lies in."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

from .errors import BenchError, MeasurementError

# Samples of each processor. Not a divisor of the kernel's and the VM's timers, so that samples do not fall in step with
# them.
SAMPLES_PER_SECOND = 997
# Beyond the measured time, for perf to start and to write its file.
PATIENCE_S = 30.0
# With fewer samples a share of 1 % is a handful.
SAMPLES_MIN = 200

LIBRARY = "inet_rdma_nif.so"
LIBC = ("libc.so", "libc-", "libpthread", "ld-linux", "ld-2", "[vdso]")
# The kernel names itself and its modules in brackets, and memory without a file, such as the VM's compiled code, in the
# same way or by these words.
WITHOUT_FILE = (
    "[unknown]", "[JIT]", "[anon", "[heap]", "[stack]", "//anon", "anon_inode", "memfd:", "/memfd:", "perf-",
)
OWNERS = ("vm", "kernel", "libc", "library", "other")


def perf_program() -> str:
    path = shutil.which("perf")
    if path is None:
        raise BenchError("perf is not installed or not in PATH (on Debian: scripts/deps bench)")
    return path


def record(pids: list[int], seconds: float) -> dict[str, float]:
    """Percent of the CPU time of these processes by owner, over so many seconds."""
    perf = perf_program()
    with tempfile.TemporaryDirectory() as directory:
        data = Path(directory) / "perf.data"
        run(
            [perf, "record", "--quiet", "--freq", str(SAMPLES_PER_SECOND), "--pid", ",".join(map(str, pids)),
             "--output", str(data), "--", "sleep", f"{seconds:g}"], seconds,
        )
        listed = run(
            [perf, "report", "--stdio", "--no-children", "--sort", "dso", "--fields", "sample,period,dso",
             "--field-separator", "|", "--input", str(data)], seconds,
        )
    return shares(listed)


def run(command: list[str], seconds: float) -> str:
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
            timeout=seconds + PATIENCE_S,
        )
    except subprocess.TimeoutExpired as error:
        raise MeasurementError(f"{' '.join(command[:2])} did not end within {error.timeout:.0f} s") from error
    if done.returncode != 0:
        raise MeasurementError(
            f"{' '.join(command[:2])} ended with status {done.returncode} (with kernel.perf_event_paranoid above 1 "
            f"perf is for root alone): {done.stderr.strip()}")
    return done.stdout


def shares(listed: str) -> dict[str, float]:
    """From lines `SAMPLES|PERIOD|FILE` of perf report."""
    rows = [line.split("|", 2) for line in listed.splitlines() if line.strip() and not line.startswith("#")]
    samples = sum(int(row[0]) for row in rows)
    if samples < SAMPLES_MIN:
        raise MeasurementError(f"perf took {samples} samples, {SAMPLES_MIN} are needed: measure longer (--seconds)")
    total = sum(int(row[1]) for row in rows)
    result = dict.fromkeys(OWNERS, 0.0)
    for _, period, file in rows:
        result[owner(file.strip())] += 100 * int(period) / total
    return result


def owner(file: str) -> str:
    """Whose the code in this file is, as perf names it."""
    if file == LIBRARY:
        return "library"
    if file.startswith(LIBC):
        return "libc"
    if file.startswith("beam.") or file.startswith(WITHOUT_FILE):
        return "vm"
    return "kernel" if file.startswith("[") else "other"
