"""The command line: which cases, over which carriers, how often."""

from __future__ import annotations

import argparse
import json
import shlex
import signal
import sys
from pathlib import Path

from . import carriers, demo, paths, report
from .cases import WORKLOADS, Case, suite
from .errors import BenchError
from .measure import Timing

ROUNDS, SECONDS = 5, 3.0
QUICK_ROUNDS, QUICK_SECONDS = 2, 1.5


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


def run_cases(options: argparse.Namespace) -> int:
    cases = options.cases(options)
    paths.compile_workers()
    chosen, skipped = carriers.select(options.carriers, options.rdma_flags, dict(options.variant))
    if not chosen:
        raise BenchError("no carrier left to measure: " + "; ".join(skipped))
    rounds, seconds = (QUICK_ROUNDS, QUICK_SECONDS) if getattr(options, "quick", False) else (ROUNDS, SECONDS)
    timing = Timing(options.warmup, options.seconds or seconds, options.idle_seconds)
    return report.measure_and_report(
        options.title, cases, chosen, options.rounds or rounds, timing, options.erl_flags,
        info=options.info, out=options.out, json_file=options.json, chart=options.chart, notes=tuple(skipped),
    )


def show(options: argparse.Namespace) -> int:
    try:
        document = json.loads(options.file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BenchError(f"cannot read {options.file}: {error}") from error
    report.show(document, options.file.resolve().parent, options.chart)
    return 0


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
    own.set_defaults(cases=lambda o: [Case("throughput", size=s, senders=n) for s in o.size for n in o.senders])

    own = test("hol", "round-trip time of a small message while others push bulk over the same link")
    sizes(own, "16", "bytes of the ping")
    numbers(own, "--senders", "4", "bulk senders")
    own.add_argument("--bulk", type=size, default="4M", help="bytes of a bulk message")
    own.set_defaults(cases=lambda o: [
        Case("hol", procs=1, size=s, senders=n, bulk=o.bulk) for s in o.size for n in o.senders
    ])

    own = test("idle", "CPU use of a connected cluster that does nothing")
    numbers(own, "--nodes", "4", "nodes of the cluster")
    own.set_defaults(cases=lambda o: [Case("idle", nodes=n) for n in o.nodes])

    own = tests.add_parser("show", help="table and chart of an earlier run again, from its results.json")
    own.add_argument("file", type=Path)
    own.add_argument("--chart", action=argparse.BooleanOptionalAction, default=True, help="draw the chart beside it")
    own.set_defaults(run=show)

    own = tests.add_parser("demo", help="about a minute: a cluster comes up over inet_rdma, then rpc against TCP")
    own.add_argument("--out", type=Path, metavar="DIR", help="where the results go [bench/out/DATE-demo]")
    own.set_defaults(run=demo.run)
    return root


class Help(argparse.ArgumentDefaultsHelpFormatter):
    """Shows a default where there is one to show."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        shown = isinstance(action.default, (str, float)) and action.default
        return super()._get_help_string(action) if shown else action.help


def common(own: argparse.ArgumentParser) -> None:
    own.add_argument("--seconds", type=positive,
                     help=f"measured seconds of each run [{SECONDS:g}; quick: {QUICK_SECONDS:g}]")
    own.add_argument("--warmup", type=positive, default=1.0, help="seconds of traffic before that")
    own.add_argument("--idle-seconds", type=positive, default=10.0, help="measured seconds of the idle test")
    own.add_argument("--rounds", type=count,
                     help=f"times that every case is run over every carrier [{ROUNDS}; quick: {QUICK_ROUNDS}]")
    own.add_argument("--carriers", type=words, default="inet_tcp,inet_rdma,gen_tcp",
                     help="comma-separated, of inet_tcp, inet_rdma, gen_tcp (OTP's example, left out if not installed)")
    own.add_argument("--rdma-flags", type=shlex.split, default="", metavar="FLAGS",
                     help="more flags for inet_rdma nodes, as in --rdma-flags='-inet_rdma polling busy'")
    own.add_argument("--variant", type=variant, action="append", default=[], metavar="NAME=FLAGS",
                     help="one more carrier: inet_rdma with these flags; a -pa DIR among them selects another build")
    own.add_argument("--erl-flags", type=shlex.split, default="", metavar="FLAGS",
                     help="more flags for all nodes, as in --erl-flags='+sbwt none'")
    own.add_argument("--info", action="store_true",
                     help="after each run over inet_rdma print inet_rdma:info() of its first node to stderr")
    own.add_argument("--out", type=Path, metavar="DIR", help="where the results go [bench/out/DATE-TEST]")
    own.add_argument("--json", type=Path, metavar="FILE", help="another copy of the JSON")
    own.add_argument("--chart", action=argparse.BooleanOptionalAction, default=True, help="draw the chart")


def whole_suite(options: argparse.Namespace) -> list[Case]:
    cases = [
        case for case in suite(options.quick)
        if case.workload in (options.only or WORKLOADS) and case.nodes in (options.nodes or [case.nodes])
    ]
    if not cases:
        raise BenchError(f"nothing in the set matches; its tests are {', '.join(WORKLOADS)}")
    return cases


def words(text: str) -> list[str]:
    return text.split(",")


def whole_numbers(text: str) -> list[int]:
    return [count(part) for part in text.split(",")]


def numbers(own: argparse.ArgumentParser, flag: str, default: str, what: str) -> None:
    own.add_argument(flag, type=whole_numbers, default=default,
                     help=f"{what}; comma-separated")


def sizes(own: argparse.ArgumentParser, default: str, what: str) -> None:
    own.add_argument("--size", type=whole_sizes, default=default,
                     help=f"{what}; K and M are 1024 and 1024 * 1024; comma-separated")


def whole_sizes(text: str) -> list[int]:
    return [size(part) for part in text.split(",")]


def size(text: str) -> int:
    factor = {"K": 1 << 10, "M": 1 << 20}.get(text[-1:].upper(), 1)
    value = int(text[:-1] if factor > 1 else text) * factor
    if value < 0:
        raise argparse.ArgumentTypeError("a size cannot be negative")
    return value


def count(text: str) -> int:
    if int(text) < 1:
        raise argparse.ArgumentTypeError("must be 1 or more")
    return int(text)


def positive(text: str) -> float:
    if not float(text) > 0:
        raise argparse.ArgumentTypeError("must be more than 0")
    return float(text)


def variant(text: str) -> tuple[str, list[str]]:
    name, found, flags = text.partition("=")
    if not found or not name.isidentifier():
        raise argparse.ArgumentTypeError("expected NAME=FLAGS, as in busy='-inet_rdma polling busy'")
    return name, shlex.split(flags)
