"""Two namespaces with several networks, or flows, of a rate each, from short real runs."""

from __future__ import annotations

import contextlib
import io
import json
import re
import subprocess
import tempfile
import unittest
from pathlib import Path

from harness import cli, rails

WHY_NOT = rails.Rails(rails.NETWORKS, 2, 40).why_not()


@unittest.skipIf(WHY_NOT, WHY_NOT or "")
class Rails(unittest.TestCase):
    def test_links_have_the_networks_that_their_series_says(self) -> None:
        self.measured(rails.NETWORKS, 2)

    def test_links_have_the_flows_that_their_series_says(self) -> None:
        self.measured(rails.FLOWS, 3)

    def measured(self, ways: str, count: int) -> None:
        with tempfile.TemporaryDirectory() as directory:
            shown = io.StringIO()
            with contextlib.redirect_stdout(shown), contextlib.redirect_stderr(shown):
                status = cli.main(["rails", "--ways", ways, "--count", str(count), "--rate-mbit", "40", "--info",
                                   "--size", "64K", "--rounds", "1", "--seconds", "1", "--warmup", "0.5", "--no-chart",
                                   "--out", directory])
            document = json.loads((Path(directory) / "results.json").read_text(encoding="utf-8"))
        said = shown.getvalue()
        self.assertEqual(status, 0, said)
        self.assertIn(f"with {count} {ways} of 40 Mbit/s each", said)
        self.assertEqual(re.findall(r"^ +subflows +(\d+)$", said, re.MULTILINE), ["0", "1", str(count)])
        [[values]] = [case["rounds"] for case in document["cases"]]
        self.assertEqual(list(values), ["inet_tcp", "tcp path", "tcp path mptcp 1", f"tcp path mptcp {count}"])
        for name, figures in values.items():
            # 40 Mbit/s are 5 MB/s; what the kernel keeps from the warm-up may come on top.
            self.assertLess(figures["bandwidth"], 7 if name != f"tcp path mptcp {count}" else 7 * count, name)

    def test_leaves_nothing_behind(self) -> None:
        with rails.Rails(rails.NETWORKS, 2, 40) as between:
            self.assertTrue(all(namespace in listed() for namespace in between.namespaces))
        self.assertFalse(any(namespace in listed() for namespace in between.namespaces))


def listed() -> str:
    return subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
