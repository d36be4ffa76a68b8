import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT))


class Count(unittest.TestCase):
    def test_counts_files_whose_name_has_a_space(self):
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "a b.txt").write_text("1\n2\n")
            (Path(folder) / "c.txt").write_text("1\n")
            command = ["sh", ROOT / "count.sh", "a b.txt", "c.txt"]
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        self.assertEqual(done.stdout, "2 a b.txt\n1 c.txt\n3 total\n", done.stderr)


if __name__ == "__main__":
    unittest.main()
