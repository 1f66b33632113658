"""Tables, charts and the JSON of series."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from .environment import commit, machine, memcpy_mb_s, own_load_warning
from .errors import BenchError
from .report import SCHEMA, as_json, command_line, machine_text, save, shown_path, target_of
from .progress import say
from .stats import Spread, absolute, ratio
from .sweep import Figure, Point, Series, Subject, against_better, run
from .table import absolute_cells, number, ratio_cells, text_of as columns_of


def measure_and_report(
    title: str, series: list[Series], subjects: dict[str, Subject], rounds: int, options: dict[str, Any],
    notes: list[str], out: Path | None, chart: bool,
) -> int:
    """Returns the exit status: 1 when any measurement failed. A subject may add to the notes."""
    if warning := own_load_warning():
        notes.append(warning)
    for note in notes:
        say(f"note: {note}")
    target = target_of(title, out)
    target.mkdir(parents=True, exist_ok=True)
    memcpy = {"1 MB": memcpy_mb_s(1 << 20), "16 MB": memcpy_mb_s(16 << 20)}
    failures = run(series, subjects, rounds)
    document = {
        "schema": SCHEMA,
        "sweep": title,
        "environment": {
            "date": datetime.now(timezone.utc).isoformat(timespec="seconds"), "commit": commit(), **machine(),
            "memcpy_mb_s": memcpy,
        },
        "options": {"command": command_line(), "rounds": rounds, **options},
        "notes": notes, "failures": failures, "subjects": list(subjects),
        "series": [as_document(each, list(subjects)) for each in series],
    }
    text = text_of(document)
    print(f"\n{text}")
    for failure in failures:
        print(f"FAILED  {failure}\n")
    written = [save(target / "results.json", as_json(document)), save(target / "table.txt", text)]
    if chart:
        written += draw(document, target)
    for path in written:
        print(f"written: {shown_path(path)}")
    return 1 if failures else 0


def show(document: dict[str, Any], target: Path, chart: bool) -> None:
    """Tables and charts of an earlier run, from its JSON."""
    print(text_of(document))
    for path in draw(document, target) if chart else []:
        print(f"written: {shown_path(path)}")


def draw(document: dict[str, Any], target: Path) -> list[Path]:
    try:
        from .bars import bars
        from .lines import growth, lines
    except ImportError as error:
        raise BenchError(f"no chart: {error} (on Debian: apt install python3-matplotlib; or --no-chart)") from error
    subjects, caption, series = document["subjects"], summary(document), series_of(document)
    growing = [each for each in series if each.growth]
    listed = [each for each in series if each.baseline]
    written = growth(growing, subjects, caption, target) if growing else []
    written += bars(listed, subjects, caption, target) if listed else []
    rest = [each for each in series if not each.growth and not each.baseline]
    return written + [path for each in rest for path in lines(each, subjects, caption, target)]


def as_document(each: Series, subjects: list[str]) -> dict[str, Any]:
    points = []
    for point in each.points:
        rounds = each.rounds[point.label]
        figures = {}
        for figure in each.figures:
            spreads = {name: absolute(rounds, name, figure.name) for name in subjects}
            figures[figure.name] = {name: value.as_dict() for name, value in spreads.items() if value}
        points.append({**asdict(point), "figures": figures, "rounds": rounds})
    return {
        "name": each.name, "title": each.title, "axis": each.axis, "compared": each.compared, "growth": each.growth,
        "baseline": each.baseline,
        "figures": [asdict(figure) for figure in each.figures], "points": points,
    }


def series_of(document: dict[str, Any]) -> list[Series]:
    return [
        Series(
            each["name"], each["title"], each["axis"], [Figure(**figure) for figure in each["figures"]],
            [Point(point["x"], point["label"], point["order"]) for point in each["points"]], each["compared"],
            {point["label"]: point["rounds"] for point in each["points"]}, each.get("growth", False),
            each.get("baseline"),
        )
        for each in document["series"]
    ]


def summary(document: dict[str, Any]) -> str:
    """Where the figures come from."""
    facts = document["environment"]
    memcpy = ", ".join(f"{rate:,} MB/s ({size})" for size, rate in facts["memcpy_mb_s"].items())
    return (
        f"{machine_text(facts)}, commit {facts['commit']}; "
        f"median of {document['options']['rounds']} interleaved rounds (least .. most); memcpy {memcpy}"
    )


def text_of(document: dict[str, Any]) -> str:
    parts = [summary(document)]
    series, subjects = series_of(document), document["subjects"]
    listed = [each for each in series if each.baseline]
    if listed:
        parts.append(table_of_all(listed, subjects))
    for each in series:
        for figure in [] if each.baseline else each.figures:
            parts.append(table(each, figure, subjects))
    parts += [f"note: {note}" for note in document["notes"]]
    return "\n\n".join(parts) + "\n"


def table_of_all(series: list[Series], subjects: list[str]) -> str:
    """One line per series, point, figure and subject; a ratio is to the series' baseline."""
    rows: list[list[str]] = []
    for each in series:
        for point in each.points:
            title, rounds = f"{each.title} {point.label}".rstrip(), each.rounds[point.label]
            for figure in each.figures:
                name = figure.title
                for subject in subjects:
                    relative = ratio(rounds, subject, each.baseline or "", figure.name)
                    rows.append([
                        title, name, subject, *absolute_cells(absolute(rounds, subject, figure.name)), figure.unit,
                        *ratio_cells(None if subject == each.baseline else relative),
                    ])
                    title = name = ""
            rows.append([])
    return columns_of(rows[:-1])


def table(each: Series, figure: Figure, subjects: list[str]) -> str:
    """Points downwards, subjects side by side; behind the first figure the comparison."""
    measured = [name for name in subjects if any(name in values for r in each.rounds.values() for values in r)]
    compares = figure == each.figures[0] and len(each.compared) > 1 and set(each.compared) <= set(measured)
    head = [each.axis, *measured]
    if compares:
        first, *others = each.compared
        head.append(f"{first} / {others[0] if len(others) == 1 else 'better of the others'}")
    rows = [head]
    for point in each.points:
        rounds = each.rounds[point.label]
        row = [point.label, *(cell(absolute(rounds, name, figure.name), number) for name in measured)]
        if compares:
            row.append(cell(against_better(rounds, first, others, figure), lambda ratio: f"{ratio:.2f}"))
        rows.append(row)
    widths = [max(len(row[i]) for row in rows) for i in range(len(head))]
    lines = ["  ".join(text.rjust(width) for text, width in zip(row, widths, strict=True)) for row in rows]
    title = f"{figure.title}, {figure.unit}" if figure.unit else figure.title
    return "\n".join([f"{each.title}: {title}", *lines])


def cell(value: Spread | None, text: Any) -> str:
    if value is None:
        return "-"
    if value.rounds == 1:
        return str(text(value.median))
    return f"{text(value.median)} ({text(value.low)} .. {text(value.high)})"
