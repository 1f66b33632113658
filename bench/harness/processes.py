"""What processes use: one that runs to its end, and one that is there."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from . import paths
from .errors import MeasurementError

TIMED = paths.BENCH / "src" / "timed.py"


@dataclass(frozen=True)
class Used:
    """By a process that has ended, and by the children that it has waited for."""

    wall_s: float
    cpu_s: float
    # The most that one of them had.
    peak_mb: float


def run_to_end(command: list[str], environment: dict[str, str], log: Path, timeout_s: float) -> Used:
    """Runs a command, whose output goes into `log`. Raises MeasurementError with that if it fails or does not end."""
    timed = subprocess.Popen(
        [sys.executable, "-I", "-S", str(TIMED), str(log), *command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        text=True, env=environment, start_new_session=True,
    )
    try:
        said, _ = timed.communicate(timeout=timeout_s)
    except BaseException as error:
        # The command is in the same session.
        os.killpg(timed.pid, signal.SIGKILL)
        timed.communicate()
        if isinstance(error, subprocess.TimeoutExpired):
            raise MeasurementError(f"it has not ended after {timeout_s:g} s; its log:\n{last_words(log)}") from error
        raise
    if timed.returncode != 0:
        raise MeasurementError(f"{TIMED.name} has failed with status {timed.returncode}")
    found = json.loads(said)
    if found["status"] != 0:
        raise MeasurementError(f"it has ended with status {found['status']}; its log:\n{last_words(log)}")
    return Used(found["wall_s"], found["cpu_s"], found["peak_kb"] / 1024)


def last_words(log: Path) -> str:
    return log.read_text(errors="replace")[-2000:]


def context_switches(pid: int) -> int:
    """Of all threads that a process has, voluntary or not."""
    return sum(switches_of(task.read_text()) for task in Path(f"/proc/{pid}/task").glob("*/status"))


def switches_of(status: str) -> int:
    """The sum of both rows in a file /proc/PID/task/TID/status."""
    return sum(int(line.split()[1]) for line in status.splitlines()
               if line.startswith(("voluntary_ctxt_switches:", "nonvoluntary_ctxt_switches:")))


def memory_mb(pid: int, *names: str) -> float:
    """The sum of these rows of smaps_rollup."""
    rollup = Path(f"/proc/{pid}/smaps_rollup")
    rows = rows_kb(rollup.read_text())
    missing = [name for name in names if name not in rows]
    if missing:
        raise MeasurementError(f"{rollup} has no {missing[0]}")
    return sum(rows[name] for name in names) / 1024


def rows_kb(rollup: str) -> dict[str, int]:
    """Names and kilobytes in a file smaps_rollup; its first line is the range of addresses."""
    rows = [line.split() for line in rollup.splitlines()[1:]]
    return {row[0].rstrip(":"): int(row[1]) for row in rows if len(row) == 3}
