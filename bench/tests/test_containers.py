"""Nodes of one container and of two, from a short real run."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import tempfile
import unittest
from pathlib import Path

from harness import cli, containers


@unittest.skipIf(containers.Containers().why_not(), containers.Containers().why_not() or "")
class Containers(unittest.TestCase):
    def test_both_series_run_over_shared_memory(self) -> None:
        with tempfile.TemporaryDirectory() as directory:
            shown = io.StringIO()
            with contextlib.redirect_stdout(shown), contextlib.redirect_stderr(shown):
                status = cli.main(["containers", "--only", "latency", "--quick", "--rounds", "1", "--seconds", "0.5",
                                   "--warmup", "0.2", "--info", "--no-chart", "--out", directory])
            document = json.loads((Path(directory) / "results.json").read_text(encoding="utf-8"))
        self.assertEqual(status, 0, shown.getvalue())
        self.assertEqual(document["baseline"], "inet_rdma one container")
        settled = [line for line in shown.getvalue().splitlines() if "shared memory of this host" in line]
        self.assertEqual([", through /" in line for line in settled], [False, True], shown.getvalue())

    def test_containers_are_apart_and_leave_nothing_behind(self) -> None:
        with containers.Containers() as both:
            own = namespaces(os.getpid())
            apart = [namespaces(int(first_process(namespace))) for namespace in both.namespaces]
            for name in ("net", "user", "mnt", "pid", "ipc", "uts", "cgroup"):
                self.assertEqual(len({each[name] for each in (own, *apart)}), 3, name)
        listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
        self.assertFalse(any(namespace in listed for namespace in both.namespaces))


def first_process(namespace: str) -> str:
    """The agent: `unshare` is before it, and outside of the namespaces that it makes for it."""
    found = subprocess.run(["ip", "netns", "pids", namespace], capture_output=True, text=True, check=True)
    return max(found.stdout.split(), key=int)


def namespaces(pid: int) -> dict[str, str]:
    return {name: os.readlink(f"/proc/{pid}/ns/{name}") for name in os.listdir(f"/proc/{pid}/ns")}
