def order(stock, lines):
    """Take every line ``(item, count)`` of an order out of ``stock``."""
    for item, count in lines:
        stock.take(item, count)
    return sum(count for _, count in lines)
