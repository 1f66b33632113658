"""What a node costs in its first minutes: its start and end, its first link, a short-lived tool, idle nodes.

EPMD runs, and the files of each carrier have been read, before anything is measured.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import secrets
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from . import carriers, mesh, paths, sheet
from .agent import DROPPED_VARIABLES
from .carriers import Carrier
from .cpu import cpu_seconds
from .errors import MeasurementError
from .measure import Values
from .processes import context_switches, last_words, memory_mb, run_to_end
from .sweep import Figure, Point, Series, Subject

NAME = "start"
ROUNDS, QUICK_ROUNDS = 20, 5
# An idle cluster takes a third of a minute, and its figures differ little from round to round.
IDLE_ROUNDS, IDLE_NODES, IDLE_S = 5, 6, 15.0
LIVE_S = 1.2
# The library's modules are loaded half a second after the start.
RUNNING_S, QUICK_RUNNING_S = 3.0, 1.0
# Each step takes a second or two.
TIMEOUT_S = 60.0


def figure(name: str, title: str, unit: str) -> Figure:
    return Figure(name, title, unit, higher_is_better=False)


FIGURES = {
    "boot": [figure("cpu", "CPU", "ms"), figure("wall", "time", "ms"), figure("memory", "peak memory", "MB")],
    "live": [figure("cpu", "CPU", "ms")],
    "fresh": [figure("ping", "first ping", "ms")],
    "running": [
        figure("ping", "first ping", "ms"), figure("wall", "tool: time", "ms"), figure("cpu", "tool: CPU", "ms"),
    ],
    "idle": [
        figure("cpu", "CPU of all", "% of a core"), figure("switches", "context switches of a node", "/s"),
        figure("rss", "RSS of a node", "MB"), figure("private", "private memory of a node", "MB"),
    ],
}


def run(options: argparse.Namespace) -> int:
    chosen, notes = carriers.select(options.carriers, options.rdma_flags, dict(options.variant))
    rounds = options.rounds or (QUICK_ROUNDS if options.quick else ROUNDS)
    paths.compile_workers()
    for carrier in chosen:
        # Reads its files, and starts EPMD. If it cannot run, the measurements say so.
        with contextlib.suppress(MeasurementError):
            boot(carrier, {})
    shown = {"otp": paths.otp_release(), "carriers": {carrier.name: " ".join(carrier.flags) for carrier in chosen}}
    base = carriers.baseline(chosen)
    notes.append(f"OTP {shown['otp']}; ratios are to {base}, taken within each round")
    subjects = {carrier.name: subject(carrier) for carrier in chosen}
    return sheet.measure_and_report(
        NAME, series(options, base), subjects, rounds, shown, notes, options.out, options.chart)


def series(options: argparse.Namespace, base: str) -> list[Series]:
    running_s = QUICK_RUNNING_S if options.quick else RUNNING_S
    nodes, idle_s = options.nodes, options.idle_seconds
    rows: dict[str, tuple[str, dict[str, Any]]] = {
        "boot": ("erl -s init stop", {}),
        "live": (f"a node that runs for {LIVE_S:g} s", {"seconds": LIVE_S}),
        "fresh": ("two nodes right after their start", {"seconds": 0.0}),
        "running": (f"two nodes that run for {running_s:g} s", {"seconds": running_s}),
        "idle": (f"{nodes} idle nodes, all linked", {"nodes": nodes, "seconds": idle_s}),
    }
    wanted = options.only or [name for name in rows if name != "idle" or not options.quick]
    most_rounds = {"idle": options.idle_rounds}
    return [
        Series(name, title, "", FIGURES[name], [Point(0, "", order)], [], baseline=base,
               most_rounds=most_rounds.get(name))
        for name, (title, order) in rows.items() if name in wanted
    ]


def subject(carrier: Carrier) -> Subject:
    return lambda each, point: MEASURED[each.name](carrier, point.order)


class Scene:
    """A directory for the files of some nodes, and for their cookie."""

    def __init__(self, carrier: Carrier, directory: Path) -> None:
        self._carrier, self._directory = carrier, directory
        self._prefix = f"start_{secrets.token_hex(4)}_"
        self._nodes: dict[str, subprocess.Popen[bytes]] = {}
        kept = {key: value for key, value in os.environ.items() if key not in DROPPED_VARIABLES}
        home = paths.make_home(directory / "home", secrets.token_hex(16))
        self.environment = kept | {"HOME": str(home), "ERL_CRASH_DUMP_SECONDS": "0"}

    def file(self, name: str) -> Path:
        return self._directory / name

    def log(self, name: str) -> Path:
        return self._directory / f"{name}.log"

    def command(self, name: str, *words: str) -> list[str]:
        return [paths.erl_program(), "-noinput", "-sname", self._prefix + name, *self._carrier.flags, *words]

    def worker(self, name: str, work: str, *arguments: Path | int) -> list[str]:
        """The command of a node that has something to do."""
        words = ["-pa", str(paths.WORKER_EBIN), "-s", "inet_rdma_bench_start", work, "-extra", *map(str, arguments)]
        return self.command(name, *words)

    def start(self, name: str, work: str, *arguments: Path | int) -> None:
        with open(self.log(name), "wb") as log:
            self._nodes[name] = subprocess.Popen(
                self.worker(name, work, *arguments), stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                start_new_session=True, env=self.environment,
            )

    def await_file(self, file: Path) -> str:
        """The text of a file that one of the nodes writes."""
        deadline = time.monotonic() + TIMEOUT_S
        while not file.exists():
            for name, node in self._nodes.items():
                if node.poll() is not None:
                    raise MeasurementError(f"node {name} has ended; its log:\n{last_words(self.log(name))}")
            if time.monotonic() > deadline:
                logs = "\n".join(last_words(self.log(name)) for name in self._nodes)
                raise MeasurementError(f"no node has written {file.name} after {TIMEOUT_S:g} s; their logs:\n{logs}")
            time.sleep(0.01)
        return file.read_text(encoding="ascii")

    def end(self) -> None:
        mesh.end(list(self._nodes.values()))


@contextlib.contextmanager
def scene(carrier: Carrier) -> Iterator[Scene]:
    with tempfile.TemporaryDirectory(prefix="inet_rdma_start_") as directory:
        made = Scene(carrier, Path(directory))
        try:
            yield made
        finally:
            made.end()


def boot(carrier: Carrier, _order: dict[str, Any]) -> Values:
    with scene(carrier) as made:
        used = run_to_end(made.command("a", "-s", "init", "stop"), made.environment, made.log("a"), TIMEOUT_S)
    return {"cpu": 1000 * used.cpu_s, "wall": 1000 * used.wall_s, "memory": used.peak_mb}


def live(carrier: Carrier, order: dict[str, Any]) -> Values:
    with scene(carrier) as made:
        command = made.worker("a", "live", round(1000 * order["seconds"]))
        used = run_to_end(command, made.environment, made.log("a"), TIMEOUT_S)
    return {"cpu": 1000 * used.cpu_s}


def fresh(carrier: Carrier, order: dict[str, Any]) -> Values:
    with scene(carrier) as made:
        return {"ping": first_ping_ms(carrier, made, order["seconds"])}


def running(carrier: Carrier, order: dict[str, Any]) -> Values:
    """The first ping, and then a tool that calls the pinged node."""
    with scene(carrier) as made:
        ping_ms = first_ping_ms(carrier, made, order["seconds"])
        command = [*made.worker("tool", "tool", made.file("pinged"))]
        command.insert(1, "-hidden")
        used = run_to_end(command, made.environment, made.log("tool"), TIMEOUT_S)
    return {"ping": ping_ms, "wall": 1000 * used.wall_s, "cpu": 1000 * used.cpu_s}


def first_ping_ms(carrier: Carrier, made: Scene, running_s: float) -> float:
    """Both nodes start at once. When both run, the first one waits for `running_s`, then pings the other."""
    made.start("pinged", "wait", made.file("pinged"))
    made.start("pinging", "ping", made.file("pinged"), round(1000 * running_s), made.file("ping"))
    return ping_ms_of(made.await_file(made.file("ping")), carrier)


def ping_ms_of(said: str, carrier: Carrier) -> float:
    """From the answer, its microseconds, and whether inet_rdma is the node's carrier."""
    answer, time_us, ours = said.split()
    if answer != "pong":
        raise MeasurementError(f"the first ping gave {answer}")
    if (ours == "true") != carrier.is_rdma:
        raise MeasurementError(f"the node is not one over {carrier.name}: inet_rdma is loaded: {ours}")
    return int(time_us) / 1000


