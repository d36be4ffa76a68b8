import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT))


class Stats(unittest.TestCase):
    def test_people(self):
        from stats import people

        self.assertEqual(people(), 843000)


if __name__ == "__main__":
    unittest.main()
