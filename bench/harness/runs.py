"""What a test of the command line does: its cases, over its carriers, as often as it says."""

from __future__ import annotations

import argparse
import json

from . import carriers, network, paths, report, sheet, site
from .cases import TESTS, Case, busy_cases, suite
from .errors import BenchError
from .flags import QUICK_ROUNDS, QUICK_SECONDS, ROUNDS, SECONDS
from .measure import Timing
from .reach import Ssh


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


def run_cluster(options: argparse.Namespace) -> int:
    hosts, series = cluster_site(options)
    sizes_of_cluster = options.nodes or [len(hosts.hosts)]
    if max(sizes_of_cluster) > len(hosts.hosts) or min(sizes_of_cluster) < 2:
        raise BenchError(f"there are {len(hosts.hosts)} hosts: --nodes is from 2 to that")
    cases = [
        Case("rpc", nodes=n, procs=p, size=s) for s in options.size for p in options.procs for n in sizes_of_cluster
    ]
    timing = Timing(options.warmup, options.seconds or SECONDS, options.idle_seconds)
    with hosts:
        return report.measure_and_report(
            options.title, cases, series, options.rounds or ROUNDS, timing, [*options.erl_flags, *options.dist_ports],
            info=options.info, out=options.out, json_file=options.json, chart=options.chart, site=hosts,
        )


def run_between(pair: network.Pair, options: argparse.Namespace) -> int:
    cases = options.cases(options)
    paths.compile_workers()
    chosen, skipped = carriers.select(options.carriers, options.rdma_flags, dict(options.variant))
    rounds, seconds = (QUICK_ROUNDS, QUICK_SECONDS) if options.quick else (ROUNDS, SECONDS)
    timing = Timing(options.warmup, options.seconds or seconds, options.idle_seconds)
    with pair:
        return report.measure_and_report(
            options.title, cases, pair.series(chosen), options.rounds or rounds, timing, options.erl_flags,
            info=options.info, out=options.out, json_file=options.json, chart=options.chart, notes=tuple(skipped),
            site=pair,
        )


def cluster_site(options: argparse.Namespace) -> tuple[site.Site, list[carriers.Carrier]]:
    """The hosts, not connected yet, and what is measured between them."""
    if bool(options.cluster) == bool(options.hosts):
        raise BenchError("say which hosts: --hosts A,B,... with --network, or --cluster FILE")
    if options.cluster and options.network:
        raise BenchError("--network goes with --hosts; in a file each host has its addresses")
    if options.sync and options.build:
        raise BenchError("--sync copies the build of this machine, --build names one of the hosts: not both")
    if options.cluster:
        plans, rdma = site.read_file(options.cluster)
    else:
        plans, rdma = site.from_options(options.hosts, options.network), []
    networks, variants = site.networks_of(plans), dict(options.variant)
    if "inet_rdma" in options.carriers or variants:
        rdma = site.rdma_networks(networks, options.rdma or rdma)
    series = carriers.on_hosts(options.carriers, options.rdma_flags, variants, networks, rdma)
    return site.Site(
        plans, ssh_of(options), erl=options.erl, build=options.build, sync=options.sync,
        needs_build=any(carrier.needs_build for carrier in series), directory=options.remote_tmp,
    ), series


def ssh_of(options: argparse.Namespace) -> Ssh:
    return Ssh(options.ssh, options.user, options.port, options.identity, tuple(options.ssh_option))


def show(options: argparse.Namespace) -> int:
    try:
        document = json.loads(options.file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BenchError(f"cannot read {options.file}: {error}") from error
    shown = sheet if "sweep" in document else report
    shown.show(document, options.file.resolve().parent, options.chart)
    return 0


def busy_matrix(options: argparse.Namespace) -> list[Case]:
    """A case that several combinations have in common once."""
    cases = [
        case
        for busy in options.busy for procs in options.procs for size in options.size for senders in options.senders
        for case in busy_cases(busy, procs=procs, size=size, senders=senders)
    ]
    return list(dict.fromkeys(cases))


def whole_suite(options: argparse.Namespace) -> list[Case]:
    cases = [
        case for case in suite(options.quick)
        if case.test in (options.only or TESTS) and case.nodes in (options.nodes or [case.nodes])
    ]
    if not cases:
        raise BenchError(f"nothing in the set matches; its tests are {', '.join(TESTS)}")
    return cases


def of_two_nodes(options: argparse.Namespace) -> list[Case]:
    """Of the set, what two nodes do that compute nothing else."""
    return [case for case in whole_suite(options) if not case.busy and not case.erl_flags and case.workload != "idle"]
