FREE_FROM = 50.00
FEE = 4.90


def shipping(total):
    """What sending an order of ``total`` costs; nothing is sent for nothing."""
    if total <= 0:
        return 0.0
    return 0.0 if total > FREE_FROM else FEE
