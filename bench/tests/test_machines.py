"""Two hosts, 127.0.0.1 and 127.0.0.2, reached by real ssh: what is measured, what is refused, what stays behind."""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

from harness import cli, paths, runs, site
from harness.carriers import inet_tcp
from harness.cluster import Cluster
from harness.control import Atom
from harness.errors import BenchError, MeasurementError
from harness.hosts import ClusterHost

from .sshd import ADDRESSES, CannotStart, Sshd

HOSTS = ",".join(ADDRESSES)
SHORT = ["--rounds", "2", "--seconds", "0.4", "--warmup", "0.2", "--procs", "4", "--no-chart"]
FILE = """
rdma = "ib"
[[host]]
ssh = "127.0.0.1"
ethernet = "127.0.0.1"
ib = "127.0.1.1"
[[host]]
ssh = "127.0.0.2"
ethernet = "127.0.0.2"
ib = "127.0.1.2"
"""


def left_in(directory: Path) -> list[str]:
    """Files there, and processes that work there: those of a run, whose directories are made there."""
    found = [str(path) for path in directory.iterdir()]
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if Path(os.readlink(process / "cwd")).is_relative_to(directory):
                found.append((process / "cmdline").read_text().replace("\0", " "))
    return found


class Machines(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        try:
            cls.sshd = Sshd()
        except CannotStart as reason:
            print(f"\nskipped: the cluster across machines: {reason}", file=sys.stderr)
            raise unittest.SkipTest(str(reason)) from reason
        cls.addClassCleanup(cls.sshd.close)

    def setUp(self) -> None:
        directory = tempfile.TemporaryDirectory(prefix="inet_rdma_machines_")
        self.addCleanup(directory.cleanup)
        self.remote = Path(directory.name) / "remote"
        self.remote.mkdir()
        self.out = Path(directory.name) / "out"

    def words(self, *words: str) -> list[str]:
        return ["cluster", *self.sshd.options, "--remote-tmp", str(self.remote), "--out", str(self.out), *words]

    def site(self, *words: str) -> site.Site:
        """As the command makes it."""
        options = cli.parser().parse_args(self.words("--hosts", HOSTS, *words))
        return runs.cluster_site(options)[0]

    def assert_nothing_is_left(self) -> None:
        deadline = time.monotonic() + 30
        while (left := left_in(self.remote)) and time.monotonic() < deadline:
            time.sleep(0.1)
        self.assertEqual(left, [])

    def run_command(self, *words: str) -> tuple[int, str]:
        shown = io.StringIO()
        with contextlib.redirect_stdout(shown), contextlib.redirect_stderr(shown):
            status = cli.main(self.words(*words))
        return status, shown.getvalue()

    def test_every_series_is_measured_on_its_network(self) -> None:
        file = self.remote.parent / "hosts.toml"
        file.write_text(FILE)
        status, shown = self.run_command("--cluster", str(file), *SHORT)
        self.assertEqual(status, 0, shown)
        document = json.loads((self.out / "results.json").read_text())
        self.assertEqual(document["baseline"], "inet_tcp ethernet")
        self.assertEqual(list(document["options"]["carriers"]), ["inet_tcp ethernet", "inet_tcp ib", "inet_rdma ib"])
        for measured in document["cases"][0]["rounds"]:
            self.assertEqual(len(measured), 3)
            self.assertTrue(all(values["rate"] > 0 and values["cpu"] > 0 for values in measured.values()), measured)
        hosts = document["environment"]["hosts"]
        self.assertEqual([host["addresses"]["ib"] for host in hosts], ["127.0.1.1", "127.0.1.2"])
        self.assert_nothing_is_left()

    def test_hosts_alone_are_enough(self) -> None:
        status, shown = self.run_command("--hosts", HOSTS, "--sync", *SHORT, "--rounds", "1")
        self.assertEqual(status, 0, shown)
        self.assertIn("inet_rdma ssh", shown)
        self.assert_nothing_is_left()

    def test_this_machine_needs_no_ssh(self) -> None:
        words = ("--hosts", "local,127.0.0.2", "--network", "a=127.0.0.1,127.0.0.2", "--carriers", "inet_tcp")
        status, shown = self.run_command(*words, *SHORT, "--rounds", "1")
        self.assertEqual(status, 0, shown)
        self.assert_nothing_is_left()

    def test_nodes_have_the_networks_address_and_show_no_cookie(self) -> None:
        with self.site("--network", "a=127.0.3.1,127.0.3.2") as hosts:
            with Cluster(inet_tcp().on("a"), 2, [], hosts.places(inet_tcp().on("a"))) as cluster:
                self.assertEqual([node.name.partition("@")[2] for node in cluster.nodes], ["127.0.3.1", "127.0.3.2"])
                order = (Atom("call"), Atom("erlang"), Atom("get_cookie"), [])
                cookies = [answer["value"] for answer in cluster.ask_all(dict.fromkeys(cluster.nodes, order)).values()]
                self.assertEqual(len(set(cookies)), 1)
                key = [Atom("kernel"), Atom("inet_dist_use_interface")]
                order = (Atom("call"), Atom("application"), Atom("get_env"), key)
                used = [answer["value"] for answer in cluster.ask_all(dict.fromkeys(cluster.nodes, order)).values()]
                self.assertEqual(used, ["{ok,{127,0,3,1}}", "{ok,{127,0,3,2}}"])
                for node in cluster.nodes:
                    self.assertNotIn(cookies[0].strip("'"), Path(f"/proc/{node.pid}/cmdline").read_text())

    def test_nodes_end_when_ssh_is_cut_and_the_host_is_used_again(self) -> None:
        with self.site() as hosts:
            places = hosts.places(inet_tcp().on("ssh"))
            with self.assertRaisesRegex(MeasurementError, "gone|ended|ssh failed"):
                with Cluster(inet_tcp(), 2, [], places) as cluster:
                    cut = cluster.nodes[1]
                    cut.host.cut()
                    deadline = time.monotonic() + 30
                    while Path(f"/proc/{cut.pid}").exists() and time.monotonic() < deadline:
                        time.sleep(0.05)
                    self.assertFalse(Path(f"/proc/{cut.pid}").exists())
                    cluster.ask(cut, Atom("links"))
            with Cluster(inet_tcp(), 2, [], places) as cluster:
                self.assertEqual(len(cluster.ask(cluster.nodes[0], Atom("links"))["links"]), 1)
        self.assert_nothing_is_left()

    def test_nodes_end_when_the_bench_falls_silent(self) -> None:
        with self.site() as hosts:
            with Cluster(inet_tcp(), 2, [], hosts.places(inet_tcp().on("ssh"))) as cluster:
                # As after a cut that neither side was told of. The lease is checked once per second.
                cluster.nodes[0].host.ask("lease", seconds=0.1)
                with self.assertRaises(MeasurementError):
                    cluster.nodes[0]._line(30)
        self.assert_nothing_is_left()

    def test_nodes_end_when_the_command_is_interrupted(self) -> None:
        for number, status in ((signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -9)):
            with self.subTest(number.name):
                words = self.words("--hosts", HOSTS, "--carriers", "inet_tcp", "--seconds", "300", "--no-chart")
                command = [sys.executable, "-B", str(paths.BENCH / "run.py"), *words]
                # A shell starts what it puts into the background with SIGINT ignored.
                with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                      preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)) as bench:
                    deadline = time.monotonic() + 120
                    # The two agents, then the nodes, whose directories are in theirs.
                    while len(list(self.remote.glob("*/bench_*"))) < 2 and time.monotonic() < deadline:
                        self.assertIsNone(bench.poll(), "the command ended early")
                        time.sleep(0.1)
                    self.assertEqual(len(list(self.remote.glob("*/bench_*"))), 2)
                    bench.send_signal(number)
                    self.assertEqual(bench.wait(60), status)
                self.assert_nothing_is_left()

    def test_what_is_wrong_is_said_with_a_remedy(self) -> None:
        other = self.remote.parent / "other"
        for name in ("ebin/inet_rdma_dist.beam", "priv/inet_rdma_nif.so"):
            (other / name).parent.mkdir(parents=True)
            (other / name).write_text("another build")
        differing = self.remote.parent / "differing.toml"
        differing.write_text(FILE + f"build = \"{other}\"\n")
        hosts = ("--hosts", HOSTS)
        for words, expected in [
            ((*hosts, "--erl", "no_such_erl"), "no_such_erl is not installed.*--erl"),
            ((*hosts, "--build", str(self.remote)), "no build of inet_rdma in.*make build.*--sync"),
            ((*hosts, "--network", "a=127.0.0.1,192.0.2.1"), "127.0.0.2 has not the address 192.0.2.1 on network a"),
            ((*hosts, "--network", "a=127.0.0.1,127.0.0.1"), "the same address on network a"),
            ((*hosts, "--identity", "/dev/null"), "ssh failed.*Permission denied.*must work without a question: ssh"),
            ((*hosts, "--port", "1"), "ssh failed.*Connection refused"),
            (("--hosts", "127.0.0.1,127.0.0.3"), "127.0.0.3: ssh failed"),
            (("--cluster", str(differing)), "different builds of inet_rdma.*--sync"),
        ]:
            with self.subTest(" ".join(words)):
                status, shown = self.run_command(*words)
                self.assertEqual(status, 1)
                self.assertRegex(shown.replace("\n", " "), expected)
                self.assertNotIn("Traceback", shown)
        self.assert_nothing_is_left()

    def test_different_releases_are_refused(self) -> None:
        with self.site() as hosts:
            hosts.hosts[1].facts["otp"] = "1"
            with self.assertRaisesRegex(BenchError, r"different OTP releases \(127.0.0.1: \d+, 127.0.0.2: 1\).*--erl"):
                hosts.check_alike()

    def test_a_host_without_python_is_named(self) -> None:
        options = cli.parser().parse_args(self.words("--hosts", HOSTS))
        host = ClusterHost(ADDRESSES[0], runs.ssh_of(options), b"")
        host._command[-1] = host._command[-1].replace("python3", "no_such_python")
        with self.assertRaisesRegex(MeasurementError, "127.0.0.1: python3 is missing there"):
            host.open()


