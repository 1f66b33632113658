"""A host is where nodes run: this machine, or a network namespace of it. How a node is started is said here alone.

An agent (agent.py) does the work, and the bench speaks to it by its stdin and stdout; the difference is the command
that starts it. What it needs goes ahead over its stdin.
"""

from __future__ import annotations

import json
import queue
import subprocess
import tempfile
import threading
import time
from typing import IO, Any

from . import paths
from .control import term
from .errors import BenchError, MeasurementError
from .reach import HERE, archive, opening

OPEN_TIMEOUT_S = 60.0
REQUEST_TIMEOUT_S = 30.0
# An agent that ends its nodes gives them some seconds to halt before it kills them.
CLOSE_TIMEOUT_S = 20.0


class Host:
    """One agent. It is started by open(), and again when it was lost meanwhile."""

    # Hosts that share processors are one machine.
    machine: object

    def __init__(self, name: str, command: list[str], packed: bytes, directory: str | None = None) -> None:
        self.name = name
        self.machine = self
        # What nodes need: the path of erl, that of the workers, that of inet_rdma's build or None.
        self.facts: dict[str, Any] = {}
        self._command = command
        self._opening = opening(packed, directory)
        self._process: subprocess.Popen[bytes] | None = None
        self._writing = threading.Lock()
        self._last_id = 0
        self._replies: queue.Queue[dict[str, Any]] = queue.Queue()
        self._nodes: dict[str, Node] = {}
        self._lost = "its agent was never started"

    @property
    def alive(self) -> bool:
        return not self._lost

    def open(self) -> None:
        if self.alive:
            return
        self.close()
        errors = tempfile.TemporaryFile()
        # In a session of its own: ctrl-C is for the bench, which then closes stdin.
        self._process = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, start_new_session=True,
        )
        self._lost, self._last_id, self._replies = "", 0, queue.Queue()
        threading.Thread(target=self._receive, args=(self._process, self._replies, errors), daemon=True).start()
        # By a thread of its own, as a host that hangs would not take it.
        threading.Thread(target=self._write, args=(self._opening,), daemon=True).start()
        try:
            self._reply(0, OPEN_TIMEOUT_S)
            self.prepare()
        except BaseException:
            self.close()
            raise

    def prepare(self) -> None:
        """After the agent's start: finds what nodes need."""
        self.facts = {"erl": paths.erl_program(), "worker_ebin": str(paths.WORKER_EBIN)}

    def close(self) -> None:
        """Ends the agent and with it its nodes, however they are."""
        process, self._process = self._process, None
        self._lost = self._lost or "its agent was ended"
        # Wakes the thread that waits for an answer.
        self._replies.put({"lost": True})
        if process is None:
            return
        assert process.stdin and process.stdout
        try:
            process.stdin.close()
        except OSError:
            pass
        try:
            process.wait(CLOSE_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def cut(self) -> None:
        """As if the connection was cut: for the tests."""
        assert self._process
        self._process.kill()

    def start(self, name: str, cookie: str, arguments: list[str]) -> Node:
        """`name` with its host."""
        node = self._nodes[name] = Node(self, name)
        command = [self.facts["erl"], "-noinput", "-pa", self.facts["worker_ebin"], *arguments, "-s", "inet_rdma_bench"]
        node.pid = self.ask("start", name=name, cookie=cookie, command=command)["pid"]
        return node

    def end(self, names: list[str]) -> None:
        """Also for nodes that are gone already. A host that is lost ends them by itself."""
        own = [name for name in names if self._nodes.pop(name, None)]
        if own and self.alive:
            try:
                self.ask("end", CLOSE_TIMEOUT_S, names=own)
            except MeasurementError:
                self.close()

    def tell(self, do: str, **arguments: Any) -> int:
        self._last_id += 1
        request = {"id": self._last_id, "do": do, "arguments": arguments}
        self._write(json.dumps(request).encode() + b"\n")
        return self._last_id

    def ask(self, do: str, timeout_s: float = REQUEST_TIMEOUT_S, **arguments: Any) -> dict[str, Any]:
        return self._reply(self.tell(do, **arguments), timeout_s)

    def _reply(self, request_id: int, timeout_s: float) -> dict[str, Any]:
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                if self._lost:
                    raise MeasurementError(f"{self.name}: {self._lost}")
                report = self._replies.get(timeout=max(0.001, deadline - time.monotonic()))
            except queue.Empty:
                raise MeasurementError(f"{self.name} did not answer within {timeout_s:.0f} s") from None
            if report.get("reply", 0) != request_id or "lost" in report:
                continue
            if "error" in report:
                raise MeasurementError(f"{self.name}: {report['error']}")
            return report

    def _write(self, data: bytes) -> None:
        process = self._process
        try:
            with self._writing:
                if process and process.stdin:
                    process.stdin.write(data)
                    process.stdin.flush()
        except (OSError, ValueError):
            # The reader sees the end as well, and knows more of it.
            pass

    def _receive(
        self, process: subprocess.Popen[bytes], replies: queue.Queue[dict[str, Any]], errors: IO[bytes],
    ) -> None:
        assert process.stdout
        said = b""
        with process.stdout, errors:
            for line in process.stdout:
                # A start-up file of the user's shell may print something, too.
                report = self._report(line)
                if report is None:
                    said += line
                elif report.get("node", "") in self._nodes:
                    self._nodes[report["node"]].reports.put(report)
                elif "reply" in report or "hello" in report:
                    replies.put(report)
            status = process.wait()
            errors.seek(0)
            said += errors.read()
        if process is not self._process:
            return
        self._lost = self.why_lost(status, said.decode(errors="replace").strip())
        replies.put({"lost": True})
        for node in list(self._nodes.values()):
            node.reports.put({"gone": self._lost})

    def _report(self, line: bytes) -> dict[str, Any] | None:
        try:
            report = json.loads(line)
        except ValueError:
            return None
        return report if isinstance(report, dict) else None

    def why_lost(self, status: int, said: str) -> str:
        return f"its agent ended with status {status}" + (f":\n{said}" if said else "")


class ThisHost(Host):
    def __init__(self, directory: str | None = None) -> None:
        super().__init__("this machine", HERE, archive(), directory)


class Node:
    """One node, as the bench sees it."""

    def __init__(self, host: Host, name: str) -> None:
        self.host = host
        self.name = name
        # The process whose CPU time counts: `erl` becomes the emulator by exec.
        self.pid = 0
        self.facts: dict[str, Any] = {}
        self.reports: queue.Queue[dict[str, Any]] = queue.Queue()
        self._last_id = 0

    def last_words(self) -> str:
        """The node's output; empty if its host no longer answers."""
        try:
            return str(self.host.ask("last_words", name=self.name)["text"])
        except MeasurementError:
            return ""

    def await_report(self, timeout_s: float) -> None:
        """Its first line are the facts of itself."""
        self.facts = self._line(timeout_s)["line"]

    def post(self, order: Any) -> int:
        self._last_id += 1
        self.host.tell("order", name=self.name, line=f"{term((self._last_id, order))}.")
        return self._last_id

    def answer(self, order_id: int, timeout_s: float) -> dict[str, Any]:
        """With the clocks of the host, read when the answer arrived there, under `clocks`."""
        report = self._line(timeout_s)
        reply: dict[str, Any] = report["line"]
        if "error" in reply:
            raise MeasurementError(f"a node refused an order: {reply['error']}")
        if reply.get("id") != order_id:
            raise MeasurementError(f"answer {reply.get('id')} to order {order_id}")
        return reply | {"clocks": report["clocks"]}

    def _line(self, timeout_s: float) -> dict[str, Any]:
        if not self.host.alive:
            raise MeasurementError(f"{self.host.name} is gone, and the node with it")
        try:
            report = self.reports.get(timeout=timeout_s)
        except queue.Empty:
            raise MeasurementError(f"a node did not answer within {timeout_s:.0f} s") from None
        if "line" not in report:
            # Once more for a caller that asks again.
            self.reports.put(report)
            raise MeasurementError(report.get("gone") or f"the node ended with status {report['ended']}")
        return report


def open_all(hosts: list[Host]) -> None:
    """All at the same time. Raises BenchError with what is wrong at each of them."""
    wrong: list[str] = []

    def opened(host: Host) -> None:
        try:
            host.open()
        except BenchError as error:
            wrong.append(str(error))

    threads = [threading.Thread(target=opened, args=(host,), daemon=True) for host in hosts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if wrong:
        raise MeasurementError("\n".join(sorted(wrong)))


def close_all(hosts: list[Host]) -> None:
    threads = [threading.Thread(target=host.close, daemon=True) for host in hosts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
