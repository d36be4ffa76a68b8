class Note:
    """A text with tags."""

    def __init__(self, text, tags=[]):
        self.text = text
        self.tags = tags

    def tag(self, name):
        if name not in self.tags:
            self.tags.append(name)
