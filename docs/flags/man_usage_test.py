"""Man pages are written to the directory that is named, or a line says that none is."""

import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

DEADLINE = 120
HELP = """says_hello: Says hello. Twice.

Usage: says_hello [FLAG...]

general:
  --help
      Shows this.

environment:
"""


class ManUsageTest(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR"))
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.program = self.folder / "says_hello"
        self.program.write_text(f"#!/bin/sh\ncat <<'END'\n{HELP}END\n")
        self.program.chmod(0o755)

    def man(self, *words: object) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "docs.flags.man", *map(str, words)]
        environment = os.environ | {"BUILD_WORKING_DIRECTORY": str(self.folder)}
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=DEADLINE)

    def test_a_page_for_each_program(self) -> None:
        done = self.man(self.program, "man1")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("\nsays_hello \\- Says hello\n", (self.folder / "man1" / "says_hello.1").read_text())

    def test_without_a_directory(self) -> None:
        told = "name the directory for the man pages: bazel run //docs/flags:man -- DIRECTORY\n"
        for words in ((), (self.program,), (self.program, self.program)):
            with self.subTest(words):
                done = self.man(*words)
                self.assertEqual((done.returncode, done.stdout, done.stderr), (2, "", told))


if __name__ == "__main__":
    unittest.main(verbosity=2)
