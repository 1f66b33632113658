"""Nodes that are killed, in the ways in which they are deployed, and how long their peers take to know."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable
from typing import Any

from .errors import MeasurementError
from .faultnet import Net, both
from .measure import Values
from .scene import Row, Scene
from .sweep import Figure

NAME = "kills"
FIGURES = [Figure("down", "from the kill to the last nodedown", "ms", higher_is_better=False)]
EPMD_PORT, PORT = 4369, 15400
# After a cut, the time in which a neighbour has come to carry the link; for a link at rest to be so.
DETOUR_S, REST_S = 4.0, 0.5
# More than any carrier takes.
DOWN_S = 120.0
ALL_LOST = 1_000_000

FIXED = ("-kernel", "inet_dist_listen_min", str(PORT), "-kernel", "inet_dist_listen_max", str(PORT))
WITHOUT_EPMD = ("-start_epmd", "false", "-erl_epmd_port", str(PORT))
OVER_TCP = ("-inet_rdma", "fabric", "tcp")
HIDDEN = ["unshare", "-m", "sh", "-c", 'mount -t proc -o subset=pid proc /proc && exec "$@"', "sh"]


def kill(row: Row, scene: Scene) -> Values:
    if row.is_at_rest:
        scene.ask("rest")
        time.sleep(REST_S)
    began_us = time.time() * 1e6
    row.make(scene)
    downs = json.loads(scene.ask(f"downs {scene.node('b')}", DOWN_S))
    if not downs:
        raise MeasurementError("a node has not heard of the end")
    return {"down": (max(downs) - began_us) / 1000}


def vm(scene: Scene) -> None:
    scene.signal("b", signal.SIGKILL)


def crash(scene: Scene) -> None:
    """It writes a crash dump."""
    scene.signal("b", signal.SIGUSR1)


def vm_and_epmd(scene: Scene) -> None:
    scene.net.end_processes("b")


def cut(scene: Scene) -> None:
    scene.net.order(both("a", "b"), "loss", ALL_LOST)
    time.sleep(DETOUR_S)


def container(net: Net) -> dict[str, list[str]]:
    return {"b": net.container("b", [EPMD_PORT, PORT])}


def proxy(net: Net) -> dict[str, list[str]]:
    net.order(both("a", "b"), "loss", ALL_LOST)
    net.proxy("a", "b", "c", [EPMD_PORT, PORT])
    return {}


def hidden(net: Net) -> dict[str, list[str]]:
    return {node: [*net.within("a"), *HIDDEN] for node in "ab"}


def both_loads(name: str, title: str, make: Callable[[Scene], None], **more: Any) -> list[Row]:
    """At rest, and while calls and messages go to the node."""
    return [Row(f"{name}_idle", f"{title}, idle", make, is_at_rest=True, is_kill=True, **more),
            Row(name, title, make, is_kill=True, **more)]


ROWS = [
    *both_loads("kill_here", "one host, shm", vm, beside="b"),
    *both_loads("kill_here_tcp", "one host, TCP", vm, beside="b", rdma=OVER_TCP),
    *both_loads("kill_here_hidden", "one host, TCP, boot_id hidden", vm, beside="b", rdma=OVER_TCP, prepare=hidden),
    *both_loads("kill", "two hosts", vm),
    *both_loads("kill_epmdless", "two hosts, no EPMD", vm, args=WITHOUT_EPMD),
    Row("crash_epmdless", "two hosts, no EPMD, crash with a dump", crash, is_kill=True, args=WITHOUT_EPMD),
    *both_loads("kill_all", "two hosts, with its EPMD", vm_and_epmd),
    *both_loads("kill_ports", "published ports", vm, args=FIXED, prepare=container),
    *both_loads("kill_ports_all", "published ports, with its EPMD", vm_and_epmd, args=FIXED, prepare=container),
    *both_loads("kill_proxy", "behind a proxy", vm, hosts=3, nodes="ab", args=FIXED, prepare=proxy),
    *both_loads("kill_detour", "behind a detour", vm, hosts=3, before=cut, is_of_inet_rdma=True),
    *both_loads("kill_detour_all", "behind a detour, with its EPMD", vm_and_epmd, hosts=3, before=cut,
                is_of_inet_rdma=True),
    *both_loads("kill_one_of_three", "one of three nodes", vm, hosts=3),
    *both_loads("kill_one_of_three_all", "one of three nodes, with its EPMD", vm_and_epmd, hosts=3),
]
