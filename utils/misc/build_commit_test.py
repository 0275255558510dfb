"""The commit that a build names: tools/workspace_status in a clone, with changes, and without one.

Usage: MODULE WORKSPACE_STATUS
"""

import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

script = Path(sys.argv.pop(1)).absolute()


class BuildCommitTest(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR"))
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        # Above it there may be a clone of something else.
        self.env = dict(os.environ, GIT_CEILING_DIRECTORIES=str(self.folder.parent), GIT_CONFIG_GLOBAL=os.devnull)

    def git(self, *arguments: str) -> str:
        command = ["git", "-c", "user.name=A", "-c", "user.email=a@example.org", *arguments]
        return subprocess.run(command, cwd=self.folder, env=self.env, check=True, capture_output=True, text=True).stdout

    def status(self, folder: str = ".") -> str:
        done = subprocess.run([script], cwd=self.folder / folder, env=self.env, check=True, capture_output=True, text=True)
        return done.stdout

    def make_clone(self) -> str:
        self.git("init", "--quiet")
        (self.folder / "file").write_text("1\n")
        self.git("add", "file")
        self.git("commit", "--quiet", "-m", "One")
        return self.git("rev-parse", "HEAD")[:12]

    def test_a_clone(self) -> None:
        commit = self.make_clone()
        self.assertEqual(self.status(), f"STABLE_GIT_COMMIT {commit}\n")
        (self.folder / "untracked").write_text("2\n")
        self.assertEqual(self.status(), f"STABLE_GIT_COMMIT {commit}\n")
        (self.folder / "file").write_text("2\n")
        self.assertEqual(self.status(), f"STABLE_GIT_COMMIT {commit}+changes\n")

    def test_no_clone(self) -> None:
        self.assertEqual(self.status(), "STABLE_GIT_COMMIT unknown\n")

    def test_a_clone_without_commits(self) -> None:
        self.git("init", "--quiet")
        self.assertEqual(self.status(), "STABLE_GIT_COMMIT unknown\n")

    def test_an_archive_inside_of_a_clone(self) -> None:
        self.make_clone()
        (self.folder / "archive").mkdir()
        self.assertEqual(self.status("archive"), "STABLE_GIT_COMMIT unknown\n")


if __name__ == "__main__":
    unittest.main(verbosity=2)
