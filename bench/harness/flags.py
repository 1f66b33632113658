"""Flags that several tests of the command line have, and how their help shows defaults."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path

from . import mesh
from .arguments import count, positive, size, variant, whole_numbers, whole_sizes, words

ROUNDS, SECONDS = 5, 3.0
QUICK_ROUNDS, QUICK_SECONDS = 2, 1.5


class Help(argparse.ArgumentDefaultsHelpFormatter):
    """Shows a default where there is one to show."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        shown = isinstance(action.default, (str, float)) and action.default
        return super()._get_help_string(action) if shown else action.help


def common(own: argparse.ArgumentParser, carriers_known: str = "inet_tcp,tcp_path,inet_rdma,gen_tcp") -> None:
    own.add_argument("--seconds", type=positive,
                     help=f"measured seconds of each run [{SECONDS:g}; quick: {QUICK_SECONDS:g}]")
    own.add_argument("--warmup", type=positive, default=1.0, help="seconds of traffic before that")
    own.add_argument("--idle-seconds", type=positive, default=10.0, help="measured seconds of the idle test")
    own.add_argument("--rounds", type=count,
                     help=f"times that every case is run over every carrier [{ROUNDS}; quick: {QUICK_ROUNDS}]")
    own.add_argument("--carriers", type=words, default=carriers_known,
                     help="comma-separated; tcp_path: inet_rdma over TCP alone; tls_path: the same, sealed; also "
                          "inet_tls, inet_ktls, inet_rdma_tls and OTP's example gen_tcp: left out where they cannot "
                          "run")
    builds(own)
    nodes(own)
    own.add_argument("--out", type=Path, metavar="DIR", help="where the results go [bench/out/DATE-TEST]")
    own.add_argument("--json", type=Path, metavar="FILE", help="another copy of the JSON")
    own.add_argument("--chart", action=argparse.BooleanOptionalAction, default=True, help="draw the chart")


def builds(own: argparse.ArgumentParser) -> None:
    """Which inet_rdma is measured."""
    own.add_argument("--rdma-flags", type=shlex.split, default="", metavar="FLAGS",
                     help="more flags for inet_rdma nodes, as in --rdma-flags='-inet_rdma polling busy'")
    own.add_argument("--variant", type=variant, action="append", default=[], metavar="NAME=FLAGS",
                     help="one more carrier: inet_rdma with these flags; a -pa DIR among them selects another build")


def nodes(own: argparse.ArgumentParser) -> None:
    own.add_argument("--erl-flags", type=shlex.split, default="", metavar="FLAGS",
                     help="more flags for all nodes, as in --erl-flags='+sbwt none'")
    own.add_argument("--info", action="store_true",
                     help="after each run over inet_rdma print inet_rdma:info() of its first node to stderr")


def results(own: argparse.ArgumentParser, name: str) -> None:
    own.add_argument("--out", type=Path, metavar="DIR", help=f"where the results go [bench/out/DATE-{name}]")
    own.add_argument("--chart", action=argparse.BooleanOptionalAction, default=True, help="draw the chart")


def meshes(own: argparse.ArgumentParser, name: str, rounds: int) -> None:
    own.add_argument("--nodes", type=whole_numbers, metavar="N,...", help="sizes of the meshes [10,40,100; quick: 10]")
    own.add_argument("--quick", action="store_true", help="the small sizes, once")
    own.add_argument("--rounds", type=count, help=f"times that everything is measured [{rounds}; quick: 1]")
    own.add_argument("--idle-seconds", type=positive, default=mesh.IDLE_S, help="measured seconds of the idle mesh")
    own.add_argument("--carriers", type=words, default="inet_tcp,inet_rdma", help="comma-separated")
    builds(own)
    results(own, name)


def native(own: argparse.ArgumentParser, rounds: int, seconds: float, warmup: float) -> None:
    own.add_argument("--size", type=whole_sizes, metavar="BYTES,...", help="only these sizes")
    own.add_argument("--quick", action="store_true", help="a minute: few points, one short round")
    own.add_argument("--rounds", type=count, help=f"times that every point is measured [{rounds}; quick: 1]")
    own.add_argument("--seconds", type=positive,
                     help=f"measured seconds of each run, at least [{seconds:g}; quick: less]")
    own.add_argument("--warmup", type=positive, default=warmup, help="seconds of traffic before that")
    own.add_argument("--ring-bytes", type=size, default="512K", help="size of the ring")
    own.add_argument("--address", metavar="HOST:PORT",
                     help="an rdma-perf server on another host, started there by hand; its address decides the fabric")
    own.add_argument("--pin", action=argparse.BooleanOptionalAction, default=True,
                     help="each side on a core of its own, where both are on this machine")
    own.add_argument("--out", type=Path, metavar="DIR", help="where the results go [bench/out/DATE-TEST]")
    own.add_argument("--chart", action=argparse.BooleanOptionalAction, default=True, help="draw the charts")
