"""Two namespaces of this host with a wire between them, from a short real run."""

from __future__ import annotations

import contextlib
import io
import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from harness import cli, network


# A datagram that no host may split, and how many bytes of it came.
RECEIVER = """import socket
there = socket.socket(type=socket.SOCK_DGRAM)
there.bind(("10.99.0.2", 9))
print("ready", flush=True)
print(len(there.recv(65536)))
"""
SENDER = """import socket, sys
here = socket.socket(type=socket.SOCK_DGRAM)
# IP_MTU_DISCOVER, IP_PMTUDISC_DO
here.setsockopt(socket.IPPROTO_IP, 10, 2)
here.sendto(bytes(int(sys.argv[1])), ("10.99.0.2", 9))
"""


def sent_whole(between: network.Network, size: int) -> int:
    """How many of these bytes came. Raises AssertionError with the sender's words if it could not send them."""
    sender, receiver = (["ip", "netns", "exec", namespace, sys.executable, "-c"] for namespace in between.namespaces)
    with subprocess.Popen([*receiver, RECEIVER], stdout=subprocess.PIPE, text=True) as there:
        try:
            assert there.stdout and there.stdout.readline() == "ready\n"
            here = subprocess.run([*sender, SENDER, str(size)], capture_output=True, text=True, check=False)
            assert here.returncode == 0, here.stderr
            return int(there.stdout.readline())
        finally:
            there.kill()


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
        self.assertIn("20 ms each way, 1000 Mbit/s, 0 % loss, MTU 1500, 20 ms of buffer", shown)
        [case] = document["cases"]
        self.assertGreaterEqual(case["rounds"][0]["inet_tcp"]["min"], 40_000)

    def test_bulk_is_not_faster_than_the_rate(self) -> None:
        status, shown, document = self.measured("--rate-mbit", "80", "--loss", "0.1", "--only", "throughput", "--quick")
        self.assertEqual(status, 0, shown)
        one_way = [case for case in document["cases"] if not case["both_ways"]]
        for case in one_way:
            # 80 Mbit/s are 10 MB/s; what the wire keeps of the start may come on top.
            self.assertLess(case["rounds"][0]["inet_tcp"]["bandwidth"], 15)

    def test_a_cable_has_no_delay(self) -> None:
        status, shown, document = self.measured("--cable", "--only", "latency")
        self.assertEqual(status, 0, shown)
        self.assertIn("between two network namespaces over a virtual cable", shown)
        self.assertIn("inet_tcp", document["cases"][0]["rounds"][0])

    def test_packets_are_as_large_as_asked_and_the_kernel_is_set_in_both_namespaces(self) -> None:
        settings = {"tcp_congestion_control": "reno", "tcp_wmem": "4096 16384 1048576"}
        with network.Network(0.1, 1000, 0, network.JUMBO_MTU, settings=settings) as between:
            for namespace in between.namespaces:
                self.assertEqual(network.setting(namespace, "tcp_congestion_control"), "reno")
                self.assertEqual(network.setting(namespace, "tcp_wmem").split(), ["4096", "16384", "1048576"])
            # The headers of IPv4 and UDP take 28 bytes.
            self.assertEqual(sent_whole(between, network.JUMBO_MTU - 28), network.JUMBO_MTU - 28)
            with self.assertRaisesRegex(AssertionError, "Message too long"):
                sent_whole(between, network.JUMBO_MTU - 27)

    def test_leaves_nothing_behind(self) -> None:
        with network.Network(0.1, 100, 0) as between:
            listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
            self.assertTrue(all(namespace in listed for namespace in between.namespaces))
        listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
        self.assertFalse(any(namespace in listed for namespace in between.namespaces))

    def test_words_that_are_no_network_are_refused(self) -> None:
        for words in (["--loss", "-1"], ["--rate-mbit", "0"], ["--delay-ms", "-1"],
                      ["--mtu", "9001"], ["--buffer-ms", "-1"]):
            with contextlib.redirect_stderr(io.StringIO()), self.assertRaises(SystemExit):
                cli.parser().parse_args(["network", *words])
