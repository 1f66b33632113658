"""The command line: which tests there are, and the flags of each."""

from __future__ import annotations

import argparse
import shlex
import signal
import sys
from pathlib import Path
from typing import Any

from . import (
    containers, demo, distance, fabric, faults, headline, mesh, network as slow, otp, rails, scale,
    start, stream,
)
from .arguments import (
    buffers, choices, count, mtu, not_negative, numbers, percents, positive, positives, size, sizes, whole_numbers,
    words,
)
from .cases import Case
from .errors import BenchError
from .flags import Help, builds, common, meshes, native, nodes, results
from .runs import busy_matrix, of_two_nodes, run_between, run_cases, show, whole_suite


def main(arguments: list[str]) -> int:
    if not arguments or (arguments[0].startswith("-") and arguments[0] not in ("-h", "--help")):
        arguments = ["all", *arguments]
    options = parser().parse_args(arguments)
    # So that a plain kill also ends the nodes.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        return int(options.run(options))
    except BenchError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("bench: interrupted", file=sys.stderr)
        return 130


def parser() -> argparse.ArgumentParser:
    root = argparse.ArgumentParser(
        prog="bench/run.py", description="Compares distribution carriers of the BEAM on real nodes of this machine.",
        epilog="Without a test: all, with the options given. Every test has its own --help.",
    )
    tests = root.add_subparsers(metavar="TEST", required=True)

    def test(name: str, title: str) -> argparse.ArgumentParser:
        own = tests.add_parser(name, help=title, description=title, formatter_class=Help)
        own.set_defaults(run=run_cases, title=name)
        common(own)
        return own

    every = test("all", "the whole published set")
    every.add_argument("--quick", action="store_true", help="one case of each kind, fewer and shorter rounds")
    every.add_argument("--only", type=words, metavar="TEST,...", help="only these tests of the set")
    every.add_argument("--nodes", type=whole_numbers, metavar="N,...", help="only tests with this many nodes")
    every.set_defaults(cases=whole_suite)

    own = test("rpc", "processes of every node in tight loops of rpc:call to the other nodes")
    numbers(own, "--nodes", "2,4", "nodes of the cluster")
    numbers(own, "--procs", "100", "calling processes per node")
    sizes(own, "0", "bytes sent with the call and back; 0: rpc:call(Node, erlang, node, [])")
    own.set_defaults(cases=lambda o: [
        Case("rpc", nodes=n, procs=p, size=s) for s in o.size for p in o.procs for n in o.nodes
    ])

    own = test("pingpong", "pairs of processes on different nodes that send one message to and fro")
    numbers(own, "--nodes", "2,4", "nodes of the cluster; the pairs are spread over all links")
    numbers(own, "--procs", "100", "pairs in all")
    sizes(own, "16", "bytes of the binary in each message")
    own.set_defaults(cases=lambda o: [
        Case("pingpong", nodes=n, procs=p, size=s) for s in o.size for p in o.procs for n in o.nodes
    ])

    own = test("latency", "round-trip time of one pair")
    sizes(own, "16", "bytes of the binary in each message")
    own.set_defaults(cases=lambda o: [Case("latency", procs=1, size=s) for s in o.size])

    own = test("rate", "small one-way messages")
    sizes(own, "64,1K", "bytes of each message")
    numbers(own, "--senders", "4", "sending processes, each with its own receiver")
    own.set_defaults(cases=lambda o: [Case("rate", size=s, senders=n) for s in o.size for n in o.senders])

    own = test("throughput", "one-way binaries")
    sizes(own, "64K,1M,16M", "bytes of each message")
    numbers(own, "--senders", "1", "sending processes, each with its own receiver")
    own.add_argument("--both-ways", action="store_true",
                     help="as many senders on the other node, too; MB/s are those of both directions together")
    own.set_defaults(cases=lambda o: [
        Case("throughput", size=s, senders=n, both_ways=o.both_ways) for s in o.size for n in o.senders
    ])

    own = test("hol", "round-trip time of a small message while others push bulk over the same link")
    sizes(own, "16", "bytes of the ping")
    numbers(own, "--senders", "4", "bulk senders")
    own.add_argument("--bulk", type=size, default="4M", help="bytes of a bulk message")
    own.set_defaults(cases=lambda o: [
        Case("hol", procs=1, size=s, senders=n, bulk=o.bulk) for s in o.size for n in o.senders
    ])

    own = test("busy", "round trip, one-way messages and rpc, at priority high on two nodes full of spinning processes")
    numbers(own, "--busy", "50", "processes per node that spin at normal priority")
    numbers(own, "--procs", "100", "rpc: calling processes per node")
    sizes(own, "1K", "one-way: bytes of each message")
    numbers(own, "--senders", "4", "one-way: sending processes, each with its own receiver")
    own.set_defaults(cases=busy_matrix)

    own = test("idle", "CPU use of a connected cluster that does nothing")
    numbers(own, "--nodes", "4", "nodes of the cluster")
    own.set_defaults(cases=lambda o: [Case("idle", nodes=n) for n in o.nodes])

    own = test("share", "whose CPU time an rpc takes: the VM's, the kernel's, libc's, the library's (needs perf)")
    numbers(own, "--nodes", "2", "nodes of the cluster")
    numbers(own, "--procs", "100", "calling processes per node")
    sizes(own, "0", "bytes sent with the call and back; 0: rpc:call(Node, erlang, node, [])")
    own.set_defaults(cases=lambda o: [
        Case("share", nodes=n, procs=p, size=s) for s in o.size for p in o.procs for n in o.nodes
    ], chart=False)

    add_network(tests)
    add_distance(tests)
    add_containers(tests)
    add_rails(tests)
    add_start(tests)
    add_mesh(tests)
    add_scale(tests)
    add_stream(tests)
    add_fabric(tests)
    add_faults(tests)
    add_otp(tests)

    own = tests.add_parser("show", help="table and chart of an earlier run again, from its results.json")
    own.add_argument("file", type=Path)
    own.add_argument("--chart", action=argparse.BooleanOptionalAction, default=True, help="draw the chart beside it")
    own.set_defaults(run=show)

    own = tests.add_parser("headline", help="the chart of the README, from the published table of the whole set")
    own.add_argument("table", type=Path, metavar="TABLE", help="bench/results/set/table.txt")
    own.add_argument("--out", type=Path, metavar="PNG", help="where the chart goes [chart.png beside the table]")
    own.set_defaults(run=headline.run)

    own = tests.add_parser("demo", help="about 70 s: a cluster comes up over inet_rdma, rpc against TCP, "
                                        "connections cut under load")
    own.add_argument("--out", type=Path, metavar="DIR", help="where the results go [bench/out/DATE-demo]")
    own.set_defaults(run=demo.run)
    return root


