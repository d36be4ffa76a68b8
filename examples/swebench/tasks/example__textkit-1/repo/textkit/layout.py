"""Words and columns."""


def wrapped(words, width):
    """Lines of at most ``width`` characters; a longer word has a line of its own."""
    lines = [""]
    for word in words:
        joined = f"{lines[-1]} {word}"
        if len(joined) > width:
            lines.append(word)
        else:
            lines[-1] = joined
    return lines


def columns(rows):
    """Each column padded to its widest cell."""
    widths = [max(map(len, column)) for column in zip(*rows)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]
