import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT))


class Shipping(unittest.TestCase):
    def test_limits(self):
        from shipping import shipping

        orders = [0, 0.01, 49.99, 50.00, 50.01]
        self.assertEqual([shipping(total) for total in orders], [0.0, 4.90, 4.90, 0.0, 0.0])


if __name__ == "__main__":
    unittest.main()
