import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT))


class Volume(unittest.TestCase):
    def test_is_limited(self):
        from volume import volume

        self.assertEqual([volume(-5), volume(40), volume(120)], [0, 40, 100])

    def test_module_has_its_new_name(self):
        from clamp import clamp

        self.assertEqual(clamp(3, 1, 2), 2)
        self.assertFalse((ROOT / "clmap.py").exists())


if __name__ == "__main__":
    unittest.main()
