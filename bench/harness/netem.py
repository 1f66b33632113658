"""Delay on the way to another host, made by the kernel (tc-netem(8)) on a device of this one."""

from __future__ import annotations

import shutil
import subprocess
from typing import Any

from .errors import BenchError

# Packets under way at a time: more than any device here keeps.
LIMIT = 100_000


class Netem:
    """While it is entered the device delays what it sends; it carries no other discipline meanwhile."""

    def __init__(self, device: str) -> None:
        self.device = device
        self.delay_us: int | None = None

    def __enter__(self) -> Netem:
        if not shutil.which("tc"):
            raise BenchError("--netem: no tc here; install iproute2")
        self.delay(0)
        return self

    def __exit__(self, *_error: Any) -> None:
        self._tc("del")

    def delay(self, microseconds: int) -> None:
        """From now on each packet leaves so much later: that much is added to each round trip."""
        if microseconds != self.delay_us:
            self._tc("replace", "netem", "limit", str(LIMIT), "delay", f"{microseconds}us")
            self.delay_us = microseconds

    def _tc(self, verb: str, *discipline: str) -> None:
        command = ["tc", "qdisc", verb, "dev", self.device, "root", *discipline]
        done = subprocess.run(command, stderr=subprocess.PIPE, text=True)
        if done.returncode != 0:
            said = done.stderr.strip()
            raise BenchError(f"--netem: `{' '.join(command)}` failed (it takes root and the module sch_netem): {said}")
