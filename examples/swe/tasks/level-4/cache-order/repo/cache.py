"""A cache that forgets what was not used for longest."""


class Cache:
    def __init__(self, size):
        self.size = size
        self._values = {}

    def get(self, key, default=None):
        return self._values.get(key, default)

    def put(self, key, value):
        self._values[key] = value
        if len(self._values) > self.size:
            del self._values[next(iter(self._values))]
