import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT))


class Jobs(unittest.TestCase):
    def test_all_jobs_can_run(self):
        from jobs import runnable

        self.assertEqual(runnable(), ["daily", "send"])


if __name__ == "__main__":
    unittest.main()
