from shop.price import net


class Cart:
    def __init__(self):
        self.lines = []

    def add(self, price, count=1, percent_off=0):
        self.lines.append((price, count, percent_off))

    def total(self):
        """What the customer pays, as text with two decimals."""
        return f"{sum(count * net(price, off) for price, count, off in self.lines):.2f}"
