def fields(line):
    """The fields of one line of a table."""
    return line.split(",")
