"""The bar chart: every carrier relative to the baseline, with the spread of its rounds. SVG and PNG."""

from __future__ import annotations

import itertools
import textwrap
from dataclasses import dataclass
from pathlib import Path

import matplotlib

# No display is needed; to be said before pyplot is imported.
matplotlib.use("Agg")

from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.patheffects import withStroke
from matplotlib.transforms import ScaledTranslation

from .cases import Case, Metric
from .runner import Results
from .stats import Spread, absolute, ratio
from .table import number

# Told apart by people with any colour vision, and in grey.
COLOURS = {"inet_tcp": "#9aa5b1", "inet_rdma": "#0b5cad", "gen_tcp": "#e0a030"}
SHADES = {"inet_tcp": "#5b6875", "inet_rdma": "#6fa8dc"}
VARIANT_COLOURS = ["#2a9d8f", "#8e5ea2", "#c8553d", "#6b8e23"]
INK, FAINT = "#1f2933", "#d5dbe1"
BAR_INCHES, CASE_GAP_INCHES, HEAD_INCHES, FOOT_INCHES = 0.21, 0.16, 0.80, 0.75
# Keeps a label readable where it crosses a line.
HALO = [withStroke(linewidth=3, foreground="white")]
STYLE = {
    "font.family": "DejaVu Sans", "font.size": 9, "text.color": INK, "axes.edgecolor": FAINT,
    # The same figures make the same file.
    "svg.hashsalt": "inet_rdma",
}


@dataclass(frozen=True)
class Band:
    """Cases that share two panels, one metric each: left and right have the same rows."""

    workloads: tuple[str, ...]
    left: tuple[str, ...]
    right: tuple[str, ...]
    left_title: str
    right_title: str
    # Cases on busy nodes have panels of their own: their ratios need another scale.
    busy: bool = False

    def has(self, case: Case) -> bool:
        return case.workload in self.workloads and bool(case.busy) == self.busy


BANDS = [
    Band(("rpc", "pingpong", "rate", "throughput"), ("rate", "bandwidth"), ("cpu",),
         "Throughput (more is better)", "CPU per operation (less is better)"),
    Band(("latency", "hol"), ("p50",), ("p99",),
         "Round trip, median (less is better)", "Round trip, 99th percentile (less is better)"),
    Band(("rpc", "rate"), ("rate",), ("others",),
         "Busy nodes: throughput (more is better)", "Busy nodes: other work done (more is better)",
         busy=True),
    Band(("latency",), ("p50",), ("p99",),
         "Busy nodes: median (less is better)", "Busy nodes: 99th percentile (less is better)",
         busy=True),
]


def chart(results: Results, caption: str, target: Path) -> list[Path]:
    """Writes chart.svg and chart.png into `target`; nothing when no case has a ratio to show."""
    bands = [(band, [case for case in results.cases if band.has(case)]) for band in BANDS]
    bands = [(band, cases) for band, cases in bands if cases]
    if not bands:
        return []
    heights = [len(cases) * pitch(results) * BAR_INCHES for _, cases in bands]
    height = sum(heights) + len(bands) * HEAD_INCHES + FOOT_INCHES
    with plt.rc_context(STYLE):
        figure, grid = plt.subplots(
            len(bands), 2, squeeze=False, sharey="row", figsize=(11.5, height),
            gridspec_kw={"height_ratios": heights}, layout="constrained",
        )
        for (band, cases), (left, right) in zip(bands, grid, strict=True):
            panel(left, results, cases, band.left, band.left_title)
            panel(right, results, cases, band.right, band.right_title)
            left.set_yticks([index * pitch(results) for index in range(len(cases))], [case.title for case in cases])
            # Downwards, with half a case of room at both ends, so that bars are as thick in every band.
            left.set_ylim((len(cases) - 0.5) * pitch(results), -0.5 * pitch(results))
        handles, labels = grid[0][0].get_legend_handles_labels()
        # Above the first panel's title: 30 points, whatever the panel's height.
        above = grid[0][0].transAxes + ScaledTranslation(0, 30 / 72, figure.dpi_scale_trans)
        grid[0][0].legend(handles, labels, loc="lower left", bbox_to_anchor=(0, 1), bbox_transform=above,
                          borderaxespad=0, ncol=len(labels), frameon=False, fontsize=10, handlelength=1.2, borderpad=0)
        words = f"Bars: median; whiskers: least and most of the rounds. {caption}."
        figure.supxlabel("\n".join(textwrap.wrap(words, 150)), fontsize=7.5, color="#52606d", x=0.01, ha="left")
        written = []
        for suffix, options in (("svg", {"metadata": {"Date": None}}), ("png", {"dpi": 140})):
            path = target / f"chart.{suffix}"
            figure.savefig(path, facecolor="white", **options)
            written.append(path)
        plt.close(figure)
    return written


