"""What the tests that hold a binary of ours against TensorFlow share. Usage: TEST_MODULE BINARY [unittest argument...]"""

import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path


class InteropTest(unittest.TestCase):
    """Has a folder of its own for each test."""

    binary: Path

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR"))
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def run_binary(self, *flags: str) -> str:
        """Runs the binary under test and returns its stdout. If it fails, so does the test, with what it said."""
        done = subprocess.run([self.binary, *flags], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, f"{self.binary.name} {' '.join(flags)}\n{done.stdout}{done.stderr}")
        return done.stdout

    def assert_relative(self, actual: list[float], expected: list[float], tolerances: list[float]) -> None:
        """Holds each value against its own relative tolerance."""
        self.assertEqual(len(actual), len(expected))
        for i, (ours, theirs, tolerance) in enumerate(zip(actual, expected, tolerances)):
            error = abs(ours - theirs) / abs(theirs)
            self.assertLessEqual(error, tolerance, f"value {i}: ours {ours}, TensorFlow's {theirs}")


def metric(model_dir: Path, name: str) -> dict[int, float]:
    """The records of one metric in metric.log by global step. Of several at a step the first: training comes before
    evaluation."""
    values: dict[int, float] = {}
    for line in (model_dir / "metric.log").read_text().splitlines():
        record = json.loads(line)
        if record["name"] == name:
            values.setdefault(record["global_step"], record["value"])
    return values


def main() -> None:
    InteropTest.binary = Path(sys.argv.pop(1)).absolute()
    unittest.main(module="__main__", verbosity=2)
