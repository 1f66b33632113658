"""The demonstration: a cluster comes up over inet_rdma, rpc calls are counted against TCP, connections are cut.

About 70 s on two cores. The last lines say what came out of it.
"""

from __future__ import annotations

import argparse

from . import carriers, cuts, paths, report, verdict
from .carriers import Carrier
from .cases import Case
from .cluster import Cluster
from .control import Atom
from .cuts import Outcome
from .errors import MeasurementError
from .hosts import Node
from .measure import Timing

ROUNDS = 3
TIMING = Timing(warmup_s=0.5, seconds=2.5, idle_seconds=10.0)
PROCESSES = 100
CASES = [Case("rpc", nodes=2, procs=PROCESSES), Case("rpc", nodes=4, procs=PROCESSES)]
CUTS = 5


def run(options: argparse.Namespace) -> int:
    paths.tool("erl")
    tcp, rdma = carriers.inet_tcp(), carriers.inet_rdma([])
    paths.compile_workers()
    say(f"Two nodes, each an operating-system process, started by\n    erl {report.shown_flags(rdma)} -sname ...\n")
    with Cluster(rdma, 2, []) as cluster:
        introduce(cluster)
    say(f"\nNow rpc:call from {PROCESSES} processes on every node to the other nodes, over TCP and over inet_rdma in "
        "turn.")
    target = report.target_of("demo", options.out)
    results = report.measured(CASES, [tcp, rdma], ROUNDS, TIMING, [], target=target)
    why_not = cuts.why_not()
    outcomes = {} if why_not else cut([tcp, carriers.inet_rdma(list(carriers.TCP_ALONE), "inet_rdma over TCP")])
    under = f"{CUTS} times under rpc:call of {cuts.PROCESSES} processes"
    seen = verdict.left_out(why_not) if why_not else verdict.survival(under, outcomes)
    chart = report.shown_path(target / "chart.png")
    say("\n" + "\n".join(verdict.last_lines(results, PROCESSES, seen, chart, " ".join(rdma.flags))))
    return 1 if results.failures or any(isinstance(outcome, str) for outcome in outcomes.values()) else 0


def introduce(cluster: Cluster) -> None:
    first, second = cluster.nodes
    pong = call(cluster, first, "net_adm", "ping", Atom(second.name))
    say(f"{first.name}, process {first.pid}\n{second.name}, process {second.pid}\n")
    say(f"1> net_adm:ping('{second.name}').\n{pong}")
    if pong != "pong":
        raise MeasurementError(f"{second.name} does not answer {first.name}")
    say(f"2> nodes().\n{call(cluster, first, 'erlang', 'nodes')}")
    say(f"3> rpc:call('{second.name}', os, getpid, []).\n"
        f"{call(cluster, first, 'rpc', 'call', Atom(second.name), Atom('os'), Atom('getpid'), [])}")
    say(f"4> inet_rdma:i().\n{cluster.ask(first, Atom('table'))['table'].rstrip()}")


def cut(compared: list[Carrier]) -> dict[str, Outcome | str]:
    """What each carrier's nodes saw of the cuts, or why that is not known."""
    outcomes: dict[str, Outcome | str] = {}
    for carrier in compared:
        say(f"\nTwo nodes, {carrier.name}: erl {report.shown_flags(carrier)} -sname ...\n{cuts.PROCESSES} processes of "
            f"the first one call the second one, while the TCP connection between them is cut {CUTS} times.")
        try:
            outcomes[carrier.name] = cuts.survive(carrier, CUTS, say)
        except MeasurementError as error:
            say(f"FAILED: {error}")
            outcomes[carrier.name] = f"failed: {str(error).splitlines()[0]}"
    return outcomes


def call(cluster: Cluster, node: Node, module: str, function: str, *arguments: object) -> str:
    """What the call returns on that node, as the Erlang shell would print it."""
    return str(cluster.ask(node, (Atom("call"), Atom(module), Atom(function), list(arguments)))["value"])


def say(text: str) -> None:
    """At once, also when stdout is a pipe: people watch the demo while it runs."""
    print(text, flush=True)
