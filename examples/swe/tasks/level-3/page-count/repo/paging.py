def pages(items, per_page):
    """How many pages show ``items`` items; at least one."""
    return max(1, items // per_page)


def page(values, number, per_page):
    """The values on page ``number``, counted from 1."""
    start = (number - 1) * per_page
    return values[start : start + per_page]
