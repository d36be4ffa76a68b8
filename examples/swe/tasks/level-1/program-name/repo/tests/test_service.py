import configparser
import subprocess
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT))


class Service(unittest.TestCase):
    def test_the_program_of_the_service_runs(self):
        settings = configparser.ConfigParser()
        settings.read(ROOT / "service.ini")
        program = ROOT / settings.get("service", "program")
        done = subprocess.run([sys.executable, program], capture_output=True, text=True)
        self.assertEqual(done.stdout, "Good day, Ada.\n", done.stderr)


if __name__ == "__main__":
    unittest.main()
