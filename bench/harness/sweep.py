"""Series of measurements along an axis, of several subjects that take turns: what is run, and its results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from .errors import MeasurementError
from .measure import Values
from .progress import each_round, say
from .stats import Round, Spread, spread


@dataclass(frozen=True)
class Figure:
    """Something that is measured at each point."""

    name: str
    title: str
    unit: str
    higher_is_better: bool = True
    logarithmic: bool = False


@dataclass(frozen=True)
class Point:
    """A place on the axis."""

    x: float
    label: str
    order: dict[str, Any]


@dataclass
class Series:
    """Points along one axis, and their figures: the first figure is compared."""

    name: str
    title: str
    axis: str
    figures: list[Figure]
    points: list[Point]
    # The first of them against the better of the others, within each round.
    compared: list[str]
    rounds: dict[str, list[Round]] = field(default_factory=dict)
    # The chart shows how all figures grow along the axis, in place of two figures of the subjects side by side.
    growth: bool = False
    # All figures of such series, with each subject's ratio to this one, are rows of one table.
    baseline: str | None = None
    # Rounds beyond these leave it out.
    most_rounds: int | None = None


# What measures a subject at a point; None: it has nothing to say there.
Subject = Callable[[Series, Point], Values | None]


def run(series: list[Series], subjects: dict[str, Subject], rounds: int) -> list[str]:
    """Rounds outermost, the subjects of a point one right after the other, their order turned; the failures."""
    failures = []
    names = list(subjects)
    for each in series:
        own = min(rounds, each.most_rounds or rounds)
        each.rounds = {point.label: [{} for _ in range(own)] for point in each.points}
    for number in each_round(rounds):
        turned = names[number % len(names):] + names[: number % len(names)]
        for each in series:
            for point in each.points:
                if number >= len(each.rounds[point.label]):
                    continue
                found = []
                place = f"round {number + 1}/{rounds}  {each.name} {point.label}".rstrip()
                for name in turned:
                    label = f"{place}  {name}"
                    try:
                        measured = subjects[name](each, point)
                    except MeasurementError as error:
                        failures.append(f"{label}: {error}")
                        say(f"{label}: FAILED: {error}")
                        continue
                    if measured is not None:
                        each.rounds[point.label][number][name] = measured
                        found.append(f"{name} {measured[each.figures[0].name]:,.4g}")
                unit = each.figures[0].unit
                say(f"{place}: {', '.join(found)} {unit}")
    return failures


def against_better(rounds: list[Round], subject: str, others: list[str], figure: Figure) -> Spread | None:
    """The subject to the better of the others, within each round in which all of them were measured."""
    ratios = []
    for values in rounds:
        rivals = [values[name][figure.name] for name in others if figure.name in values.get(name, {})]
        own = values.get(subject, {}).get(figure.name)
        if own and len(rivals) == len(others):
            ratios.append(own / (max(rivals) if figure.higher_is_better else min(rivals)))
    return spread(ratios)
