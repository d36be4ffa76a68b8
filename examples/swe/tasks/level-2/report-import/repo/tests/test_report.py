import json
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT))


class Report(unittest.TestCase):
    def test_counts_and_sums(self):
        from report import report

        self.assertEqual(json.loads(report([1, 2, 3])), {"count": 3, "sum": 6})


if __name__ == "__main__":
    unittest.main()
