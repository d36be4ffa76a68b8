import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT))


class CartTotal(unittest.TestCase):
    def total(self, *lines):
        from shop.cart import Cart

        cart = Cart()
        for line in lines:
            cart.add(*line)
        return cart.total()

    def test_half_cents_go_up(self):
        self.assertEqual(self.total(("0.35", 1, 50)), "0.18")
        self.assertEqual(self.total(("1.05", 2, 50)), "1.06")

    def test_many_small_prices(self):
        self.assertEqual(self.total(*[("0.10", 1)] * 3, ("19.99", 100)), "1999.30")

    def test_large_amounts_stay_exact(self):
        self.assertEqual(self.total(("90071992547409.93", 1)), "90071992547409.93")

    def test_an_empty_cart(self):
        self.assertEqual(self.total(), "0.00")


if __name__ == "__main__":
    unittest.main()
