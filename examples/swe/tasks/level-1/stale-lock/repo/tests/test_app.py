import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT))


class App(unittest.TestCase):
    def test_starts(self):
        from app import start

        self.assertEqual(start(), "started")


if __name__ == "__main__":
    unittest.main()
