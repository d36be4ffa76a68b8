CURRENCY = "USD"


def total(amounts):
    return f"{sum(amounts):.2f} {CURRENCY}"
