import configparser
import subprocess
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT))


class Port(unittest.TestCase):
    def test_server(self):
        settings = configparser.ConfigParser()
        settings.read(ROOT / "conf" / "server.ini")
        self.assertEqual(settings.getint("server", "port"), 8080)
        self.assertEqual(settings.get("server", "host"), "127.0.0.1")

    def test_health_check_asks_the_same_port(self):
        script = 'curl() { echo "$2"; }; . "$0"'
        command = ["sh", "-c", script, ROOT / "conf" / "health.sh"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        self.assertEqual(done.stdout, "http://127.0.0.1:8080/health\n")


if __name__ == "__main__":
    unittest.main()
