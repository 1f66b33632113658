"""What the command for many connections and nodes leaves behind, from a short real run."""

from __future__ import annotations

import contextlib
import io
import json
import tempfile
import unittest
from pathlib import Path
from typing import Any

from harness import cli, mesh, scale


def run(directory: str, *arguments: str) -> tuple[int, dict[str, Any]]:
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        status = cli.main(["scale", "--rounds", "1", "--idle-seconds", "0.2", "--out", directory, *arguments])
    return status, json.loads((Path(directory) / "results.json").read_text(encoding="utf-8"))


class Scale(unittest.TestCase):
    def test_measures_connections_and_meshes_and_draws_their_growth(self) -> None:
        with tempfile.TemporaryDirectory() as directory:
            status, document = run(directory, "--connections", "3", "--nodes", "2,3")
            self.assertEqual((status, document["failures"]), (0, []))
            self.assertEqual(sorted(path.name for path in Path(directory).iterdir()),
                             ["growth.png", "growth.svg", "results.json", "table.txt"])
        known = {"idle": (scale.IDLE, {"shm"}, ["3"]), "light": (scale.LIGHT, {"shm"}, ["3"]),
                 "mesh": (mesh.FIGURES, {"inet_tcp", "inet_rdma"}, ["2", "3"])}
        self.assertEqual([each["name"] for each in document["series"]], list(known))
        for each in document["series"]:
            figures, subjects, labels = known[each["name"]]
            self.assertEqual([point["label"] for point in each["points"]], labels)
            for point in each["points"]:
                self.assertEqual(set(point["rounds"][0]), subjects)
                for measured in point["rounds"][0].values():
                    self.assertEqual(set(measured), {figure.name for figure in figures})
                    self.assertTrue(all(value > 0 for name, value in measured.items()
                                        if name not in ("idle", "pinned")))

    def test_too_many_connections_are_a_failure_and_the_rest_is_measured(self) -> None:
        with tempfile.TemporaryDirectory() as directory:
            status, document = run(directory, "--connections", "1000000000", "--nodes", "2", "--no-chart")
        self.assertEqual(status, 1)
        self.assertEqual(len(document["failures"]), 2)
        for failure in document["failures"]:
            self.assertIn("a hard limit of open files that allows it", failure)
        [point] = document["series"][2]["points"]
        self.assertEqual(set(point["rounds"][0]), {"inet_tcp", "inet_rdma"})


if __name__ == "__main__":
    unittest.main()
