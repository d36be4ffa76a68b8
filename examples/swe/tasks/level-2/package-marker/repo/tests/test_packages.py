import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT))


class Packages(unittest.TestCase):
    def test_shop_is_shipped(self):
        from packages import packages

        self.assertEqual(packages(ROOT), ["shop"])

    def test_shop_still_works(self):
        from shop.cart import total

        self.assertEqual(total([1, 2]), 3)


if __name__ == "__main__":
    unittest.main()
