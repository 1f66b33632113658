"""What faults of a network do to links: nodes on hosts of their own, of which no kernel reports the fault.

Each measurement has a network and nodes of its own. The first node calls the second one from ten processes without a
pause and sends it numbered messages. When the fault has been made, and has ended where it ends, the first node waits
until all calls succeed again, or gives up. The stall is the longest time between two calls of a process that succeeded.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import secrets
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from . import certificates, faultnet, paths, sheet
from .errors import BenchError, MeasurementError
from .faultnet import Net, both, name_of
from .measure import Values
from .sweep import Figure, Point, Series, Subject

NAME = "faults"
FIGURES = [
    Figure("stall", "longest stall of a caller", "s", higher_is_better=False),
    Figure("nodedowns", "nodedowns, of all nodes", "", higher_is_better=False),
    Figure("failed", "failed calls", "", higher_is_better=False),
    Figure("lost", "lost messages", "", higher_is_better=False),
    Figure("resumes", "TCP connections made anew", "", higher_is_better=False),
]
CARRIERS = ["inet_tcp", "inet_rdma"]
ROUNDS, QUICK_ROUNDS = 5, 1
TICKTIME_S = 60
# Before each answer of the first node: in inet_rdma_bench_faults, too.
MARK = "=answer "
BOOT_S, SETTLE_S = 60.0, 400.0
# Traffic before the fault.
WARMUP_S = 2.0
# A network that is bad, in place of away, stays so for this time.
BAD_S = 30.0
# After a cut, the time in which a neighbour has come to carry the link.
DETOUR_S = 4.0


class Scene:
    """The nodes of one measurement, and its first node's standard input and output."""

    def __init__(self, net: Net, flags: list[str], erl: str, ticktime_s: int, by_address: str) -> None:
        self.net, self.ticktime_s, self.ended = net, ticktime_s, ""
        # A node keeps its name when its host's address changes.
        self._names = {host: f"{host}@{net.address(host) if host in by_address else name_of(host)}"
                       for host in net.hosts}
        self._cookie = secrets.token_hex(16)
        self._lines: queue.Queue[str] = queue.Queue()
        common = ["-setcookie", self._cookie, "-pa", str(paths.WORKER_EBIN), "-kernel", "net_ticktime",
                  str(ticktime_s), *flags]
        self._nodes: dict[str, subprocess.Popen[str]] = {}
        others = [host for host in net.hosts if host != "a"]
        for host in others:
            self._start(host, [erl, "-noinput", "-name", self.node(host), *common])
        self._start("a", [erl, "-noshell", "-name", self.node("a"), *common, "-s", "inet_rdma_bench_faults",
                          "-extra", *map(self.node, others)])
        threading.Thread(target=self._read, daemon=True).start()
        if self._answer(BOOT_S) != "ready":
            raise MeasurementError("the nodes did not connect")

    def _start(self, host: str, command: list[str]) -> None:
        self._nodes[host] = subprocess.Popen(
            [*self.net.within(host), *command], text=True, stdin=subprocess.PIPE if host == "a" else subprocess.DEVNULL,
            stdout=subprocess.PIPE if host == "a" else subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            start_new_session=True, env={**os.environ, "ERL_CRASH_DUMP": "/dev/null", "ERL_FLAGS": "", "ERL_AFLAGS": "",
                                         "ERL_ZFLAGS": ""})

    def _read(self) -> None:
        output = self._nodes["a"].stdout
        assert output
        for line in output:
            # The log goes there, too.
            if line.startswith(MARK):
                self._lines.put(line.removeprefix(MARK).strip())

    def _answer(self, timeout_s: float) -> str:
        try:
            return self._lines.get(timeout=timeout_s)
        except queue.Empty:
            raise MeasurementError(f"the first node did not answer within {timeout_s:g} s") from None

    def ask(self, order: str, timeout_s: float = BOOT_S) -> str:
        orders = self._nodes["a"].stdin
        assert orders
        orders.write(order + "\n")
        orders.flush()
        return self._answer(timeout_s)

    def node(self, host: str) -> str:
        return self._names[host]

    def signal(self, host: str, number: signal.Signals) -> None:
        self._nodes[host].send_signal(number)

    def close(self) -> None:
        for process in self._nodes.values():
            process.send_signal(signal.SIGKILL)
        for process in self._nodes.values():
            process.wait()


