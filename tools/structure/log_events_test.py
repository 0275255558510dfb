"""Holds the table of the events in docs/manual/runs.md to the code. Usage: MODULE

Each event that the sources log with --log_format=json is in the table, and each of the table is logged. Reads the
sources of the tree, which are too many to be listed as data.
"""

import re
import unittest
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = "docs/manual/runs.md"
HEAD = "| event | keys |\n"
# The name is the first argument of LogEvent, the value of "event" in the fields of WriteLog and, of a line that is no
# event, in a list of log.cc.
NAMES = (
    r"\bLogEvent\(([^,]*),",
    r"\bWriteLog\([^;]*\{\"event\",([^}]*)\}",
    r"\bkNoEvents\[\] = \{([^}]*)\}",
)
DECLARATION = "absl::string_view event"


def listed() -> set[str]:
    """The names in the first column of the table."""
    table = (ROOT / PAGE).read_text().partition(HEAD)[2].partition("\n\n")[0]
    return {name for row in table.splitlines() for name in re.findall(r"`(\w+)`", row.split(" | ")[0])}


def texts_with_names() -> Iterator[tuple[Path, str]]:
    """What stands in the place of a name, with its file."""
    for folder in ("utils", "official"):
        for path in sorted((ROOT / folder).rglob("*.cc")):
            for pattern in NAMES if not path.stem.endswith("_test") else ():
                for text in re.findall(pattern, path.read_text()):
                    if text != DECLARATION:
                        yield path.relative_to(ROOT), text


class LogEventsTest(unittest.TestCase):
    def test_the_table_has_the_events_of_the_code(self) -> None:
        logged: set[str] = set()
        for path, text in texts_with_names():
            names = re.findall(r'"(\w+)"', text)
            self.assertTrue(names, f"{path}: the name of an event is to be written where it is logged, not as {text}")
            logged.update(names)
        self.assertGreater(len(logged), 15)
        self.assertEqual(logged - listed(), set(), f"{PAGE} lacks these events")
        self.assertEqual(listed() - logged, set(), f"no source logs these events of {PAGE}")


if __name__ == "__main__":
    unittest.main(verbosity=2)
