import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT))


class Plan(unittest.TestCase):
    def plan(self, *lines):
        from steps.plan import plan

        return plan(lines)

    def test_each_step_once(self):
        steps = self.plan("link: compile assets", "compile: fetch", "assets: fetch", "fetch:").split(" ")
        self.assertEqual(sorted(steps), ["assets", "compile", "fetch", "link"])
        self.assertEqual((steps[0], steps[-1]), ("fetch", "link"))

    def test_steps_without_needs(self):
        self.assertEqual(self.plan("compile:", "test:  compile"), "compile test")

    def test_a_circle_is_an_error(self):
        self.assertRaises(ValueError, self.plan, "a: b", "b: c", "c: a")
        self.assertRaises(ValueError, self.plan, "a: a")


if __name__ == "__main__":
    unittest.main()
