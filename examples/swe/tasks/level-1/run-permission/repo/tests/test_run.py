import subprocess
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT))


class RunScript(unittest.TestCase):
    def test_starts_directly(self):
        done = subprocess.run([ROOT / "run.sh"], capture_output=True, text=True, check=True)
        self.assertEqual(done.stdout, "ready\n")


if __name__ == "__main__":
    unittest.main()
