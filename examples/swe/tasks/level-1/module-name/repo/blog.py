from utils import slug


def link(title):
    return f'/posts/{slug(title)}'
