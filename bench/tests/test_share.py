"""Whose CPU time: what is made of perf's list, and a short real run where perf is allowed."""

from __future__ import annotations

import contextlib
import io
import json
import shutil
import tempfile
import unittest
from pathlib import Path

from harness import cli, share
from harness.errors import MeasurementError

# As `perf report` of Linux 6.1 prints it.
LISTED = """\
# To display the perf.data header info, please use --header/--header-only options.
#
#     Samples|        Period|Shared Object
         7000|    7000000000|beam.smp
         1000|    1000000000|[JIT] tid 4711
          500|     500000000|[kernel.kallsyms]
          100|     100000000|[nf_conntrack]
          400|     400000000|libc.so.6
          100|     100000000|[vdso]
          800|     800000000|inet_rdma_nif.so
          100|     100000000|libcrypto.so.3
"""


class Share(unittest.TestCase):
    def test_of_each_owner_is_the_sum_of_its_files(self) -> None:
        shares = {name: round(percent, 6) for name, percent in share.shares(LISTED).items()}
        self.assertEqual(shares, {"vm": 80.0, "kernel": 6.0, "libc": 5.0, "library": 8.0, "other": 1.0})

    def test_of_a_handful_of_samples_is_none(self) -> None:
        with self.assertRaisesRegex(MeasurementError, "perf took 10 samples"):
            share.shares("10|10000000|beam.smp\n")

    def test_of_nodes_is_whole(self) -> None:
        if shutil.which("perf") is None:
            self.skipTest("perf is not installed (scripts/deps bench)")
        with tempfile.TemporaryDirectory() as directory, contextlib.redirect_stdout(io.StringIO()), \
                contextlib.redirect_stderr(io.StringIO()):
            status = cli.main(["share", "--rounds", "1", "--seconds", "4", "--warmup", "0.2", "--procs", "10",
                               "--carriers", "inet_tcp,inet_rdma", "--out", directory])
            document = json.loads((Path(directory) / "results.json").read_text(encoding="utf-8"))
        if any("perf_event_paranoid" in failure for failure in document["failures"]):
            self.skipTest(document["failures"][0])
        self.assertEqual((status, document["failures"]), (0, []))
        [measured] = document["cases"][0]["rounds"]
        for values in measured.values():
            self.assertAlmostEqual(sum(values[name] for name in share.OWNERS), 100)
            self.assertGreater(values["vm"], 0)
        self.assertGreater(measured["inet_rdma"]["library"], 0)
        self.assertEqual(measured["inet_tcp"]["library"], 0)


if __name__ == "__main__":
    unittest.main()
