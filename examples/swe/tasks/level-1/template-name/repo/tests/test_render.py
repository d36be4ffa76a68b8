import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT))


class Render(unittest.TestCase):
    def test_fills_the_template(self):
        from render import render

        self.assertEqual(render("News", "None."), "<h1>News</h1>\n<p>None.</p>\n")


if __name__ == "__main__":
    unittest.main()
