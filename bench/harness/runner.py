"""Runs the cases: rounds outermost, the carriers of a case one right after the other, their order rotated."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from typing import Any

from .carriers import Carrier, baseline
from .cases import Case
from .environment import usable_cores
from .errors import MeasurementError
from .measure import Timing, Values, measure
from .place import Sites
from .progress import each_round, say
from .stats import Round


@dataclass
class Results:
    """Everything measured in one run."""

    carriers: list[str]
    baseline: str
    cases: list[Case]
    rounds: dict[Case, list[Round]]
    failures: list[str] = field(default_factory=list)
    node_facts: dict[str, Any] = field(default_factory=dict)
    # The cores of all hosts together.
    cores: int = field(default_factory=usable_cores)


def run(
    cases: list[Case], carriers: list[Carrier], rounds: int, timing: Timing, erl_flags: list[str], info: bool = False,
    site: Sites | None = None,
) -> Results:
    """A measurement that fails is reported and left out; the others go on.

    With `info`, what inet_rdma says of its connections is printed after each run over it. Without a site the nodes are
    on this machine.
    """
    names = [carrier.name for carrier in carriers]
    results = Results(names, baseline(carriers), cases, {case: [{} for _ in range(rounds)] for case in cases})
    if site:
        results.cores = site.cores
    for number in each_round(rounds):
        turned = carriers[number % len(carriers):] + carriers[: number % len(carriers)]
        for case in cases:
            for carrier in turned:
                label = f"round {number + 1}/{rounds}  {case.title}  {carrier.name}"
                try:
                    places = site.places(carrier) if site else None
                    values, facts = measure(case, carrier, timing, erl_flags, info and carrier.is_rdma, places)
                except MeasurementError as error:
                    results.failures.append(f"{label}: {error}")
                    say(f"{label}: FAILED: {error}")
                    continue
                results.rounds[case][number][carrier.name] = values
                results.node_facts = results.node_facts or facts
                say(f"{label}: {brief(case, values)}")
                if "info" in facts:
                    say(facts["info"])
    return results


def disturbance(results: Results) -> str | None:
    """A sentence when other processes had more than a twentieth of the machine during many measurements."""
    shares = [
        values["foreign_cores"] / results.cores
        for rounds in results.rounds.values() for each in rounds for values in each.values()
    ]
    disturbed = [share for share in shares if share > 0.05]
    if len(disturbed) <= len(shares) / 10:
        return None
    return (f"other processes used more than 5 % of the machine during {len(disturbed)} of {len(shares)} measurements "
            f"(median {statistics.median(shares):.0%}): take the figures with care")


def brief(case: Case, values: Values) -> str:
    return ", ".join(f"{m.name} {values[m.name]:,.6g} {m.unit}" for m in case.metrics if m.shown)
