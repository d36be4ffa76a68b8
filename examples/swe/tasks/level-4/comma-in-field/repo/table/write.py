def line(fields):
    """One line of a table; fields are separated by commas."""
    return ",".join(fields)
