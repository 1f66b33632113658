"""What a test of the command line does: its cases, over its carriers, as often as it says."""

from __future__ import annotations

import argparse
import json

from . import carriers, network, paths, report, sheet
from .cases import TESTS, Case, busy_cases, suite
from .errors import BenchError
from .flags import QUICK_ROUNDS, QUICK_SECONDS, ROUNDS, SECONDS
from .measure import Timing


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
    """The cases of the set in which two nodes compute nothing else."""
    return [case for case in whole_suite(options) if not case.busy and not case.erl_flags and case.workload != "idle"]
