import subprocess
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT))


class BackupScript(unittest.TestCase):
    def test_starts_directly(self):
        command = [ROOT / "tools" / "backup.sh", "a b", "c"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        self.assertEqual(done.stdout, "saved a b\nsaved c\n")


if __name__ == "__main__":
    unittest.main()