def idle(carrier: Carrier, order: dict[str, Any]) -> Values:
    size = order["nodes"]
    with tempfile.TemporaryDirectory(prefix="inet_rdma_start_") as directory:
        nodes = mesh.start(carrier, size, Path(directory))
        try:
            mesh.await_all(nodes, size, Path(directory))
            time.sleep(mesh.SETTLE_S)
            pids = [node.pid for node in nodes]
            before = sample(pids)
            time.sleep(order["seconds"])
            taken_s, cpu_s, switches = (now - then for now, then in zip(sample(pids), before, strict=True))
            return {
                "cpu": 100 * cpu_s / taken_s, "switches": switches / taken_s / size,
                "rss": sum(memory_mb(pid, "Rss") for pid in pids) / size,
                "private": sum(memory_mb(pid, "Private_Clean", "Private_Dirty") for pid in pids) / size,
            }
        finally:
            mesh.end(nodes)


def sample(pids: list[int]) -> tuple[float, float, int]:
    """The time, and the CPU time and context switches of all nodes so far."""
    return time.monotonic(), sum(map(cpu_seconds, pids)), sum(map(context_switches, pids))


MEASURED: dict[str, Callable[[Carrier, dict[str, Any]], Values]] = {
    "boot": boot, "live": live, "fresh": fresh, "running": running, "idle": idle,
}
