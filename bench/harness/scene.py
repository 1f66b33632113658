"""The nodes of a measurement of faults, on hosts of their own, and what a measurement is."""

from __future__ import annotations

import os
import queue
import secrets
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from . import paths
from .errors import MeasurementError
from .faultnet import Net, name_of

# Before each answer of the first node: in inet_rdma_bench_faults, too.
MARK = "=answer "
BOOT_S = 60.0


def in_place(_net: Net) -> dict[str, list[str]]:
    """Each node runs on its host."""
    return {}


def nothing(_scene: Scene) -> None:
    """The network is whole until the fault."""


class Scene:
    """The nodes of one measurement, and its first node's standard input and output."""

    def __init__(self, net: Net, flags: list[str], erl: str, ticktime_s: int, row: Row) -> None:
        self.net, self.ticktime_s, self.ended = net, ticktime_s, ""
        hosts = row.nodes or net.hosts
        places = {node: "a" if node in row.beside else node for node in hosts}
        # A node keeps its name when its host's address changes.
        self._names = {node: f"{node}@{net.address(node) if node in row.by_address else name_of(place)}"
                       for node, place in places.items()}
        self._within = {node: net.within(place) for node, place in places.items()} | row.prepare(net)
        # One home for all nodes: they read its cookie, and write nothing there.
        self._directory = tempfile.TemporaryDirectory(prefix="inet_rdma_faults_")
        self._home = paths.make_home(Path(self._directory.name, "home"), secrets.token_hex(16))
        self._lines: queue.Queue[str] = queue.Queue()
        common = ["-pa", str(paths.WORKER_EBIN), "-kernel", "net_ticktime", str(ticktime_s), *flags, *row.args]
        self._nodes: dict[str, subprocess.Popen[str]] = {}
        others = [host for host in hosts if host != "a"]
        for host in others:
            self._start(host, [erl, "-noinput", "-name", self.node(host), *common])
        self._start("a", [erl, "-noshell", "-name", self.node("a"), *common, "-s", "inet_rdma_bench_faults",
                          "-extra", *map(self.node, others)])
        threading.Thread(target=self._read, daemon=True).start()
        if self._answer(BOOT_S) != "ready":
            raise MeasurementError("the nodes did not connect")

    def _start(self, host: str, command: list[str]) -> None:
        self._nodes[host] = subprocess.Popen(
            [*self._within[host], *command], text=True, stdin=subprocess.PIPE if host == "a" else subprocess.DEVNULL,
            stdout=subprocess.PIPE if host == "a" else subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            start_new_session=True, env={**os.environ, "ERL_CRASH_DUMP": "/dev/null", "ERL_FLAGS": "", "ERL_AFLAGS": "",
                                         "ERL_ZFLAGS": "", "HOME": str(self._home)})

    def _read(self) -> None:
        output = self._nodes["a"].stdout
        assert output
        for line in output:
            # The log goes there, too.
            if line.startswith(MARK):
                self._lines.put(line.removeprefix(MARK).strip())

    def _answer(self, timeout_s: float) -> str:
        try:
            return self._lines.get(timeout=timeout_s)
        except queue.Empty:
            raise MeasurementError(f"the first node did not answer within {timeout_s:g} s") from None

    def ask(self, order: str, timeout_s: float = BOOT_S) -> str:
        orders = self._nodes["a"].stdin
        assert orders
        orders.write(order + "\n")
        orders.flush()
        return self._answer(timeout_s)

    def node(self, host: str) -> str:
        return self._names[host]

    def signal(self, host: str, number: signal.Signals) -> None:
        self._nodes[host].send_signal(number)

    def close(self) -> None:
        for process in self._nodes.values():
            process.send_signal(signal.SIGKILL)
        for process in self._nodes.values():
            process.wait()
        self._directory.cleanup()


@dataclass(frozen=True)
class Row:
    """A fault between the hosts a and b, of this many."""

    name: str
    title: str
    make: Callable[[Scene], None]
    hosts: int = 2
    # No process calls or sends while the fault is made.
    is_at_rest: bool = False
    # Hosts whose nodes have an address behind the @.
    by_address: str = ""
    # The nodes, by their letters, where not each host has one; those that run on host a.
    nodes: str = ""
    beside: str = ""
    # More arguments of erl for all nodes, and for those of inet_rdma alone.
    args: tuple[str, ...] = ()
    rdma: tuple[str, ...] = ()
    # Changes the hosts before the nodes start; what starts nodes that run elsewhere than on their hosts.
    prepare: Callable[[Net], dict[str, list[str]]] = in_place
    # Done before the fault, under traffic.
    before: Callable[[Scene], None] = nothing
    # The fault ends node b, and the time until the others know is the figure.
    is_kill: bool = False
    # Carriers whose link does not live until the fault have nothing to say.
    is_of_inet_rdma: bool = False
