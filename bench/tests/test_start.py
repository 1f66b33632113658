"""The first minutes of a node: what is computed, and what a short real run leaves behind."""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
import tempfile
import time
import unittest
from pathlib import Path
from typing import Any

from harness import carriers, cli, processes, sheet, start, sweep
from harness.carriers import Carrier
from harness.errors import MeasurementError
from harness.sweep import Figure, Point, Series

STATUS = "Name:\tbeam.smp\nThreads:\t9\nvoluntary_ctxt_switches:\t40\nnonvoluntary_ctxt_switches:\t2\n"
ROLLUP = """55d0c0000000-7ffd0c000000 ---p 00000000 00:00 0                          [rollup]
Rss:               40960 kB
Pss:               20480 kB
Private_Clean:      1024 kB
Private_Dirty:      9216 kB
"""


def options(*words: str) -> Any:
    return cli.parser().parse_args(["start", *words])


class Processes(unittest.TestCase):
    def test_have_switched_as_often_as_both_rows_of_a_thread_say(self) -> None:
        self.assertEqual(processes.switches_of(STATUS), 42)
        self.assertGreater(processes.context_switches(os.getpid()), 0)

    def test_have_the_memory_of_the_rows_asked_for(self) -> None:
        self.assertEqual(processes.rows_kb(ROLLUP),
                         {"Rss": 40960, "Pss": 20480, "Private_Clean": 1024, "Private_Dirty": 9216})
        private = processes.memory_mb(os.getpid(), "Private_Clean", "Private_Dirty")
        self.assertTrue(0 < private <= processes.memory_mb(os.getpid(), "Rss"))
        with self.assertRaisesRegex(MeasurementError, "smaps_rollup has no Nothing"):
            processes.memory_mb(os.getpid(), "Nothing")

    def test_that_end_have_used_what_their_children_have_and_not_what_the_harness_has(self) -> None:
        spins = "import time; until = time.process_time() + 0.2\nwhile time.process_time() < until: pass"
        child = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {spins!r}], check=True)"
        kept = bytearray(200 << 20)
        used = self.run_to_end(sys.executable, "-I", "-S", "-c", child)
        self.assertGreaterEqual(used.cpu_s, 0.2)
        self.assertLess(used.peak_mb, len(kept) / (1 << 20))

    def test_that_fail_are_shown_with_their_log(self) -> None:
        with self.assertRaisesRegex(MeasurementError, "status 3; its log:\nwords"):
            self.run_to_end("/bin/sh", "-c", "echo words; exit 3")

    def test_that_do_not_end_are_killed(self) -> None:
        with self.assertRaisesRegex(MeasurementError, "not ended after 0.5 s; its log:\n[0-9]+") as caught:
            self.run_to_end("/bin/sh", "-c", "echo $$; exec sleep 600", timeout_s=0.5)
        pid = int(str(caught.exception).split()[-1])
        while not gone(pid):
            time.sleep(0.01)

    def run_to_end(self, *command: str, timeout_s: float = 60.0) -> processes.Used:
        with tempfile.TemporaryDirectory() as directory:
            return processes.run_to_end(list(command), dict(os.environ), Path(directory) / "log", timeout_s)


