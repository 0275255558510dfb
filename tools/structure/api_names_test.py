"""Holds docs/distribution_api.md to the code. Usage: MODULE

Each name that the page gives for one of TensorFlow's stands in the sources, and each test that it names is there. Reads
the sources of the tree, which are too many to be listed as data.
"""

import re
import unittest
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = "docs/distribution_api.md"
CODE = re.compile(r"(`+)(.+?)\1(?!`)")
SOURCES = (".h", ".cc", ".py", ".sh")


def rows() -> Iterator[list[str]]:
    """The cells of the rows that have a document, a name of TensorFlow's, ours and tests."""
    for line in (ROOT / PAGE).read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if line.startswith("|") and len(cells) == 4 and cells[0] not in ("document", "---"):
            yield cells


def names(cell: str) -> set[str]:
    return {name for _, code in CODE.findall(cell) for name in re.findall(r"\w+", code)}


class ApiNamesTest(unittest.TestCase):
    def test_each_name_is_in_the_sources(self) -> None:
        known: set[str] = set()
        tests: set[str] = set()
        for folder in ("utils", "official"):
            for path in sorted((ROOT / folder).rglob("*")):
                if path.suffix in SOURCES and not path.stem.endswith("_test"):
                    known.update(re.findall(r"\w+", path.read_text()))
                elif path.suffix in SOURCES:
                    tests.add(path.stem)
        found = list(rows())
        self.assertGreater(len(found), 90)
        for document, theirs, ours, held_by in found:
            with self.subTest(theirs):
                self.assertTrue(document)
                self.assertEqual(names(ours) - known, set(), "no source has these names")
                self.assertTrue(names(held_by), "a test is to be named")
                self.assertEqual(names(held_by) - tests, set(), "there are no such tests")


if __name__ == "__main__":
    unittest.main(verbosity=2)
