class OutOfStock(Exception):
    """There is less in stock than was asked for."""


class Stock:
    def __init__(self, amounts):
        self.amounts = dict(amounts)

    def take(self, item, count):
        if self.amounts.get(item, 0) < count:
            raise OutOfStock(item)
        self.amounts[item] -= count
