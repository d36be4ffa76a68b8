import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT))


class Paging(unittest.TestCase):
    def test_a_page_that_is_not_full_counts(self):
        from paging import pages

        self.assertEqual([pages(n, 10) for n in (0, 1, 10, 11, 20, 21)], [1, 1, 1, 2, 2, 3])

    def test_the_pages_hold_everything(self):
        from paging import page, pages

        values = list(range(23))
        shown = [v for n in range(1, pages(23, 5) + 1) for v in page(values, n, 5)]
        self.assertEqual(shown, values)


if __name__ == "__main__":
    unittest.main()
