"""The line charts of series: a panel for each of the first figures, bands from least to most. SVG and PNG."""

from __future__ import annotations

import textwrap
from pathlib import Path

from matplotlib import pyplot as plt
from matplotlib.axes import Axes

from .chart import FAINT, STYLE
from .stats import absolute
from .sweep import Figure, Series

# Told apart by people with any colour vision, and by marker in grey.
LOOKS = [("#0b5cad", "o"), ("#e0a030", "s"), ("#c8553d", "^"), ("#2a9d8f", "D"), ("#8e5ea2", "v"), ("#6b8e23", "P"),
         ("#5b6875", "X"), ("#b5838d", "*")]
PANELS = 2


def lines(each: Series, subjects: list[str], caption: str, target: Path) -> list[Path]:
    """Writes NAME.svg and NAME.png into `target`."""
    figures = each.figures[:PANELS]
    with plt.rc_context(STYLE):
        whole, axes = plt.subplots(1, len(figures), squeeze=False, figsize=(5.75 * len(figures), 4.4),
                                   layout="constrained")
        for panel, figure in zip(axes[0], figures, strict=True):
            draw(panel, each, figure, subjects)
        whole.suptitle(each.title, x=0.01, ha="left", fontsize=11, fontweight="bold")
        axes[0][0].legend(frameon=False, fontsize=8.5)
        words = f"Lines: median; bands: least and most of the rounds. {caption}."
        whole.supxlabel("\n".join(textwrap.wrap(words, 75 * len(figures))), fontsize=7.5, color="#52606d", x=0.01,
                        ha="left")
        written = []
        for suffix, options in (("svg", {"metadata": {"Date": None}}), ("png", {"dpi": 140})):
            path = target / f"{each.name}.{suffix}"
            whole.savefig(path, facecolor="white", **options)
            written.append(path)
        plt.close(whole)
    return written


def draw(panel: Axes, each: Series, figure: Figure, subjects: list[str]) -> None:
    """Points are evenly spaced: all axes here go up by factors, or nearly."""
    for name, (colour, marker) in zip(subjects, LOOKS * (len(subjects) // len(LOOKS) + 1), strict=False):
        found = [(place, absolute(each.rounds[point.label], name, figure.name))
                 for place, point in enumerate(each.points)]
        shown = [(place, value) for place, value in found if value]
        if not shown:
            continue
        places = [place for place, _ in shown]
        panel.plot(places, [value.median for _, value in shown], color=colour, marker=marker, markersize=4,
                   linewidth=1.4, label=name)
        panel.fill_between(places, [value.low for _, value in shown], [value.high for _, value in shown], color=colour,
                           alpha=0.15, linewidth=0)
    step = len(each.points) // 13 + 1
    panel.set_xticks(range(0, len(each.points), step), [point.label for point in each.points[::step]], fontsize=7.5,
                     rotation=45 if len(each.points) > 8 else 0)
    if figure.logarithmic:
        panel.set_yscale("log")
    else:
        panel.set_ylim(bottom=0)
    panel.set_xlabel(each.axis, fontsize=8.5)
    panel.set_title(f"{figure.title}, {figure.unit}", loc="left", fontsize=9.5)
    panel.grid(color=FAINT, linewidth=0.6)
    panel.tick_params(length=0)
    for side in ("top", "right"):
        panel.spines[side].set_visible(False)