@dataclass(frozen=True)
class Row:
    """A fault between the hosts a and b, of this many."""

    name: str
    title: str
    make: Callable[[Scene], None]
    hosts: int = 2
    # No process calls or sends while the fault is made.
    is_at_rest: bool = False
    # Hosts whose nodes have an address behind the @.
    by_address: str = ""


def forget(*ways: faultnet.Way, above: int = 0) -> Callable[[Scene], None]:
    return lambda scene: scene.net.order(ways, "forget", above)


def move(hosts: str) -> Callable[[Scene], None]:
    return lambda scene: scene.net.move(hosts)


def away(seconds: float) -> Callable[[Scene], None]:
    return for_a_time(seconds, both("a", "b"), "loss", 1_000_000)


def for_a_time(seconds: float, ways: list[faultnet.Way], what: str, value: int) -> Callable[[Scene], None]:
    def make(scene: Scene) -> None:
        scene.net.order(ways, what, value)
        time.sleep(seconds)
        scene.net.heal()
    return make


def away_for_too_long(scene: Scene) -> None:
    away(1.3 * scene.ticktime_s + 5)(scene)


def delayed(scene: Scene) -> None:
    scene.net.order(both("a", "b"), "delay", 1000)
    time.sleep(WARMUP_S)
    for_a_time(BAD_S, both("a", "b"), "delay", 800_000)(scene)


def stopped(seconds: float) -> Callable[[Scene], None]:
    def make(scene: Scene) -> None:
        scene.signal("b", signal.SIGSTOP)
        time.sleep(seconds)
        scene.signal("b", signal.SIGCONT)
    return make


def cut(*ways: faultnet.Way) -> Callable[[Scene], None]:
    """Until after every carrier has given the link up."""
    def make(scene: Scene) -> None:
        for_a_time(1.3 * scene.ticktime_s + 5, list(ways), "loss", 1_000_000)(scene)
    return make


def neighbour_dies(scene: Scene) -> None:
    scene.net.order(both("a", "b"), "loss", 1_000_000)
    time.sleep(DETOUR_S)
    via = scene.ask("via")
    scene.ended = "c" if via == "none" else via[0]
    scene.signal(scene.ended, signal.SIGKILL)
    time.sleep(1.3 * scene.ticktime_s + 5)
    scene.net.heal()


BETWEEN = both("a", "b")
ROWS = [
    Row("forgotten", "connection forgotten", forget(*BETWEEN)),
    Row("forgotten_one_way", "one direction forgotten", forget(("a", "b"))),
    Row("forgotten_at_rest", "forgotten, idle link", forget(*BETWEEN), is_at_rest=True),
    Row("address", "one address changes", move("b")),
    Row("addresses", "both addresses change", move("ab")),
    Row("address_ip", "one address changes, an IP names the other node", move("b"), by_address="a"),
    Row("addresses_ip", "both addresses change, an IP names one node", move("ab"), by_address="a"),
    Row("away_2", "network away, 2 s", away(2)),
    Row("away_12", "network away, 12 s", away(12)),
    Row("away_30", "network away, 30 s", away(30)),
    Row("away_40", "network away, 40 s", away(40)),
    Row("away_for_too_long", "network away, 1.3 x net_ticktime", away_for_too_long),
    Row("black_hole", "packets > 1300 B vanish, old connection", forget(*BETWEEN, above=1300)),
    Row("black_hole_12", "packets > 1300 B vanish, 12 s", for_a_time(12, BETWEEN, "largest", 1300)),
    Row("loss_2", "loss 2 %, 30 s", for_a_time(BAD_S, BETWEEN, "loss", 20_000)),
    Row("loss_10", "loss 10 %, 30 s", for_a_time(BAD_S, BETWEEN, "loss", 100_000)),
    Row("loss_30", "loss 30 %, 30 s", for_a_time(BAD_S, BETWEEN, "loss", 300_000)),
    Row("delay", "delay 1 to 800 ms, 30 s", delayed),
    Row("rate", "1 Mbit/s, 30 s", for_a_time(BAD_S, BETWEEN, "rate", 1000)),
    Row("stopped_20", "peer stopped, 20 s", stopped(20)),
    Row("stopped_70", "peer stopped, 70 s", stopped(70)),
    Row("triangle", "one of three links cut", cut(*BETWEEN), 3),
    Row("triangle_one_way", "one of three links cut, one way", cut(("a", "b")), 3),
    Row("two_of_six", "two of six links cut", cut(*BETWEEN, *both("c", "d")), 4),
    Row("neighbour_dies", "one of six links cut, the neighbour dies", neighbour_dies, 4),
]


