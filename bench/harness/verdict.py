"""The last lines of the demonstration: what it has measured and seen, in words and one chart, and how to go on."""

from __future__ import annotations

from pathlib import Path

from . import paths
from .cases import Case, plural
from .cuts import Outcome
from .runner import Results, disturbance
from .stats import absolute, ratio
from .table import number

BAR_WIDTH = 44
# As in docs/DEPLOY.md.
MIX_DEPENDENCY = '{{:inet_rdma, path: "{}"}}'
REBAR_DEPENDENCY = "{deps, [inet_rdma]}."


def last_lines(results: Results, processes: int, cuts: list[str], chart: Path, erl_flags: str) -> list[str]:
    """At most 20, so that they are on the screen when all is done. `cuts`: of survival() or left_out()."""
    note = disturbance(results)
    return [
        f"rpc:call, {processes} processes on each node, calls per second:",
        *bars(results),
        *(comparison(results, case, carrier) for case in results.cases for carrier in results.carriers
          if carrier != results.baseline),
        *([f"note: {note}"] if note else []),
        *cuts,
        f"The chart with the spread of the rounds: {chart}",
        "",
        *use(erl_flags, paths.REPO),
    ]


def bars(results: Results) -> list[str]:
    """The rate of each case over each carrier; the longest bar is the highest rate."""
    rates = {(case, carrier): absolute(results.rounds[case], carrier, "rate")
             for case in results.cases for carrier in results.carriers}
    most = max((rate.median for rate in rates.values() if rate), default=1.0)
    width = max(map(len, results.carriers))
    lines = []
    for case in results.cases:
        lead = f"{case.nodes} nodes"
        for carrier in results.carriers:
            rate = rates[case, carrier]
            shown = f"{'#' * max(1, round(BAR_WIDTH * rate.median / most))} {number(rate.median)}" if rate else "failed"
            lines.append(f"  {lead:<8}  {carrier:<{width}}  {shown}")
            lead = ""
    return lines


def comparison(results: Results, case: Case, carrier: str) -> str:
    """How a carrier compares with the baseline: medians of the rounds' ratios; in brackets least and most."""
    rate = ratio(results.rounds[case], carrier, results.baseline, "rate")
    cpu = ratio(results.rounds[case], carrier, results.baseline, "cpu")
    if rate is None or cpu is None:
        return f"{case.nodes} nodes: {carrier} and {results.baseline} were not both measured."
    percent = 100 * (cpu.median - 1)
    spread = f"{rate.low:.1f} to {rate.high:.1f} in {plural(rate.rounds, 'round')}"
    return (f"{case.nodes} nodes: {carrier} makes {rate.median:.1f} times the calls of {results.baseline} "
            f"({spread}), with {abs(percent):.0f} % {'less' if percent < 0 else 'more'} CPU for each.")


def left_out(why: str) -> list[str]:
    return [f"The part with cut connections is left out: {why}."]


def survival(under: str, outcomes: dict[str, Outcome | str]) -> list[str]:
    """A line for each carrier, in columns. A text stands for an outcome that could not be had."""
    rows = {carrier: [f"{outcome.nodedowns:,}", f"{outcome.failed:,}", f"{outcome.calls:,}",
                      f"{outcome.longest_ms:,.0f}"]
            for carrier, outcome in outcomes.items() if isinstance(outcome, Outcome)}
    widths = [max(map(len, column)) for column in zip(*rows.values(), strict=True)]
    width = max(map(len, outcomes))
    lines = [f"The TCP connection of a link was cut {under}:"]
    for carrier, outcome in outcomes.items():
        text = str(outcome)
        if carrier in rows:
            downs, failed, calls, longest = map(str.rjust, rows[carrier], widths)
            text = f"{downs} nodedowns, {failed} of {calls} calls failed, longest call {longest} ms"
        lines.append(f"  {carrier:<{width}}  {text}")
    return lines


def use(erl_flags: str, source: Path) -> list[str]:
    """What to write to use the build of this tree in a project."""
    return [
        "To use this build:",
        f"  erl {erl_flags} -sname a",
        f"  mix.exs       {MIX_DEPENDENCY.format(source)}",
        f"  rebar.config  {REBAR_DEPENDENCY} and a link _checkouts/inet_rdma to {source}",
        "docs/DEPLOY.md has the flags for a project; docs/QUICKSTARTS.md has RabbitMQ, Mnesia, Phoenix and more.",
    ]
