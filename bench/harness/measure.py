"""One measurement: a fresh cluster, one workload, two samples, a clean end."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Any

from . import share
from .carriers import Carrier
from .cases import Case
from .cluster import Cluster
from .control import Atom
from .errors import MeasurementError
from .hosts import Node
from .place import Place

# The nodes give their workers 60 s to end; the answer may come that late.
STOP_TIMEOUT_S = 90.0

Values = dict[str, float]


@dataclass(frozen=True)
class Timing:
    warmup_s: float
    seconds: float
    # The time of the idle case, whose CPU use is too small to be measured in less.
    idle_seconds: float


@dataclass(frozen=True)
class Sample:
    """Counts and clocks of all nodes at one moment.

    Times are each node's own, taken with its counts; CPU times, with the clock of the same host beside them, come from
    its host, taken when the answer arrived there. So no clock is compared with that of another host.
    """

    answers: dict[Node, dict[str, Any]]

    @classmethod
    def take(cls, cluster: Cluster, order: str) -> Sample:
        sample = cls(cluster.ask_all({node: Atom(order) for node in cluster.nodes}))
        for node, answer in sample.answers.items():
            if answer["failed"]:
                raise MeasurementError(f"{node.name}: {'; '.join(answer['failed'])}")
        return sample

    def rate_since(self, earlier: Sample, counter: str) -> float:
        """Events per second of all nodes together."""
        return math.fsum(
            (now[counter] - earlier.answers[node][counter]) / (now["time_ns"] - earlier.answers[node]["time_ns"]) * 1e9
            for node, now in self.answers.items()
        )

    def cores_since(self, earlier: Sample) -> float:
        """Cores that all nodes together kept busy."""
        return math.fsum(self._busy(node, earlier, "cpu_s") for node in self.answers)

    def foreign_cores_since(self, earlier: Sample) -> float:
        """Cores of all machines that were busy with anything but the nodes: what disturbed the measurement."""
        nodes: dict[object, list[Node]] = {}
        for node in self.answers:
            nodes.setdefault(node.host.machine, []).append(node)
        return math.fsum(
            max(0.0, self._busy(own[-1], earlier, "machine_cpu_s")
                - math.fsum(self._busy(node, earlier, "cpu_s") for node in own))
            for own in nodes.values()
        )

    def _busy(self, node: Node, earlier: Sample, clock: str) -> float:
        now, then = self.answers[node]["clocks"], earlier.answers[node]["clocks"]
        return float((now[clock] - then[clock]) / (now["taken_s"] - then["taken_s"]))


def measure(
    case: Case, carrier: Carrier, timing: Timing, erl_flags: list[str], info: bool = False,
    places: list[Place] | None = None,
) -> tuple[Values, dict[str, Any]]:
    """The metrics of `case` over `carrier`, and the facts that the first node reports of itself.

    With `info` its inet_rdma:info() is among the facts, taken right after the measured time.

    Raises MeasurementError when a node or a worker fails, or nothing was completed.
    """
    with Cluster(carrier, case.nodes, [*erl_flags, *case.erl_flags], places) as cluster:
        cluster.ask_all({node: start_order(case, cluster, index) for index, node in enumerate(cluster.nodes)})
        time.sleep(timing.warmup_s)
        first = Sample.take(cluster, "measure")
        shares: Values = {}
        if case.workload == "share":
            shares = share.record([node.pid for node in cluster.nodes], timing.seconds)
        else:
            time.sleep(timing.idle_seconds if case.workload == "idle" else timing.seconds)
        last = Sample.take(cluster, "sample")
        facts = dict(cluster.nodes[0].facts)
        if info:
            facts["info"] = info_text(cluster, cluster.nodes[0])
        ends = cluster.ask_all({node: Atom("stop") for node in cluster.nodes}, STOP_TIMEOUT_S)
        for node, end in ends.items():
            if end["failed"]:
                raise MeasurementError(f"{node.name}: {'; '.join(end['failed'])}")
        measured = values(case, first, last, ends[cluster.nodes[0]]) | shares
        measured["foreign_cores"] = last.foreign_cores_since(first)
        return measured, facts


def info_text(cluster: Cluster, node: Node) -> str:
    """inet_rdma:info() of that node: a line per key of each connection; node, fabric and state first."""
    lines = []
    for connection in cluster.ask(node, Atom("info"))["connections"]:
        lead = [key for key in ("node", "fabric", "state") if key in connection]
        width = max(map(len, connection))
        lines += [f"    {key:<{width}}  {connection[key]}" for key in [*lead, *sorted(set(connection) - set(lead))]]
        lines.append("")
    return "\n".join(lines)


def start_order(case: Case, cluster: Cluster, index: int) -> tuple[Atom, Atom, dict[str, Any]]:
    """What node `index` starts. One-way cases have their senders on the first node, their sinks on the second;
    both-ways cases have senders and sinks on both."""
    node = cluster.nodes[index]
    arguments: dict[str, Any] = {
        "nodes": cluster.names(but=node), "procs": case.procs, "size": case.size, "busy": case.busy,
    }
    if case.workload == "pingpong":
        arguments["procs"] = case.procs // case.nodes + (index < case.procs % case.nodes)
    elif case.workload in ("latency", "rate", "throughput", "hol"):
        first = index == 0
        arguments |= {
            "nodes": [Atom(cluster.nodes[1 - index].name)],
            "procs": case.procs if first else 0,
            "senders": case.senders if first or case.both_ways else 0,
            "bulk": case.bulk,
        }
    workload = {"rate": "oneway", "throughput": "oneway", "share": "rpc"}.get(case.workload, case.workload)
    return Atom("start"), Atom(workload), arguments


def values(case: Case, first: Sample, last: Sample, end: dict[str, Any]) -> Values:
    if case.workload == "idle":
        return {"cpu_share": 100 * last.cores_since(first)}
    result: Values = {}
    delivered = last.rate_since(first, "delivered")
    completed = delivered if case.workload in ("rate", "throughput") else last.rate_since(first, "ops")
    if completed <= 0:
        raise MeasurementError("nothing was completed in the measured time: the traffic stands still")
    if case.workload in ("latency", "hol"):
        if not end.get("samples"):
            raise MeasurementError("no round trip fell into the measured time")
        result |= {name: end[key] / 1000 for name, key in PERCENTILES.items()} | {"samples": end["samples"]}
    if case.workload == "hol":
        return result | {"bulk": delivered * case.bulk / 1e6}
    if case.busy:
        result["others"] = last.rate_since(first, "calls") / 1e6
    else:
        result["cpu"] = last.cores_since(first) / completed * 1e6
    if case.workload == "throughput":
        result["bandwidth"] = completed * case.size / 1e6
    else:
        result["rate"] = completed
    return result


PERCENTILES = {"min": "min_ns", "p50": "p50_ns", "p90": "p90_ns", "p99": "p99_ns", "p99.9": "p999_ns", "max": "max_ns"}
