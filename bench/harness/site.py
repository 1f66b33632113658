"""Where a cluster across machines is: its hosts, their addresses on each network, and what must be alike on them."""

from __future__ import annotations

import ipaddress
import socket
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from . import paths
from .agent import fingerprint
from .carriers import Carrier
from .environment import load_warning
from .errors import BenchError
from .hosts import ClusterHost, Host, close_all, open_all
from .place import Place
from .reach import Ssh, archive

# Where nothing is said of networks: the address of each host that ssh came to.
SSH_NETWORK = "ssh"
TOP_KEYS = {"rdma", "host"}
HOST_KEYS = {"ssh": str, "user": str, "port": int, "identity": str, "build": str, "erl": str}


@dataclass(frozen=True)
class Plan:
    """One host as the user names it, before anybody has spoken to it."""

    name: str
    # On each network, an address or a name that stands for one.
    addresses: dict[str, str]
    # What of HOST_KEYS is special to this host.
    own: dict[str, Any]


def read_file(file: Path) -> tuple[list[Plan], list[str]]:
    """The hosts of a TOML file, and the networks that it calls RDMA."""
    try:
        import tomllib
    except ImportError:
        raise BenchError("--cluster FILE needs Python 3.11 or later; --hosts and --network do without") from None
    try:
        document = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BenchError(f"cannot read {file}: {error}") from error
    hosts = document.get("host")
    if not isinstance(hosts, list) or not all(isinstance(host, dict) for host in hosts):
        raise BenchError(f"{file}: no [[host]] in it; bench/cluster.example.toml shows how it is written")
    if unknown := set(document) - TOP_KEYS:
        raise BenchError(f"{file}: unknown key {sorted(unknown)[0]!r}; known are {', '.join(sorted(TOP_KEYS))}")
    rdma = document.get("rdma", [])
    return [plan_of(file, host) for host in hosts], [rdma] if isinstance(rdma, str) else rdma


def plan_of(file: Path, host: dict[str, Any]) -> Plan:
    """All keys but HOST_KEYS are names of networks."""
    own = {key: value for key, value in host.items() if key in HOST_KEYS}
    addresses = {key: value for key, value in host.items() if key not in HOST_KEYS}
    for key, value in host.items():
        if not isinstance(value, HOST_KEYS.get(key, str)):
            raise BenchError(f"{file}: {key} = {value!r} is of the wrong type")
    if "ssh" not in own:
        raise BenchError(f"{file}: a [[host]] has no ssh = \"NAME\"")
    return Plan(own.pop("ssh"), addresses, own)


def from_options(hosts: list[str], networks: list[tuple[str, list[str]]]) -> list[Plan]:
    """Each network as addresses in the order of the hosts, or as one ending that all host names get."""
    plans = [Plan(host, {}, {}) for host in hosts]
    for network, values in networks:
        if len(values) == 1 and len(hosts) > 1:
            values = [host.rpartition("@")[2] + values[0] for host in hosts]
        if len(values) != len(hosts):
            raise BenchError(f"--network {network}: {len(values)} addresses for {len(hosts)} hosts")
        for plan, value in zip(plans, values, strict=True):
            plan.addresses[network] = value
    return plans


def networks_of(plans: list[Plan]) -> list[str]:
    """In the order of the first host. Every host must be on all of them."""
    if len(plans) < 2:
        raise BenchError("a cluster has two hosts or more")
    names = list(plans[0].addresses)
    for plan in plans:
        if set(plan.addresses) != set(names):
            own, first = sorted(plan.addresses), sorted(names)
            raise BenchError(f"{plan.name} is on the networks {own}, but {plans[0].name} on {first}")
    return names or [SSH_NETWORK]


def rdma_networks(networks: list[str], named: list[str]) -> list[str]:
    for name in named:
        if name not in networks:
            raise BenchError(f"the RDMA network {name!r} is none of {', '.join(networks)}")
    if not named and len(networks) > 1:
        listed = ", ".join(networks)
        raise BenchError(f"which of {listed} is RDMA? Say it by --rdma NAME, or by rdma = \"NAME\" in the file")
    return named or networks


