"""Durations as people write them."""

UNITS = {"s": 1, "m": 60, "h": 3600}


def seconds(text):
    """``"90"``, ``"2m"`` or ``"1h"`` as seconds."""
    return float(text[:-1]) * UNITS[text[-1]] if text[-1] in UNITS else float(text)
