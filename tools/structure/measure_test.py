"""Holds docs/structure.md to what measure.py counts, and to the goals beside it. Usage: MODULE"""

import re
import unittest

from tools.structure import measure

PAGE = "docs/structure.md"


def number(cell: str) -> int:
    """The first number of a cell of the table; the sum of "6 + 1"."""
    return sum(int(word) for word in re.findall(r"\d+", cell.split(",")[0]))


class MeasureTest(unittest.TestCase):
    def test_the_page_has_the_figures(self) -> None:
        rows = [row.strip("|").split("|") for row in (measure.ROOT / PAGE).read_text().splitlines() if row.startswith("|")]
        table = {what.strip(): (now.strip(), goal.strip()) for what, _, now, goal in rows}
        for what, figure in measure.figures().items():
            with self.subTest(what):
                now, goal = table[what]
                self.assertEqual(now.split(",")[0], figure, f"{PAGE} is old; `python3 -m tools.structure.measure` prints the figures")
                self.assertLessEqual(number(figure), number(goal))


if __name__ == "__main__":
    unittest.main(verbosity=2)
