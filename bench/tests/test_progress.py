"""What rounds say of their time."""

from __future__ import annotations

import contextlib
import io
import unittest
from unittest import mock

from harness import progress


class Progress(unittest.TestCase):
    def test_each_round_but_the_last_says_how_long_the_others_take(self) -> None:
        said = io.StringIO()
        with contextlib.redirect_stderr(said), mock.patch.object(progress.time, "monotonic", side_effect=[0, 60, 240]):
            self.assertEqual(list(progress.each_round(3)), [0, 1, 2])
        self.assertEqual(said.getvalue().splitlines(), [
            "round 1/3 done after 60 s, about 2 min left",
            "round 2/3 done after 4 min, about 2 min left",
        ])

    def test_one_round_says_nothing(self) -> None:
        said = io.StringIO()
        with contextlib.redirect_stderr(said):
            self.assertEqual(list(progress.each_round(1)), [0])
        self.assertEqual(said.getvalue(), "")


if __name__ == "__main__":
    unittest.main()
