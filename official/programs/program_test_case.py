"""What the tests of whole programs share: a folder, the runs of programs in it, and what a run must end with."""

import os
import struct
import subprocess
import sys
import tempfile
import unittest
import zlib
from pathlib import Path


def programs_of_arguments(count: int) -> list[Path]:
    """The first arguments of the command line, which are taken off it: unittest reads the others."""
    programs = [Path(path).absolute() for path in sys.argv[1 : 1 + count]]
    del sys.argv[1 : 1 + count]
    return programs


def png(size: int, pixels: bytes) -> bytes:
    """A square picture of `size` x `size` pixels, each of them three bytes."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", size, size, 8, 2, 0, 0, 0)
    rows = (b"\0" + pixels[start : start + 3 * size] for start in range(0, len(pixels), 3 * size))
    chunks = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"".join(rows))) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + chunks


class ProgramTestCase(unittest.TestCase):
    """All tests of a class have one folder."""

    deadline = 300  # seconds for one run, which takes a few at most on an idle machine
    folder: Path

    @classmethod
    def setUpClass(cls) -> None:
        folder = tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR"))
        cls.addClassCleanup(folder.cleanup)
        cls.folder = Path(folder.name)

    @classmethod
    def write(cls, name: str, content: str | bytes) -> Path:
        path = cls.folder / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    @classmethod
    def execute(cls, program: Path, *flags: object, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """Runs a program. Carriage returns in its output are kept."""
        command = [str(program), *map(str, flags)]
        done = subprocess.run(command, input=stdin.encode(), capture_output=True, timeout=cls.deadline)
        return subprocess.CompletedProcess(command, done.returncode, done.stdout.decode(), done.stderr.decode())

    def assert_succeeded(self, done: subprocess.CompletedProcess[str], *words: object) -> None:
        """With all the words on standard error."""
        told = f"{done.args}\n{done.stdout}{done.stderr}"
        self.assertEqual(done.returncode, 0, told)
        for word in words:
            self.assertIn(str(word), done.stderr, told)

    def assert_refused(self, done: subprocess.CompletedProcess[str], code: int, *words: object) -> None:
        """With this exit status, no result, and one short line that has all the words; other lines may be there."""
        told = f"{done.args}\n{done.stderr}"
        self.assertEqual((done.returncode, done.stdout), (code, ""), told)
        lines = [line for line in done.stderr.splitlines() if all(str(word) in line for word in words)]
        self.assertEqual(len(lines), 1, f"{words}\n{told}")
        self.assertLess(len(lines[0]), 1000)
