"""Facts about the machine and the build, so that a figure can be judged later."""

from __future__ import annotations

import ctypes
import os
import platform
import re
import subprocess
import time
from datetime import datetime, timezone
from typing import Any

from . import paths
from .cpu import SOURCE


def environment(node_facts: dict[str, Any]) -> dict[str, Any]:
    return {
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "commit": commit(),
        "otp": node_facts.get("otp"),
        "erts": node_facts.get("erts"),
        "emulator": node_facts.get("emulator"),
        "schedulers": node_facts.get("schedulers"),
        **machine(),
        "memcpy_mb_s": {"1 MB": memcpy_mb_s(1 << 20), "16 MB": memcpy_mb_s(16 << 20)},
        "cpu_time_source": SOURCE,
    }


def machine() -> dict[str, Any]:
    return {
        # Without the local suffix, which says nothing about the kernel.
        "kernel": f"{platform.system()} {re.split('[-+_]', platform.release())[0]}",
        "architecture": platform.machine(),
        "cpu": cpu_model(),
        "cores": usable_cores(),
        "memory_mb": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 1_000_000,
    }


def usable_cores() -> int:
    """The processors that this process may run on."""
    return len(os.sched_getaffinity(0))


def own_load_warning() -> str | None:
    """The warning for this machine, now."""
    return load_warning(os.getloadavg()[0], usable_cores())


def load_warning(load: float, cores: int) -> str | None:
    if load > cores / 4:
        return f"the machine is busy (load {load:.1f} on {cores} cores): figures will be noisy, ratios less so"
    return None


def commit() -> str | None:
    """The commit measured; `+` when the work tree differed from it."""
    def git(*arguments: str) -> str | None:
        try:
            done = subprocess.run(["git", *arguments], cwd=paths.REPO, capture_output=True, text=True, check=False)
        except OSError:
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    head = git("rev-parse", "--short=12", "HEAD")
    changed = git("status", "--porcelain", "--untracked-files=no")
    return head and head + ("+" if changed else "")


def cpu_model() -> str:
    with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as cpuinfo:
        for line in cpuinfo:
            if line.startswith(("model name", "Model")):
                return line.partition(":")[2].strip()
    return platform.processor() or "unknown"


def memcpy_mb_s(size: int) -> int:
    """Best of several copies of `size` bytes, one thread: the ceiling for anything that copies once."""
    source, target = ctypes.create_string_buffer(size), ctypes.create_string_buffer(size)
    ctypes.memset(source, 1, size)
    best = float("inf")
    for _ in range(max(8, (64 << 20) // size)):
        started = time.perf_counter()
        ctypes.memmove(target, source, size)
        best = min(best, time.perf_counter() - started)
    return round(size / best / 1e6)
