"""What the commands that measure the stream without the BEAM leave behind, from short real runs."""

from __future__ import annotations

import contextlib
import io
import json
import tempfile
import unittest
from pathlib import Path
from typing import Any

from harness import cli, fabric, peers, perf, stream
from harness.errors import MeasurementError
from harness.sweep import Figure, against_better

SHORT = {"seconds": 0.05, "warmup": 0.02}
SHORT_FLAGS = ["--seconds", "0.05", "--warmup", "0.02", "--rounds", "2", "--no-chart"]


def run(*arguments: str) -> tuple[int, dict[str, Any], str]:
    """Exit status, results.json and table.txt."""
    with tempfile.TemporaryDirectory() as directory, contextlib.redirect_stdout(io.StringIO()), \
            contextlib.redirect_stderr(io.StringIO()):
        status = cli.main([*arguments, *SHORT_FLAGS, "--out", directory])
        document = json.loads((Path(directory) / "results.json").read_text(encoding="utf-8"))
        return status, document, (Path(directory) / "table.txt").read_text(encoding="utf-8")


def refused(*arguments: str) -> str:
    """The message to a user that asks for something impossible."""
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        status = cli.main([*arguments, *SHORT_FLAGS])
    if status == 0:
        raise AssertionError(f"{arguments} went well")
    return said.getvalue()


class Program(unittest.TestCase):
    def setUp(self) -> None:
        self.server = perf.Server(None)
        self.addCleanup(self.server.__exit__)

    def test_every_byte_that_was_sent_arrived_the_way_that_the_mode_says(self) -> None:
        for size in (1, 512, 65_536, 3_000_000):
            for mode in stream.MODES:
                with self.subTest(size=size, mode=mode):
                    order = {"size": size, "mode": mode, "polling": "reader", **SHORT}
                    values, said = perf.measure(self.server.address, order, None)
                    client, server = said["client"], said["server"]
                    self.assertEqual(client["messages"], server["messages"])
                    # Each message has a length of four bytes before it, and the two marks are such a length alone.
                    self.assertEqual(client["direct_bytes"] + client["indirect_bytes"],
                                     client["messages"] * (size + 4) + 8)
                    if mode != "dynamic":
                        self.assertEqual(values["direct_transfers"], 100.0 if mode == "direct_only" else 0.0)

    def test_small_messages_and_large_ones_take_turns(self) -> None:
        # Each run of large messages is more than the ring holds, so the sender has to wait and finds it read.
        order = {"size": 1_000_000, "small": 1_000, "large": 3, "polling": "reader", "direct_bytes": 16_384, **SHORT}
        _values, said = perf.measure(self.server.address, order, None)
        client = said["client"]
        turn = 1_000 * 512 + 3 * 1_000_000
        self.assertLessEqual(abs(perf.carried_bytes(said) - client["messages"] // 1_003 * turn), turn)
        self.assertTrue(client["direct_bytes"] > 0 and client["indirect_bytes"] > 0)

    def test_times_round_trips_whoever_polls(self) -> None:
        for polling in fabric.POLLING:
            with self.subTest(polling=polling):
                order = {"test": "pingpong", "size": 100, "polling": polling, **SHORT}
                values, said = perf.measure(self.server.address, order, None)
                self.assertEqual(said["latency"]["count"], said["server"]["messages"])
                self.assertTrue(0 < values["min"] <= values["p50"] <= values["p99"])

    def test_says_what_is_wrong_and_serves_the_next(self) -> None:
        with self.assertRaisesRegex(MeasurementError, "a ring of 0 bytes"):
            perf.measure(self.server.address, {"ring_bytes": 0, **SHORT}, None)
        with self.assertRaisesRegex(MeasurementError, "--receives take"):
            perf.measure(self.server.address, {"size": 1 << 30, "receives": 8, **SHORT}, None)
        perf.measure(self.server.address, SHORT, None)


class Stream(unittest.TestCase):
    def test_measures_every_mode_at_every_point(self) -> None:
        status, document, table = run("stream", "--quick", "--only", "size,half,ahead", "--size", "4K,64K")
        self.assertEqual((status, document["failures"]), (0, []))
        self.assertEqual([each["name"] for each in document["series"]], ["size", "half-64KB", "ahead-64KB"])
        for each in document["series"]:
            for point in each["points"]:
                self.assertEqual(len(point["rounds"]), 2)
                for measured in point["rounds"]:
                    self.assertEqual(set(measured), set(stream.MODES))
                self.assertEqual(set(point["figures"]), {figure.name for figure in stream.FIGURES})
                self.assertEqual(point["figures"]["direct_bytes"]["direct_only"]["median"], 100.0)
                self.assertEqual(point["figures"]["direct_bytes"]["indirect_only"]["median"], 0.0)
        self.assertIn("dynamic / better of the others", table)

    def test_is_slower_the_farther_it_goes(self) -> None:
        # One round on a machine with other work says little: the best of a few.
        best: dict[str, list[float]] = {mode: [0.0, 0.0, 0.0] for mode in stream.MODES}
        for _ in range(4):
            _, document, _ = run("stream", "--quick", "--only", "distance")
            rounds = [point["rounds"][0] for point in document["series"][0]["points"]]
            for mode in stream.MODES:
                measured = [each[mode]["bandwidth"] for each in rounds]
                best[mode] = [max(pair) for pair in zip(best[mode], measured, strict=True)]
            if all(near > far for near, _, far in best.values()):
                return
        self.fail(f"the bandwidth does not fall with the distance: {best}")

    def test_netem_wants_another_host_and_says_what_it_takes(self) -> None:
        options = ("stream", "--quick", "--only", "distance", "--netem")
        self.assertIn("--address", refused(*options, "lo"))
        heard = refused(*options, "no-such-device", "--address", "127.0.0.1:1")
        self.assertRegex(heard, "no-such-device|install iproute2")


class Fabric(unittest.TestCase):
    def test_measures_every_way_to_wait_and_the_peers_that_are_installed(self) -> None:
        status, document, _ = run("fabric", "--size", "16,64K")
        self.assertEqual((status, document["failures"]), (0, []))
        absent = 0
        for each, known in zip(document["series"], (peers.latency_peers(), peers.bandwidth_peers()), strict=True):
            found, notes = peers.installed(known)
            absent += len(notes)
            for note in notes:
                print(f"\nskipped: {note}")
            self.assertEqual(set(each["points"][0]["rounds"][0]), {*fabric.POLLING, "busy, read", *found})
            self.assertEqual(each["points"][1]["label"], "64 KB")
        self.assertEqual(absent, sum("left out" in note for note in document["notes"]))


class Comparison(unittest.TestCase):
    def test_is_with_the_better_of_the_others_in_each_round(self) -> None:
        rounds = [{"a": {"f": 4.0}, "b": {"f": 2.0}, "c": {"f": 8.0}}, {"a": {"f": 4.0}, "b": {"f": 1.0}}]
        most, least = Figure("f", "", ""), Figure("f", "", "", higher_is_better=False)
        found = [against_better(rounds, "a", ["b", "c"], figure) for figure in (most, least)]
        self.assertEqual([(each.median, each.rounds) for each in found if each], [(0.5, 1), (2.0, 1)])


if __name__ == "__main__":
    unittest.main()
