"""Hosts for nodes, as network namespaces of this host, and a switch between them that makes faults (test/switch)."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from . import paths
from .errors import BenchError, MeasurementError
from .network import no_namespaces, remove_namespace, run

HOSTS = "abcd"
# A container and its host, in a network of the two.
BOX, BOX_GATEWAY = "10.95.0.2", "10.95.0.254"
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
        self._boxed: set[str] = set()
        self._proxies: list[subprocess.Popen[str]] = []

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
        for proxy in self._proxies:
            proxy.kill()
            proxy.communicate()
        for namespace in [*(self._box(host) for host in self._boxed), *(self._prefix + host for host in self.hosts)]:
            remove_namespace(namespace)
            shutil.rmtree(Path("/etc/netns", namespace), ignore_errors=True)

    def within(self, host: str) -> list[str]:
        """What starts a program on this host."""
        return ["ip", "netns", "exec", self._prefix + host]

    def end_processes(self, host: str) -> None:
        """All that runs on the host, or in its container, with SIGKILL."""
        namespace = self._box(host) if host in self._boxed else self._prefix + host
        pids = subprocess.run(["ip", "netns", "pids", namespace], capture_output=True, text=True, check=True).stdout
        for pid in pids.split():
            # One may have ended.
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)

    def container(self, host: str, ports: list[int]) -> list[str]:
        """What starts a program in a container on this host, which publishes these ports and has the host's name."""
        self._boxed.add(host)
        box, outside = self._box(host), self._prefix + host
        run("ip", "netns", "add", box)
        names = Path("/etc/netns", box, "hosts")
        names.parent.mkdir(parents=True, exist_ok=True)
        names.write_text(f"{BOX} {name_of(host)}\n" + self._names(host).read_text(encoding="ascii"), encoding="ascii")
        run("ip", "-n", outside, "link", "add", "box0", "type", "veth", "peer", "name", "eth0", "netns", box)
        for namespace, device, address in ((outside, "box0", BOX_GATEWAY), (box, "eth0", BOX)):
            run("ip", "-n", namespace, "address", "add", f"{address}/24", "dev", device)
            run("ip", "-n", namespace, "link", "set", device, "up")
        run("ip", "-n", box, "link", "set", "lo", "up")
        run("ip", "-n", box, "route", "add", "default", "via", BOX_GATEWAY)
        run(*self.within(host), "sysctl", "-qw", "net.ipv4.ip_forward=1")
        published = ",".join(map(str, ports))
        run(*self.within(host), "nft", "table ip box { chain pre { type nat hook prerouting priority -100; "
            f"iifname eth0 tcp dport {{{published}}} dnat to {BOX}; }}; chain post {{ type nat hook postrouting "
            "priority 100; oifname eth0 masquerade; }; }")
        return ["ip", "netns", "exec", box]

    def proxy(self, near: str, far: str, via: str, ports: list[int]) -> None:
        """On host `near` the name of host `far` leads to host `via`, which forwards these ports to `far`."""
        hosts = self._names(near)
        hosts.write_text(hosts.read_text(encoding="ascii").replace(
            f"{self.address(far)} {name_of(far)}", f"{self.address(via)} {name_of(far)}"), encoding="ascii")
        proxy = subprocess.Popen(
            [*self.within(via), sys.executable, str(paths.BENCH / "src" / "forward.py"), self.address(far),
             *map(str, ports)], stdout=subprocess.PIPE, text=True, start_new_session=True)
        self._proxies.append(proxy)
        assert proxy.stdout
        if proxy.stdout.readline() != "ready\n":
            raise MeasurementError("the proxy does not listen")

    def _box(self, host: str) -> str:
        return f"{self._prefix}{host}_box"

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
    why = no_namespaces({"ip": "iproute2", "cc": "gcc", "nft": "nftables"})
    if not why and not Path("/dev/net/tun").exists():
        why = "this kernel has no TUN devices (/dev/net/tun)"
    if why:
        raise BenchError(why)
    switch_program()
