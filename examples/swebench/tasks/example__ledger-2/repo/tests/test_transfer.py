from unittest import TestCase

from ledger import Ledger


class Transfers(TestCase):
    def test_moves(self):
        ledger = Ledger()
        ledger.transfer("a", "b", 5)
        self.assertEqual(ledger.balances, {"a": -5, "b": 5})
