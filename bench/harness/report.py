"""Runs a set of cases and leaves table, JSON and chart behind."""

from __future__ import annotations

import dataclasses
import json
import sys
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from . import paths, rails, table
from .carriers import Carrier
from .cases import Case
from .environment import environment, own_load_warning
from .errors import BenchError
from .measure import Timing
from .progress import say
from .runner import Results, disturbance, run
from .place import Sites
from .stats import absolute, ratio

SCHEMA = 1


def measure_and_report(
    title: str, cases: list[Case], carriers: list[Carrier], rounds: int, timing: Timing, erl_flags: list[str], *,
    out: Path | None, json_file: Path | None = None, chart: bool = True, info: bool = False,
    notes: tuple[str, ...] = (), site: Sites | None = None,
) -> int:
    """Returns the exit status: 1 when any measurement failed. Without a site the nodes are on this machine."""
    target = target_of(title, out)
    results = measured(cases, carriers, rounds, timing, erl_flags, target=target, json_file=json_file, chart=chart,
                       info=info, notes=notes, site=site)
    return 1 if results.failures else 0


def target_of(title: str, out: Path | None) -> Path:
    """The directory of what a run leaves behind."""
    return (out or paths.OUT / f"{datetime.now(timezone.utc):%Y%m%d-%H%M%S}-{title}").resolve()


def measured(
    cases: list[Case], carriers: list[Carrier], rounds: int, timing: Timing, erl_flags: list[str], *,
    target: Path, json_file: Path | None = None, chart: bool = True, info: bool = False,
    notes: tuple[str, ...] = (), site: Sites | None = None,
) -> Results:
    """Measures, prints the table, and leaves everything in the directory `target`."""
    busy = site.load_warnings() if site else [own_load_warning()]
    for note in [*notes, *filter(None, busy)]:
        say(f"note: {note}")
    target.mkdir(parents=True, exist_ok=True)
    results = run(cases, carriers, rounds, timing, erl_flags, info, site)
    options = {
        "command": command_line(), "rounds": rounds, "seconds": timing.seconds, "warmup_s": timing.warmup_s,
        "idle_seconds": timing.idle_seconds, "erl_flags": erl_flags,
        "carriers": {carrier.name: shown_flags(carrier) for carrier in carriers},
    }
    remarks = [*notes, *filter(None, [disturbance(results)])]
    facts = environment(results.node_facts) | (site.environment() if site else {})
    document = as_document(results, facts, options, remarks)
    text = f"{summary(document)}\n\n{table.table(results)}\n"
    text += "".join(f"\nnote: {note}" for note in remarks) + "\n" * bool(remarks)
    print(f"\n{text}")
    for failure in results.failures:
        print(f"FAILED  {failure}\n")
    written = [save(target / "results.json", as_json(document)), save(target / "table.txt", text)]
    if json_file:
        json_file.parent.mkdir(parents=True, exist_ok=True)
        written.append(save(json_file, as_json(document)))
    if chart:
        written += draw(results, document, target)
    for path in written:
        print(f"written: {shown_path(path)}")
    return results


def draw(results: Results, document: dict[str, Any], target: Path) -> list[Path]:
    try:
        from .chart import chart
    except ImportError as error:
        raise BenchError(f"no chart: {error} (on Debian: apt install python3-matplotlib; or --no-chart)") from error
    return chart(results, summary(document), target)


def summary(document: dict[str, Any]) -> str:
    """One line that says where the figures come from."""
    facts, options = document["environment"], document["options"]
    return (
        f"OTP {facts['otp']}, {machine_text(facts)}, commit {facts['commit']}; "
        f"{network_text(facts['network']) if 'network' in facts else ''}"
        f"{'between two network namespaces over a virtual cable; ' if 'cable' in facts else ''}"
        f"{containers_text(facts['containers']) if 'containers' in facts else ''}"
        f"{rails.text(facts['rails']) if 'rails' in facts else ''}"
        f"median of {options['rounds']} interleaved rounds of {options['seconds']:g} s; "
        f"ratios to {document['baseline']}, taken within each round"
    )


def network_text(network: dict[str, float]) -> str:
    """The last two came later than the others."""
    text = (f"between two network namespaces, {network['delay_ms']:g} ms each way, {network['rate_mbit']:g} Mbit/s, "
            f"{network['loss_percent']:g} % loss")
    if "mtu" in network:
        text += f", MTU {network['mtu']}, {network['buffer_ms']:g} ms of buffer"
    return text + "; "


def containers_text(namespaces: list[str]) -> str:
    return f"a container has {', '.join(namespaces[:-1])} and {namespaces[-1]} namespaces of its own; "


def machine_text(facts: dict[str, Any]) -> str:
    return f"{facts['cores']} cores ({facts['cpu']}), {facts['kernel']}"


def as_document(results: Results, facts: dict[str, Any], options: dict[str, Any], notes: list[str]) -> dict[str, Any]:
    return {
        "schema": SCHEMA, "environment": facts, "options": options, "notes": notes,
        "baseline": results.baseline, "failures": results.failures,
        "cases": [case_document(results, case) for case in results.cases],
    }


def case_document(results: Results, case: Case) -> dict[str, Any]:
    rounds = results.rounds[case]
    metrics = {}
    for metric in case.metrics:
        carriers = {}
        for carrier in results.carriers:
            value = absolute(rounds, carrier, metric.name)
            relative = ratio(rounds, carrier, results.baseline, metric.name)
            carriers[carrier] = {
                "value": value and value.as_dict(),
                "ratio": relative.as_dict() if relative and carrier != results.baseline else None,
            }
        metrics[metric.name] = {"unit": metric.unit, "higher_is_better": metric.higher_is_better, "carriers": carriers}
    return {
        "title": case.title, "workload": case.workload, "nodes": case.nodes, "procs": case.procs, "size": case.size,
        "senders": case.senders, "bulk": case.bulk, "both_ways": case.both_ways, "busy": case.busy,
        "erl_flags": list(case.erl_flags),
        "metrics": metrics, "rounds": rounds,
    }


def case_of(document: dict[str, Any]) -> Case:
    """A case from case_document(); one of an earlier version lacks the fields that came later."""
    known = {field.name: document[field.name] for field in dataclasses.fields(Case) if field.name in document}
    return Case(**known | {"erl_flags": tuple(document["erl_flags"])})


def as_json(document: dict[str, Any]) -> str:
    return json.dumps(document, indent=1) + "\n"


def save(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def shown_path(path: Path) -> Path:
    return path.relative_to(paths.REPO) if path.is_relative_to(paths.REPO) else path


def shown_flags(carrier: Carrier) -> str:
    return " ".join(carrier.flags).replace(str(paths.REPO) + "/", "")


def command_line() -> str:
    return " ".join(["bench/run.py", *sys.argv[1:]]).replace(str(paths.REPO) + "/", "")


def show(document: dict[str, Any], target: Path, chart: bool) -> None:
    """Table and chart of an earlier run, from its JSON."""
    cases = {case_of(case): case["rounds"] for case in document["cases"]}
    results = Results(list(document["options"]["carriers"]), document["baseline"], list(cases), cases)
    print(f"{summary(document)}\n\n{table.table(results)}\n")
    for path in draw(results, document, target) if chart else []:
        print(f"written: {shown_path(path)}")
