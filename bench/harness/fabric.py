"""Latency and bandwidth by message size, as perftest and the OSU benchmarks show them, beside TCP and UCX."""

from __future__ import annotations

import argparse
import contextlib
from typing import Any

from . import peers, perf, sheet
from .cases import bytes_text
from .measure import Values
from .sweep import Figure, Point, Series, Subject

POLLING = ["busy", "reader", "adaptive", "event"]
# The receiver looks at the first and the last word of a message, or at one of each cache line.
ENDS, ALL = 1 << 30, 64
LATENCY = [
    Figure("p50", "latency, median", "us", higher_is_better=False, logarithmic=True),
    Figure("p99", "latency, 99th percentile", "us", higher_is_better=False, logarithmic=True),
    Figure("min", "latency, least", "us", higher_is_better=False),
    Figure("cpu_client", "CPU of the leading side", "% of a core", higher_is_better=False),
    Figure("cpu_server", "CPU of the answering side", "% of a core", higher_is_better=False),
]
BANDWIDTH = [
    Figure("bandwidth", "bandwidth", "MB/s", logarithmic=True),
    Figure("rate", "message rate", "per second", logarithmic=True),
    *perf.CPU_ONE_WAY,
    perf.CPU_PER_BYTE,
]
ROUNDS, SECONDS, WARMUP = 4, 0.2, 0.05
QUICK_ROUNDS, QUICK_SECONDS = 1, 0.1
QUICK_SIZES = [1, 64, 4096, 1 << 18, 1 << 23]
# Sent without waiting, as in osu_bw; fewer large ones, so that all of them stay in a cache, as the buffer of other
# programs does.
WINDOW, WINDOW_BYTES = 64, 1 << 20
# The defaults of docs/OPTIONS.md.
DEFAULTS = {"receives": 64, "landing_bytes": 69_632, "direct_bytes": 16_384}


def run(options: argparse.Namespace) -> int:
    cores = perf.cores() if options.pin and not options.address else (None, None)
    rounds = options.rounds or (QUICK_ROUNDS if options.quick else ROUNDS)
    seconds = options.seconds or (QUICK_SECONDS if options.quick else SECONDS)
    sizes = options.size or (QUICK_SIZES if options.quick else [1 << exponent for exponent in range(24)])
    fixed: dict[str, Any] = {**DEFAULTS, "ring_bytes": options.ring_bytes, "seconds": seconds, "warmup": options.warmup}
    fixed |= {"landing_bytes": options.landing_bytes} if options.landing_bytes else {}
    compared = ["busy", "ucx stream"]
    points = [
        Point(size, bytes_text(size), {"size": size, "sends": min(WINDOW, max(1, WINDOW_BYTES // size))})
        for size in sizes
    ]
    series = [
        Series("latency", "Latency, half of a round trip", "message", LATENCY, list(points), compared),
        Series("bandwidth", "Bandwidth, one way", "message", BANDWIDTH, list(points), compared),
    ]
    others: dict[str, dict[str, peers.Peer]] = {"latency": {}, "bandwidth": {}}
    notes: list[str] = []
    if options.peers and not options.address:
        for name, known in (("latency", peers.latency_peers()), ("bandwidth", peers.bandwidth_peers())):
            others[name], absent = peers.installed(known)
            notes += [f"{name}: {sentence}" for sentence in absent]
    with contextlib.ExitStack() as stack:
        address = options.address or stack.enter_context(perf.Server(cores[1])).address

        def own(polling: str, stride: int) -> Subject:
            def measure(each: Series, point: Point) -> Values:
                test = "pingpong" if each.name == "latency" else "blast"
                order = {**fixed, **point.order, "test": test, "polling": polling, "stride": stride}
                return perf.measure(address, order, cores[0])[0]
            return measure

        def other(name: str) -> Subject:
            def measure(each: Series, point: Point) -> Values | None:
                peer = others[each.name].get(name)
                # TCP takes a second at the least, so every other size is enough.
                if peer is None or (name == "tcp" and each.points.index(point) % 2):
                    return None
                return peer(int(point.x), seconds, cores)
            return measure

        subjects = {polling: own(polling, ENDS) for polling in options.polling}
        if options.read:
            subjects |= {f"{polling}, read": own(polling, ALL) for polling in options.polling[:1]}
        subjects |= {name: other(name) for name in dict.fromkeys([*others["latency"], *others["bandwidth"]])}
        shown = {**fixed, "window": WINDOW, "window_bytes": WINDOW_BYTES, "pinned": cores[0] is not None}
        return sheet.measure_and_report(
            "fabric", series, subjects, rounds, shown, notes, options.out, options.chart,
        )
