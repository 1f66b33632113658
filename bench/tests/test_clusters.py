"""Real nodes over TCP: what is counted, what makes a measurement void, and that nothing stays behind."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import tempfile
import time
import unittest
from pathlib import Path

from harness import carriers, paths
from harness.cases import Case, busy_cases
from harness.cluster import Cluster
from harness.control import Atom
from harness.errors import MeasurementError
from harness.hosts import Node, ThisHost
from harness.measure import Sample, Timing, measure, start_order
from harness.place import Place

SHORT = Timing(warmup_s=0.2, seconds=0.4, idle_seconds=0.4)
EVERY_KIND = [
    Case("rpc", nodes=3, procs=4),
    Case("rpc", nodes=2, procs=2, size=100),
    Case("pingpong", nodes=3, procs=7, size=16),
    Case("latency", procs=1, size=16),
    Case("rate", size=64, senders=2),
    Case("throughput", size=1 << 20, senders=1),
    Case("throughput", size=1 << 16, senders=2, both_ways=True),
    Case("hol", procs=1, size=16, senders=2, bulk=1 << 20),
    Case("idle", nodes=3),
    *busy_cases(5, procs=4, senders=2),
    Case("rpc", nodes=3, procs=4, size=100, busy=5, erl_flags=("+S", "1")),
]


class Clusters(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        paths.compile_workers()

    def test_every_workload_yields_every_metric(self) -> None:
        for case in EVERY_KIND:
            with self.subTest(case.title):
                values, facts = measure(case, carriers.inet_tcp(), SHORT, [])
                self.assertEqual(set(values), {metric.name for metric in case.metrics})
                self.assertTrue(all(value >= 0 for value in values.values()), values)
                self.assertTrue(facts["otp"].isdigit())

    def test_both_ways_both_nodes_send_and_receive(self) -> None:
        case = Case("throughput", size=1 << 10, senders=2, both_ways=True)
        with Cluster(carriers.inet_tcp(), 2, []) as cluster:
            started = cluster.ask_all({node: start_order(case, cluster, i) for i, node in enumerate(cluster.nodes)})
            self.assertEqual([answer["workers"] for answer in started.values()], [2, 2])
            deadline = time.monotonic() + 30
            received = [0]
            while not all(received) and time.monotonic() < deadline:
                sample = Sample.take(cluster, "measure")
                received = [answer["delivered"] for answer in sample.answers.values()]
            self.assertTrue(all(received), received)
            ends = cluster.ask_all({node: Atom("stop") for node in cluster.nodes})
            self.assertEqual([end["failed"] for end in ends.values()], [[], []])

    def test_busy_nodes_spin_at_normal_priority_beside_measured_processes_of_high_priority(self) -> None:
        case = Case("rate", size=64, senders=2, busy=3)
        with Cluster(carriers.inet_tcp(), 2, []) as cluster:
            started = cluster.ask_all({node: start_order(case, cluster, i) for i, node in enumerate(cluster.nodes)})
            self.assertEqual([answer["workers"] for answer in started.values()], [2 + 3, 3])
            # Senders on the first node, sinks on the second; the agent is of high priority on each.
            for node in cluster.nodes:
                self.await_priorities(cluster, node, {"normal": 3, "high": 2 + 1})
            deadline = time.monotonic() + 30
            calls = [0]
            while not all(calls) and time.monotonic() < deadline:
                calls = [answer["calls"] for answer in Sample.take(cluster, "measure").answers.values()]
            self.assertTrue(all(calls), calls)
            ends = cluster.ask_all({node: Atom("stop") for node in cluster.nodes})
            self.assertEqual([end["failed"] for end in ends.values()], [[], []])

    def test_nodes_that_are_not_busy_leave_priorities_alone(self) -> None:
        case = Case("rate", size=64, senders=2)
        with Cluster(carriers.inet_tcp(), 2, []) as cluster:
            cluster.ask_all({node: start_order(case, cluster, i) for i, node in enumerate(cluster.nodes)})
            for node in cluster.nodes:
                self.await_priorities(cluster, node, {"normal": 2, "high": 1})

    def await_priorities(self, cluster: Cluster, node: Node, expected: dict[str, int]) -> None:
        """How many of the benchmark's processes on the node have which priority, when all have started."""
        deadline = time.monotonic() + 30
        found: dict[str, int] = {}
        while found != expected and time.monotonic() < deadline:
            shown = cluster.ask(node, (Atom("call"), Atom("inet_rdma_bench"), Atom("priorities"), []))["value"]
            found = {priority: int(number) for priority, number in re.findall(r"(\w+) => (\d+)", shown)}
        self.assertEqual(found, expected)

    def test_percentiles_are_in_order(self) -> None:
        values, _ = measure(Case("latency", procs=1, size=16), carriers.inet_tcp(), SHORT, [])
        ordered = [values[name] for name in ("min", "p50", "p90", "p99", "p99.9", "max")]
        self.assertEqual(ordered, sorted(ordered))

    def test_a_node_that_dies_makes_the_measurement_void(self) -> None:
        with self.assertRaises(MeasurementError):
            with Cluster(carriers.inet_tcp(), 2, []) as cluster:
                first, second = cluster.nodes
                order = (Atom("start"), Atom("rpc"), {"nodes": [Atom(second.name)], "procs": 2, "size": 0})
                cluster.ask(first, order)
                os.kill(second.pid, signal.SIGKILL)
                cluster.ask(second, Atom("sample"))

    def test_a_worker_that_crashes_is_reported(self) -> None:
        with Cluster(carriers.inet_tcp(), 2, []) as cluster:
            first, second = cluster.nodes
            cluster.ask(first, (Atom("start"), Atom("rpc"), {"nodes": [Atom(second.name)], "procs": 2, "size": 0}))
            os.kill(second.pid, signal.SIGKILL)
            deadline = time.monotonic() + 30
            while not (failed := cluster.ask(first, Atom("sample"))["failed"]) and time.monotonic() < deadline:
                time.sleep(0.05)
            self.assertTrue(any("badmatch" in reason or "nodedown" in reason for reason in failed), failed)

    def test_a_carrier_that_is_not_what_it_says_is_refused(self) -> None:
        tcp, rdma = carriers.inet_tcp(), carriers.inet_rdma([])
        for flags, link, why in (
            (tcp.flags, carriers.PROCESS, "is a port, not a process"),
            (tcp.flags, carriers.RDMA, "does not list the link"),
            (rdma.flags, carriers.PORT, "inet_rdma carries the link over (tcp|shm)"),
            (rdma.flags, carriers.PROCESS, "inet_rdma carries the link over (tcp|shm)"),
        ):
            with self.subTest(flags=flags, link=link):
                wrong = carriers.Carrier("wrong", flags, link=link)
                with self.assertRaisesRegex(MeasurementError, f"does not run over wrong: .*{why}"):
                    with Cluster(wrong, 2, []):
                        pass

    def test_a_cluster_over_tls_verifies_its_certificates(self) -> None:
        [tls], _ = carriers.select(["inet_tls"], [], {})
        with Cluster(tls, 2, []) as cluster:
            links = cluster.ask(cluster.nodes[0], Atom("links"))["links"]
            self.assertEqual([link["controller"] for link in links.values()], ["process"])
        with self.assertRaisesRegex(MeasurementError, "cannot connect"):
            with Cluster(tls, 2, [], [Place(ThisHost(), "127.0.0.1")] * 2):
                pass

    def test_links_of_inet_rdma_inside_tls_are_encrypted(self) -> None:
        [tls], _ = carriers.select(["inet_rdma_tls"], [], {})
        with Cluster(tls, 2, []) as cluster:
            [connection] = cluster.ask(cluster.nodes[0], Atom("info"))["connections"]
            self.assertEqual(connection["fabric"], "shm")
            self.assertNotEqual(connection["cipher"], "none")

    def test_links_of_inet_rdma_may_have_a_port_as_controller(self) -> None:
        # A carrier of that name whose links are those of inet_tcp, and what it says of them.
        with tempfile.TemporaryDirectory() as directory:
            paths.compile_erlang(sorted((Path(__file__).parent / "carrier").glob("*.erl")), Path(directory), "-Werror")
            for fabric, refusal in (("shm", None), ("tcp", "left the link on TCP"), ("none", "does not list the link")):
                flags = ("-pa", directory, "-proto_dist", "inet_rdma", "-inet_rdma_test", fabric)
                rdma = carriers.Carrier("inet_rdma", flags, link=carriers.RDMA)
                with self.subTest(fabric), contextlib.ExitStack() as stack:
                    if refusal:
                        stack.enter_context(self.assertRaisesRegex(MeasurementError, refusal))
                    cluster = stack.enter_context(Cluster(rdma, 2, []))
                    for node in cluster.nodes:
                        links = cluster.ask(node, Atom("links"))["links"]
                        shown = {"controller": "port", "driver": carriers.OTP_DRIVER, "fabric": fabric}
                        self.assertEqual(list(links.values()), [shown])

    def test_links_of_inet_rdma_are_listed_with_their_fabric(self) -> None:
        with Cluster(carriers.inet_rdma([]), 3, []) as cluster:
            for node in cluster.nodes:
                links = cluster.ask(node, Atom("links"))["links"]
                self.assertEqual({peer: link["fabric"] for peer, link in links.items()},
                                 dict.fromkeys(cluster.names(but=node), "shm"))

    def test_the_tcp_path_is_measured_with_its_cpu(self) -> None:
        values, _ = measure(Case("rpc", nodes=2, procs=4), carriers.tcp_path([]), SHORT, [])
        self.assertGreater(values["rate"], 0)
        self.assertGreater(values["cpu"], 0)

    def test_links_of_otps_driver_are_not_the_tcp_path(self) -> None:
        with tempfile.TemporaryDirectory() as directory:
            paths.compile_erlang(sorted((Path(__file__).parent / "carrier").glob("*.erl")), Path(directory), "-Werror")
            flags = ("-pa", directory, "-proto_dist", "inet_rdma", "-inet_rdma_test", "tcp")
            with self.assertRaisesRegex(MeasurementError, "left the link to OTP's driver"):
                with Cluster(carriers.Carrier("tcp path", flags, link=carriers.TCP_PATH), 2, []):
                    pass

    def test_fabrics_are_read_from_atoms_and_from_binaries(self) -> None:
        connections = [
            {"node": Atom("a@h"), "fabric": "shm"},
            {"node": "b@h", "fabric": Atom("tcp")},
            {"node": "b@h", "fabric": Atom("verbs"), "state": "up"},
            {"node": "b@h", "fabric": Atom("shm"), "state": Atom("closed")},
            {"node": Atom("undefined"), "fabric": "shm"},
            {"fabric": "shm"},
        ]
        with Cluster(carriers.inet_tcp(), 2, []) as cluster:
            order = (Atom("call"), Atom("inet_rdma_bench"), Atom("fabrics"), [connections])
            shown = cluster.ask(cluster.nodes[0], order)["value"]
        for entry in ('<<"a@h">> => <<"shm">>', '<<"b@h">> => <<"verbs">>'):
            self.assertIn(entry, shown)

    def test_a_node_that_cannot_start_says_why(self) -> None:
        with self.assertRaisesRegex(MeasurementError, "no_such_carrier"):
            with Cluster(carriers.Carrier("none", ("-proto_dist", "no_such_carrier")), 2, []):
                pass

    def test_nodes_end_when_their_agent_is_gone(self) -> None:
        # An agent that is killed removes nothing: the test does.
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        host = ThisHost(directory.name)
        self.addCleanup(host.close)
        with Cluster(carriers.inet_tcp(), 2, [], [Place(host)] * 2) as cluster:
            host.cut()
            deadline = time.monotonic() + 30
            while any(running(node.pid) for node in cluster.nodes) and time.monotonic() < deadline:
                time.sleep(0.05)
            self.assertFalse(any(running(node.pid) for node in cluster.nodes))


def running(pid: int) -> bool:
    """A dead one may stay in the list until its new parent asks for it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


if __name__ == "__main__":
    unittest.main()
