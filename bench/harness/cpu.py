"""CPU time of a process, all of its threads, those that ended included."""

from __future__ import annotations

import os
import time

SOURCE = "CPU clock of each node's process (clock_getcpuclockid; user + system, all threads, nanoseconds)"


def cpu_seconds(pid: int) -> float:
    """CPU seconds used by `pid` so far.

    Linux numbers the CPU clock of a process from its pid (clock_getcpuclockid(3)). It counts the same as utime +
    stime of /proc/PID/stat, without the rounding to 10 ms; that file is read where the clock is refused.
    """
    try:
        return time.clock_gettime((~pid << 3) | 2)
    except OSError:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as stat:
            fields = stat.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def machine_cpu_seconds() -> float:
    """CPU seconds that the whole machine has spent at work so far (to 10 ms), and those stolen by its host."""
    with open("/proc/stat", encoding="ascii") as stat:
        user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, stat.readline().split()[1:9])
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")
