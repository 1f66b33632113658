"""Connections of links that are cut under load, and the last lines of the demonstration."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import unittest
from pathlib import Path

from harness import carriers, cuts, paths, verdict
from harness.cases import Case
from harness.cuts import Outcome
from harness.runner import Results

WHY_NOT = cuts.why_not()


@unittest.skipIf(WHY_NOT, WHY_NOT)
class Cuts(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        paths.compile_workers()

    def test_cost_inet_tcp_its_link_and_calls(self) -> None:
        told: list[str] = []
        outcome = cuts.survive(carriers.inet_tcp(), 2, told.append)
        # At either node, for each cut.
        self.assertEqual(outcome.nodedowns, 4)
        self.assertGreaterEqual(outcome.failed, 2)
        self.assertGreater(outcome.calls, outcome.failed)
        self.assertEqual(len(told), 2)
        for line in told:
            self.assertRegex(line, r"^ss -K -tn src \S+:\d+ dst \S+:\d+   2 nodedowns, [1-9]\d* failed calls?$")

    def test_cost_inet_rdma_over_tcp_nothing(self) -> None:
        told: list[str] = []
        outcome = cuts.survive(carriers.tcp_path([]), 2, told.append)
        self.assertEqual((outcome.nodedowns, outcome.failed), (0, 0))
        self.assertGreater(outcome.calls, 0)
        self.assertEqual([line.partition("   ")[2] for line in told], ["0 nodedowns, 0 failed calls"] * 2)
        self.assertEqual(len({line.partition("   ")[0] for line in told}), 2, "the second cut is of another connection")


class Refused(unittest.TestCase):
    def said(self, command: list[str], environment: dict[str, str]) -> str:
        query = "from harness import cuts; print(cuts.why_not())"
        return subprocess.run([*command, sys.executable, "-B", "-c", query], cwd=paths.BENCH, env=environment,
                              capture_output=True, text=True, check=True).stdout

    def test_without_the_program(self) -> None:
        self.assertIn("ss is missing", self.said([], {**os.environ, "PATH": "/nonexistent"}))

    @unittest.skipIf(WHY_NOT or not shutil.which("setpriv"), WHY_NOT or "setpriv is missing")
    def test_without_the_right(self) -> None:
        command = ["setpriv", "--inh-caps=-net_admin", "--bounding-set=-net_admin"]
        self.assertIn("takes root", self.said(command, dict(os.environ)))


TWO, FOUR = (Case("rpc", nodes=nodes, procs=100) for nodes in (2, 4))
RESULTS = Results(["inet_tcp", "inet_rdma"], "inet_tcp", [TWO, FOUR], {
    TWO: [
        {"inet_tcp": {"rate": 1000.0, "cpu": 10.0}, "inet_rdma": {"rate": 4000.0, "cpu": 2.0}},
        {"inet_tcp": {"rate": 1000.0, "cpu": 10.0}, "inet_rdma": {"rate": 2000.0, "cpu": 4.0}},
        {"inet_tcp": {"rate": 1000.0, "cpu": 10.0}, "inet_rdma": {"rate": 3000.0, "cpu": 3.0}},
    ],
    FOUR: [{"inet_tcp": {"rate": 1500.0, "cpu": 10.0}, "inet_rdma": {"rate": 750.0, "cpu": 12.0}}],
})


class LastLines(unittest.TestCase):
    def test_compare_rate_and_cpu_in_words(self) -> None:
        self.assertEqual(
            verdict.comparison(RESULTS, TWO, "inet_rdma"),
            "2 nodes: inet_rdma makes 3.0 times the calls of inet_tcp (2.0 to 4.0 in 3 rounds), "
            "with 70 % less CPU for each.")
        self.assertEqual(
            verdict.comparison(RESULTS, FOUR, "inet_rdma"),
            "4 nodes: inet_rdma makes 0.5 times the calls of inet_tcp (0.5 to 0.5 in 1 round), "
            "with 20 % more CPU for each.")

    def test_say_what_was_not_measured(self) -> None:
        rounds = [{"inet_tcp": {"rate": 1.0, "cpu": 1.0}}]
        results = Results(["inet_tcp", "inet_rdma"], "inet_tcp", [TWO], {TWO: rounds})
        self.assertEqual(verdict.comparison(results, TWO, "inet_rdma"),
                         "2 nodes: inet_rdma and inet_tcp were not both measured.")
        self.assertTrue(verdict.bars(results)[1].endswith("inet_rdma  failed"))

    def test_draw_bars_as_long_as_the_rates(self) -> None:
        bars = verdict.bars(RESULTS)
        self.assertEqual([bar.count("#") * 3000 // verdict.BAR_WIDTH for bar in bars], [1022, 3000, 1500, 750])
        self.assertEqual([bar.split()[0] for bar in bars], ["2", "inet_rdma", "4", "inet_rdma"])
        self.assertEqual([bar.split()[-1] for bar in bars], ["1,000", "3,000", "1,500", "750"])

    def test_show_outcomes_in_columns(self) -> None:
        outcomes = {"inet_tcp": Outcome(10, 9000, 500, 7.4), "other": Outcome(0, 12345, 0, 30.6)}
        lines = verdict.survival("2 times", outcomes)
        self.assertEqual(lines, [
            "The TCP connection of a link was cut 2 times:",
            "  inet_tcp  10 nodedowns, 500 of  9,000 calls failed, longest call  7 ms",
            "  other      0 nodedowns,   0 of 12,345 calls failed, longest call 31 ms",
        ])

    def test_show_why_there_is_no_outcome(self) -> None:
        lines = verdict.survival("2 times", {"inet_tcp": "failed: gone", "other": Outcome(0, 5, 0, 1.0)})
        self.assertEqual(lines[1], "  inet_tcp  failed: gone")
        self.assertTrue(lines[2].endswith(" 0 of 5 calls failed, longest call 1 ms"))
        self.assertEqual(verdict.survival("", {"inet_tcp": "failed: gone"})[1:], ["  inet_tcp  failed: gone"])

    def test_are_twenty_at_most_on_a_disturbed_machine_too(self) -> None:
        rounds = [{carrier: {"rate": 1.0, "cpu": 1.0, "foreign_cores": 1.0} for carrier in RESULTS.carriers}]
        results = Results(RESULTS.carriers, "inet_tcp", [TWO, FOUR], {TWO: rounds, FOUR: rounds}, cores=2)
        seen = verdict.survival("2 times", {"inet_tcp": Outcome(1, 2, 3, 4.0), "other": Outcome(1, 2, 3, 4.0)})
        lines = verdict.last_lines(results, 100, seen, Path("chart.png"), "-proto_dist inet_rdma")
        self.assertLessEqual(len(lines), 20)
        self.assertEqual([line for line in lines if "\n" in line], [])
        for wanted in (*verdict.bars(results), "  erl -proto_dist inet_rdma -sname a", *seen):
            self.assertIn(wanted, lines)
        self.assertIn("note: other processes used more than 5 %", "\n".join(lines))

    def test_have_the_flags_of_the_makefile_and_the_dependencies_of_the_guide(self) -> None:
        made = subprocess.run(["make", "-s", "erl-flags"], cwd=paths.REPO, capture_output=True, text=True, check=True,
                              env={**os.environ, "MIX_ENV": "dev"}).stdout.strip()
        self.assertEqual(" ".join(carriers.inet_rdma([]).flags), made)
        guide = (paths.REPO / "docs" / "DEPLOY.md").read_text(encoding="utf-8").splitlines()
        for dependency in (verdict.MIX_DEPENDENCY.format("../inet_rdma"), verdict.REBAR_DEPENDENCY):
            self.assertIn(f"    {dependency}", guide)


if __name__ == "__main__":
    unittest.main()
