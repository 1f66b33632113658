"""The agent: runs on each host, starts nodes there and stands between them and the bench.

Parties: the bench (harness/hosts.py starts the agent and holds its stdin and stdout), the agent, the nodes (children of
the agent, each with a loopback socket to it). The bench's requests and the agent's reports are JSON, one line each;
nothing of it goes over the network that is measured.

When stdin closes, or a signal asks for it, the agent ends its nodes and removes its directory; a node whose agent was
killed halts by itself, as its socket closes. So nothing is left.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import IO, Any

from .control import Channel, Listener
from .cpu import cpu_seconds, machine_cpu_seconds
from .errors import BenchError, MeasurementError
from .paths import make_home

HALT_TIMEOUT_S = 5.0
# Whatever the user's shell adds to every `erl` would be measured too.
DROPPED_VARIABLES = ("ERL_FLAGS", "ERL_AFLAGS", "ERL_ZFLAGS", "ERL_LIBS", "ERL_COMPILER_OPTIONS")


class Node:
    """One node: its process, its log and, once it has reported, its control channel."""

    def __init__(self, command: list[str], environment: dict[str, str], log: Path) -> None:
        self.log = log
        self.channel: Channel | None = None
        with open(log, "wb") as output:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                env=environment, start_new_session=True, cwd=log.parent,
            )

    def last_words(self) -> str:
        """Start and end of what the node wrote: the cause is mostly in the first lines."""
        lines = self.log.read_text(errors="replace").strip().splitlines()
        if len(lines) > 16:
            lines = [*lines[:8], "...", *lines[-8:]]
        return "\n".join(f"    {line}" for line in lines)

    def dismiss(self) -> None:
        """The node halts by itself when its control connection closes."""
        if self.channel is not None:
            self.channel.close()

    def end(self) -> None:
        """Waits for the node to halt; one that does not is killed with whatever it started."""
        try:
            self.process.wait(HALT_TIMEOUT_S if self.channel is not None else 0)
        except subprocess.TimeoutExpired:
            pass
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()


class Agent:
    def __init__(self, requests: IO[bytes], reports: IO[bytes], scratch: Path) -> None:
        self._requests = requests
        self._reports = reports
        self._writing = threading.Lock()
        self._scratch = scratch
        self._listener = Listener()
        self._nodes: dict[str, Node] = {}

    def serve(self) -> None:
        """Until the bench closes stdin."""
        threading.Thread(target=self._accept, daemon=True).start()
        self._report({"hello": os.getpid()})
        while line := self._requests.readline():
            if line.strip():
                self._serve_one(json.loads(line))

    def close(self) -> None:
        self._end(list(self._nodes))
        shutil.rmtree(self._scratch, ignore_errors=True)

    def _serve_one(self, request: dict[str, Any]) -> None:
        try:
            result = getattr(self, f"do_{request['do']}")(**request["arguments"])
        except (BenchError, OSError) as error:
            result = {"error": str(error)}
        if result is not None:
            self._report(result | {"reply": request["id"]})

    # What the bench may ask for.

    def do_start(self, name: str, cookie: str, command: list[str]) -> dict[str, Any]:
        home = make_home(self._scratch / name, cookie)
        environment = self._environment() | {
            "INET_RDMA_BENCH": self._listener.address, "ERL_CRASH_DUMP_SECONDS": "0", "HOME": str(home),
        }
        node = Node(command, environment, home / "log")
        self._nodes[name] = node
        threading.Thread(target=self._wait, args=(name, node), daemon=True).start()
        return {"pid": node.process.pid}

    def do_order(self, name: str, line: str) -> None:
        """The answer comes by itself, whenever the node gives it; a node that is gone reports its end by itself."""
        channel = self._nodes[name].channel
        try:
            if channel:
                channel.send(line)
        except MeasurementError:
            pass

    def do_last_words(self, name: str) -> dict[str, Any]:
        return {"text": self._nodes[name].last_words()}

    def do_end(self, names: list[str]) -> dict[str, Any]:
        self._end(names)
        return {}

    def _end(self, names: list[str]) -> None:
        nodes = [self._nodes.pop(name) for name in names if name in self._nodes]
        for node in nodes:
            node.dismiss()
        for node in nodes:
            node.end()
            shutil.rmtree(node.log.parent, ignore_errors=True)

    # What happens by itself.

    def _accept(self) -> None:
        while True:
            accepted = self._listener.accept()
            node = accepted and self._nodes.get(accepted[1].get("node", ""))
            if accepted and node:
                node.channel = accepted[0]
                threading.Thread(target=self._relay, args=(node, *accepted), daemon=True).start()

    def _relay(self, node: Node, channel: Channel, facts: dict[str, Any]) -> None:
        name = facts["node"]
        self._report({"node": name, "line": facts})
        try:
            while True:
                line = channel.line()
                self._report({"node": name, "line": line, "clocks": clocks(node.process.pid)})
        except (MeasurementError, OSError) as error:
            self._report({"node": name, "gone": str(error)})

    def _wait(self, name: str, node: Node) -> None:
        self._report({"node": name, "ended": node.process.wait()})

    def _report(self, report: dict[str, Any]) -> None:
        try:
            with self._writing:
                self._reports.write(json.dumps(report).encode() + b"\n")
                self._reports.flush()
        except OSError:
            # The bench is gone; stdin will say so, too.
            pass

    def _environment(self) -> dict[str, str]:
        return {key: value for key, value in os.environ.items() if key not in DROPPED_VARIABLES}


def clocks(pid: int) -> dict[str, float]:
    """CPU time of one node and of the whole host, and the time, all of this host's clocks at this moment."""
    return {"cpu_s": cpu_seconds(pid), "machine_cpu_s": machine_cpu_seconds(), "taken_s": time.monotonic()}


def main(requests: IO[bytes], scratch: str) -> None:
    """Called by the first words that the bench sends (hosts.py). Never returns."""
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(1))
    agent = Agent(requests, sys.stdout.buffer, Path(scratch))
    status = 1
    try:
        agent.serve()
        status = 0
    except Exception:
        # To stderr, where the bench reads why the agent ended.
        traceback.print_exc()
    except SystemExit:
        pass
    finally:
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        agent.close()
    # At once: daemon threads may hold stdout.
    os._exit(status)
