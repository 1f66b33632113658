"""Faults of a network between namespaces, from a short real run."""

from __future__ import annotations

import contextlib
import io
import json
import subprocess
import tempfile
import unittest
from pathlib import Path

from harness import cli, faultnet, faults, paths
from harness.errors import BenchError
from harness.scene import Scene


def why_not() -> str:
    try:
        faultnet.check()
    except BenchError as error:
        return str(error)
    return ""


def text(file: Path) -> str:
    try:
        return file.read_text(errors="replace")
    except OSError:
        return ""


@unittest.skipIf(why_not(), why_not())
class Faults(unittest.TestCase):
    def measured(self, *words: str) -> tuple[int, str, dict]:
        with tempfile.TemporaryDirectory() as directory:
            shown = io.StringIO()
            with contextlib.redirect_stdout(shown), contextlib.redirect_stderr(shown):
                status = cli.main(["faults", "--rounds", "1", "--ticktime", "8", "--out", directory, *words])
            document = json.loads((Path(directory) / "results.json").read_text(encoding="utf-8"))
        return status, shown.getvalue(), document

    def test_a_forgotten_connection_ends_over_inet_tcp_and_goes_on_over_inet_rdma(self) -> None:
        status, shown, document = self.measured("--rows", "forgotten", "--jobs", "2")
        self.assertEqual(status, 0, shown)
        [point] = document["series"][0]["points"]
        [values] = point["rounds"]
        self.assertEqual(values["inet_tcp"]["nodedowns"], 2)
        self.assertGreater(values["inet_tcp"]["failed"], 0)
        self.assertNotIn("resumes", values["inet_tcp"])
        for name in ("nodedowns", "failed", "lost"):
            self.assertEqual(values["inet_rdma"][name], 0, name)
        self.assertGreaterEqual(values["inet_rdma"]["resumes"], 1)

    def test_a_stall_is_as_long_as_the_network_is_away(self) -> None:
        status, shown, document = self.measured("--rows", "away_2", "--carriers", "inet_tcp", "--ipv6")
        self.assertEqual(status, 0, shown)
        [point] = document["series"][0]["points"]
        self.assertGreaterEqual(point["rounds"][0]["inet_tcp"]["stall"], 2)

    def test_shows_no_cookie_on_a_command_line(self) -> None:
        paths.compile_workers()
        with faultnet.Net(2) as net:
            scene = Scene(net, [], paths.erl_program(), 8, faults.ROWS[0])
            shown = [line for file in Path("/proc").glob("[0-9]*/cmdline") if scene.node("b") in (line := text(file))]
            scene.close()
        self.assertTrue(shown)
        self.assertFalse([line for line in shown if "-setcookie" in line])

    def test_the_time_from_a_kill_to_the_nodedown_is_of_the_last_node(self) -> None:
        status, shown, document = self.measured("--rows", "kill_idle,kill_ports,kill_proxy_idle", "--carriers",
                                                "inet_tcp")
        self.assertEqual(status, 0, shown)
        [series] = document["series"]
        for point in series["points"]:
            self.assertGreater(point["rounds"][0]["inet_tcp"]["down"], 0, point["label"])

    def test_leaves_nothing_behind(self) -> None:
        with faultnet.Net(2) as net:
            namespaces = {net.container("b", [80])[3], *(net.within(host)[3] for host in net.hosts)}
            self.assertLessEqual(namespaces, self.namespaces())
        self.assertFalse(namespaces & self.namespaces())
        self.assertFalse([name for name in namespaces if Path("/etc/netns", name).exists()])

    def namespaces(self) -> set[str]:
        listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
        return {line.split()[0] for line in listed.splitlines()}


class Words(unittest.TestCase):
    def test_unknown_rows_and_carriers_are_refused(self) -> None:
        for words in (["--rows", "no_such_row"], ["--carriers", "gen_tcp", "--rows", "away_2"]):
            with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                self.assertEqual(cli.main(["faults", "--rounds", "1", *words]), 1)
