import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT))


class Mail(unittest.TestCase):
    BOX = [{"unread": True}, {"unread": False}, {"unread": True}]

    def test_receive(self):
        from mail import inbox

        self.assertEqual(len(inbox.receive(self.BOX)), 2)
        self.assertFalse(hasattr(inbox, "recieve"))

    def test_badge(self):
        from mail.icon import badge

        self.assertEqual(badge(self.BOX), 2)


if __name__ == "__main__":
    unittest.main()
