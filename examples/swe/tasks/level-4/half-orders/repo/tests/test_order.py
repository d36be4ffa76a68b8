import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT))


class Orders(unittest.TestCase):
    def test_a_whole_order(self):
        from warehouse.order import order
        from warehouse.stock import Stock

        stock = Stock({"pen": 5, "ink": 1})
        self.assertEqual(order(stock, [("pen", 2), ("ink", 1)]), 3)
        self.assertEqual(stock.amounts, {"pen": 3, "ink": 0})

    def test_a_missing_item_leaves_the_stock_alone(self):
        self.refused([("pen", 2), ("ink", 2)])
        self.refused([("pen", 2), ("paper", 1)])

    def test_lines_of_one_item_add_up(self):
        self.refused([("pen", 3), ("pen", 3)])

    def refused(self, lines):
        from warehouse.order import order
        from warehouse.stock import OutOfStock, Stock

        stock = Stock({"pen": 5, "ink": 1})
        self.assertRaises(OutOfStock, order, stock, lines)
        self.assertEqual(stock.amounts, {"pen": 5, "ink": 1})


if __name__ == "__main__":
    unittest.main()
