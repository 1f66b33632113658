"""Meshes of nodes on this machine: how long they take to come up, and what they cost once they are there.

All nodes start at the same time. Each connects to those with a lower number, so every link is made once, and says when
it sees all others. The time is from the first `erl` to the last of them.
"""

from __future__ import annotations

import argparse
import os
import secrets
import signal
import subprocess
import tempfile
import time
from pathlib import Path

from . import carriers, paths, sheet
from .carriers import Carrier
from .cpu import cpu_seconds
from .errors import MeasurementError
from .measure import Values
from .processes import last_words, memory_mb
from .sweep import Figure, Point, Series, Subject

NAME = "mesh"
FIGURES = [
    Figure("time", "from the first erl to the full mesh", "s", higher_is_better=False, logarithmic=True),
    Figure("cpu", "CPU of all nodes until then", "s", higher_is_better=False, logarithmic=True),
    Figure("memory", "memory of a node (Pss)", "MB", higher_is_better=False, logarithmic=True),
    Figure("descriptors", "descriptors of a node", "", higher_is_better=False, logarithmic=True),
    Figure("idle", "CPU of an idle node", "% of a core", higher_is_better=False),
]
ROUNDS, QUICK_ROUNDS, IDLE_S = 3, 1, 10.0
NODES, QUICK_NODES = [10, 40, 100], [10]
# 100 nodes of inet_tcp on two slow cores take about a tenth of it.
TIMEOUT_S = 300.0
# After the mesh is there, before the nodes count as idle: nodes that boot write to their logs, and collect garbage;
# those of inet_rdma load what only a loss needs, 10 to 20 s after their first link.
SETTLE_S = 22.0


def run(options: argparse.Namespace) -> int:
    chosen, notes = carriers.select(options.carriers, options.rdma_flags, dict(options.variant))
    rounds = options.rounds or (QUICK_ROUNDS if options.quick else ROUNDS)
    sizes = options.nodes or (QUICK_NODES if options.quick else NODES)
    paths.compile_workers()
    shown = {"carriers": options.carriers, "idle_seconds": options.idle_seconds}
    subjects = {carrier.name: subject(carrier, options.idle_seconds) for carrier in chosen}
    return sheet.measure_and_report(
        NAME, [series(sizes, chosen)], subjects, rounds, shown, notes, options.out, options.chart)


def series(sizes: list[int], chosen: list[Carrier]) -> Series:
    """The sizes of meshes, and that the first carrier over RDMA is compared with the others."""
    points = [Point(nodes, str(nodes), {"nodes": nodes}) for nodes in sizes]
    rdma = [carrier.name for carrier in chosen if carrier.is_rdma]
    others = [carrier.name for carrier in chosen if not carrier.is_rdma]
    return Series(NAME, "Meshes of nodes on one host", "nodes", FIGURES, points, [*rdma[:1], *others], growth=True)


def subject(carrier: Carrier, idle_s: float) -> Subject:
    """Measures meshes, and nothing of other series."""
    return lambda each, point: measure(carrier, point.order["nodes"], idle_s) if each.name == NAME else None


def measure(carrier: Carrier, size: int, idle_s: float) -> Values:
    with tempfile.TemporaryDirectory(prefix="inet_rdma_mesh_") as directory:
        began = time.time()
        nodes = start(carrier, size, Path(directory))
        try:
            done = await_all(nodes, size, Path(directory))
            cpu = [cpu_seconds(node.pid) for node in nodes]
            time.sleep(SETTLE_S)
            before = [cpu_seconds(node.pid) for node in nodes]
            time.sleep(idle_s)
            idle = sum(cpu_seconds(node.pid) for node in nodes) - sum(before)
            return {
                "time": done - began, "cpu": sum(cpu), "idle": 100 * idle / idle_s / size,
                "memory": sum(memory_mb(node.pid, "Pss") for node in nodes) / size,
                "descriptors": sum(descriptors(node.pid) for node in nodes) / size,
            }
        finally:
            end(nodes)


def end(nodes: list[subprocess.Popen[bytes]]) -> None:
    for node in nodes:
        node.send_signal(signal.SIGKILL)
    for node in nodes:
        node.wait()


def start(carrier: Carrier, size: int, directory: Path) -> list[subprocess.Popen[bytes]]:
    prefix, cookie = f"mesh_{secrets.token_hex(4)}_", secrets.token_hex(16)
    common = [
        paths.erl_program(), "-noinput", "-connect_all", "false", "-kernel", "prevent_overlapping_partitions", "false",
        "-pa", str(paths.WORKER_EBIN), *carrier.flags, "-s", "inet_rdma_bench_mesh",
    ]
    # One home for all nodes: they read its cookie, and write nothing there.
    environment = os.environ | {"HOME": str(paths.make_home(directory / "home", cookie))}
    nodes = []
    for number in range(1, size + 1):
        # A log each: nodes that fail at the same time would write into each other's lines.
        with open(log_of(directory, number), "wb") as log:
            nodes.append(subprocess.Popen(
                [*common, "-sname", f"{prefix}{number}", "-extra", prefix, str(number), str(size), str(directory)],
                stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
                env=environment,
            ))
    return nodes


def log_of(directory: Path, number: int) -> Path:
    return directory / f"{number}.log"


def await_all(nodes: list[subprocess.Popen[bytes]], size: int, directory: Path) -> float:
    """When the last node saw all others."""
    deadline = time.monotonic() + TIMEOUT_S
    files = [directory / str(number) for number in range(1, size + 1)]
    while not all(file.exists() for file in files):
        ended = [number for number, node in enumerate(nodes, 1) if node.poll() is not None]
        if ended:
            raise MeasurementError(f"a node has ended; its log:\n{last_of_log(directory, ended[0])}")
        if time.monotonic() > deadline:
            missing = [number for number, file in enumerate(files, 1) if not file.exists()]
            raise MeasurementError(
                f"{len(missing)} of {size} nodes do not see all others after {TIMEOUT_S:g} s; the log of one of them:\n"
                f"{last_of_log(directory, missing[0])}")
        time.sleep(0.05)
    return max(int(file.read_text()) for file in files) / 1e6


def last_of_log(directory: Path, number: int) -> str:
    return last_words(log_of(directory, number))


def descriptors(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))
