import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT))


class Blog(unittest.TestCase):
    def test_link(self):
        from blog import link

        self.assertEqual(link("Hello World"), "/posts/hello-world")


if __name__ == "__main__":
    unittest.main()
