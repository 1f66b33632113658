"""Two hosts, as network namespaces, with several ways for one link: networks or flows, each of them with a rate.

The rates are the kernel's: tc-tbf for a network, classes of tc-htb by port for a flow. MPTCP uses the ways.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

from .addresses import ADDRESSES
from .carriers import Carrier
from .cases import Case
from .network import BUFFER_BYTES_MIN, BUFFER_MS, Pair, no_namespaces, run
from .place import Place

NETWORKS, FLOWS = "networks", "flows"
WAYS = (NETWORKS, FLOWS)
# Ports of the flows beside the first one, which has the port of distribution.
FIRST_PORT = 4471
# The kernel makes at most 8 subflows beside the first one.
COUNT_MAX = 9
# What a class of tc-htb sends before another one's turn; the kernel's own choice grows with the rate, and it warns.
QUANTUM_BYTES = 60_000
# A packet of the kernel's that is not yet segmented, and a bit; tbf segments larger ones.
BURST_BYTES = 96_000


class OnAll(Place):
    """A node that listens on all addresses: MPTCP's further connections come to the others."""

    def flags(self, name: str) -> list[str]:
        return ["-name", self.name(name)]


class Rails(Pair):
    """`count` networks of this rate each; or one that gives each flow this rate, with `count` flows."""

    def __init__(self, ways: str, count: int, rate_mbit: float) -> None:
        super().__init__()
        self.ways, self.count, self.rate_mbit = ways, count, rate_mbit

    def series(self, chosen: list[Carrier]) -> list[Carrier]:
        """Each carrier as it is; those of inet_rdma also with MPTCP over one way, and over all."""
        return [each for carrier in chosen for each in (carrier, *self._multipath(carrier))]

    def _multipath(self, carrier: Carrier) -> list[Carrier]:
        if not carrier.is_rdma:
            return []
        flags = (*carrier.flags, "-inet_rdma", "mptcp", "auto")
        return [replace(carrier, flags=flags).on(f"mptcp {number}") for number in (1, self.count)]

    def places(self, carrier: Carrier) -> list[Place]:
        further = self.count - 1 if carrier.network == f"mptcp {self.count}" else 0
        for end in (0, 1):
            self._ip(end, f"mptcp limits set subflow {further} add_addr_accepted {further}")
        return [OnAll(place.host, place.address) for place in super().places(carrier)]

    def _make(self) -> None:
        super()._make()
        # Once: the kernel takes a port again only when its last connection is forgotten.
        for end in (0, 1):
            for words in self._endpoints(end):
                self._ip(end, f"mptcp endpoint add {words}")

    def _endpoints(self, end: int) -> list[str]:
        """Those of one host. Both hosts have some, as either node may connect."""
        if self.ways == NETWORKS:
            return [f"{address(end, number)} dev {self._device(end, number)} subflow signal"
                    for number in range(1, self.count)]
        return [f"{ADDRESSES[end]} dev {self.devices[end]} port {port} signal" for port in self._ports(end)]

    def _ports(self, end: int) -> range:
        """Each host has its own: were they the same, a flow to either host would be of one class."""
        first = FIRST_PORT + end * COUNT_MAX
        return range(first, first + self.count - 1)

    def environment(self) -> dict[str, Any]:
        return {"rails": {"ways": self.ways, "count": self.count, "rate_mbit": self.rate_mbit}}

    def why_not(self) -> str | None:
        without = no_namespaces({"ip": "iproute2", "tc": "iproute2"})
        if without or Path("/proc/sys/net/mptcp/enabled").exists():
            return without
        return "this kernel has no MPTCP (/proc/sys/net/mptcp/enabled)"

    def join(self) -> None:
        for number in range(self.count if self.ways == NETWORKS else 1):
            run("ip", "-n", self.namespaces[0], "link", "add", self._device(0, number), "type", "veth",
                "peer", "name", self._device(1, number), "netns", self.namespaces[1])
            for end in (0, 1):
                if number:
                    self._ip(end, f"address add {address(end, number)}/24 dev {self._device(end, number)}")
                    self._ip(end, f"link set {self._device(end, number)} up")
                self._limit(end, number)

    def part(self) -> None:
        """The cables end with either namespace."""

    def _limit(self, end: int, number: int) -> None:
        device = f"dev {self._device(end, number)}"
        rate = f"{self.rate_mbit * 1e6:.0f}bit"
        if self.ways == NETWORKS:
            waiting = max(BUFFER_BYTES_MIN, BUFFER_MS * self.rate_mbit * 125)
            self._tc(end, f"qdisc add {device} root tbf rate {rate} burst {BURST_BYTES} limit {waiting:.0f}")
            return
        self._tc(end, f"qdisc add {device} root handle 1: htb default 1")
        for flow, port in enumerate([None, *self._ports(0), *self._ports(1)], 1):
            self._tc(end, f"class add {device} parent 1: classid 1:{flow} htb rate {rate} quantum {QUANTUM_BYTES}")
            for which in ("sport", "dport") if port else ():
                self._tc(end, f"filter add {device} parent 1: protocol ip u32 match ip {which} {port} 0xffff "
                              f"flowid 1:{flow}")

    def _device(self, end: int, number: int) -> str:
        return f"{self.devices[end]}{number or ''}"

    def _ip(self, end: int, words: str) -> None:
        run("ip", "-n", self.namespaces[end], *words.split())

    def _tc(self, end: int, words: str) -> None:
        run("tc", "-n", self.namespaces[end], *words.split())


def address(end: int, number: int) -> str:
    return ADDRESSES[end].replace(".99.0.", f".99.{number}.")


def cases(options: argparse.Namespace) -> list[Case]:
    return [Case("throughput", size=size, senders=senders) for size in options.size for senders in options.senders]


def text(rails: dict[str, Any]) -> str:
    """Of the environment, for the table."""
    return (f"between two network namespaces with {rails['count']} {rails['ways']} of {rails['rate_mbit']:g} Mbit/s "
            "each; ")
