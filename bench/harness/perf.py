"""rdma-perf, the native program that measures the stream between two processes."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from . import paths
from .errors import BenchError, MeasurementError
from .measure import Values
from .sweep import Figure

# Beyond what a run is to take.
PATIENCE_S = 90.0
LENGTH_BYTES = 4
# Figures of messages that go one way.
CPU_ONE_WAY = [
    Figure("cpu_client", "CPU of the sender", "% of a core", higher_is_better=False),
    Figure("cpu_server", "CPU of the receiver", "% of a core", higher_is_better=False),
]
CPU_PER_BYTE = Figure("cpu_per_byte", "CPU of both sides", "ns per byte", higher_is_better=False)


def program() -> Path:
    path = paths.REPO / "native" / "target" / "release" / "rdma-perf"
    if target := os.environ.get("CARGO_TARGET_DIR"):
        path = Path(target) / "release" / "rdma-perf"
    if not path.exists():
        raise BenchError("rdma-perf is not built yet: run `make rdma-perf` first")
    return path


def pinned(command: list[str], core: int | None) -> list[str]:
    """The command on one core, where there are two or more."""
    return command if core is None else ["taskset", "-c", str(core), *command]


def cores() -> tuple[int | None, int | None]:
    """One for each side: the first and the last that this process may use."""
    usable = sorted(os.sched_getaffinity(0))
    return (usable[0], usable[-1]) if len(usable) > 1 else (None, None)


class Server:
    """An rdma-perf that waits for orders on this machine, as long as the context lasts."""

    def __init__(self, core: int | None) -> None:
        self._process = subprocess.Popen(
            pinned([str(program()), "server"], core), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        self.address = line.rpartition(" ")[2].strip()
        if not self.address:
            self._process.wait()
            raise BenchError("rdma-perf server ended before it listened")

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()


def measure(address: str, order: dict[str, Any], core: int | None) -> tuple[Values, dict[str, Any]]:
    """What both sides saw, as figures and as they said it."""
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in order.items()]
    patience = float(order.get("seconds", 1)) + float(order.get("warmup", 1)) + PATIENCE_S
    try:
        done = subprocess.run(
            pinned([str(program()), "client", address, *flags], core), stdin=subprocess.DEVNULL, capture_output=True,
            text=True, timeout=patience, check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise MeasurementError(f"rdma-perf client did not end within {patience:.0f} s") from error
    if done.returncode != 0:
        raise MeasurementError(done.stderr.strip() or f"rdma-perf ended with status {done.returncode}")
    said = json.loads(done.stdout)
    return values(said), said


def carried_bytes(said: dict[str, Any]) -> int:
    """The figures of the messages alone, in the measured time."""
    client, order = said["client"], said["order"]
    if not order["small"]:
        return client["messages"] * order["size"]
    # Each message has its length before it, and the two marks are a length alone.
    return client["direct_bytes"] + client["indirect_bytes"] - LENGTH_BYTES * (client["messages"] + 2)


def values(said: dict[str, Any]) -> Values:
    """Rates are the server's, over its own clock; CPU is of either process, all threads."""
    client, server = said["client"], said["server"]
    if not server["messages"]:
        raise MeasurementError("no message arrived in the measured time")
    transfers = server["direct_transfers"] + server["indirect_transfers"]
    wire = server["direct_bytes"] + server["indirect_bytes"]
    carried = carried_bytes(said)
    result = {
        "bandwidth": carried / server["seconds"] / 1e6,
        "rate": server["messages"] / server["seconds"],
        "cpu_client": 100 * client["cpu_s"] / client["seconds"],
        "cpu_server": 100 * server["cpu_s"] / server["seconds"],
        "cpu_per_byte": (client["cpu_s"] + server["cpu_s"]) / carried * 1e9,
        "direct_transfers": 100 * server["direct_transfers"] / max(1, transfers),
        "direct_bytes": 100 * server["direct_bytes"] / max(1, wire),
        "switches": server["phase_switches"] / server["seconds"],
    }
    if latency := said.get("latency"):
        result |= {name: latency[f"{name}_us"] for name in ("min", "p50", "p99", "mean")}
    return result
