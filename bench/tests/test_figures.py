"""What the harness computes from what it measured."""

from __future__ import annotations

import argparse
import json
import unittest

from harness import headline, paths
from harness.arguments import size, variant
from harness.carriers import OTP_DRIVER, PORT, PROCESS, RDMA, TCP_PATH, Carrier, baseline, select
from harness.cases import OTHERS, TESTS, Case, bytes_text, suite
from harness.cli import parser
from harness.control import Atom, term
from harness.errors import BenchError
from harness.report import as_json, case_document, case_of
from harness.runner import Results
from harness.stats import Spread, absolute, ratio
from harness.table import number


ROUNDS = [
    {"inet_tcp": {"rate": 100.0}, "other": {"rate": 150.0}},
    {"inet_tcp": {"rate": 10.0}, "other": {"rate": 30.0}},
    {"inet_tcp": {"rate": 200.0}, "other": {"rate": 400.0}},
]


class Headline(unittest.TestCase):
    def test_finds_its_rows_in_the_published_table(self) -> None:
        table = (paths.BENCH / "results" / "set" / "table.txt").read_text(encoding="utf-8")
        for wanted in (headline.MORE, headline.LESS):
            bars = headline.bars(table, wanted)
            self.assertEqual([bar.label for bar in bars], [label for _, _, label in wanted])
            self.assertTrue(all(bar.low <= bar.ratio <= bar.high for bar in bars))

    def test_names_a_row_that_the_table_does_not_have(self) -> None:
        with self.assertRaisesRegex(BenchError, "no ratio of inet_rdma for no such test, rate"):
            headline.bars("", [("no such test", "rate", "")])


class Ratios(unittest.TestCase):
    def test_are_taken_within_a_round_and_not_between_medians(self) -> None:
        self.assertEqual(ratio(ROUNDS, "other", "inet_tcp", "rate"), Spread(median=2.0, low=1.5, high=3.0, rounds=3))
        # Between the medians it would be 150 / 100.
        self.assertEqual(absolute(ROUNDS, "other", "rate"), Spread(median=150.0, low=30.0, high=400.0, rounds=3))

    def test_leave_out_rounds_in_which_one_side_failed(self) -> None:
        rounds = [*ROUNDS, {"other": {"rate": 1e9}}, {"inet_tcp": {"rate": 1e-9}}]
        self.assertEqual(ratio(rounds, "other", "inet_tcp", "rate"), ratio(ROUNDS, "other", "inet_tcp", "rate"))

    def test_are_absent_when_every_round_failed(self) -> None:
        self.assertIsNone(ratio([{}, {}], "other", "inet_tcp", "rate"))


class Links(unittest.TestCase):
    def objection(self, kind: str, controller: str, fabric: str, driver: str = "none") -> str | None:
        link = {"controller": controller, "fabric": fabric, "driver": driver}
        return Carrier("any", (), link=kind).objection(link)

    def test_of_inet_rdma_are_those_that_it_lists_with_a_fabric_other_than_tcp(self) -> None:
        for controller in ("port", "process"):
            for fabric in ("shm", "verbs"):
                self.assertIsNone(self.objection(RDMA, controller, fabric))
            self.assertIn("left the link on TCP", self.objection(RDMA, controller, "tcp") or "")
            self.assertIn("does not list the link", self.objection(RDMA, controller, "none") or "")

    def test_of_the_tcp_path_are_listed_with_tcp_and_not_of_otps_driver(self) -> None:
        self.assertIsNone(self.objection(TCP_PATH, "port", "tcp", "inet_rdma_nif"))
        self.assertIn("OTP's driver", self.objection(TCP_PATH, "port", "tcp", OTP_DRIVER) or "")
        for fabric in ("shm", "none"):
            self.assertIn(f"fabric {fabric}", self.objection(TCP_PATH, "port", fabric, "inet_rdma_nif") or "")

    def test_of_other_carriers_are_of_their_kind_and_not_listed_by_inet_rdma(self) -> None:
        for kind, other in ((PORT, PROCESS), (PROCESS, PORT)):
            self.assertIsNone(self.objection(kind, kind, "none"))
            self.assertIn(f"is a {other}, not a {kind}", self.objection(kind, other, "none") or "")
            for fabric in ("shm", "tcp"):
                self.assertIn(f"over {fabric}", self.objection(kind, kind, fabric) or "")


