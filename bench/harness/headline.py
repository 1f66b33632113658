"""The chart of the README: some rows of a published table, inet_rdma over shm and over TCP, times inet_tcp. One PNG."""

from __future__ import annotations

import argparse
import re
import textwrap
from dataclasses import dataclass
from pathlib import Path

from .errors import BenchError

# Test of the table, its metric, and what the chart calls it.
MORE = [
    ("rpc, 2 nodes, 1 process", "rate", "rpc:call, 1 process per node"),
    ("rpc, 2 nodes, 100 processes", "rate", "rpc:call, 100 processes per node"),
    ("ping-pong, 2 nodes, 100 pairs, 16 B", "rate", "100 pairs, 16 B to and fro"),
    ("one-way 1 KB, 4 senders", "rate", "1 KB one way, 4 senders"),
    ("one-way 64 KB, 1 sender", "bandwidth", "64 KB one way"),
    ("one-way 1 MB, 1 sender", "bandwidth", "1 MB one way"),
    ("both ways 1 MB, 1 sender each", "bandwidth", "1 MB both ways"),
    ("rpc, 2 nodes, 100 processes, 50 spinning", "rate", "rpc:call, 50 busy processes beside it"),
]
LESS = [
    ("round trip, 16 B", "p50", "16 B alone, median"),
    ("round trip, 16 B", "p99", "16 B alone, p99"),
    ("16 B ping beside 4 x 4 MB", "p50", "16 B beside 4 MB, median"),
    ("16 B ping beside 4 x 4 MB", "p99", "16 B beside 4 MB, p99"),
]
NUMBER = r"([\d,.]+)"
LINE = re.compile(rf"^(?P<test>.*?)\s{{2,}}(?P<metric>\w*)\s+(?P<carrier>inet_\w+|tcp path)\s+{NUMBER}"
                  rf"\s+{NUMBER} \.\. {NUMBER}"
                  rf"\s+(?P<unit>\S.*?)(?:\s{{2,}}(?P<ratio>[\d.]+) x\s+(?P<low>[\d.]+) \.\. (?P<high>[\d.]+))?$")


# The carriers that are shown, as the table names them, and what the chart calls them.
SERIES = {"inet_rdma": "shared memory", "tcp path": "TCP alone, loopback"}


@dataclass(frozen=True)
class Bar:
    label: str
    ratio: float
    low: float
    high: float


def run(options: argparse.Namespace) -> int:
    try:
        text = options.table.read_text(encoding="utf-8")
    except OSError as error:
        raise BenchError(f"cannot read {options.table}: {error}") from error
    target = options.out or options.table.parent / "chart.png"
    shown = [{carrier: bars(text, wanted, carrier) for carrier in SERIES} for wanted in (MORE, LESS)]
    draw(shown, text.partition("\n")[0], target)
    print(f"written: {target}")
    return 0


def bars(table: str, wanted: list[tuple[str, str, str]], carrier: str = "inet_rdma") -> list[Bar]:
    """The ratios of a carrier, in the order of the rows that are wanted."""
    found: dict[tuple[str, str], Bar] = {}
    test = metric = ""
    for line in table.splitlines():
        if row := LINE.match(line):
            test, metric = row["test"].strip() or test, row["metric"] or metric
            if row["carrier"] == carrier and row["ratio"]:
                found[test, metric] = Bar("", float(row["ratio"]), float(row["low"]), float(row["high"]))
    missing = [f"{test}, {metric}" for test, metric, _ in wanted if (test, metric) not in found]
    if missing:
        raise BenchError(f"the table has no ratio of {carrier} for {'; '.join(missing)}")
    return [Bar(label, bar.ratio, bar.low, bar.high)
            for test, metric, label in wanted for bar in [found[test, metric]]]


def draw(panels_shown: list[dict[str, list[Bar]]], caption: str, target: Path) -> None:
    try:
        from .chart import COLOURS, FAINT, HALO, INK, SHADES, STYLE, plt
    except ImportError as error:
        raise BenchError(f"no chart: {error} (on Debian: apt install python3-matplotlib)") from error
    colours = {"inet_rdma": COLOURS["inet_rdma"], "tcp path": SHADES["inet_rdma"]}
    with plt.rc_context(STYLE):
        page, panels = plt.subplots(1, 2, figsize=(10, 4.4), layout="constrained",
                                    gridspec_kw={"width_ratios": [3, 2.2]})
        for axes, shown, title in zip(panels, panels_shown, (
                "Throughput (more is better)", "Round-trip time (less is better)"),
                strict=True):
            height = 0.8 / len(shown)
            for number, (carrier, series) in enumerate(shown.items()):
                offset = (number - (len(shown) - 1) / 2) * height
                places = [place + offset for place in range(len(series))]
                axes.barh(places, [bar.ratio for bar in series], color=colours[carrier], height=height, zorder=2,
                          label=SERIES[carrier])
                for place, bar in zip(places, series, strict=True):
                    axes.hlines(place, bar.low, bar.high, color=INK, linewidth=1, zorder=4)
                    axes.annotate(f"{bar.ratio:.2f} x", (max(bar.ratio, bar.high), place), xytext=(5, 0),
                                  textcoords="offset points", va="center", fontsize=7, fontweight="bold",
                                  path_effects=HALO, zorder=5)
            labels = next(iter(shown.values()))
            axes.set_yticks(range(len(labels)), [bar.label for bar in labels])
            axes.invert_yaxis()
            axes.axvline(1.0, color=INK, linewidth=0.9, linestyle=(0, (4, 3)), zorder=3)
            axes.set_xlim(0, 1.18 * max(1.0, *(bar.high for series in shown.values() for bar in series)))
            axes.set_title(title, loc="left", fontsize=10, fontweight="bold")
            axes.set_xlabel("times inet_tcp", fontsize=8.5)
            axes.grid(axis="x", color=FAINT, linewidth=0.6, zorder=0)
            axes.tick_params(length=0)
            for side in ("top", "right", "left"):
                axes.spines[side].set_visible(False)
        panels[0].legend(loc="center right", bbox_to_anchor=(1.0, 0.76), fontsize=8, frameon=False)
        words = f"Bars: median; lines: least and most of the rounds. {caption}"
        page.supxlabel("\n".join(textwrap.wrap(words, 170)), fontsize=7, color="#52606d", x=0.01, ha="left")
        page.savefig(target, facecolor="white", dpi=110)
        plt.close(page)
