import calendar
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT))


class Days(unittest.TestCase):
    def test_days_match_the_calendar(self):
        from days import DAYS

        self.assertEqual(DAYS, list(calendar.day_name)[:5])


if __name__ == "__main__":
    unittest.main()
