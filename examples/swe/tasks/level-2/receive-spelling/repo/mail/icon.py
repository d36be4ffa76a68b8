from mail import inbox


def badge(box):
    """The number beside the icon."""
    return len(inbox.recieve(box))
