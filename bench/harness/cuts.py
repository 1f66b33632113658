"""Cuts the TCP connection of a link under load, as an administrator or a firewall does: `ss -K`, on this machine."""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .carriers import Carrier
from .cases import plural
from .cluster import Cluster
from .control import Atom
from .errors import MeasurementError
from .hosts import Node

PROCESSES = 100
# Traffic before the first cut and after each one.
PAUSE_S = 1.0
# More than any carrier takes to end a link or to make another connection for it.
RECOVERY_S = 30.0
POLL_S = 0.02

# Both addresses as `ss` writes them, the first process's own first.
Connection = tuple[str, str]


@dataclass(frozen=True)
class Outcome:
    """What the nodes saw of the cuts: nodedowns of both nodes, and the calls from one to the other."""

    nodedowns: int
    calls: int
    failed: int
    longest_ms: float


def why_not() -> str | None:
    """Why this machine cannot cut connections, by a try on one of this process's own; None: it can."""
    if shutil.which("ss") is None:
        return "the program ss is missing (on Debian: apt install iproute2)"
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as own:
        kill((address(own.getsockname()), address(own.getpeername())))
        own.settimeout(0.5)
        try:
            own.recv(1)
        except TimeoutError:
            return "ss -K cuts nothing here, it takes root and a kernel with CONFIG_INET_DIAG_DESTROY"
        except OSError:
            pass
    return None


def survive(carrier: Carrier, cuts: int, tell: Callable[[str], None]) -> Outcome:
    """Cuts the connection of a link that often, tells each cut and what it did, and returns what all of them did."""
    with Cluster(carrier, 2, []) as cluster:
        first, second = cluster.nodes
        cluster.ask_all({first: (Atom("callers"), Atom(second.name), PROCESSES),
                         second: (Atom("callers"), Atom(first.name), 0)})
        await_calls(cluster)
        for _ in range(cuts):
            time.sleep(PAUSE_S)
            before = outcome(cluster)
            connection = awaited(lambda: next(iter(connections(first, second)), None), "there is no TCP connection")
            command = kill(connection)
            awaited(lambda cut=connection: cut not in connections(first, second), f"{command} did not cut it")
            await_calls(cluster)
            after = outcome(cluster)
            tell(f"{command}   {plural(after.nodedowns - before.nodedowns, 'nodedown')}, "
                 f"{plural(after.failed - before.failed, 'failed call')}")
        time.sleep(PAUSE_S)
        return outcome(cluster)


def address(end: tuple[str, int]) -> str:
    return f"{end[0]}:{end[1]}"


def kill(connection: Connection) -> str:
    """Returns the command."""
    local, remote = connection
    command = ["ss", "-K", "-tn", "src", local, "dst", remote]
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    return " ".join(command)


def connections(first: Node, second: Node) -> list[Connection]:
    """The established TCP connections between the processes of two nodes of this machine."""
    listed = subprocess.run(["ss", "-tnpH"], capture_output=True, text=True, check=True).stdout
    ends = [(words[3], words[4], set(map(int, re.findall(r"pid=(\d+)", line))))
            for line in listed.splitlines() if (words := line.split())[0] == "ESTAB"]
    of_second = {(local, remote) for local, remote, pids in ends if second.pid in pids}
    return [(local, remote) for local, remote, pids in ends if first.pid in pids and (remote, local) in of_second]


def outcome(cluster: Cluster) -> Outcome:
    counts = counted(cluster)
    calls = counts[cluster.nodes[0]]
    return Outcome(
        nodedowns=sum(each["nodedowns"] for each in counts.values()), failed=calls["failed"],
        calls=sum(calls["succeeded"]) + calls["failed"], longest_ms=calls["longest_us"] / 1000,
    )


def counted(cluster: Cluster) -> dict[Node, dict[str, Any]]:
    return cluster.ask_all({node: Atom("counts") for node in cluster.nodes})


def await_calls(cluster: Cluster) -> None:
    """Until each caller has made a call that succeeded. One may have been under way: it takes two."""
    def succeeded() -> list[int]:
        numbers: list[int] = counted(cluster)[cluster.nodes[0]]["succeeded"]
        return numbers

    before = succeeded()
    awaited(lambda: all(now > then + 1 for now, then in zip(succeeded(), before, strict=True)),
            "calls did not succeed again")


def awaited(found: Callable[[], Any], otherwise: str) -> Any:
    deadline = time.monotonic() + RECOVERY_S
    while not (value := found()):
        if time.monotonic() > deadline:
            raise MeasurementError(f"{otherwise} within {RECOVERY_S:.0f} s")
        time.sleep(POLL_S)
    return value
