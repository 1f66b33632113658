"""Two namespaces of this host with a wire between them, from a short real run."""

from __future__ import annotations

import contextlib
import io
import json
import subprocess
import tempfile
import unittest
from pathlib import Path

from harness import cli, network


@unittest.skipIf(network.why_not(), network.why_not() or "")
class Network(unittest.TestCase):
    def measured(self, *words: str) -> tuple[int, str, dict]:
        with tempfile.TemporaryDirectory() as directory:
            shown = io.StringIO()
            with contextlib.redirect_stdout(shown), contextlib.redirect_stderr(shown):
                status = cli.main(["network", "--carriers", "inet_tcp", "--seconds", "0.5", "--warmup", "0.2",
                                   "--rounds", "1", "--no-chart", "--out", directory, *words])
            document = json.loads((Path(directory) / "results.json").read_text(encoding="utf-8"))
        return status, shown.getvalue(), document

    def test_round_trips_take_twice_the_delay(self) -> None:
        status, shown, document = self.measured("--delay-ms", "20", "--only", "latency")
        self.assertEqual(status, 0, shown)
        self.assertIn("20 ms each way, 1000 Mbit/s, 0 % loss", shown)
        [case] = document["cases"]
        self.assertGreaterEqual(case["rounds"][0]["inet_tcp"]["min"], 40_000)

    def test_bulk_is_not_faster_than_the_rate(self) -> None:
        status, shown, document = self.measured("--rate-mbit", "80", "--loss", "0.1", "--only", "throughput", "--quick")
        self.assertEqual(status, 0, shown)
        one_way = [case for case in document["cases"] if not case["both_ways"]]
        for case in one_way:
            # 80 Mbit/s are 10 MB/s; what the wire keeps of the start may come on top.
            self.assertLess(case["rounds"][0]["inet_tcp"]["bandwidth"], 15)

    def test_leaves_nothing_behind(self) -> None:
        with network.Network(0.1, 100, 0) as between:
            listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
            self.assertTrue(all(namespace in listed for namespace in between.namespaces))
        listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
        self.assertFalse(any(namespace in listed for namespace in between.namespaces))

    def test_words_that_are_no_network_are_refused(self) -> None:
        for words in (["--loss", "-1"], ["--rate-mbit", "0"], ["--delay-ms", "-1"]):
            with contextlib.redirect_stderr(io.StringIO()), self.assertRaises(SystemExit):
                cli.parser().parse_args(["network", *words])
