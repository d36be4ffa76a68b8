import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT))


class CacheOrder(unittest.TestCase):
    def filled(self):
        from cache import Cache

        cache = Cache(2)
        cache.put("a", 1)
        cache.put("b", 2)
        return cache

    def test_reading_keeps_a_value(self):
        cache = self.filled()
        self.assertEqual(cache.get("a"), 1)
        cache.put("c", 3)
        self.assertEqual([cache.get(k) for k in "abc"], [1, None, 3])

    def test_writing_keeps_a_value(self):
        cache = self.filled()
        cache.put("a", 9)
        cache.put("c", 3)
        self.assertEqual([cache.get(k) for k in "abc"], [9, None, 3])

    def test_none_is_a_value(self):
        cache = self.filled()
        cache.put("a", None)
        self.assertIsNone(cache.get("a", "missing"))
        self.assertEqual(cache.get("z", "missing"), "missing")


if __name__ == "__main__":
    unittest.main()
