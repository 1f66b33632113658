"""The evaluation of the dynamic protocol: direct, indirect, and what picks between them.

After P. MacArthur and R. Russell, "An Efficient Method for Stream Semantics over RDMA", IPDPS 2014: one side sends as
fast as it can with some sends outstanding, the other keeps some receives outstanding and consumes.
"""

from __future__ import annotations

import argparse
import contextlib
from typing import Any

from . import perf, sheet
from .cases import bytes_text
from .errors import BenchError
from .measure import Values
from .netem import Netem
from .sweep import Figure, Point, Series, Subject

MODES = ["dynamic", "direct_only", "indirect_only"]
FIGURES = [
    Figure("bandwidth", "throughput", "MB/s"),
    Figure("direct_bytes", "bytes that went direct", "%"),
    Figure("direct_transfers", "transfers that went direct", "%"),
    Figure("switches", "changes of the phase", "per second", higher_is_better=False),
    perf.CPU_PER_BYTE,
    *perf.CPU_ONE_WAY,
]
ROUNDS, SECONDS, WARMUP = 7, 0.3, 0.1
QUICK_ROUNDS, QUICK_SECONDS = 1, 0.15
# Per measurement at a distance, at least: as many round trips as give a rate.
ROUND_TRIPS = 20
SERIES = ["size", "half", "ahead", "bursts", "distance"]


def run(options: argparse.Namespace) -> int:
    client_core, server_core = perf.cores() if options.pin and not options.address else (None, None)
    rounds = options.rounds or (QUICK_ROUNDS if options.quick else ROUNDS)
    seconds = options.seconds or (QUICK_SECONDS if options.quick else SECONDS)
    series = [each for name in options.only or SERIES for each in BUILDERS[name](options)]
    fixed = {"polling": options.polling, "ring_bytes": options.ring_bytes, "stride": options.stride}
    notes: list[str] = []
    if options.netem and not options.address:
        raise BenchError("--netem delays what goes to another host: name it by --address")
    with contextlib.ExitStack() as stack:
        netem = stack.enter_context(Netem(options.netem)) if options.netem else None
        address = options.address or stack.enter_context(perf.Server(server_core)).address

        def subject(mode: str) -> Subject:
            def measure(_series: Series, point: Point) -> Values:
                distance_us = point.order.get("distance_us", 0)
                round_trip_s = distance_us / 1e6
                if netem:
                    netem.delay(distance_us)
                order = {
                    "test": "blast", "mode": mode, **fixed, **point.order,
                    "direct_bytes": options.direct_bytes if mode == "dynamic" else 1,
                    "seconds": max(seconds, ROUND_TRIPS * round_trip_s),
                    "warmup": max(options.warmup, 4 * round_trip_s),
                    "distance_us": 0 if netem else distance_us,
                }
                values, said = perf.measure(address, order, client_core)
                over = f"over {said['server']['fabric']}"
                if over not in notes:
                    notes.append(over)
                return values
            return measure

        shown: dict[str, Any] = {**fixed, "direct_bytes": options.direct_bytes, "seconds": seconds,
                                 "warmup": options.warmup, "pinned": client_core is not None, "netem": options.netem}
        return sheet.measure_and_report(
            "stream", series, {mode: subject(mode) for mode in MODES}, rounds, shown, notes, options.out, options.chart,
        )


def thinned(points: list[Any], options: argparse.Namespace) -> list[Any]:
    """In a quick run the first, the last and one in between."""
    return points[:: max(1, (len(points) - 1) // 2)] if options.quick else points


def by_size(options: argparse.Namespace) -> list[Series]:
    sizes = options.size or [1 << exponent for exponent in range(9, 24)]
    points = [Point(size, bytes_text(size), {"size": size, "sends": 4, "receives": 8})
              for size in thinned(sizes, options)]
    title = "Transfer size, 4 sends and 8 receives outstanding"
    return [Series("size", title, "transfer size", FIGURES, points, MODES)]


def by_half(options: argparse.Namespace) -> list[Series]:
    counts = thinned([1, 2, 4, 8, 16, 32], options)
    sizes = [65536] if options.quick else options.size or [4096, 65536, 1 << 20]
    return [
        Series(
            f"half-{short(size)}", f"Half as many sends as receives, transfers of {bytes_text(size)}", "sends/receives",
            FIGURES,
            [Point(n, f"{n}/{2 * n}", {"size": size, "sends": n, "receives": 2 * n}) for n in counts], MODES,
        )
        for size in sizes
    ]


def by_sends(options: argparse.Namespace) -> list[Series]:
    counts = thinned([1, 2, 4, 8, 16, 32], options)
    sizes = [65536] if options.quick else options.size or [65536, 1 << 20]
    return [
        Series(
            f"ahead-{short(size)}", f"32 receives outstanding, transfers of {bytes_text(size)}", "sends", FIGURES,
            [Point(n, str(n), {"size": size, "sends": n, "receives": 32}) for n in counts], MODES,
        )
        for size in sizes
    ]


def by_bursts(options: argparse.Namespace) -> list[Series]:
    counts = thinned([0, 1, 2, 4, 8, 16, 32], options)
    small, size = 4096, 1 << 20
    return [
        Series(
            "bursts", f"By turns {small} messages of 512 B, and large ones of {bytes_text(size)}", "large messages",
            FIGURES,
            [Point(n, str(n), {"size": size, "small": small, "large": n, "sends": 32, "receives": 16}) for n in counts],
            MODES,
        )
    ]


def by_distance(options: argparse.Namespace) -> list[Series]:
    delays = thinned([0, 1, 2, 6, 12, 24, 48], options)
    sizes = [65536] if options.quick else options.size or [65536, 1 << 20]
    return [
        Series(
            f"distance-{short(size)}", f"Over distance, 32 sends and receives of {bytes_text(size)}",
            "added round trip, ms", FIGURES,
            [Point(ms, str(ms), {"size": size, "sends": 32, "receives": 32, "distance_us": 1000 * ms})
             for ms in delays], MODES,
        )
        for size in sizes
    ]


def short(size: int) -> str:
    return bytes_text(size).replace(" ", "")


BUILDERS = {"size": by_size, "half": by_half, "ahead": by_sends, "bursts": by_bursts, "distance": by_distance}
