"""The table on stdout."""

from __future__ import annotations

from .runner import Results
from .stats import Spread, absolute, ratio

HEAD = ["test", "metric", "carrier", "median", "min .. max", "unit", "ratio", "min .. max"]
RIGHT = {3, 4, 6, 7}


def table(results: Results) -> str:
    """One line per case, shown metric and carrier; ratios are to the baseline carrier."""
    rows: list[list[str]] = []
    for case in results.cases:
        title = case.title
        for metric in case.metrics:
            if not metric.shown:
                continue
            name = metric.name
            for carrier in results.carriers:
                value = absolute(results.rounds[case], carrier, metric.name)
                relative = None
                if carrier != results.baseline and case.workload != "idle":
                    relative = ratio(results.rounds[case], carrier, results.baseline, metric.name)
                rows.append([title, name, carrier, *absolute_cells(value), metric.unit, *ratio_cells(relative)])
                title = name = ""
        rows.append([])
    return text_of(rows[:-1])


def text_of(rows: list[list[str]]) -> str:
    """The rows below the head, in columns; an empty row is an empty line."""
    lines = [HEAD, *rows]
    widths = [max(len(row[i]) for row in lines if row) for i in range(len(HEAD))]
    return "\n".join(format_row(row, widths) for row in lines)


def format_row(row: list[str], widths: list[int]) -> str:
    cells = [cell.rjust(widths[i]) if i in RIGHT else cell.ljust(widths[i]) for i, cell in enumerate(row)]
    return "  ".join(cells).rstrip()


def absolute_cells(value: Spread | None) -> list[str]:
    if value is None:
        return ["failed", ""]
    return [number(value.median), f"{number(value.low)} .. {number(value.high)}"]


def ratio_cells(value: Spread | None) -> list[str]:
    if value is None:
        return ["", ""]
    return [f"{value.median:.2f} x", f"{value.low:.2f} .. {value.high:.2f}"]


def number(value: float) -> str:
    """Three digits or more: 54,321  812  45.3  7.25  0.041."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    if abs(value) >= 10:
        return f"{value:.1f}"
    return f"{value:.2f}" if abs(value) >= 1 else f"{value:.3f}"
