import subprocess
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT))


class Service(unittest.TestCase):
    def output(self, name):
        return subprocess.run([ROOT / name], capture_output=True, text=True, check=True).stdout

    def test_start(self):
        self.assertEqual(self.output("start.sh"), "started\n")

    def test_stop(self):
        self.assertEqual(self.output("stop.sh"), "stopped\n")


if __name__ == "__main__":
    unittest.main()
