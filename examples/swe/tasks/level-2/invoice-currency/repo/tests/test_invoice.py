import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT))


class Invoice(unittest.TestCase):
    def test_total_is_in_euros(self):
        from invoice import total

        self.assertEqual(total([1.5, 2]), "3.50 EUR")


if __name__ == "__main__":
    unittest.main()
