"""What connections and nodes cost when there are many of them: the native side alone, then meshes of nodes."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
from typing import Any

from . import carriers, mesh, paths, perf, sheet
from .errors import BenchError, MeasurementError
from .measure import Values
from .sweep import Figure, Point, Series, Subject

IDLE = [
    Figure("ratio", "round trips of one busy connection beside idle ones", "times its rate alone"),
    Figure("memory", "memory touched by an idle connection, both ends", "KiB", higher_is_better=False,
           logarithmic=True),
    Figure("pinned", "memory pinned for an idle connection, either end", "KiB", higher_is_better=False),
    Figure("descriptors", "descriptors of an idle connection, either end", "", higher_is_better=False,
           logarithmic=True),
    Figure("idle", "CPU while nothing is sent, all connections", "% of a core", higher_is_better=False),
]
LIGHT = [
    Figure("p50", "round trip while all are lightly busy, median", "us", higher_is_better=False, logarithmic=True),
    Figure("p99", "the same, 99th percentile", "us", higher_is_better=False, logarithmic=True),
    Figure("cpu", "CPU of both ends per round trip", "us", higher_is_better=False, logarithmic=True),
]
CONNECTIONS, QUICK_CONNECTIONS = [10, 100, 1000], [10, 100]
NODES, QUICK_NODES = mesh.NODES, mesh.QUICK_NODES
ROUNDS, QUICK_ROUNDS = 3, 1
# Rounds of the busy connection alone and beside the others, within one run: their order turns.
IDLE_ROUNDS, LIGHT_SECONDS = 3, 3
# A second for each rate, and to connect.
TIMEOUT_S = 120.0


def run(options: argparse.Namespace) -> int:
    chosen, notes = carriers.select(options.carriers, options.rdma_flags, dict(options.variant))
    rounds = options.rounds or (QUICK_ROUNDS if options.quick else ROUNDS)
    connections = options.connections or (QUICK_CONNECTIONS if options.quick else CONNECTIONS)
    points = [Point(count, str(count), {"connections": count}) for count in connections]
    fabrics: dict[str, list[str]] = {"shm": [], "verbs": [options.verbs]} if options.verbs else {"shm": []}
    series = [
        Series("idle", "One busy connection among idle ones", "connections", IDLE, points, [], growth=True),
        Series("light", "Connections that each make 10 round trips a second", "connections", LIGHT, points,
               [], growth=True),
        mesh.series(options.nodes or (QUICK_NODES if options.quick else NODES), chosen),
    ]
    subjects: dict[str, Subject] = {name: native(address) for name, address in fabrics.items()}
    subjects |= {carrier.name: mesh.subject(carrier, options.idle_seconds) for carrier in chosen}
    paths.compile_workers()
    shown = {"carriers": options.carriers, "idle_seconds": options.idle_seconds, "light_seconds": LIGHT_SECONDS}
    return sheet.measure_and_report("scale", series, subjects, rounds, shown, notes, options.out, options.chart)


def native(address: list[str]) -> Subject:
    """Over shm, or with the address of a device over verbs; nothing of meshes: those are the carriers'."""
    kinds = {"idle": idle, "light": light}
    return lambda each, point: kinds[each.name](point, address) if each.name in kinds else None


def idle(point: Point, address: list[str]) -> Values:
    said = example("idle_connections", point.order["connections"], IDLE_ROUNDS, *address)
    return {
        "ratio": said["ratio"][0], "memory": said["touched_bytes"] / 1024, "pinned": said["pinned_bytes"] / 1024,
        "descriptors": said["descriptors"], "idle": 100 * said["idle_cpu"],
    }


def light(point: Point, address: list[str]) -> Values:
    said = example("light_connections", point.order["connections"], LIGHT_SECONDS, *address)
    return {"p50": said["p50_us"], "p99": said["p99_us"], "cpu": said["cpu_us"]}


def example(name: str, *arguments: int | str) -> dict[str, Any]:
    """The line of JSON that one of the examples of native/socket/socket prints."""
    program = perf.program().parent / "examples" / name
    if not program.exists():
        raise BenchError(f"{name} is not built yet: run `make scale-programs` first")
    command = [str(program), *map(str, arguments)]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
            env={**os.environ, "RUST_BACKTRACE": "0"},
        )
    except subprocess.TimeoutExpired as error:
        raise MeasurementError(f"{name} did not end within {TIMEOUT_S:.0f} s") from error
    if done.returncode != 0:
        raise MeasurementError(f"{name}: {done.stderr.strip()[-500:]}")
    return dict(json.loads(done.stdout))