class TcpPath(unittest.TestCase):
    def test_is_inet_rdma_over_tcp_alone_and_a_column_of_the_whole_set(self) -> None:
        names = parser().parse_args(["all"]).carriers
        self.assertEqual(names[:3], ["inet_tcp", "tcp_path", "inet_rdma"])
        [tcp, path], _ = select(["inet_tcp", "tcp_path"], ["-inet_rdma", "spin_us", "0"], {})
        self.assertEqual(path.name, "tcp path")
        self.assertEqual(path.flags[-6:], ("-inet_rdma", "spin_us", "0", "-inet_rdma", "fabric", "tcp"))
        self.assertEqual(baseline([path, tcp]), "inet_tcp")

    def test_is_also_a_variant_whose_flags_ask_for_it(self) -> None:
        variants = {"before": ["-inet_rdma", "fabric", "tcp", "-inet_rdma", "spin_us", "0"],
                    "shm": ["-inet_rdma", "fabric", "shm"], "other": ["-inet_rdma", "spin_us", "0"]}
        chosen, _ = select(["tcp_path"], [], variants)
        self.assertEqual([carrier.link for carrier in chosen], [TCP_PATH, TCP_PATH, RDMA, RDMA])

    def test_has_its_rate_and_cpu_and_their_ratios_to_inet_tcp(self) -> None:
        case = Case("rpc", procs=100)
        rounds = [{"inet_tcp": {"rate": 100.0, "cpu": 20.0}, "tcp path": {"rate": 210.0, "cpu": 9.0}}]
        results = Results(["inet_tcp", "tcp path"], "inet_tcp", [case], {case: rounds})
        metrics = case_document(results, case)["metrics"]
        for metric, value, relative in (("rate", 210.0, 2.1), ("cpu", 9.0, 0.45)):
            measured = metrics[metric]["carriers"]["tcp path"]
            self.assertEqual((measured["value"]["median"], measured["ratio"]["median"]), (value, relative))


class Orders(unittest.TestCase):
    def test_are_erlang_terms(self) -> None:
        order = (7, (Atom("start"), Atom("rpc"), {"nodes": [Atom("a@b")], "procs": 3}))
        self.assertEqual(term(order), "{7,{'start','rpc',#{'nodes' => ['a@b'],'procs' => 3}}}")

    def test_quote_what_would_end_an_atom_or_text(self) -> None:
        self.assertEqual(term([Atom("it's"), 'say "no"\\']), """['it\\'s',<<"say \\"no\\"\\\\">>]""")


class CommandLine(unittest.TestCase):
    def test_reads_sizes_with_units(self) -> None:
        self.assertEqual([size("16"), size("64K"), size("1m")], [16, 65536, 1048576])

    def test_refuses_a_negative_size(self) -> None:
        with self.assertRaises(argparse.ArgumentTypeError):
            size("-1")

    def test_makes_a_case_of_every_combination(self) -> None:
        options = parser().parse_args(["rpc", "--nodes", "2,4", "--procs", "10,100"])
        cases = {(case.nodes, case.procs) for case in options.cases(options)}
        self.assertEqual(cases, {(2, 10), (2, 100), (4, 10), (4, 100)})

    def test_sends_both_ways_when_asked_to(self) -> None:
        for words, both in (["throughput", "--size", "1M"], False), (["throughput", "--both-ways"], True):
            options = parser().parse_args(words)
            self.assertEqual({case.both_ways for case in options.cases(options)}, {both})

    def test_busy_is_round_trip_one_way_and_rpc_each_once(self) -> None:
        options = parser().parse_args(["busy", "--busy", "7", "--procs", "3,9", "--size", "64"])
        titles = [case.title for case in options.cases(options)]
        self.assertEqual(titles, [
            "round trip, 16 B, 7 spinning", "one-way 64 B, 4 senders, 7 spinning",
            "rpc, 2 nodes, 3 processes, 7 spinning", "rpc, 2 nodes, 9 processes, 7 spinning",
        ])

    def test_only_busy_leaves_out_the_same_tests_on_idle_nodes(self) -> None:
        for test, busy in (("busy", {50}), ("latency", {0})):
            options = parser().parse_args(["all", "--only", test])
            self.assertEqual({case.busy for case in options.cases(options)}, busy)

    def test_reads_a_variant(self) -> None:
        self.assertEqual(variant("busy=-inet_rdma polling busy"), ("busy", ["-inet_rdma", "polling", "busy"]))



