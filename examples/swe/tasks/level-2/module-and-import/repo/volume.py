from clmap import clamp


def volume(percent):
    return clamp(percent, 0, 100)
