"""The agent: runs on each host, this machine or another, starts nodes there and stands between them and the bench.

Parties: the bench (harness/hosts.py starts the agent, directly or by ssh, and holds its stdin and stdout), the agent,
the nodes (children of the agent, each with a loopback socket to it). The bench's requests and the agent's reports are
JSON, one line each; nothing of it goes over the network that is measured unless ssh does.

When stdin closes, a signal asks for it, or the bench was silent for longer than its lease, the agent ends its nodes and
removes its directory; a node whose agent was killed halts by itself, as its socket closes. So nothing stays behind.
"""

from __future__ import annotations

import hashlib
import json
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import IO, Any

from .control import Channel, Listener
from .cpu import cpu_seconds, machine_cpu_seconds
from .environment import machine
from .errors import BenchError, MeasurementError

HALT_TIMEOUT_S = 5.0
PROBE_TIMEOUT_S = 150.0
# Whatever the user's shell adds to every `erl` would be measured too.
DROPPED_VARIABLES = ("ERL_FLAGS", "ERL_AFLAGS", "ERL_ZFLAGS", "ERL_LIBS", "ERL_COMPILER_OPTIONS")
# Where the application is in a build: installed, built by Mix, built by rebar3.
APPLICATIONS = (".", "_build/dev/lib/inet_rdma", "_build/prod/lib/inet_rdma", "_build/default/lib/inet_rdma")
# One erl for all: which OTP it is, and the workers compiled for it.
PROBE = """
    [io:format("~ts~n", [Fact]) || Fact <- [erlang:system_info(otp_release), erlang:system_info(version),
                                            code:root_dir()]],
    [Target | Sources] = init:get_plain_arguments(),
    halt(length([Source || Source <- Sources,
                 compile:file(Source, [report, warnings_as_errors, {outdir, Target}]) =:= error])).
"""


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
        self._lease_s = 0.0
        self._heard_s: float | None = None

    def serve(self) -> None:
        """Until the bench closes stdin."""
        for work in (self._accept, self._watch_lease):
            threading.Thread(target=work, daemon=True).start()
        self._report({"hello": os.getpid()})
        while line := self._requests.readline():
            # Not while a request is worked at: the next line waits that long.
            self._heard_s = None
            if line.strip():
                self._serve_one(json.loads(line))
            self._heard_s = time.monotonic()

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

    def do_lease(self, seconds: float) -> dict[str, Any]:
        """From now on the bench says something at least that often."""
        self._lease_s = seconds
        return {}

    def do_probe(self, erl: str, build: str | None) -> dict[str, Any]:
        """Facts about this host, its OTP and, unless it is None, the build of inet_rdma; compiles the workers."""
        program = find_erl(erl)
        sources = sorted(map(str, (self._scratch / "src").glob("*.erl")))
        ebin = self._scratch / "ebin"
        ebin.mkdir(exist_ok=True)
        done = subprocess.run(
            [program, "-noinput", "-boot", "start_clean", "-eval", PROBE, "-extra", str(ebin), *sources],
            capture_output=True, text=True, timeout=PROBE_TIMEOUT_S, check=False, stdin=subprocess.DEVNULL,
            env=self._environment(), cwd=self._scratch,
        )
        lines = done.stdout.splitlines()
        if done.returncode != 0 or len(lines) < 3:
            raise BenchError(f"{program} cannot compile the workers:\n{done.stdout}{done.stderr}".rstrip())
        otp, erts, root = lines[:3]
        real = Path(root) / "bin" / "erl"
        facts: dict[str, Any] = machine() | {
            "otp": otp, "erts": erts, "erl": str(real) if real.exists() else program, "worker_ebin": str(ebin),
            "load": os.getloadavg()[0], "memlock": resource.getrlimit(resource.RLIMIT_MEMLOCK)[0],
            # "client-address client-port own-address own-port": how ssh came here.
            "ssh_connection": os.environ.get("SSH_CONNECTION", ""),
        }
        return facts if build is None else facts | find_build(build, self._scratch)

    def do_has_address(self, address: str) -> dict[str, Any]:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as trial:
            try:
                trial.bind((address, 0))
            except OSError as error:
                return {"missing": error.strerror}
        return {}

    def do_start(self, name: str, cookie: str, command: list[str]) -> dict[str, Any]:
        home = self._scratch / name
        home.mkdir()
        # A file that only its owner reads: a flag would show in the list of processes.
        with open(os.open(home / ".erlang.cookie", os.O_WRONLY | os.O_CREAT, 0o400), "w", encoding="ascii") as file:
            file.write(cookie)
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

    def _watch_lease(self) -> None:
        while True:
            time.sleep(1)
            heard = self._heard_s
            if self._lease_s and heard and time.monotonic() - heard > self._lease_s:
                os.kill(os.getpid(), signal.SIGTERM)
                return

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


def find_erl(erl: str) -> str:
    program = shutil.which(erl)
    if program is None:
        path = os.environ.get("PATH", "empty")
        raise BenchError(f"{erl} is not installed or not in PATH, which for commands by ssh is {path}: install Erlang "
                         "(on Debian: apt install erlang), or say where erl is by --erl")
    return program


def find_build(build: str, scratch: Path) -> dict[str, str]:
    """Where the build of inet_rdma is, and a fingerprint of what runs of it. A relative path is one in `scratch`."""
    for application in (scratch / build / place for place in APPLICATIONS):
        library = application / "priv" / "inet_rdma_nif.so"
        beams = sorted((application / "ebin").glob("*.beam"))
        if library.exists() and (application / "ebin" / "inet_rdma_dist.beam").exists():
            return {"ebin": str((application / "ebin").resolve()), "build": fingerprint([*beams, library])}
    raise BenchError(f"there is no build of inet_rdma in {build}: neither ebin/inet_rdma_dist.beam and "
                     "priv/inet_rdma_nif.so nor the same below _build/dev/lib/inet_rdma. Run `make build` there, say "
                     "where it is by --build, or let --sync copy the one of this machine")


def fingerprint(files: list[Path]) -> str:
    total = hashlib.sha256()
    for file in files:
        total.update(f"{file.name} ".encode() + hashlib.sha256(file.read_bytes()).digest())
    return total.hexdigest()[:12]


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
