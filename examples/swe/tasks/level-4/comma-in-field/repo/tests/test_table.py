import csv
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT))


class Table(unittest.TestCase):
    ROWS = (["a", "b"], ["x,y", "z"], ['say "hi"', ""], ['"', ",", '",'])

    def test_fields_survive(self):
        from table.read import fields
        from table.write import line

        for row in self.ROWS:
            self.assertEqual(fields(line(row)), row)

    def test_lines_are_csv(self):
        from table.write import line

        for row in self.ROWS:
            self.assertEqual(next(csv.reader([line(row)])), row)

    def test_plain_fields_are_not_quoted(self):
        from table.write import line

        self.assertEqual(line(["a", "b c"]), "a,b c")


if __name__ == "__main__":
    unittest.main()
