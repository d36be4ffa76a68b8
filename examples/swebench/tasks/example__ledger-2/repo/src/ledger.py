"""Accounts that are always balanced."""


class Ledger:
    def __init__(self):
        self.balances = {}

    def transfer(self, source, target, amount):
        self.balances[source] = self.balances.get(source, 0) - amount
        if amount <= 0:
            raise ValueError("an amount is positive")
        self.balances[target] = self.balances.get(target, 0) + amount