class Plans(unittest.TestCase):
    def test_an_ending_makes_names_of_the_hosts_names(self) -> None:
        plans = site.from_options(["a", "me@b"], [("ethernet", ["a.example", "192.0.2.2"]), ("ib", ["-ib"])])
        self.assertEqual([plan.addresses["ib"] for plan in plans], ["a-ib", "b-ib"])
        self.assertEqual(site.networks_of(plans), ["ethernet", "ib"])

    def test_of_several_networks_the_rdma_ones_must_be_named(self) -> None:
        self.assertEqual(site.rdma_networks(["one"], []), ["one"])
        self.assertEqual(site.rdma_networks(["ethernet", "ib"], ["ib"]), ["ib"])
        for networks, named in ((["ethernet", "ib"], []), (["ethernet"], ["ib"])):
            with self.assertRaisesRegex(BenchError, "RDMA"):
                site.rdma_networks(networks, named)

    def test_the_example_is_a_file_of_four_hosts(self) -> None:
        plans, rdma = site.read_file(paths.BENCH / "cluster.example.toml")
        self.assertEqual((len(plans), site.networks_of(plans), rdma), (4, ["ethernet", "ib"], ["ib"]))

    def test_a_file_with_mistakes_is_refused(self) -> None:
        with tempfile.TemporaryDirectory() as directory:
            file = Path(directory) / "hosts.toml"
            for text, expected in [
                ("", "no .*host"), ("[[host]]\nethernet = 'x'", "no ssh"), ("[[host]]\nssh = 1", "wrong type"),
                ("hosts = 1\n[[host]]\nssh = 'a'", "unknown key 'hosts'"), ("[", "cannot read"),
            ]:
                file.write_text(text)
                with self.subTest(text), self.assertRaisesRegex(BenchError, expected):
                    site.read_file(file)


if __name__ == "__main__":
    unittest.main()
