"""What the comparison of instruction counts calls well, and what not."""

import unittest

from instructions import compare


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


if __name__ == "__main__":
    unittest.main()
