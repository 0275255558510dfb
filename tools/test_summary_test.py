"""The last line of tools/test: how many test targets have passed and failed, whatever became of bazel."""

import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SUMMARY = Path("tools/test_summary.py").absolute()
DEADLINE = 120


def configured(label: str, kind: str = "cc_test rule") -> dict:
    return {"id": {"targetConfigured": {"label": label}}, "configured": {"targetKind": kind}}


def ended(label: str, status: str) -> dict:
    return {"id": {"testSummary": {"label": label}}, "testSummary": {"overallStatus": status}}


EVENTS = [
    configured("//a"),
    configured("//b"),
    configured("//library", "cc_library rule"),
    ended("//a", "PASSED"),
    ended("//b", "FLAKY"),
]


class TestSummaryTest(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR"))
        self.addCleanup(folder.cleanup)
        self.file = Path(folder.name) / "events"

    def summary(self, events: list[dict], bazel_status: int, without_bytes: int = 0) -> tuple[int, str, str]:
        """Exit status, standard output and standard error; of the events the last bytes are missing."""
        text = "".join(json.dumps(event, ensure_ascii=False) + "\n" for event in events).encode()
        self.file.write_bytes(text[: len(text) - without_bytes])
        command = [sys.executable, SUMMARY, self.file, str(bazel_status)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE)
        return done.returncode, done.stdout, done.stderr

    def test_counts(self) -> None:
        self.assertEqual(self.summary(EVENTS, 0), (0, "2 passed, 0 failed\n", ""))
        failed = [*EVENTS, configured("//c"), ended("//c", "FAILED")]
        self.assertEqual(self.summary(failed, 3), (1, "2 passed, 1 failed\n", ""))
        # A test that has not run to its end, a library that does not build, and no test at all.
        self.assertEqual(self.summary([*EVENTS, configured("//c")], 8), (1, "2 passed, 1 failed\n", ""))
        self.assertEqual(self.summary(EVENTS, 1), (1, "2 passed, 1 failed\n", ""))
        self.assertEqual(self.summary([], 0), (1, "0 passed, 0 failed\n", ""))

    def test_events_that_are_cut_off(self) -> None:
        told = (
            "tools/test: bazel has ended in the middle of a line, as when it is killed; "
            "only what it has reported before is counted\n"
        )
        for status in (0, 137):
            self.assertEqual(self.summary(EVENTS, status, without_bytes=9), (1, "1 passed, 1 failed\n", told))
        all_passed = [*EVENTS, {"id": {"progress": {}}, "progress": {"stderr": "\u00e4"}}]
        for cut in (3, 5):  # the latter within the letter, which has two bytes
            self.assertEqual(self.summary(all_passed, 137, cut), (1, "2 passed, 1 failed\n", told))


if __name__ == "__main__":
    unittest.main(verbosity=2)
