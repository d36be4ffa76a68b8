import statistics
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT))


class Median(unittest.TestCase):
    def test_agrees_with_the_statistics_module(self):
        from middle import median

        for values in ([5], [2, 1], [3, 1, 2], [4, 1, 3, 2], [9, 1, 1, 9, 5, 7]):
            self.assertEqual(median(values), statistics.median(values), values)

    def test_nothing_has_no_median(self):
        from middle import median

        self.assertRaises(ValueError, median, [])


if __name__ == "__main__":
    unittest.main()
