"""Links between two distant hosts over TCP: throughput, and the round trip of a ping beside it, by the network's own.

Each measurement has a network of its own, so that the kernel knows nothing of the path from the measurement before.
"""

from __future__ import annotations

import argparse
import itertools
import secrets
from dataclasses import dataclass
from typing import Any

from . import carriers, network, paths, sheet
from .carriers import Carrier
from .cases import Case, bytes_text
from .environment import usable_cores
from .errors import BenchError
from .measure import Timing, Values, measure
from .progress import say
from .sweep import Figure, Point, Series, Subject

NAME = "distance"
ROUNDS, QUICK_ROUNDS = 3, 1
RTTS_MS, QUICK_RTTS_MS = [20.0, 100.0, 200.0], [100.0]
SECONDS, QUICK_SECONDS = 6.0, 4.0
# Congestion control finds the rate in some tens of round trips: warm-up and measurement last at least this many.
WARMUP_S, ROUND_TRIPS = 3.0, 30
# More than the bytes under way at 1 Gbit/s and 200 ms, 25 MB, with the kernel's overhead.
LARGE_BUFFERS = "64M"

# Eight pings at once: one alone makes less than a hundred round trips within the measured time.
CASES = {
    "throughput": Case("throughput", size=1 << 20, senders=4),
    "ping": Case("hol", procs=8, size=16, senders=4, bulk=1 << 20),
}
TITLES = {"throughput": "4 senders of 1 MB", "ping": "Ping of 16 B beside 4 senders of 1 MB"}
FIGURES = {
    "throughput": [
        Figure("bandwidth", "throughput", "MB/s"),
        Figure("cpu", "CPU of the nodes per message", "us", higher_is_better=False),
        Figure("busy", "processors busy, the wire's among them", "% of the machine", higher_is_better=False),
    ],
    "ping": [
        Figure("p50", "round trip of the ping, median", "ms", higher_is_better=False),
        Figure("p99", "round trip of the ping, 99th percentile", "ms", higher_is_better=False),
        Figure("bulk", "throughput beside it", "MB/s"),
    ],
}


@dataclass(frozen=True)
class Setting:
    """What a series has fixed."""

    loss_percent: float
    congestion: str
    # The maxima of tcp_rmem and tcp_wmem; None: the kernel's own.
    buffer_bytes: int | None

    @property
    def name(self) -> str:
        """Part of a file's name."""
        buffers = "default" if self.buffer_bytes is None else bytes_text(self.buffer_bytes).replace(" ", "")
        return f"{self.congestion}-{buffers}" + (f"-loss{self.loss_percent:g}" if self.loss_percent else "")

    @property
    def title(self) -> str:
        buffers = "the kernel's own" if self.buffer_bytes is None else f"up to {bytes_text(self.buffer_bytes)}"
        return f"{self.loss_percent:g} % loss, {self.congestion}, socket buffers {buffers}"

    def kernel(self, fresh: dict[str, str]) -> dict[str, str]:
        """The settings of the kernel, of a namespace that has `fresh`: least and first size of buffers stay."""
        settings = {"tcp_congestion_control": self.congestion}
        if self.buffer_bytes is not None:
            for name in BUFFERS:
                least, first, _most = fresh[name].split()
                settings[name] = f"{least} {first} {self.buffer_bytes}"
        return settings


BUFFERS = ("tcp_rmem", "tcp_wmem")


def run(options: argparse.Namespace) -> int:
    why = network.why_not()
    if why:
        raise BenchError(why)
    chosen, skipped = carriers.select(options.carriers, options.rdma_flags, dict(options.variant))
    if not chosen:
        raise BenchError("no carrier left to measure: " + "; ".join(skipped))
    fresh = kernel_settings(options.congestion or [])
    congestion = options.congestion or [fresh["tcp_congestion_control"]]
    settings = [Setting(*each) for each in itertools.product(options.loss, congestion, options.buffers)]
    rtts_ms = options.rtt_ms or (QUICK_RTTS_MS if options.quick else RTTS_MS)
    rounds = options.rounds or (QUICK_ROUNDS if options.quick else ROUNDS)
    series = [
        series_of(kind, setting, rtts_ms, options.rate_mbit, chosen) for setting in settings for kind in options.only
    ]
    paths.compile_workers()
    subjects = {carrier.name: subject(carrier, options, fresh) for carrier in chosen}
    notes = [*skipped, conditions(options, fresh)]
    shown = {
        "otp": paths.otp_release(), "fresh_namespace": fresh, "mtu": options.mtu, "buffer_ms": options.buffer_ms,
        "carriers": {carrier.name: " ".join(carrier.flags) for carrier in chosen}, "erl_flags": options.erl_flags,
    }
    return sheet.measure_and_report(NAME, series, subjects, rounds, shown, notes, options.out, options.chart)