def panel(axes: Axes, results: Results, cases: list[Case], metric_names: tuple[str, ...], title: str) -> None:
    """Bars are one unit thick; a case is as many units as there are carriers, and a gap."""
    middle = (len(results.carriers) - 1) / 2
    farthest = 1.0
    for place, carrier in enumerate(results.carriers):
        shown: list[tuple[float, Metric, Spread, Spread]] = []
        for row, case in enumerate(cases):
            metric = next(metric for metric in case.metrics if metric.name in metric_names)
            value = absolute(results.rounds[case], carrier, metric.name)
            relative = ratio(results.rounds[case], carrier, results.baseline, metric.name)
            if value and relative:
                shown.append((row * pitch(results) + place - middle, metric, value, relative))
                farthest = max(farthest, relative.high)
        axes.barh([y for y, *_ in shown], [relative.median for *_, relative in shown], height=0.82,
                  color=colour(results, carrier), label=carrier, zorder=2)
        for y, metric, value, relative in shown:
            bar_text(axes, y, metric, value, None if carrier == results.baseline else relative)
    axes.axvline(1.0, color=INK, linewidth=0.9, linestyle=(0, (4, 3)), zorder=3)
    axes.set_xlim(0, farthest * 1.45)
    axes.set_title(title, loc="left", fontsize=10.5, fontweight="bold", pad=8)
    axes.set_xlabel(f"times {results.baseline}", fontsize=8.5)
    axes.grid(axis="x", color=FAINT, linewidth=0.6, zorder=0)
    axes.tick_params(length=0)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)


def bar_text(axes: Axes, y: float, metric: Metric, value: Spread, relative: Spread | None) -> None:
    """Whisker and ratio of a compared carrier; of the baseline only what 1.0 stands for."""
    text, end = f"{number(value.median)} {metric.unit}", 1.0
    if relative is not None:
        end = max(relative.high, relative.median)
        axes.hlines(y, relative.low, relative.high, color=INK, linewidth=1.1, zorder=4)
        axes.vlines([relative.low, relative.high], y - 0.22, y + 0.22, color=INK, linewidth=1.1, zorder=4)
        axes.annotate(f"{relative.median:.2f} x", (end, y), xytext=(6, 0), textcoords="offset points",
                      va="center", fontsize=8.5, fontweight="bold", path_effects=HALO, zorder=5)
    axes.annotate(text, (end, y), xytext=(6 if relative is None else 48, 0), textcoords="offset points", va="center",
                  fontsize=7.5, color="#52606d", path_effects=HALO, zorder=5)


def colour(results: Results, carrier: str) -> str:
    """On several networks the first series of a carrier has the carrier's colour, the second its shade."""
    taken: dict[str, str] = {}
    spare = itertools.cycle(VARIANT_COLOURS)
    for name in results.carriers:
        kind = name.partition(" ")[0]
        free = [each for each in (COLOURS.get(kind), SHADES.get(kind)) if each and each not in taken.values()]
        taken[name] = free[0] if free else next(spare)
    return taken[carrier]


def pitch(results: Results) -> float:
    """Distance between cases, in bars."""
    return len(results.carriers) + CASE_GAP_INCHES / BAR_INCHES
