"""Mail in."""


def recieve(box):
    return [mail for mail in box if mail["unread"]]
