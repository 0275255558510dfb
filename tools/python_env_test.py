"""tools/python_env makes environments whose scripts run, once, and again if it was interrupted.

The environment here is of one package, which lies beside its requirements: nothing is downloaded.
"""

import os
import shutil
import signal
import subprocess
import tempfile
import time
import unittest
import zipfile
from pathlib import Path

TOOLS = Path("tools").absolute()
DEADLINE = 250
WHEEL = "greeting-1.0-py3-none-any.whl"


def write_wheel(path: Path) -> None:
    """A package with a script `greet`."""
    info = "greeting-1.0.dist-info"
    files = {
        "greeting.py": "def main():\n    print('hello')\n",
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: greeting\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": "[console_scripts]\ngreet = greeting:main\n",
    }
    files[f"{info}/RECORD"] = "".join(f"{name},,\n" for name in [*files, f"{info}/RECORD"])
    with zipfile.ZipFile(path, "w") as wheel:
        for name, text in files.items():
            wheel.writestr(name, text)


class PythonEnvTest(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR"))
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        tools = self.folder / "tools"
        (tools / "python").mkdir(parents=True)
        for name in ("python_env", "setup", "packages.txt"):
            shutil.copy(TOOLS / name, tools)
        write_wheel(self.folder / WHEEL)
        (tools / "python" / "tiny.txt").write_text(f"{self.folder / WHEEL}\n")
        self.command = [tools / "python_env", "tiny"]
        self.env = {**os.environ, "XDG_CACHE_HOME": str(self.folder / "cache"), "PIP_NO_INDEX": "1"}

    def start(self) -> subprocess.Popen:
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        process = subprocess.Popen(self.command, env=self.env, text=True, start_new_session=True, **pipes)
        self.addCleanup(lambda: (process.kill(), process.communicate()))
        return process

    def finish(self, process: subprocess.Popen) -> Path:
        stdout, stderr = process.communicate(timeout=DEADLINE)
        self.assertEqual(process.returncode, 0, stderr)
        return Path(stdout.strip())

    def check(self, environment: Path) -> None:
        for script, words in (("greet", "hello"), ("pip --version", str(environment))):
            name, *arguments = script.split()
            done = subprocess.run([environment / "bin" / name, *arguments], capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn(words, done.stdout)

    def test_scripts_run(self) -> None:
        environment = self.finish(self.start())
        self.check(environment)
        made = (environment / "bin" / "greet").stat().st_mtime_ns
        self.assertEqual(self.finish(self.start()), environment)
        self.assertEqual((environment / "bin" / "greet").stat().st_mtime_ns, made, "it was made a second time")

    def test_find_makes_nothing(self) -> None:
        find = [self.command[0], "--find", *self.command[1:]]
        done = subprocess.run(find, env=self.env, capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (1, "", ""))
        self.assertFalse((self.folder / "cache").exists())
        environment = self.finish(self.start())
        done = subprocess.run(find, env=self.env, capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stdout), (0, f"{environment}\n"))

    def test_two_at_a_time(self) -> None:
        processes = [self.start(), self.start()]
        first, second = (self.finish(process) for process in processes)
        self.assertEqual(first, second)
        self.check(first)

    def test_an_interrupted_one_is_made_again(self) -> None:
        cache = self.folder / "cache" / "official-models"
        for number in (signal.SIGKILL, signal.SIGTERM):
            with self.subTest(number.name):
                process = self.start()
                until = time.monotonic() + DEADLINE
                while not list(cache.glob("*/bin/python")) and process.poll() is None and time.monotonic() < until:
                    time.sleep(0.01)
                os.killpg(process.pid, number)
                process.communicate(timeout=DEADLINE)
                self.assertNotEqual(process.returncode, 0)
                environment = self.finish(self.start())
                self.check(environment)
                shutil.rmtree(environment)

    def test_one_that_cannot_be_made(self) -> None:
        (self.folder / WHEEL).unlink()
        process = self.start()
        stdout, stderr = process.communicate(timeout=DEADLINE)
        self.assertEqual((process.returncode, stdout), (1, ""))
        self.assertIn("pip could not install", stderr.splitlines()[-1])
        self.assertEqual(list((self.folder / "cache" / "official-models").glob("*/")), [])


if __name__ == "__main__":
    unittest.main(verbosity=2)
