"""Meshes that come up, from a short real run."""

from __future__ import annotations

import contextlib
import io
import json
import tempfile
import unittest
from pathlib import Path

from harness import carriers, cli, mesh, paths


class Mesh(unittest.TestCase):
    def test_comes_up_over_each_carrier_and_every_figure_is_there(self) -> None:
        with tempfile.TemporaryDirectory() as directory, contextlib.redirect_stdout(io.StringIO()), \
                contextlib.redirect_stderr(io.StringIO()):
            status = cli.main(["mesh", "--nodes", "2,4", "--rounds", "1", "--idle-seconds", "0.2", "--no-chart",
                               "--out", directory])
            document = json.loads((Path(directory) / "results.json").read_text(encoding="utf-8"))
        self.assertEqual((status, document["failures"]), (0, []))
        [series] = document["series"]
        self.assertEqual([point["label"] for point in series["points"]], ["2", "4"])
        for point in series["points"]:
            self.assertEqual(set(point["rounds"][0]), {"inet_tcp", "inet_rdma"})
            for measured in point["rounds"][0].values():
                self.assertEqual(set(measured), {figure.name for figure in mesh.FIGURES})
                self.assertTrue(all(measured[name] > 0 for name in ("time", "cpu", "memory", "descriptors")))

    def test_shows_no_cookie_on_a_command_line(self) -> None:
        paths.compile_workers()
        with tempfile.TemporaryDirectory() as directory:
            nodes = mesh.start(carriers.inet_tcp(), 2, Path(directory))
            try:
                mesh.await_all(nodes, 2, Path(directory))
                lines = [Path(f"/proc/{node.pid}/cmdline").read_text() for node in nodes]
            finally:
                for node in nodes:
                    node.kill()
                    node.wait()
            cookie = Path(directory, "home", ".erlang.cookie").read_text(encoding="ascii")
        for line in lines:
            self.assertIn("inet_rdma_bench_mesh", line)
            self.assertNotIn(cookie, line)
            self.assertNotIn("-setcookie", line)

    def test_of_nodes_that_cannot_start_is_a_failure_with_their_words(self) -> None:
        with tempfile.TemporaryDirectory() as directory, contextlib.redirect_stdout(io.StringIO()), \
                contextlib.redirect_stderr(io.StringIO()):
            status = cli.main(["mesh", "--nodes", "2", "--rounds", "1", "--carriers", "inet_rdma", "--no-chart",
                               "--rdma-flags=-inet_rdma no_such_option 1", "--out", directory])
            document = json.loads((Path(directory) / "results.json").read_text(encoding="utf-8"))
        self.assertEqual(status, 1)
        self.assertIn("no_such_option", document["failures"][0])
