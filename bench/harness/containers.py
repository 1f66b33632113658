"""Nodes of one container, and of two: namespaces of this host, and a directory that both have."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from typing import Any

from .carriers import Carrier
from .network import Pair, no_namespaces, run
from .place import Place

ONE, TWO = "one container", "two containers"
# Beside the network's, which `ip netns` makes. The agent is the first process: the others end with it.
NAMESPACES = ("user", "mount", "pid", "ipc", "uts", "cgroup")
WITHIN = ("unshare", *(f"--{namespace}" for namespace in NAMESPACES), "--map-root-user", "--mount-proc", "--fork",
          "--kill-child", "--")


class Containers(Pair):
    """Joined by a virtual cable, over which links begin, and by the directory, through which they share memory."""

    def __init__(self) -> None:
        super().__init__(WITHIN)
        self._directory = tempfile.TemporaryDirectory(prefix="inet_rdma_bench_shm_")

    def series(self, chosen: list[Carrier]) -> list[Carrier]:
        """Each carrier between two nodes of one container, then of two."""
        return [each for carrier in chosen for each in (carrier.on(ONE), self._across(carrier).on(TWO))]

    def _across(self, carrier: Carrier) -> Carrier:
        flags = ("-inet_rdma", "shm_directory", self._directory.name) if carrier.is_rdma else ()
        return replace(carrier, flags=(*carrier.flags, *flags))

    def places(self, carrier: Carrier) -> list[Place]:
        first, second = super().places(carrier)
        return [first, second if carrier.network == TWO else first]

    def environment(self) -> dict[str, Any]:
        return {"containers": ["network", *NAMESPACES]}

    def why_not(self) -> str | None:
        return no_namespaces({"ip": "iproute2", "unshare": "util-linux"})

    def join(self) -> None:
        (near, far), (here, there) = self.namespaces, self.devices
        run("ip", "-n", near, "link", "add", here, "type", "veth", "peer", "name", there, "netns", far)

    def part(self) -> None:
        """The cable ends with either namespace."""
        self._directory.cleanup()
