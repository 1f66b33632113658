"""The bar chart of series with a baseline: each subject relative to it, with the spread of its rounds. SVG and PNG."""

from __future__ import annotations

import textwrap
from pathlib import Path

from .chart import BAR_INCHES, FAINT, HALO, INK, STYLE, plt
from .lines import LOOKS, save
from .stats import absolute, ratio
from .sweep import Series
from .table import number


def bars(series: list[Series], subjects: list[str], caption: str, target: Path) -> list[Path]:
    """Writes chart.svg and chart.png into `target`: a group of bars for each figure."""
    base = series[0].baseline or ""
    compared = [name for name in subjects if name != base]
    figures = [(each, point, figure) for each in series for point in each.points for figure in each.figures]
    pitch = len(compared) + 0.8
    with plt.rc_context(STYLE):
        whole, panel = plt.subplots(figsize=(9.5, 1.2 + len(figures) * pitch * BAR_INCHES), layout="constrained")
        labels = []
        for row, (each, point, figure) in enumerate(figures):
            rounds = each.rounds[point.label]
            stands = absolute(rounds, base, figure.name)
            labels.append(f"{each.title} {point.label}".rstrip() + f": {figure.title}"
                          + (f"\n1.0: {number(stands.median)} {figure.unit}" if stands else ""))
            for place, name in enumerate(compared):
                found = ratio(rounds, name, base, figure.name)
                if not found:
                    continue
                y = row * pitch + place
                panel.barh(y, found.median, height=0.82, color=LOOKS[place % len(LOOKS)][0], zorder=2,
                           label=name if row == 0 else None)
                panel.hlines(y, found.low, found.high, color=INK, linewidth=1.1, zorder=4)
                panel.annotate(f"{found.median:.2f} x", (found.high, y), xytext=(6, 0), textcoords="offset points",
                               va="center", fontsize=8.5, fontweight="bold", path_effects=HALO, zorder=5)
        middle = (len(compared) - 1) / 2
        panel.set_yticks([row * pitch + middle for row in range(len(figures))], labels, fontsize=7.5)
        panel.set_ylim((len(figures) - 0.5) * pitch, -0.5 * pitch)
        panel.axvline(1.0, color=INK, linewidth=0.9, linestyle=(0, (4, 3)), zorder=3)
        panel.set_xlim(0, 1.15 * panel.get_xlim()[1])
        panel.set_xlabel(f"times {base} (less is better)", fontsize=8.5)
        panel.grid(axis="x", color=FAINT, linewidth=0.6, zorder=0)
        panel.tick_params(length=0)
        for side in ("top", "right", "left"):
            panel.spines[side].set_visible(False)
        panel.legend(frameon=False, fontsize=8.5)
        words = f"Bars: median; whiskers: least and most of the rounds. {caption}."
        whole.supxlabel("\n".join(textwrap.wrap(words, 130)), fontsize=7.5, color="#52606d", x=0.01, ha="left")
        return save(whole, "chart", target, dpi=100)
