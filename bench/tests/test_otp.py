"""OTP's benchmark: what is said where its sources are missing, and one of its cases, where they are there."""

from __future__ import annotations

import contextlib
import io
import tempfile
import unittest

from harness import cli, otp, paths
from harness.errors import BenchError
from harness.sweep import Point, Series


class Otp(unittest.TestCase):
    def test_a_directory_without_the_sources_is_named(self) -> None:
        said = io.StringIO()
        with tempfile.TemporaryDirectory() as directory, contextlib.redirect_stderr(said):
            self.assertEqual(cli.main(["otp", "--sources", directory]), 1)
        self.assertIn("has no ssl_dist_bench_SUITE.erl: it must be lib/ssl/test", said.getvalue())

    def test_measures_a_case_over_each_carrier(self) -> None:
        try:
            sources = otp.fetched()
        except BenchError as reason:
            raise unittest.SkipTest(str(reason)) from reason
        otp.compile_suite(sources)
        each = Series("throughput", "", "", [], [], [])
        for carrier in otp.CARRIERS:
            measure = otp.subject(carrier, paths.local_build() / "ebin")
            values = measure(each, Point(64, "64 B", {"case": "throughput_64"}))
            assert values is not None
            self.assertEqual(set(values), {"throughput", "sender", "receiver"})
            self.assertTrue(all(value > 0 for value in values.values()))


if __name__ == "__main__":
    unittest.main()