def add_network(tests: Any) -> None:
    title = "the tests of two nodes over TCP, between two network namespaces of this host with delay, rate and loss"
    own = tests.add_parser("network", help=title, description=title, formatter_class=Help)
    own.set_defaults(run=lambda o: run_between(joined(o), o), title="network", cases=of_two_nodes)
    own.add_argument("--cable", action="store_true",
                     help="a virtual cable (veth), as between containers of one host: no delay, rate and loss")
    own.add_argument("--delay-ms", type=not_negative, default=1.0,
                     help="delay of each packet, in both directions; a round trip takes twice that")
    own.add_argument("--rate-mbit", type=positive, default=1000.0, help="of each direction")
    own.add_argument("--loss", type=not_negative, default=0.0, metavar="PERCENT", help="of the packets, at random")
    wire(own, slow.MTU)
    part_of_the_set(own)
    common(own, "inet_tcp,tcp_path")


def joined(options: argparse.Namespace) -> slow.Pair:
    if options.cable:
        return slow.Cable()
    return slow.Network(options.delay_ms, options.rate_mbit, options.loss, options.mtu, options.buffer_ms)


def wire(own: argparse.ArgumentParser, mtu_bytes: int) -> None:
    own.add_argument("--mtu", type=mtu, default=str(mtu_bytes), metavar="BYTES",
                     help=f"of the largest packet, at most {slow.JUMBO_MTU}")
    own.add_argument("--buffer-ms", type=not_negative, default=slow.BUFFER_MS,
                     help="what a busy direction keeps, in milliseconds of its rate, and loses the rest of")


