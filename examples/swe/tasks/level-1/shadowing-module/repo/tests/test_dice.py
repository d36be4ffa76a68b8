import subprocess
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


class Dice(unittest.TestCase):
    def test_rolls_in_the_project_folder(self):
        command = [sys.executable, "-c", "import dice; print(dice.roll() in range(1, 7))"]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        self.assertEqual(done.stdout, "True\n", done.stderr)


if __name__ == "__main__":
    unittest.main()