def run(options: argparse.Namespace) -> int:
    faultnet.check()
    paths.compile_workers()
    unknown = set(options.rows or []) - {row.name for row in ROWS}
    if unknown:
        raise BenchError(f"no row {', '.join(sorted(unknown))}; there are {', '.join(row.name for row in ROWS)}")
    rows = [row for row in ROWS if row.name in (options.rows or [row.name])]
    rounds = options.rounds or (QUICK_ROUNDS if options.quick else ROUNDS)
    erl = str(options.otp / "bin" / "erl") if options.otp else paths.erl_program()
    flags = {carrier: flags_of(carrier, options) for carrier in options.carriers}
    points = [Point(number, row.title, {"row": row.name}) for number, row in enumerate(rows)]
    series = Series(NAME, "Faults that no kernel reports", "fault", FIGURES, points, [])
    shown = {"ticktime_s": options.ticktime, "tls": options.tls, "ipv6": options.ipv6, "jobs": options.jobs,
             "otp": release(erl)}
    with ThreadPoolExecutor(options.jobs) as jobs:
        taken = start(jobs, rows, flags, rounds, erl, options)
        try:
            subjects = {carrier: subject(carrier, taken) for carrier in options.carriers}
            return sheet.measure_and_report(NAME, [series], subjects, rounds, shown, [], options.out, chart=False)
        finally:
            jobs.shutdown(cancel_futures=True)


def flags_of(carrier: str, options: argparse.Namespace) -> list[str]:
    """`erl`'s, of inet_tcp or inet_rdma, with TLS or over IPv6 where that is asked for."""
    family = "inet6" if options.ipv6 else "inet"
    if carrier not in CARRIERS:
        raise BenchError(f"unknown carrier {carrier!r}: here these are {', '.join(CARRIERS)}")
    secured = []
    if options.tls:
        secured = ["-ssl_dist_optfile", str(certificates.optfile(hosts=map(name_of, faultnet.HOSTS)))]
    if carrier == "inet_tcp":
        return ["-proto_dist", f"{family}_{'tls' if options.tls else 'tcp'}", *secured]
    security = ["-inet_rdma", "security", "tls"] if options.tls else []
    return ["-pa", str(paths.local_build() / "ebin"), "-proto_dist", f"{family}_rdma", *secured, *security,
            *options.rdma_flags]


def release(erl: str) -> str:
    query = "io:format(\"~s\", [erlang:system_info(otp_release)]), halt()."
    done = subprocess.run([erl, "-noinput", "-boot", "start_clean", "-eval", query], capture_output=True, text=True,
                          check=False, timeout=BOOT_S)
    if done.returncode != 0:
        raise BenchError(f"{erl} does not run: {done.stderr}")
    return done.stdout


Taken = dict[tuple[str, str], list[Future[Values]]]


def start(
    jobs: ThreadPoolExecutor, rows: list[Row], flags: dict[str, list[str]], rounds: int, erl: str,
    options: argparse.Namespace,
) -> Taken:
    """All measurements, `jobs` at a time, in the order in which they are asked for: nodes of this bench mostly wait."""
    taken: Taken = {(row.name, carrier): [] for row in rows for carrier in flags}
    names = list(flags)
    for number in range(rounds):
        turned = names[number % len(names):] + names[: number % len(names)]
        for row in rows:
            for carrier in turned:
                measured = jobs.submit(measure, row, flags[carrier], erl, options)
                taken[row.name, carrier].append(measured)
    return taken


def subject(carrier: str, taken: Taken) -> Subject:
    return lambda _series, point: taken[point.order["row"], carrier].pop(0).result()


def measure(row: Row, flags: list[str], erl: str, options: argparse.Namespace) -> Values:
    with Net(row.hosts, options.ipv6) as net:
        scene = Scene(net, flags, erl, options.ticktime, row.by_address)
        try:
            time.sleep(WARMUP_S)
            if row.is_at_rest:
                scene.ask("rest")
            row.make(scene)
            if row.is_at_rest:
                scene.ask("go")
            ended = f" {scene.node(scene.ended)}" if scene.ended else ""
            found = json.loads(scene.ask(f"settle{ended}", SETTLE_S))
        finally:
            scene.close()
    if not found["settled"]:
        raise MeasurementError(f"calls did not succeed again: {found}")
    values = {"stall": found["stall_ms"] / 1000, **{name: found[name] for name in ("nodedowns", "failed", "lost")}}
    return values if found["resumes"] < 0 else {**values, "resumes": found["resumes"]}
