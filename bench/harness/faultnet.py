"""Hosts for nodes, as network namespaces of this host, and a switch between them that makes faults (test/switch)."""

from __future__ import annotations

import secrets
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

from . import paths
from .errors import BenchError, MeasurementError
from .network import no_namespaces, remove_namespace, run

HOSTS = "abcd"
# The packets from one host to another.
Way = tuple[str, str]


def both(one: str, other: str) -> list[Way]:
    return [(one, other), (other, one)]


def name_of(host: str) -> str:
    """What nodes have behind the @."""
    return f"{host}.test"


class Net:
    """The first `count` hosts, while it is entered. Each has an EPMD, an /etc/hosts and an address of its own."""

    def __init__(self, count: int, ipv6: bool = False) -> None:
        self.hosts, self.ipv6 = HOSTS[:count], ipv6
        self._prefix = f"inet_rdma_{secrets.token_hex(3)}_"
        self._numbers = {host: number for number, host in enumerate(self.hosts, 1)}
        self._switch: subprocess.Popen[str] | None = None

    def __enter__(self) -> Net:
        try:
            self._make()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _make(self) -> None:
        for host in self.hosts:
            run("ip", "netns", "add", self._prefix + host)
        self._write_names()
        ends = [word for host in self.hosts for word in (self._prefix + host, "eth0")]
        self._switch = subprocess.Popen([str(switch_program()), *ends], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True, start_new_session=True)
        self._hear()
        for host in self.hosts:
            for device in ("lo", "eth0"):
                run("ip", "-n", self._prefix + host, "link", "set", device, "up")
            run("ip", "-n", self._prefix + host, "address", "add", self._address(host), "dev", "eth0")

    def close(self) -> None:
        switch, self._switch = self._switch, None
        if switch:
            switch.communicate()
        for host in self.hosts:
            remove_namespace(self._prefix + host)
            shutil.rmtree(self._names(host).parent, ignore_errors=True)

    def within(self, host: str) -> list[str]:
        """What starts a program on this host."""
        return ["ip", "netns", "exec", self._prefix + host]

    def order(self, ways: Iterable[Way], what: str, value: int = 0) -> None:
        """An order of the switch, for each way at once."""
        lines = [f"{self.hosts.index(here)} {self.hosts.index(there)} {what} {value}\n" for here, there in ways]
        assert self._switch and self._switch.stdin
        self._switch.stdin.write("".join(lines))
        self._switch.stdin.flush()
        for _ in lines:
            self._hear()

    def heal(self) -> None:
        self.order([(here, there) for here in self.hosts for there in self.hosts if here != there], "pass")

    def move(self, moving: str) -> None:
        """These hosts have other addresses, which their names resolve to everywhere."""
        before = {host: self._address(host) for host in moving}
        for host in moving:
            self._numbers[host] += 16
        self._write_names()
        for host in moving:
            run("ip", "-n", self._prefix + host, "address", "delete", before[host], "dev", "eth0")
            run("ip", "-n", self._prefix + host, "address", "add", self._address(host), "dev", "eth0")

    def address(self, host: str) -> str:
        return self._address(host).partition("/")[0]

    def _hear(self) -> None:
        assert self._switch and self._switch.stdout
        if not self._switch.stdout.readline():
            raise MeasurementError("the switch between the hosts has ended")

    def _address(self, host: str) -> str:
        """With its prefix. Within the namespaces alone, so all runs may use the same."""
        return f"fd96::{self._numbers[host]:x}/64" if self.ipv6 else f"10.96.0.{self._numbers[host]}/24"

    def _names(self, host: str) -> Path:
        """`ip netns exec` shows this file as /etc/hosts."""
        return Path("/etc/netns", self._prefix + host, "hosts")

    def _write_names(self) -> None:
        lines = [f"{self.address(host)} {name_of(host)}\n" for host in self.hosts]
        for host in self.hosts:
            file = self._names(host)
            file.parent.mkdir(parents=True, exist_ok=True)
            # In place, for those that have it open.
            file.write_text("127.0.0.1 localhost\n::1 localhost\n" + "".join(lines), encoding="ascii")


def switch_program() -> Path:
    """Compiled when its source is newer."""
    program = paths.OUT / "switch"
    paths.compile_c(paths.REPO / "test" / "switch" / "switch.c", program)
    return program


def check() -> None:
    """Raises BenchError where this machine has no such hosts."""
    why = no_namespaces({"ip": "iproute2", "cc": "gcc"})
    if not why and not Path("/dev/net/tun").exists():
        why = "this kernel has no TUN devices (/dev/net/tun)"
    if why:
        raise BenchError(why)
    switch_program()
