"""The demonstration: a cluster comes up over inet_rdma, then rpc calls are counted against TCP. About a minute."""

from __future__ import annotations

import argparse

from . import carriers, paths, report
from .cases import Case
from .cluster import Cluster
from .control import Atom
from .errors import MeasurementError
from .hosts import Node
from .measure import Timing, info_text

ROUNDS = 3
TIMING = Timing(warmup_s=0.5, seconds=2.5, idle_seconds=10.0)


def run(options: argparse.Namespace) -> int:
    paths.tool("erl")
    rdma = carriers.inet_rdma([])
    paths.compile_workers()
    say(f"Two nodes, each an operating-system process, started by\n    erl {report.shown_flags(rdma)} -sname ...\n")
    with Cluster(rdma, 2, []) as cluster:
        introduce(cluster)
    say("\nNow rpc:call from 100 processes on every node to the other nodes, over TCP and over inet_rdma in turn.")
    return report.measure_and_report(
        "demo", [Case("rpc", nodes=2, procs=100), Case("rpc", nodes=4, procs=100)], [carriers.inet_tcp(), rdma],
        ROUNDS, TIMING, [], out=options.out,
    )


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
    say(f"4> inet_rdma:info().\n{info_text(cluster, first)}")


def call(cluster: Cluster, node: Node, module: str, function: str, *arguments: object) -> str:
    """What the call returns on that node, as the Erlang shell would print it."""
    return str(cluster.ask(node, (Atom("call"), Atom(module), Atom(function), list(arguments)))["value"])


def say(text: str) -> None:
    """At once, also when stdout is a pipe: people watch the demo while it runs."""
    print(text, flush=True)
