"""What is measured: a case is one workload with its numbers; a metric is one figure that it yields."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Metric:
    name: str
    unit: str
    higher_is_better: bool = True
    # Shown in the table and the chart; the others are in the JSON only.
    shown: bool = True


FOREIGN = Metric("foreign_cores", "cores", higher_is_better=False, shown=False)
CPU = Metric("cpu", "us/op", higher_is_better=False)
# On busy nodes, in place of the CPU per operation: spinning processes take all that the traffic leaves.
OTHERS = Metric("others", "M calls/s")
LATENCY = [
    Metric("min", "us", higher_is_better=False, shown=False),
    Metric("p50", "us", higher_is_better=False),
    Metric("p90", "us", higher_is_better=False, shown=False),
    Metric("p99", "us", higher_is_better=False),
    Metric("p99.9", "us", higher_is_better=False, shown=False),
    Metric("max", "us", higher_is_better=False, shown=False),
    Metric("samples", "round trips", shown=False),
]

METRICS: dict[str, list[Metric]] = {
    "rpc": [Metric("rate", "calls/s"), CPU],
    "pingpong": [Metric("rate", "round trips/s"), CPU],
    "latency": [*LATENCY, Metric("rate", "round trips/s", shown=False), CPU],
    "rate": [Metric("rate", "messages/s"), CPU],
    "throughput": [Metric("bandwidth", "MB/s"), CPU],
    "hol": [*LATENCY, Metric("bulk", "MB/s", shown=False)],
    "idle": [Metric("cpu_share", "% of a core", higher_is_better=False)],
    "share": [
        Metric("vm", "% of CPU"),
        *(Metric(name, "% of CPU", higher_is_better=False) for name in ("kernel", "libc", "library", "other")),
        Metric("rate", "calls/s"),
        CPU,
    ],
}

# `share` is not one of the published set: perf has to be allowed.
TESTS = [*(test for test in METRICS if test != "share"), "busy"]

# Cores that others than the nodes kept busy meanwhile; measured with every workload, in the JSON only.
for metrics in METRICS.values():
    metrics.append(FOREIGN)


@dataclass(frozen=True)
class Case:
    workload: str
    nodes: int = 2
    procs: int = 0
    size: int = 0
    senders: int = 0
    # Size of the messages that get in the way (hol only).
    bulk: int = 0
    # As many senders on the other node, too (throughput only).
    both_ways: bool = False
    # Processes per node that spin at normal priority, beside measured ones of priority high (the test `busy`).
    busy: int = 0
    erl_flags: tuple[str, ...] = field(default=())

    @property
    def test(self) -> str:
        """The test of the command line that the case belongs to."""
        return "busy" if self.busy else self.workload

    @property
    def metrics(self) -> list[Metric]:
        own = METRICS[self.workload]
        return [OTHERS if metric is CPU else metric for metric in own] if self.busy else own

    @property
    def title(self) -> str:
        busy = f", {self.busy} spinning" if self.busy else ""
        flags = f", {' '.join(self.erl_flags)}" if self.erl_flags else ""
        return {
            "rpc": f"rpc, {self.nodes} nodes, {plural(self.procs, 'process')}{self._size()}",
            "pingpong": f"ping-pong, {self.nodes} nodes, {plural(self.procs, 'pair')}{self._size()}",
            "latency": f"round trip, {bytes_text(self.size)}",
            "rate": f"one-way {bytes_text(self.size)}, {plural(self.senders, 'sender')}",
            "throughput": f"{'both ways' if self.both_ways else 'one-way'} {bytes_text(self.size)}, "
                          f"{plural(self.senders, 'sender')}{' each' if self.both_ways else ''}",
            "hol": f"{bytes_text(self.size)} ping beside {self.senders} x {bytes_text(self.bulk)}",
            "idle": f"idle, {self.nodes} nodes",
            "share": f"whose CPU time, rpc, {self.nodes} nodes, {plural(self.procs, 'process')}{self._size()}",
        }[self.workload] + busy + flags

    def _size(self) -> str:
        return f", {bytes_text(self.size)}" if self.size else ""


def plural(number: int, noun: str) -> str:
    ending = "" if number == 1 else "es" if noun.endswith("s") else "s"
    return f"{number} {noun}{ending}"


def bytes_text(size: int) -> str:
    """1024 -> 1 KB; as elsewhere in BEAM benchmarks a KB of message size is 1024 bytes."""
    for unit, factor in (("MB", 1 << 20), ("KB", 1 << 10)):
        if size >= factor and size % factor == 0:
            return f"{size // factor} {unit}"
    return f"{size} B"


def busy_cases(
    busy: int = 50, *, procs: int = 100, size: int = 1 << 10, senders: int = 4, erl_flags: tuple[str, ...] = (),
) -> list[Case]:
    """Round trip, one-way messages of `size` from `senders`, and rpc from `procs`, on two nodes that are busy."""
    return [
        Case("latency", procs=1, size=16, busy=busy, erl_flags=erl_flags),
        Case("rate", size=size, senders=senders, busy=busy, erl_flags=erl_flags),
        Case("rpc", nodes=2, procs=procs, busy=busy, erl_flags=erl_flags),
    ]


# The published set; what is marked is also in the quick one: one case of each kind.
SUITE = [
    (True, Case("rpc", nodes=2, procs=100)),
    (True, Case("rpc", nodes=4, procs=100)),
    (False, Case("rpc", nodes=2, procs=1)),
    (False, Case("rpc", nodes=2, procs=10)),
    (False, Case("rpc", nodes=2, procs=1000)),
    (False, Case("pingpong", nodes=2, procs=10, size=16)),
    (True, Case("pingpong", nodes=2, procs=100, size=16)),
    (False, Case("pingpong", nodes=4, procs=100, size=16)),
    (True, Case("rate", size=64, senders=4)),
    (True, Case("rate", size=1 << 10, senders=4)),
    (True, Case("throughput", size=64 << 10, senders=1)),
    (True, Case("throughput", size=1 << 20, senders=1)),
    (False, Case("throughput", size=16 << 20, senders=1)),
    (False, Case("throughput", size=64 << 10, senders=1, both_ways=True)),
    (True, Case("throughput", size=1 << 20, senders=1, both_ways=True)),
    (True, Case("latency", procs=1, size=16)),
    (False, Case("latency", procs=1, size=16, erl_flags=("+sbwt", "none"))),
    (True, Case("hol", procs=1, size=16, senders=4, bulk=4 << 20)),
    *((True, case) for case in busy_cases()),
    *((False, case) for case in busy_cases(erl_flags=("+S", "1"))),
    (True, Case("idle", nodes=4)),
]


def suite(quick: bool) -> list[Case]:
    return [case for in_quick, case in SUITE if in_quick or not quick]