def add_distance(tests: Any) -> None:
    title = "links over TCP between two distant hosts, of namespaces: throughput, and a ping beside it, by round trip"
    own = tests.add_parser("distance", help=title, description=title, formatter_class=Help)
    own.set_defaults(run=distance.run)
    own.add_argument("--rtt-ms", type=positives, metavar="MS,...",
                     help="round trips of the network [20,100,200; quick: 100]")
    own.add_argument("--rate-mbit", type=positive, default=1000.0, help="of each direction")
    own.add_argument("--loss", type=percents, default="0", metavar="PERCENT,...", help="of the packets, at random")
    own.add_argument("--congestion", type=words, metavar="NAME,...",
                     help="the kernel's congestion control, of those in net.ipv4.tcp_available_congestion_control "
                          "[the kernel's own]")
    own.add_argument("--buffers", type=buffers, default=f"default,{distance.LARGE_BUFFERS}", metavar="BYTES,...",
                     help="maxima of tcp_rmem and tcp_wmem; `default`: those of a fresh namespace")
    wire(own, slow.JUMBO_MTU)
    own.add_argument("--only", type=choices(list(distance.CASES)), default=",".join(distance.CASES),
                     metavar="WORK,...", help="only this work")
    own.add_argument("--quick", action="store_true", help="one distance, once")
    own.add_argument("--seconds", type=positive,
                     help=f"measured seconds of each run [{distance.SECONDS:g}, quick: {distance.QUICK_SECONDS:g}, "
                          f"{distance.ROUND_TRIPS} round trips at least]")
    own.add_argument("--warmup", type=positive,
                     help=f"seconds of traffic before that [{distance.WARMUP_S:g}, {distance.ROUND_TRIPS} round trips "
                          "at least]")
    own.add_argument("--rounds", type=count,
                     help=f"times that everything is measured [{distance.ROUNDS}; quick: {distance.QUICK_ROUNDS}]")
    own.add_argument("--carriers", type=words, default="inet_tcp,tcp_path",
                     help="comma-separated; also inet_tls, tls_path, and gen_rpc: bulk over its own TCP connections, "
                          "the rest over inet_tcp (fetched by git, left out where that fails)")
    builds(own)
    nodes(own)
    results(own, distance.NAME)


def add_containers(tests: Any) -> None:
    title = "the tests of two nodes within one container, and between two that share a directory"
    own = tests.add_parser("containers", help=title, description=title, formatter_class=Help)
    own.set_defaults(run=lambda o: run_between(containers.Containers(), o), title="containers", cases=of_two_nodes)
    part_of_the_set(own)
    common(own, "inet_rdma")


def add_rails(tests: Any) -> None:
    title = "bulk between two network namespaces over several networks or flows at once, by MPTCP"
    own = tests.add_parser("rails", help=title, description=title, formatter_class=Help)
    own.set_defaults(run=lambda o: run_between(rails.Rails(o.ways, o.count, o.rate_mbit), o),
                     title="rails", cases=rails.cases)
    own.add_argument("--ways", choices=rails.WAYS, default=rails.NETWORKS,
                     help="what has the rate: each network, or each flow of one network")
    own.add_argument("--count", type=int, choices=range(2, rails.COUNT_MAX + 1), default="2", metavar="N",
                     help=f"of them, 2 to {rails.COUNT_MAX}")
    own.add_argument("--rate-mbit", type=positive, default=200.0, help="of each, in either direction")
    sizes(own, "1M", "bytes of each message")
    numbers(own, "--senders", "4", "sending processes, each with its own receiver")
    own.add_argument("--quick", action="store_true", help="fewer and shorter rounds")
    common(own, "inet_tcp,tcp_path")


def part_of_the_set(own: argparse.ArgumentParser) -> None:
    own.add_argument("--quick", action="store_true", help="one case of each kind, fewer and shorter rounds")
    own.add_argument("--only", type=words, metavar="TEST,...", help="only these tests of the set")
    own.set_defaults(nodes=[2])


def add_start(tests: Any) -> None:
    title = "the first minutes of a node: start and end, first link, a short-lived tool, idle nodes; CPU, time, memory"
    own = tests.add_parser("start", help=title, description=title, formatter_class=Help)
    own.set_defaults(run=start.run)
    own.add_argument("--only", type=choices(list(start.FIGURES)), metavar="PART,...",
                     help=f"only these parts, of {', '.join(start.FIGURES)}")
    own.add_argument("--quick", action="store_true", help="without idle nodes, and nodes that run for a shorter time")
    own.add_argument("--rounds", type=count,
                     help=f"times that everything is measured [{start.ROUNDS}; quick: {start.QUICK_ROUNDS}]")
    own.add_argument("--nodes", type=count, default=str(start.IDLE_NODES), help="idle nodes")
    own.add_argument("--idle-seconds", type=positive, default=start.IDLE_S, help="measured seconds of idle nodes")
    own.add_argument("--idle-rounds", type=count, default=str(start.IDLE_ROUNDS), help="rounds that have idle nodes")
    own.add_argument("--carriers", type=words, default="inet_tcp,inet_rdma", help="comma-separated")
    builds(own)
    results(own, start.NAME)


def add_mesh(tests: Any) -> None:
    title = "meshes of nodes on this machine: time until all see each other, memory, descriptors, idle CPU"
    own = tests.add_parser("mesh", help=title, description=title, formatter_class=Help)
    own.set_defaults(run=mesh.run)
    meshes(own, "mesh", mesh.ROUNDS)


