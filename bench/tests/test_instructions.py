"""What the comparison of instruction counts calls well, and what not."""

import unittest

from instructions import compare, is_comparable


class Comparison(unittest.TestCase):
    def well(self, committed, found):
        return compare(committed, found)[1]

    def test_a_tenth_more_is_the_limit(self):
        self.assertTrue(self.well({"write": 100.0}, {"write": 110.0}))
        self.assertFalse(self.well({"write": 100.0}, {"write": 110.2}))

    def test_fewer_are_well_and_ask_for_an_update(self):
        lines, well = compare({"write": 100.0}, {"write": 80.0})
        self.assertTrue(well)
        self.assertIn("--update", lines[-1])

    def test_cases_and_figures_belong_together(self):
        self.assertFalse(self.well({"write": 100.0}, {"write": 100.0, "read": 1.0}))
        self.assertFalse(self.well({"write": 100.0, "read": 1.0}, {"write": 100.0}))

    def test_an_older_compiler_or_another_c_library_is_not_judged(self):
        committed = {"rustc": "1.95.0", "libc": "2.36"}
        self.assertTrue(is_comparable(committed, "1.95.1", "2.36"))
        self.assertTrue(is_comparable(committed, "2.0.0-nightly", "2.36"))
        self.assertFalse(is_comparable(committed, "1.85.1", "2.36"))
        self.assertFalse(is_comparable(committed, "1.95.0", "2.41"))


if __name__ == "__main__":
    unittest.main()
