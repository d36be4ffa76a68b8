import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT))


class About(unittest.TestCase):
    def test_version(self):
        from about import version

        self.assertEqual(version(), "1.4.0")


if __name__ == "__main__":
    unittest.main()