def add_scale(tests: Any) -> None:
    title = "growth: connections of the native side, idle and lightly busy, then meshes of nodes on this machine"
    own = tests.add_parser("scale", help=title, description=title, formatter_class=Help)
    own.set_defaults(run=scale.run)
    own.add_argument("--connections", type=whole_numbers, metavar="N,...",
                     help="connections of the native side [10,100,1000; quick: 10,100]")
    own.add_argument("--verbs", metavar="ADDRESS",
                     help="the connections also over verbs, by an RDMA device of this host that has this address")
    meshes(own, "scale", scale.ROUNDS)


def add_stream(tests: Any) -> None:
    title = "the stream without the BEAM: dynamic, direct only, indirect only, between two processes"
    own = tests.add_parser("stream", help=title, description=title, formatter_class=Help)
    own.set_defaults(run=stream.run)
    own.add_argument("--only", type=choices(stream.SERIES), metavar="SERIES,...",
                     help=f"only these series, of {', '.join(stream.SERIES)}")
    own.add_argument("--polling", choices=fabric.POLLING, default="reader", help="how both sides wait")
    own.add_argument("--direct-bytes", type=size, default="16K", help="dynamic sends smaller messages through the ring")
    own.add_argument("--stride", type=size, default=64,
                     help="the receiver looks at one word of this many bytes of each message, and at the last")
    own.add_argument("--netem", metavar="DEVICE",
                     help="the delay of `distance` is made by tc-netem on this device, which leads to --address; "
                          "as root")
    native(own, stream.ROUNDS, stream.SECONDS, stream.WARMUP)


def add_fabric(tests: Any) -> None:
    title = "latency and bandwidth by message size, for each way to wait, beside TCP and UCX"
    own = tests.add_parser("fabric", help=title, description=title, formatter_class=Help)
    own.set_defaults(run=fabric.run)
    own.add_argument("--polling", type=choices(fabric.POLLING), default=",".join(fabric.POLLING), metavar="WAY,...",
                     help="ways to wait")
    own.add_argument("--read", action=argparse.BooleanOptionalAction, default=True,
                     help="the first way to wait once more, with a receiver that reads all bytes")
    own.add_argument("--landing-bytes", type=size, metavar="BYTES",
                     help="size of a landing buffer [the option's default]")
    own.add_argument("--peers", action=argparse.BooleanOptionalAction, default=True,
                     help="TCP and UCX in the same rounds, where they are installed")
    native(own, fabric.ROUNDS, fabric.SECONDS, fabric.WARMUP)


def add_faults(tests: Any) -> None:
    title = "faults of the network between two hosts, of namespaces, that no kernel reports: stall, nodedowns, losses"
    own = tests.add_parser("faults", help=title, description=title, formatter_class=Help)
    own.set_defaults(run=faults.run)
    own.add_argument("--rows", type=words, metavar="ROW,...",
                     help=f"only these faults, of {', '.join(row.name for row in faults.ROWS)}")
    own.add_argument("--tls", action="store_true", help="inet_tls, and inet_rdma with `security tls`")
    own.add_argument("--ipv6", action="store_true", help="over IPv6")
    own.add_argument("--otp", type=Path, metavar="DIR", help="the root of another OTP for the nodes")
    own.add_argument("--ticktime", type=count, default=faults.TICKTIME_S, help="net_ticktime of the nodes, in seconds")
    own.add_argument("--quick", action="store_true", help="once")
    own.add_argument("--rounds", type=count, help=f"times that every fault is made [{faults.ROUNDS}; quick: 1]")
    own.add_argument("--jobs", type=count, default=1, help="measurements at a time: most of them wait")
    own.add_argument("--carriers", type=words, default=",".join(faults.CARRIERS), help="comma-separated")
    own.add_argument("--rdma-flags", type=shlex.split, default="", metavar="FLAGS",
                     help="more flags for inet_rdma nodes")
    own.add_argument("--out", type=Path, metavar="DIR", help="where the results go [bench/out/DATE-faults]")


def add_otp(tests: Any) -> None:
    title = "OTP's own benchmark of the distribution (ssl_dist_bench_SUITE) over TCP, TLS and inet_rdma"
    own = tests.add_parser("otp", help=title, description=title, formatter_class=Help)
    own.set_defaults(run=otp.run)
    own.add_argument("--sources", type=Path, metavar="DIR",
                     help="lib/ssl/test of OTP's sources [from the source package of Debian's erlang-base]")
    own.add_argument("--quick", action="store_true", help="two sizes, once")
    own.add_argument("--rounds", type=count, help=f"times that every case is run [{otp.ROUNDS}; quick: 1]")
    own.add_argument("--out", type=Path, metavar="DIR", help="where the results go [bench/out/DATE-otp]")
