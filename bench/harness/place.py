"""Where one node of a cluster is, and by what name the others reach it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from .carriers import Carrier
from .hosts import Host


@dataclass(frozen=True)
class Place:
    """Where one node runs, and what it is called there."""

    host: Host
    # The address in the network that is measured; None: all nodes are on this machine.
    address: str | None = None

    def name(self, name: str) -> str:
        return f"{name}@{self.address or 'localhost'}"

    def flags(self, name: str) -> list[str]:
        if self.address is None:
            return ["-sname", self.name(name)]
        # Distribution listens on this network alone, and a route leads to the others' addresses on it.
        interface = "{" + self.address.replace(".", ",") + "}"
        return ["-name", self.name(name), "-kernel", "inet_dist_use_interface", interface]


class Sites(Protocol):
    """Where the nodes of a run are, if not simply on this machine."""

    @property
    def cores(self) -> int: ...

    def places(self, carrier: Carrier) -> list[Place]: ...

    def load_warnings(self) -> list[str]: ...

    def environment(self) -> dict[str, Any]: ...
