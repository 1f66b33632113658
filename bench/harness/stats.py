"""Medians, spreads and ratios over the rounds of one case."""

from __future__ import annotations

import statistics
from dataclasses import asdict, dataclass

from .measure import Values

# What each round measured: carrier name -> metric name -> value. A failed measurement is absent.
Round = dict[str, Values]


@dataclass(frozen=True)
class Spread:
    median: float
    low: float
    high: float
    rounds: int

    def as_dict(self) -> dict[str, float]:
        return asdict(self)


def spread(numbers: list[float]) -> Spread | None:
    if not numbers:
        return None
    return Spread(statistics.median(numbers), min(numbers), max(numbers), len(numbers))


def absolute(rounds: list[Round], carrier: str, metric: str) -> Spread | None:
    return spread([values[carrier][metric] for values in rounds if metric in values.get(carrier, {})])


def ratio(rounds: list[Round], carrier: str, baseline: str, metric: str) -> Spread | None:
    """carrier / baseline, computed within each round, where the two ran next to each other; then the median.

    Rounds in which either is missing do not count. None when no round is left, or a baseline value is 0.
    """
    ratios = []
    for values in rounds:
        own, base = values.get(carrier, {}).get(metric), values.get(baseline, {}).get(metric)
        if own is not None and base:
            ratios.append(own / base)
    return spread(ratios)
