import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT))


class Mail(unittest.TestCase):
    def test_retries(self):
        from mail import retries

        self.assertEqual(retries(), 3)

    def test_the_sample_stays(self):
        self.assertTrue((ROOT / "mail.sample.ini").exists())


if __name__ == "__main__":
    unittest.main()
