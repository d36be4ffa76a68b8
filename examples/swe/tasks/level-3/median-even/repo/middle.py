def median(values):
    """The middle of ``values``. Raises ValueError when there are none."""
    if not values:
        raise ValueError("no values")
    ordered = sorted(values)
    half = len(ordered) // 2
    if len(ordered) % 2 == 0:
        return (ordered[half] + ordered[half + 1]) / 2
    return ordered[half]
