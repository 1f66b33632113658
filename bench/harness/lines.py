"""The line charts of series, and how the figures of series grow. SVG and PNG."""

from __future__ import annotations

import textwrap
from pathlib import Path

from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Page
from matplotlib.ticker import LogLocator, NullLocator

from .chart import FAINT, STYLE
from .stats import absolute
from .sweep import Figure, Series

# Told apart by people with any colour vision, and by marker in grey.
LOOKS = [("#0b5cad", "o"), ("#e0a030", "s"), ("#c8553d", "^"), ("#2a9d8f", "D"), ("#8e5ea2", "v"), ("#6b8e23", "P"),
         ("#5b6875", "X"), ("#b5838d", "*")]
PANELS = 2


def lines(each: Series, subjects: list[str], caption: str, target: Path) -> list[Path]:
    """Writes NAME.svg and NAME.png into `target`: a panel for each of the first figures, bands from least to most."""
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
        return save(whole, each.name, target, dpi=140)


def growth(series: list[Series], subjects: list[str], caption: str, target: Path) -> list[Path]:
    """Writes growth.svg and growth.png into `target`: a row of panels for each series, a panel for each figure."""
    columns = max(len(each.figures) for each in series)
    with plt.rc_context(STYLE):
        whole = plt.figure(figsize=(3.2 * columns, 3.2 * len(series)), layout="constrained")
        for band, each in zip(whole.subfigures(len(series), 1, squeeze=False)[:, 0], series, strict=True):
            band.suptitle(each.title, x=0.01, ha="left", fontsize=11, fontweight="bold")
            axes = band.subplots(1, columns, squeeze=False)[0]
            for panel, figure in zip(axes, each.figures, strict=False):
                grow(panel, each, figure, subjects)
            axes[0].legend(frameon=False, fontsize=8.5)
            for empty in axes[len(each.figures):]:
                empty.set_visible(False)
        words = "Points: median; bars: least and most of the rounds. "
        words += f"Dotted: growth as that of the number of connections or nodes. {caption}."
        band.supxlabel("\n".join(textwrap.wrap(words, 50 * columns)), fontsize=7.5, color="#52606d", x=0.01, ha="left")
        return save(whole, "growth", target, dpi=72)


def save(whole: Page, name: str, target: Path, dpi: int) -> list[Path]:
    written = []
    for suffix, options in (("svg", {"metadata": {"Date": None}}), ("png", {"dpi": dpi})):
        path = target / f"{name}.{suffix}"
        whole.savefig(path, facecolor="white", **options)
        written.append(path)
    plt.close(whole)
    return written


def grow(panel: Axes, each: Series, figure: Figure, subjects: list[str]) -> None:
    """Both axes are logarithmic, so that linear growth has one slope; that of a figure which can be 0 is linear."""
    first = None
    for name, (colour, marker) in zip(subjects, LOOKS * (len(subjects) // len(LOOKS) + 1), strict=False):
        found = [(point.x, absolute(each.rounds[point.label], name, figure.name)) for point in each.points]
        shown = [(x, value) for x, value in found if value]
        if not shown:
            continue
        first = first or (shown[0][0], shown[0][1].median)
        medians = [value.median for _, value in shown]
        spread = [[value.median - value.low for _, value in shown], [value.high - value.median for _, value in shown]]
        panel.errorbar([x for x, _ in shown], medians, yerr=spread, color=colour, marker=marker, markersize=4,
                       linewidth=1.4, capsize=2, label=name)
    panel.set_xscale("log")
    panel.set_xticks([point.x for point in each.points], [point.label for point in each.points], fontsize=7.5)
    panel.xaxis.set_minor_locator(NullLocator())
    if figure.logarithmic:
        panel.set_yscale("log")
        panel.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        panel.yaxis.set_major_formatter("{x:g}")
        panel.yaxis.set_minor_formatter("")
        # At least a factor of ten, so that a figure that hardly grows looks like one.
        low, high = panel.get_ylim()
        middle = (low * high) ** 0.5
        panel.set_ylim(min(low, middle / 10 ** 0.5), max(high, middle * 10 ** 0.5))
    else:
        panel.set_ylim(0, 1.1 * panel.get_ylim()[1])
    if first and figure.logarithmic and not figure.higher_is_better:
        ends, low_high = [each.points[0].x, each.points[-1].x], panel.get_ylim()
        panel.plot(ends, [first[1] * x / first[0] for x in ends], color="#9aa5b1", linewidth=1, linestyle=":")
        panel.set_ylim(low_high)
    trim(panel, each, figure)


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
    trim(panel, each, figure)


def trim(panel: Axes, each: Series, figure: Figure) -> None:
    panel.set_xlabel(each.axis, fontsize=8.5)
    title = f"{figure.title}, {figure.unit}" if figure.unit else figure.title
    panel.set_title("\n".join(textwrap.wrap(title, 34)) if each.growth else title, loc="left", fontsize=9.5)
    panel.grid(color=FAINT, linewidth=0.6)
    panel.tick_params(length=0)
    for side in ("top", "right"):
        panel.spines[side].set_visible(False)
