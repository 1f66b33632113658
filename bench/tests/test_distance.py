"""Links between distant hosts: what is measured, and what a short real run leaves behind."""

from __future__ import annotations

import contextlib
import io
import json
import tempfile
import unittest
from pathlib import Path
from typing import Any

from harness import carriers, cli, distance, fetched, network
from harness.carriers import Carrier
from harness.distance import Setting
from harness.errors import BenchError

FRESH = {"tcp_congestion_control": "cubic", "tcp_rmem": "4096\t131072\t6291456", "tcp_wmem": "4096\t16384\t4194304"}
CARRIERS = [Carrier("inet_tcp", ()), Carrier("tcp path", ("-proto_dist", "inet_rdma"))]


def options(*words: str) -> Any:
    return cli.parser().parse_args(["distance", *words])


class Settings(unittest.TestCase):
    def test_leave_the_kernels_own_buffers_alone(self) -> None:
        self.assertEqual(Setting(0, "cubic", None).kernel(FRESH), {"tcp_congestion_control": "cubic"})

    def test_raise_the_maxima_of_buffers_alone(self) -> None:
        self.assertEqual(Setting(0, "reno", 64 << 20).kernel(FRESH), {
            "tcp_congestion_control": "reno", "tcp_rmem": "4096 131072 67108864", "tcp_wmem": "4096 16384 67108864",
        })

    def test_have_names_of_files_that_differ(self) -> None:
        settings = [Setting(0, "bbr", None), Setting(0.1, "bbr", None), Setting(0, "bbr", 64 << 20)]
        self.assertEqual([setting.name for setting in settings], ["bbr-default", "bbr-default-loss0.1", "bbr-64MB"])

    def test_come_from_lists_of_the_command_line(self) -> None:
        chosen = options("--buffers", "default,1M", "--loss", "0,0.1", "--rtt-ms", "20,0.5", "--congestion", "bbr,reno")
        self.assertEqual((chosen.buffers, chosen.loss), ([None, 1 << 20], [0, 0.1]))
        self.assertEqual((chosen.rtt_ms, chosen.congestion), ([20, 0.5], ["bbr", "reno"]))
        self.assertEqual((options().buffers, options().mtu), ([None, 64 << 20], 9000))

    def test_that_are_none_are_refused(self) -> None:
        for words in (["--buffers", "0"], ["--rtt-ms", "0"], ["--loss", "-1"], ["--mtu", "9001"], ["--only", "rpc"]):
            with contextlib.redirect_stderr(io.StringIO()), self.assertRaises(SystemExit):
                options(*words)


class Measurements(unittest.TestCase):
    def test_take_at_least_thirty_round_trips_unless_told(self) -> None:
        near, far = distance.timing(20, options()), distance.timing(1000, options())
        self.assertEqual((near.warmup_s, near.seconds), (distance.WARMUP_S, distance.SECONDS))
        self.assertEqual((far.warmup_s, far.seconds), (30, 30))
        told = distance.timing(1000, options("--warmup", "1", "--seconds", "2"))
        self.assertEqual((told.warmup_s, told.seconds), (1, 2))
        self.assertEqual(distance.timing(20, options("--quick")).seconds, distance.QUICK_SECONDS)

    def test_are_points_by_round_trip_that_compare_with_otps_carriers(self) -> None:
        series = distance.series_of("ping", Setting(0.1, "bbr", None), [20.0, 0.5], 100.0, CARRIERS)
        self.assertEqual([(point.label, point.order["rtt_ms"]) for point in series.points], [("20", 20), ("0.5", 0.5)])
        self.assertEqual((series.name, series.compared), ("ping-bbr-default-loss0.1", ["tcp path", "inet_tcp"]))
        self.assertIn("100 Mbit/s, 0.1 % loss, bbr, socket buffers the kernel's own", series.title)

    def test_say_how_busy_the_machine_was(self) -> None:
        # 100 messages a second of 5 ms each keep half a core busy, and others as much.
        values = {"bandwidth": 100 * (1 << 20) / 1e6, "cpu": 5000.0, "foreign_cores": 0.5}
        self.assertAlmostEqual(distance.figures_of(distance.CASES["throughput"], values, 2)["busy"], 50)

    def test_say_round_trips_in_milliseconds(self) -> None:
        values = {"p50": 20_500.0, "p99": 99_000.0, "bulk": 80.0, "samples": 7.0}
        self.assertEqual(distance.figures_of(distance.CASES["ping"], values, 2),
                         {"p50": 20.5, "p99": 99.0, "bulk": 80.0, "samples": 7.0})


class Fetched(unittest.TestCase):
    def test_sources_are_those_of_the_commit_and_are_fetched_once(self) -> None:
        with tempfile.TemporaryDirectory() as directory:
            origin, target = Path(directory) / "origin", Path(directory) / "target"
            origin.mkdir()
            fetched.git(origin, "init", "--quiet")
            (origin / "file").write_text("one", encoding="utf-8")
            fetched.git(origin, "add", "file")
            fetched.git(origin, "-c", "user.name=a", "-c", "user.email=a@localhost", "commit", "-qm", "one")
            commit = fetched.git(origin, "rev-parse", "HEAD")
            fetched.fetch(str(origin), commit, target)
            self.assertEqual((target / "file").read_text(encoding="utf-8"), "one")
            fetched.fetch(f"{directory}/nowhere", commit, target)

    def test_a_carrier_whose_sources_cannot_be_fetched_is_missing_with_the_reason(self) -> None:
        with tempfile.TemporaryDirectory() as directory:
            nowhere = {"gen_rpc": (f"{directory}/nowhere", "0" * 40)}
            with self.assertRaisesRegex(carriers.Missing, "git fetch failed: .*nowhere"):
                carriers.gen_rpc(nowhere, Path(directory) / "target")


@unittest.skipIf(network.why_not(), network.why_not() or "")
class Distance(unittest.TestCase):
    def test_measures_over_a_network_of_that_round_trip_and_draws_a_chart_for_each_work(self) -> None:
        with tempfile.TemporaryDirectory() as directory:
            shown = io.StringIO()
            with contextlib.redirect_stdout(shown), contextlib.redirect_stderr(shown):
                status = cli.main(["distance", "--rtt-ms", "40", "--rate-mbit", "400", "--buffers", "1M", "--rounds",
                                   "1", "--congestion", "reno", "--warmup", "0.5",
                                   # A ping behind four large messages may take more than 2 s.
                                   "--seconds", "6", "--out", directory])
            self.assertEqual(status, 0, shown.getvalue())
            document = json.loads((Path(directory) / "results.json").read_text(encoding="utf-8"))
            names = {"throughput-reno-1MB", "ping-reno-1MB"}
            self.assertEqual({path.name for path in Path(directory).iterdir()},
                             {f"{name}.{suffix}" for name in names for suffix in ("png", "svg")}
                             | {"results.json", "table.txt"})
        self.assertEqual({each["name"] for each in document["series"]}, names)
        for each in document["series"]:
            [measured] = each["points"][0]["rounds"]
            self.assertEqual(set(measured), {"inet_tcp", "tcp path"})
            for values in measured.values():
                if "p50" in values:
                    self.assertGreaterEqual(values["p50"], 40)
                else:
                    # 400 Mbit/s are 50 MB/s; what the wire keeps of the start may come on top.
                    self.assertLess(values["bandwidth"], 60)

    def test_an_unknown_congestion_control_is_refused(self) -> None:
        with self.assertRaisesRegex(BenchError, "no_such_control"):
            distance.kernel_settings(["no_such_control"])


if __name__ == "__main__":
    unittest.main()
