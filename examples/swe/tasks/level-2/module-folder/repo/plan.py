from shapes.area import area


def room(width, height):
    return f"{area(width, height)} m2"