def series_of(kind: str, setting: Setting, rtts_ms: list[float], rate_mbit: float, chosen: list[Carrier]) -> Series:
    """One kind of work over one setting; the first carrier of inet_rdma is compared with those of OTP."""
    points = [
        Point(rtt_ms, f"{rtt_ms:g}", {
            "kind": kind, "rtt_ms": rtt_ms, "rate_mbit": rate_mbit, "loss_percent": setting.loss_percent,
            "congestion": setting.congestion, "buffer_bytes": setting.buffer_bytes,
        })
        for rtt_ms in rtts_ms
    ]
    own = [carrier.name for carrier in chosen if carrier.is_rdma]
    others = [carrier.name for carrier in chosen if not carrier.is_rdma]
    title = f"{TITLES[kind]}; {rate_mbit:g} Mbit/s, {setting.title}"
    return Series(f"{kind}-{setting.name}", title, "round trip of the network, ms", FIGURES[kind], points,
                  [*own[:1], *others])


def subject(carrier: Carrier, options: argparse.Namespace, fresh: dict[str, str]) -> Subject:
    def measured(_series: Series, point: Point) -> Values:
        order = point.order
        setting = Setting(order["loss_percent"], order["congestion"], order["buffer_bytes"])
        case = CASES[order["kind"]]
        pair = network.Network(order["rtt_ms"] / 2, order["rate_mbit"], order["loss_percent"], options.mtu,
                               options.buffer_ms, setting.kernel(fresh))
        with pair:
            values, facts = measure(case, carrier, timing(order["rtt_ms"], options), options.erl_flags,
                                    options.info and carrier.is_rdma, pair.places(carrier))
        if "info" in facts:
            say(facts["info"])
        return figures_of(case, values, usable_cores())

    return measured


def timing(rtt_ms: float, options: argparse.Namespace) -> Timing:
    """The times of the command line. Without them the warm-up outlasts slow start."""
    round_trips_s = ROUND_TRIPS * rtt_ms / 1000
    seconds = QUICK_SECONDS if options.quick else SECONDS
    return Timing(options.warmup or max(WARMUP_S, round_trips_s), options.seconds or max(seconds, round_trips_s), 0)


def figures_of(case: Case, values: Values, cores: int) -> Values:
    """Round trips in milliseconds; how busy the machine was, as a machine that is busy is the limit, not the link."""
    if case.workload == "hol":
        return {
            "p50": values["p50"] / 1000, "p99": values["p99"] / 1000, "bulk": values["bulk"],
            "samples": values["samples"],
        }
    messages_per_s = values["bandwidth"] * 1e6 / case.size
    nodes = values["cpu"] * messages_per_s / 1e6
    return {
        "bandwidth": values["bandwidth"], "cpu": values["cpu"],
        "busy": 100 * (nodes + values["foreign_cores"]) / cores,
    }


def kernel_settings(congestion: list[str]) -> dict[str, str]:
    """Those of a namespace that is just made. Raises BenchError if it cannot have these kinds of congestion control."""
    namespace = f"inet_rdma_{secrets.token_hex(3)}"
    network.run("ip", "netns", "add", namespace)
    try:
        found = {name: network.setting(namespace, name) for name in ("tcp_congestion_control", *BUFFERS)}
        for name in congestion:
            network.set_setting(namespace, "tcp_congestion_control", name)
    finally:
        network.remove_namespace(namespace)
    return found


def conditions(options: Any, fresh: dict[str, str]) -> str:
    buffers = ", ".join(f"{name} {' '.join(fresh[name].split())}" for name in BUFFERS)
    return (f"OTP {paths.otp_release()}; packets of up to {options.mtu} bytes, the wire keeps {options.buffer_ms:g} "
            f"ms of its rate; the kernel's own socket buffers: {buffers}")