class Site:
    """`with Site(...) as site:` connects to all hosts and compares them; after it no node is left on any."""

    def __init__(
        self, plans: list[Plan], ssh: Ssh, *, erl: str, build: str | None, sync: bool, needs_build: bool,
        directory: str | None = None,
    ) -> None:
        self.networks = networks_of(plans)
        self._plans = plans
        self._sync = sync
        packed = archive(paths.local_build() if sync and needs_build else None)
        self.hosts: list[Host] = []
        for plan in plans:
            own_ssh = replace(ssh, **{key: plan.own[key] for key in ("user", "port", "identity") if key in plan.own})
            where = "build" if sync else plan.own.get("build", build) or str(paths.REPO)
            self.hosts.append(ClusterHost(
                plan.name, own_ssh, packed, erl=plan.own.get("erl", erl), build=where if needs_build else None,
                directory=directory,
            ))
        # Network -> the address of each host on it.
        self.addresses: dict[str, list[str]] = {}

    def __enter__(self) -> Site:
        try:
            open_all(self.hosts)
            self.addresses = {network: self._addresses_on(network) for network in self.networks}
            self.check_alike()
        except BaseException:
            close_all(self.hosts)
            raise
        return self

    def __exit__(self, *_: object) -> None:
        close_all(self.hosts)

    def places(self, carrier: Carrier) -> list[Place]:
        assert carrier.network
        return [Place(host, address) for host, address in zip(self.hosts, self.addresses[carrier.network], strict=True)]

    @property
    def cores(self) -> int:
        return sum(host.facts["cores"] for host in self.hosts)

    def load_warnings(self) -> list[str]:
        warnings = [(host.name, load_warning(host.facts["load"], host.facts["cores"])) for host in self.hosts]
        return [f"{name}: {warning}" for name, warning in warnings if warning]

    def environment(self) -> dict[str, Any]:
        """What the results say of the hosts. The commit is that of this checkout only if they run its build."""
        shown = ("kernel", "architecture", "cpu", "cores", "memory_mb", "otp", "erts", "build", "memlock")
        hosts = [
            {"name": host.name, "addresses": {network: self.addresses[network][index] for network in self.networks}}
            | {key: host.facts[key] for key in shown if key in host.facts}
            for index, host in enumerate(self.hosts)
        ]
        build = self.hosts[0].facts.get("build")
        # Of this machine, which may be none of them, nothing is said.
        known = {key: hosts[0][key] for key in ("kernel", "architecture", "cpu", "memory_mb")}
        known |= {"hosts": hosts, "cores": self.cores, "memcpy_mb_s": None}
        return known if build in (None, local_fingerprint()) else known | {"commit": f"unknown, build {build}"}

    def _addresses_on(self, network: str) -> list[str]:
        addresses = []
        for plan, host in zip(self._plans, self.hosts, strict=True):
            given = plan.addresses.get(network) or ssh_address(host)
            address = resolve(given, f"{host.name}, network {network}")
            missing = host.ask("has_address", address=address).get("missing")
            if missing:
                raise BenchError(f"{host.name} has not the address {address} on network {network} ({missing})")
            addresses.append(address)
        if len(set(addresses)) != len(addresses):
            raise BenchError(f"two hosts have the same address on network {network}: {', '.join(addresses)}")
        return addresses

    def check_alike(self) -> None:
        self._compare("otp", "OTP releases", "Install the same release on all, or say where it is by --erl")
        self._compare("build", "builds of inet_rdma",
                      "`--sync` copies the one of this machine to all hosts; `--build DIR` names another")

    def _compare(self, fact: str, what: str, remedy: str) -> None:
        if len({host.facts.get(fact) for host in self.hosts}) > 1:
            each = ", ".join(f"{host.name}: {host.facts.get(fact)}" for host in self.hosts)
            raise BenchError(f"the hosts have different {what} ({each}). {remedy}")


def ssh_address(host: Host) -> str:
    words = host.facts["ssh_connection"].split()
    if len(words) != 4 or ":" in words[2]:
        raise BenchError(f"{host.name} does not say which IPv4 address ssh came to: give addresses by "
                         "--network NAME=A,B,...")
    return str(words[2])


def resolve(given: str, where: str) -> str:
    """Here and once, so that every node calls a node the same."""
    try:
        return str(ipaddress.IPv4Address(given))
    except ValueError:
        pass
    try:
        found = socket.getaddrinfo(given, None, socket.AF_INET, socket.SOCK_STREAM)
    except OSError as error:
        raise BenchError(
            f"{where}: {given} is not an IPv4 address, nor a name of one on this machine ({error})") from error
    return str(found[0][4][0])


def local_fingerprint() -> str | None:
    try:
        build = paths.local_build()
    except BenchError:
        return None
    return fingerprint([*sorted((build / "ebin").glob("*.beam")), build / "priv" / "inet_rdma_nif.so"])
