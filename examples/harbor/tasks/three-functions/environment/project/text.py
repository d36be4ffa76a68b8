"""Small functions on text."""


def initials(name):
    """
    >>> initials("Ada  King")
    'AK'
    """
    return "".join(word[0] for word in name.split(" "))


def shortened(text, length):
    """
    >>> shortened("abcdef", 4)
    'abc…'
    >>> shortened("abcd", 4)
    'abcd'
    """
    return text if len(text) < length else text[: length - 1] + "…"


def counted(number, noun):
    """
    >>> counted(1, "file"), counted(0, "file")
    ('1 file', '0 files')
    """
    return f"{number} {noun}" + ("s" if number > 1 else "")
