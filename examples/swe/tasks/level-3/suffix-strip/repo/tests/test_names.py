import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT))


class Names(unittest.TestCase):
    def test_removes_the_suffix_only(self):
        from names import plain_name

        names = ["sports.txt", "text.txt", "a.txt.txt", "txt", "readme.md"]
        self.assertEqual([plain_name(n) for n in names], ["sports", "text", "a.txt", "txt", "readme.md"])


if __name__ == "__main__":
    unittest.main()
