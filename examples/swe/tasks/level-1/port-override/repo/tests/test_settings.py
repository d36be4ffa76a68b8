import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT))


class Settings(unittest.TestCase):
    def test_port(self):
        from settings import port

        self.assertEqual(port(), 8080)


if __name__ == "__main__":
    unittest.main()
