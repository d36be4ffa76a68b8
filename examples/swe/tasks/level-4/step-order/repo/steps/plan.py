from steps.graph import order


def plan(lines):
    """The order of the steps in ``lines`` such as ``link: compile assets``, as one line."""
    needs = {}
    for line in lines:
        step, _, before = line.partition(":")
        needs[step] = before.split(" ")
    return " ".join(order(needs))
