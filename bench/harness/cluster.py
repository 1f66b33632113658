"""A cluster of real nodes, each an operating-system process, in a full mesh over one carrier."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any

from . import paths
from .carriers import Carrier
from .control import Atom, Channel, Listener
from .errors import MeasurementError

START_TIMEOUT_S = 30.0
ORDER_TIMEOUT_S = 30.0
HALT_TIMEOUT_S = 5.0
LINK_TIMEOUT_S = 5.0
# Whatever the user's shell adds to every `erl` would be measured too.
DROPPED_VARIABLES = ("ERL_FLAGS", "ERL_AFLAGS", "ERL_ZFLAGS", "ERL_LIBS", "ERL_COMPILER_OPTIONS")


class Node:
    """One node: its process, its log and, once it has reported, its control channel."""

    def __init__(self, name: str, command: list[str], environment: dict[str, str], log: Path) -> None:
        self.name = name
        self.log = log
        self.channel: Channel | None = None
        self.facts: dict[str, Any] = {}
        with open(log, "wb") as output:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                env=environment, start_new_session=True, cwd=log.parent,
            )

    @property
    def pid(self) -> int:
        """`erl` becomes the emulator by exec, so this is the process whose CPU time counts."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def last_words(self) -> str:
        """Start and end of what the node wrote: the cause is mostly in the first lines."""
        lines = self.log.read_text(errors="replace").strip().splitlines()
        if len(lines) > 16:
            lines = [*lines[:8], "...", *lines[-8:]]
        return "\n".join(f"    {line}" for line in lines)

    def post(self, order: Any) -> int:
        return self._reported().post(order)

    def answer(self, order_id: int, timeout_s: float) -> dict[str, Any]:
        return self._reported().answer(order_id, timeout_s)

    def _reported(self) -> Channel:
        if self.channel is None:
            raise MeasurementError("the node has not reported yet")
        return self.channel

    def dismiss(self) -> None:
        """The node halts by itself when its control connection closes."""
        if self.channel is not None:
            self.channel.close()

    def end(self) -> None:
        """Waits for the node to halt; one that does not is killed with whatever it started."""
        try:
            self._process.wait(HALT_TIMEOUT_S if self.channel is not None else 0)
        except subprocess.TimeoutExpired:
            pass
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self._process.wait()


class Cluster:
    """`with Cluster(...) as cluster:` starts the nodes, joins them, checks the links, and ends them after all."""

    def __init__(self, carrier: Carrier, size: int, erl_flags: list[str]) -> None:
        self.carrier = carrier
        self._size = size
        self._erl_flags = erl_flags
        self._listener = Listener()
        self._logs = tempfile.TemporaryDirectory(prefix="inet_rdma_bench_")
        self.nodes: list[Node] = []

    def __enter__(self) -> Cluster:
        try:
            self._start()
            self._join()
            self._check_links()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        for node in self.nodes:
            node.dismiss()
        for node in self.nodes:
            node.end()
        self._listener.close()
        self._logs.cleanup()

    def names(self, but: Node | None = None) -> list[Atom]:
        return [Atom(node.name) for node in self.nodes if node is not but]

    def ask(self, node: Node, order: Any, timeout_s: float = ORDER_TIMEOUT_S) -> dict[str, Any]:
        return self.ask_all({node: order}, timeout_s)[node]

    def ask_all(self, orders: dict[Node, Any], timeout_s: float = ORDER_TIMEOUT_S) -> dict[Node, dict[str, Any]]:
        """Gives each node its order, then collects the answers: the nodes work at the same time."""
        current = None
        try:
            posted = []
            for current, order in orders.items():
                posted.append((current, current.post(order)))
            answers = {}
            for current, order_id in posted:
                answers[current] = current.answer(order_id, timeout_s)
            return answers
        except MeasurementError as error:
            logs = [f"  log of {node.name}:\n{node.last_words()}" for node in self.nodes if node.last_words()]
            raise MeasurementError("\n".join([f"{current.name if current else '?'}: {error}", *logs])) from error

    def _start(self) -> None:
        run = secrets.token_hex(4)
        environment = {key: value for key, value in os.environ.items() if key not in DROPPED_VARIABLES}
        environment |= {"INET_RDMA_BENCH": self._listener.address, "ERL_CRASH_DUMP_SECONDS": "0"}
        for number in range(1, self._size + 1):
            name = f"bench_{run}_{number}@localhost"
            command = [
                paths.tool("erl"), "-noinput", "-sname", name, "-setcookie", run, "-pa", str(paths.WORKER_EBIN),
                *self.carrier.flags, *self._erl_flags, "-s", "inet_rdma_bench",
            ]
            log = Path(self._logs.name) / f"{number}.log"
            self.nodes.append(Node(name, command, environment, log))
        self._await_reports()

    def _await_reports(self) -> None:
        missing = {node.name: node for node in self.nodes}
        deadline = time.monotonic() + START_TIMEOUT_S
        while missing:
            dead = [node for node in missing.values() if not node.alive]
            if dead or time.monotonic() > deadline:
                node = (dead or list(missing.values()))[0]
                what = "ended during its start" if dead else f"did not start within {START_TIMEOUT_S:.0f} s"
                raise MeasurementError(f"a node over {self.carrier.name} {what}; its last words:\n{node.last_words()}")
            report = self._listener.accept(0.25)
            if report is not None:
                channel, facts = report
                node = missing.pop(facts["node"])
                node.channel, node.facts = channel, facts

    def _join(self) -> None:
        for index, node in enumerate(self.nodes[:-1]):
            others = [Atom(other.name) for other in self.nodes[index + 1:]]
            refused = self.ask(node, (Atom("connect"), others))["refused"]
            if refused:
                words = "\n".join(each.last_words() for each in self.nodes)
                raise MeasurementError(f"{node.name} cannot connect to {', '.join(refused)}; the nodes' logs:\n{words}")

    def _settled_links(self) -> dict[Node, dict[str, str]]:
        """The links of each node. The one that was called sees the other a moment later than the one that called."""
        end = time.monotonic() + LINK_TIMEOUT_S
        while True:
            answers = self.ask_all({node: Atom("links") for node in self.nodes})
            links = {node: answer["links"] for node, answer in answers.items()}
            complete = all(set(names) == set(self.names(but=node)) for node, names in links.items())
            if complete or time.monotonic() > end:
                return links

    def _check_links(self) -> None:
        for node, links in self._settled_links().items():
            if set(links) != set(self.names(but=node)):
                raise MeasurementError(f"{node.name} is linked to {sorted(links)}, not to all of the cluster")
            if any(kind != self.carrier.link for kind in links.values()):
                raise MeasurementError(f"{node.name} does not run over {self.carrier.name}: {links}")
