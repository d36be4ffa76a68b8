import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT))


class Plan(unittest.TestCase):
    def test_room(self):
        from plan import room

        self.assertEqual(room(3, 4), "12 m2")


if __name__ == "__main__":
    unittest.main()
