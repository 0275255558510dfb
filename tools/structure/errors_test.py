"""Holds docs/distribution_errors.md to the tests that it names. Usage: MODULE

Each text that the page gives for a mistake stands in one of the tests beside it, so that the page, the tests and the
code say the same. Reads the tests of the source tree, which are too many to be listed as data.
"""

import re
import unittest
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = "docs/distribution_errors.md"
CODE = re.compile(r"(`+)(.+?)\1(?!`)")
NO_ERROR = ("cannot happen", "no error")


def rows() -> Iterator[list[str]]:
    """The cells of the rows of all tables, without heads."""
    for line in (ROOT / PAGE).read_text().splitlines():
        if line.startswith("|") and not line.startswith(("| TensorFlow |", "| --- |")):
            yield [cell.strip() for cell in line.strip("|").split("|")]


def codes(cell: str) -> list[str]:
    return [code.strip() for _, code in CODE.findall(cell)]


def texts(row: list[str]) -> list[str]:
    """What the tests of a row are to have."""
    told, _, here, _ = row
    if here.startswith(NO_ERROR):
        return []
    return codes(here) or codes(told)


def literals(path: Path) -> str:
    """The source of a test, its string literals that follow one another joined."""
    joined = re.sub(r'"\s*\n\s*f?r?"', "", path.read_text())
    return joined.replace('\\"', '"')


def parts_of(text: str) -> list[str]:
    """The parts of a text between what "..." stands for, without those that are too short to be found."""
    return [part.strip() for part in text.split("...") if len(part.strip()) > 9]


class ErrorsTest(unittest.TestCase):
    def test_each_text_is_that_of_a_test(self) -> None:
        tests: dict[str, list[str]] = {}
        for folder in ("utils", "official"):
            for path in sorted((ROOT / folder).rglob("*_test.*")):
                if path.suffix in (".cc", ".py"):
                    tests.setdefault(path.stem, []).append(literals(path))
        found = list(rows())
        self.assertGreater(len(found), 80)
        for row in found:
            with self.subTest(row[0]):
                self.assertEqual(len(row), 4, "a row has four cells")
                named = codes(row[3])
                if not named:
                    self.assertTrue(row[2].startswith(NO_ERROR), "a test is to be named")
                for test in named:
                    self.assertIn(test, tests, "there is no such test")
                sources = [source for test in named for source in tests[test]]
                for text in texts(row) if named else []:
                    parts = parts_of(text)
                    self.assertTrue(parts, f"{text!r} is too short to be found")
                    for part in parts:
                        self.assertTrue(any(part in source for source in sources), f"none of {named} has {part!r}")


if __name__ == "__main__":
    unittest.main(verbosity=2)
