"""What faults of a network do to links: nodes on hosts of their own, of which no kernel reports the fault.

Each measurement has a network and nodes of its own. The first node calls the second one from ten processes without a
pause and sends it numbered messages. When the fault has been made, and has ended where it ends, the first node waits
until all calls succeed again, or gives up. The stall is the longest time between two calls of a process that succeeded.
When the fault is the death of a node (kills.py), the figure is the time until the other nodes know of it.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor

from . import certificates, faultnet, kills, paths, sheet
from .errors import BenchError, MeasurementError
from .faultnet import Net, both, name_of
from .measure import Values
from .scene import BOOT_S, Row, Scene
from .sweep import Figure, Point, Series, Subject

NAME = "faults"
FIGURES = [
    Figure("stall", "longest stall of a caller", "s", higher_is_better=False),
    Figure("nodedowns", "nodedowns, of all nodes", "", higher_is_better=False),
    Figure("failed", "failed calls", "", higher_is_better=False),
    Figure("lost", "lost messages", "", higher_is_better=False),
    Figure("resumes", "TCP connections made after a loss", "", higher_is_better=False),
]
CARRIERS = ["inet_tcp", "inet_rdma"]
ROUNDS, QUICK_ROUNDS = 5, 1
TICKTIME_S = 60
SETTLE_S = 400.0
# Traffic before the fault.
WARMUP_S = 2.0
# A network that is bad, in place of away, stays so for this time.
BAD_S = 30.0
# After a cut, the time in which a neighbour has come to carry the link.
DETOUR_S = 4.0


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
    *kills.ROWS,
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
    faults = points_of(row for row in rows if not row.is_kill)
    killed = points_of(row for row in rows if row.is_kill)
    series = [each for each in (
        Series(NAME, "Faults that no kernel reports", "fault", FIGURES, faults, []),
        Series(kills.NAME, "Nodes that are killed", "what is killed", kills.FIGURES, killed, []),
    ) if each.points]
    shown = {"ticktime_s": options.ticktime, "tls": options.tls, "ipv6": options.ipv6, "jobs": options.jobs,
             "otp": release(erl)}
    with ThreadPoolExecutor(options.jobs) as jobs:
        taken = start(jobs, rows, flags, rounds, erl, options)
        try:
            subjects = {carrier: subject(carrier, taken) for carrier in options.carriers}
            return sheet.measure_and_report(NAME, series, subjects, rounds, shown, [], options.out, chart=False)
        finally:
            jobs.shutdown(cancel_futures=True)


def points_of(rows: Iterable[Row]) -> list[Point]:
    return [Point(number, row.title, {"row": row.name}) for number, row in enumerate(rows)]


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


Taken = dict[tuple[str, str], list[Future[Values | None]]]


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
                measured = jobs.submit(measure, row, carrier, flags[carrier], erl, options)
                taken[row.name, carrier].append(measured)
    return taken


def subject(carrier: str, taken: Taken) -> Subject:
    return lambda _series, point: taken[point.order["row"], carrier].pop(0).result()


def measure(row: Row, carrier: str, flags: list[str], erl: str, options: argparse.Namespace) -> Values | None:
    if row.is_of_inet_rdma and carrier != "inet_rdma":
        return None
    with Net(row.hosts, options.ipv6) as net:
        scene = Scene(net, [*flags, *(row.rdma if carrier == "inet_rdma" else ())], erl, options.ticktime, row)
        try:
            time.sleep(WARMUP_S)
            row.before(scene)
            return kills.kill(row, scene) if row.is_kill else disturb(row, scene)
        finally:
            scene.close()


def disturb(row: Row, scene: Scene) -> Values:
    if row.is_at_rest:
        scene.ask("rest")
    row.make(scene)
    if row.is_at_rest:
        scene.ask("go")
    ended = f" {scene.node(scene.ended)}" if scene.ended else ""
    found = json.loads(scene.ask(f"settle{ended}", SETTLE_S))
    if not found["settled"]:
        raise MeasurementError(f"calls did not succeed again: {found}")
    values = {"stall": found["stall_ms"] / 1000, **{name: found[name] for name in ("nodedowns", "failed", "lost")}}
    return values if found["resumes"] < 0 else {**values, "resumes": found["resumes"]}