def gone(pid: int) -> bool:
    """Whether a process has ended: perhaps the system has not yet waited for it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0] in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True


class Parts(unittest.TestCase):
    def names(self, *words: str) -> list[str]:
        return [each.name for each in start.series(options(*words), "inet_tcp")]

    def test_are_all_unless_told_and_quick_ones_have_no_idle_nodes(self) -> None:
        self.assertEqual(self.names(), ["boot", "live", "fresh", "running", "idle"])
        self.assertEqual(self.names("--quick"), ["boot", "live", "fresh", "running"])
        self.assertEqual(self.names("--quick", "--only", "idle,boot"), ["boot", "idle"])

    def test_have_what_the_command_line_says(self) -> None:
        series = {each.name: each for each in start.series(
            options("--nodes", "3", "--idle-seconds", "2", "--idle-rounds", "4"), "inet_tcp")}
        self.assertEqual(series["idle"].points[0].order, {"nodes": 3, "seconds": 2})
        self.assertEqual((series["idle"].most_rounds, series["boot"].most_rounds), (4, None))

    def test_take_a_ping_that_was_answered_over_their_carrier(self) -> None:
        tcp, rdma = carriers.inet_tcp(), Carrier("inet_rdma", ("-proto_dist", "inet_rdma"))
        self.assertEqual(start.ping_ms_of("pong 2500 false", tcp), 2.5)
        self.assertEqual(start.ping_ms_of("pong 2500 true", rdma), 2.5)
        for said, carrier in (("pang 2500 true", rdma), ("pong 2500 false", rdma), ("pong 2500 true", tcp)):
            with self.assertRaises(MeasurementError):
                start.ping_ms_of(said, carrier)


class Table(unittest.TestCase):
    def measured(self) -> list[Series]:
        """One series of three rounds and one of two at most; each round costs the second subject twice as much."""
        series = [
            Series("boot", "a start", "", [Figure("cpu", "CPU", "ms", False)], [Point(0, "", {})], [], baseline="one"),
            Series("idle", "idle nodes", "", [Figure("cpu", "CPU", "%", False)], [Point(0, "", {})], [],
                   baseline="one", most_rounds=2),
        ]
        counts = iter(range(1, 100))
        with contextlib.redirect_stderr(io.StringIO()):
            failures = sweep.run(series, {
                "one": lambda each, point: {"cpu": 100.0}, "two": lambda each, point: {"cpu": 100.0 * next(counts)},
            }, 3)
        self.assertEqual(failures, [])
        return series

    def test_leaves_out_rounds_beyond_those_of_a_series(self) -> None:
        self.assertEqual([len(each.rounds[""]) for each in self.measured()], [3, 2])

    def test_has_a_row_for_each_figure_and_subject_with_the_ratio_to_the_baseline(self) -> None:
        lines = sheet.table_of_all(self.measured(), ["one", "two"]).splitlines()
        self.assertEqual([line.split() for line in lines[1:]], [
            ["a", "start", "CPU", "one", "100", "100", "..", "100", "ms"],
            ["two", "300", "100", "..", "500", "ms", "3.00", "x", "1.00", "..", "5.00"],
            [],
            ["idle", "nodes", "CPU", "one", "100", "100", "..", "100", "%"],
            ["two", "300", "200", "..", "400", "%", "3.00", "x", "2.00", "..", "4.00"],
        ])

    def test_is_the_same_from_the_document(self) -> None:
        series = self.measured()
        document = json.loads(json.dumps({"series": [sheet.as_document(each, ["one", "two"]) for each in series]}))
        again = sheet.series_of(document)
        self.assertEqual(sheet.table_of_all(again, ["one", "two"]), sheet.table_of_all(series, ["one", "two"]))


class Start(unittest.TestCase):
    def run_start(self, *words: str) -> tuple[int, dict[str, Any], set[str]]:
        with tempfile.TemporaryDirectory() as directory, contextlib.redirect_stdout(io.StringIO()), \
                contextlib.redirect_stderr(io.StringIO()):
            status = cli.main(["start", *words, "--out", directory])
            document = json.loads((Path(directory) / "results.json").read_text(encoding="utf-8"))
            return status, document, {path.name for path in Path(directory).iterdir()}

    def test_measures_every_figure_over_each_carrier_and_draws_them(self) -> None:
        status, document, files = self.run_start("--rounds", "1", "--nodes", "2", "--idle-seconds", "0.5")
        self.assertEqual((status, document["failures"]), (0, []))
        self.assertEqual(files, {"results.json", "table.txt", "chart.svg", "chart.png"})
        self.assertEqual([each["name"] for each in document["series"]], list(start.FIGURES))
        for each in document["series"]:
            [measured] = each["points"][0]["rounds"]
            self.assertEqual(set(measured), {"inet_tcp", "inet_rdma"})
            for values in measured.values():
                self.assertEqual(set(values), {figure.name for figure in start.FIGURES[each["name"]]})
                # Idle nodes may do nothing within half a second.
                idle = ("cpu", "switches") if each["name"] == "idle" else ()
                self.assertTrue(all(value > 0 for name, value in values.items() if name not in idle), values)

    def test_of_nodes_that_cannot_start_is_a_failure_of_each_part_with_their_words(self) -> None:
        status, document, _ = self.run_start(
            "--only", "boot,fresh", "--rounds", "1", "--carriers", "inet_rdma", "--no-chart",
            "--rdma-flags=-inet_rdma no_such_option 1")
        self.assertEqual((status, len(document["failures"])), (1, 2))
        for failure in document["failures"]:
            self.assertIn("no_such_option", failure)


if __name__ == "__main__":
    unittest.main()
