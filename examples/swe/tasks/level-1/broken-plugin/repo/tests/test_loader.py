import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT))


class Loader(unittest.TestCase):
    def test_all_plugins_load(self):
        from loader import names

        self.assertEqual(names(), ["bye", "hello"])


if __name__ == "__main__":
    unittest.main()
