"""Two network namespaces of this host, joined by a wire with delay, rate and loss (src/wire.c)."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any, TypeVar

from . import paths
from .addresses import ADDRESSES
from .carriers import Carrier
from .environment import own_load_warning, usable_cores
from .errors import BenchError
from .hosts import Host, close_all, open_all
from .place import Place
from .reach import HERE, archive

# What a switch keeps of a direction that is busy, in milliseconds of its rate; and no less than some packets.
BUFFER_MS, BUFFER_BYTES_MIN = 20.0, 65_536
# Ethernet's, and that of its jumbo frames, the most that the wire takes.
MTU, JUMBO_MTU = 1500, 9000
# Packets that a device keeps for a wire that comes late: the wire alone decides which are lost.
QUEUE_PACKETS = 10_000

AnyPair = TypeVar("AnyPair", bound="Pair")


class Inside(Host):
    """An agent in a namespace of this host."""

    def __init__(self, namespace: str, machine: object, within: tuple[str, ...]) -> None:
        """`within` starts the agent there."""
        super().__init__(namespace, ["ip", "netns", "exec", namespace, *within, *HERE], archive())
        self.machine = machine

    def prepare(self) -> None:
        self.facts = {"erl": paths.erl_program(), "worker_ebin": str(paths.WORKER_EBIN)}


class Pair:
    """Two namespaces with an agent in each: `with` makes them; after it nothing of them is left."""

    def __init__(self, within: tuple[str, ...] = ()) -> None:
        mark = secrets.token_hex(3)
        self.namespaces = [f"inet_rdma_{mark}_{end}" for end in "ab"]
        # Names of devices have at most 15 characters.
        self.devices = [f"ir{mark}{end}" for end in "ab"]
        self.hosts: list[Host] = [Inside(namespace, self, within) for namespace in self.namespaces]

    def __enter__(self: AnyPair) -> AnyPair:
        why = self.why_not()
        if why:
            raise BenchError(why)
        try:
            self._make()
            open_all(self.hosts)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        close_all(self.hosts)
        self.part()
        for namespace in self.namespaces:
            remove_namespace(namespace)

    @property
    def cores(self) -> int:
        return usable_cores()

    def series(self, chosen: list[Carrier]) -> list[Carrier]:
        """What is measured of these carriers."""
        return chosen

    def places(self, _carrier: Carrier) -> list[Place]:
        return [Place(host, address) for host, address in zip(self.hosts, ADDRESSES, strict=True)]

    def load_warnings(self) -> list[str]:
        warning = own_load_warning()
        return [warning] if warning else []

    def _make(self) -> None:
        for namespace in self.namespaces:
            run("ip", "netns", "add", namespace)
        self.join()
        for namespace, device, address in zip(self.namespaces, self.devices, ADDRESSES, strict=True):
            run("ip", "-n", namespace, "address", "add", f"{address}/24", "dev", device)
            run("ip", "-n", namespace, "link", "set", device, "up")
            run("ip", "-n", namespace, "link", "set", "lo", "up")

    def why_not(self) -> str | None:
        """Why this machine cannot; None if it can try."""
        raise NotImplementedError

    def join(self) -> None:
        """Makes the devices, one in each namespace, that lead to each other."""
        raise NotImplementedError

    def part(self) -> None:
        """Ends what join() has made beside the namespaces."""
        raise NotImplementedError


class Network(Pair):
    """Joined by the wire."""

    def __init__(
        self, delay_ms: float, rate_mbit: float, loss_percent: float, mtu: int = MTU, buffer_ms: float = BUFFER_MS,
        settings: dict[str, str] | None = None,
    ) -> None:
        """`settings` are those of the kernel (sysctl) in both namespaces, by their names below net.ipv4."""
        super().__init__()
        self.delay_ms, self.rate_mbit, self.loss_percent = delay_ms, rate_mbit, loss_percent
        self.mtu, self.buffer_ms, self.settings = mtu, buffer_ms, settings or {}
        self._wire: subprocess.Popen[bytes] | None = None

    def environment(self) -> dict[str, Any]:
        return {"network": {
            "delay_ms": self.delay_ms, "rate_mbit": self.rate_mbit, "loss_percent": self.loss_percent,
            "mtu": self.mtu, "buffer_ms": self.buffer_ms,
        }}

    def why_not(self) -> str | None:
        return why_not()

    def join(self) -> None:
        for namespace in self.namespaces:
            for name, value in self.settings.items():
                set_setting(namespace, name, value)
        bytes_per_ms = self.rate_mbit * 125
        ends = [word for pair in zip(self.namespaces, self.devices, strict=True) for word in pair]
        numbers = (self.delay_ms * 1e3, self.rate_mbit * 1e3, self.loss_percent * 1e4,
                   max(BUFFER_BYTES_MIN, self.buffer_ms * bytes_per_ms))
        command = [str(wire_program()), *ends, *(str(round(number)) for number in numbers)]
        self._wire = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
        assert self._wire.stdout
        if not self._wire.stdout.readline():
            raise BenchError(f"network: `{' '.join(command)}` ended")
        for namespace, device in zip(self.namespaces, self.devices, strict=True):
            run("ip", "-n", namespace, "link", "set", device, "mtu", str(self.mtu), "txqueuelen", str(QUEUE_PACKETS))

    def part(self) -> None:
        wire, self._wire = self._wire, None
        if wire:
            wire.communicate()


class Cable(Pair):
    """Joined by a virtual cable, as containers of one host are."""

    def environment(self) -> dict[str, Any]:
        return {"cable": True}

    def why_not(self) -> str | None:
        return no_namespaces({"ip": "iproute2"})

    def join(self) -> None:
        (one, other), (device, peer) = self.namespaces, self.devices
        run("ip", "link", "add", device, "netns", one, "type", "veth", "peer", "name", peer, "netns", other)

    def part(self) -> None:
        """The device ends with its namespace."""


def wire_program() -> Path:
    """What delays the packets, compiled when its source is newer."""
    source, program = paths.BENCH / "src" / "wire.c", paths.OUT / "wire"
    paths.compile_c(source, program)
    return program


def why_not() -> str | None:
    """Why this machine has no wire between two namespaces; None if it can try."""
    without = no_namespaces({"ip": "iproute2", "cc": "gcc"})
    if without or Path("/dev/net/tun").exists():
        return without
    return "this kernel has no TUN devices (/dev/net/tun)"


def setting(namespace: str, name: str) -> str:
    """A setting of the kernel there, by its name below net.ipv4."""
    return run("ip", "netns", "exec", namespace, "cat", f"/proc/sys/net/ipv4/{name}").strip()


def set_setting(namespace: str, name: str, value: str) -> None:
    """In one write, as the kernel takes it."""
    run("ip", "netns", "exec", namespace, "sh", "-c", 'echo "$1" > "$2"', "sh", value, f"/proc/sys/net/ipv4/{name}")


def remove_namespace(namespace: str) -> None:
    """And ends what runs there: EPMD stays when its nodes have ended, and would keep the namespace."""
    left = subprocess.run(["ip", "netns", "pids", namespace], capture_output=True, text=True, check=False)
    for pid in left.stdout.split():
        os.kill(int(pid), signal.SIGKILL)
    subprocess.run(["ip", "netns", "delete", namespace], capture_output=True, check=False)


def no_namespaces(programs: dict[str, str]) -> str | None:
    """Why not: one of the programs is missing, given with their Debian packages, or the right to make them."""
    for program, package in programs.items():
        if not shutil.which(program):
            return f"no {program} here (on Debian: apt install {package})"
    return None if os.geteuid() == 0 else "it takes root to make network namespaces"


def run(*command: str) -> str:
    """Its output."""
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BenchError(f"network: `{' '.join(command)}` failed: {done.stderr.strip()}")
    return done.stdout