class Charts(unittest.TestCase):
    def test_show_every_case_but_idle_once_with_both_figures(self) -> None:
        try:
            from harness.chart import BANDS
        except ImportError as missing:
            self.skipTest(f"no chart: {missing}")
        for case in suite(quick=False):
            with self.subTest(case.title):
                bands = [band for band in BANDS if band.has(case)]
                self.assertEqual(len(bands), 0 if case.workload == "idle" else 1)
                names = {metric.name for metric in case.metrics}
                self.assertTrue(all(names & set(band.left) and names & set(band.right) for band in bands))


class Documents(unittest.TestCase):
    def test_give_back_every_case_of_the_set(self) -> None:
        for case in suite(quick=False):
            results = Results(["inet_tcp"], "inet_tcp", [case], {case: []})
            self.assertEqual(case_of(json.loads(as_json(case_document(results, case)))), case)

    def test_of_earlier_versions_lack_later_fields(self) -> None:
        earlier = {
            "workload": "rpc", "nodes": 2, "procs": 9, "size": 0, "senders": 0, "bulk": 0, "erl_flags": ["+S", "1"],
        }
        self.assertEqual(case_of(earlier), Case("rpc", nodes=2, procs=9, erl_flags=("+S", "1")))


class Suite(unittest.TestCase):
    def test_has_every_workload_once_or_more_and_no_title_twice(self) -> None:
        for quick in (True, False):
            cases = suite(quick)
            self.assertEqual({case.test for case in cases}, set(TESTS))
            self.assertEqual(len({case.title for case in cases}), len(cases))

    def test_has_bulk_both_ways_and_busy_nodes_with_one_scheduler(self) -> None:
        cases = suite(quick=False)
        self.assertTrue(any(case.both_ways for case in cases))
        busy = {(case.workload, case.erl_flags) for case in cases if case.busy == 50}
        self.assertEqual(busy, {(w, flags) for w in ("latency", "rate", "rpc") for flags in ((), ("+S", "1"))})

    def test_busy_cases_have_the_work_of_others_in_place_of_cpu(self) -> None:
        names = [metric.name for metric in Case("rpc", procs=1, busy=2).metrics if metric.shown]
        self.assertEqual(names, ["rate", OTHERS.name])
        self.assertIn("cpu", [metric.name for metric in Case("rpc", procs=1).metrics])

    def test_titles_are_words(self) -> None:
        self.assertEqual(Case("rpc", nodes=2, procs=1).title, "rpc, 2 nodes, 1 process")
        texts = [bytes_text(size) for size in (16, 1024, 65536, 1 << 24, 1500)]
        self.assertEqual(texts, ["16 B", "1 KB", "64 KB", "16 MB", "1500 B"])

    def test_numbers_keep_three_digits(self) -> None:
        self.assertEqual([number(n) for n in (54321.4, 45.31, 7.256, 0.0412)], ["54,321", "45.3", "7.26", "0.041"])


if __name__ == "__main__":
    unittest.main()
