import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT))


class Notes(unittest.TestCase):
    def test_tags_are_not_shared(self):
        from notes import Note

        first, second = Note("a"), Note("b")
        first.tag("urgent")
        self.assertEqual((first.tags, second.tags), (["urgent"], []))

    def test_the_list_of_the_caller_stays_as_it_is(self):
        from notes import Note

        mine = ["home"]
        note = Note("a", mine)
        note.tag("urgent")
        note.tag("urgent")
        self.assertEqual((note.tags, mine), (["home", "urgent"], ["home"]))


if __name__ == "__main__":
    unittest.main()
