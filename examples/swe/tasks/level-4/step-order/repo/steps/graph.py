def order(needs):
    """The steps of ``needs`` (step -> steps before it), each after all that it needs."""
    done = []

    def visit(step):
        for before in needs.get(step, ()):
            visit(before)
        done.append(step)

    for step in needs:
        visit(step)
    return done
