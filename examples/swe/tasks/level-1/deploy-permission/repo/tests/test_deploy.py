import subprocess
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT))


class DeployScript(unittest.TestCase):
    def test_starts_directly(self):
        done = subprocess.run([ROOT / "deploy.sh", "web"], capture_output=True, text=True, check=True)
        self.assertEqual(done.stdout, "deploying web\n")


if __name__ == "__main__":
    unittest.main()
