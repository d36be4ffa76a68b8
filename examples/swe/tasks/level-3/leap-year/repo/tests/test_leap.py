import calendar
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT))


class LeapYear(unittest.TestCase):
    def test_agrees_with_the_calendar(self):
        from leap import is_leap

        for year in range(1583, 2500):
            self.assertEqual(is_leap(year), calendar.isleap(year), year)


if __name__ == "__main__":
    unittest.main()
