"""What the fault tests share. Usage: TEST_MODULE FAULTS_LIBRARY BINARY... [unittest argument...]

They run the training programs themselves, each on a data set of a few examples, do something bad to it, start it again,
and hold what it leaves against a run to which nothing happened. A test that is marked @of_every_program runs once for
each program, as test_NAME_PROGRAM; any other runs mnist_main, the one with large checkpoints.
"""

import contextlib
import functools
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from collections.abc import Callable
from pathlib import Path

from official.faults.programs import FLAGS, PROGRAMS, STEPS, Program

DEADLINE = 300  # seconds for one run, which takes about one on an idle machine


def of_every_program(test):
    """Marks a test method that runs once for each of PROGRAMS."""
    test.of_every_program = True
    return test


def of(program: str):
    """Marks a test method that runs with one of PROGRAMS in place of mnist_main."""
    return functools.partial(with_program, program=program)


class Outcome:
    """How a run ended. `code` is that of a shell: 128 + N if signal N ended it."""

    def __init__(self, command: list[str], returncode: int, stdout: str, stderr: str) -> None:
        self.code = returncode if returncode >= 0 else 128 - returncode
        self.stdout, self.stderr = stdout, stderr
        self.error = stderr.strip().splitlines()[-1] if stderr.strip() else ""  # the last line
        self.told = f"{' '.join(command)}\nexit status {self.code}\n{stdout}{stderr}"


class FaultTest(unittest.TestCase):
    """Has a folder of its own for each test, with a data set of the test's program in it."""

    binaries: dict[str, Path]  # of PROGRAMS
    library: Path
    program: Program

    def __init_subclass__(cls) -> None:
        for name, test in list(vars(cls).items()):
            if getattr(test, "of_every_program", False):
                delattr(cls, name)
                for program in PROGRAMS:
                    setattr(cls, f"{name}_{program}", with_program(test, program))

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR"))
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name).resolve()
        self.data_dir = self.folder / "data"
        self.log_files: dict[subprocess.Popen, Path] = {}
        test = getattr(self, self._testMethodName)
        self.program = PROGRAMS[getattr(test, "program", "mnist")]
        self.write_data(self.data_dir)

    def write_data(self, folder: Path, times: int = 1, seed: int = 1) -> None:
        """Writes the program's data set, one with `times` times as many examples, or others by another seed."""
        folder.mkdir(parents=True, exist_ok=True)
        self.program.write_data(folder, times, seed)

    # ---- Running ----

    def command(self, model_dir: Path | str, *flags: str, data_dir: Path | None = None) -> list[str]:
        data_flags = self.program.data_flags(data_dir or self.data_dir)
        return [str(self.binaries[self.program.name]), *data_flags, f"--model_dir={model_dir}", *FLAGS, *flags]

    def start(self, command: list[str], log: Path | None = None, **popen) -> subprocess.Popen:
        """Starts a process, which is killed at the end of the test if it is still there. With `log`, its standard error
        goes to that file: it can be read meanwhile, and the process never waits for a reader."""
        with log.open("w") if log else contextlib.nullcontext(subprocess.PIPE) as stderr:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=stderr, text=True, **popen
            )
        if log:
            self.log_files[process] = log
        self.addCleanup(lambda: (process.kill(), process.communicate()))
        return process

    def finish(self, process: subprocess.Popen) -> Outcome:
        """Waits for the end of a process; the test fails if it takes longer than DEADLINE."""
        is_late = False
        try:
            stdout, stderr = process.communicate(timeout=DEADLINE)
        except subprocess.TimeoutExpired:
            is_late = True
            process.kill()
            stdout, stderr = process.communicate()
        if process in self.log_files:
            stderr = self.log_files[process].read_text()
        if is_late:
            self.fail(f"not done after {DEADLINE} s: {' '.join(process.args)}\n{stdout}{stderr}")
        return Outcome(process.args, process.returncode, stdout, stderr)

    def wait_until(self, is_so: Callable[[], object], what: str, told: Callable[[], str] = str) -> None:
        """Waits until something is so. If it never is, the test fails, and says `what` was waited for and what
        `told` returns."""
        until = time.monotonic() + DEADLINE
        while not is_so():
            if time.monotonic() > until:
                self.fail(f"waited {DEADLINE} s in vain: {what}\n{told()}")
            time.sleep(0.005)

    def wait_for_log(self, log: Path, words: str) -> None:
        """Waits until a process has these words, a regular expression, in its log file."""
        self.wait_until(lambda: re.search(words, log.read_text()), f"'{words}' in {log.name}", log.read_text)

    def execute(self, command: list[str], env: dict[str, str] | None = None, **popen) -> Outcome:
        return self.finish(self.start(command, env={**os.environ, **(env or {})}, **popen))

    def run_steps(self, model_dir: Path | str, steps: int, *flags: str, **execute) -> Outcome:
        return self.execute(self.command(model_dir, f"--max_train_steps={steps}", *flags), **execute)

    def train(self, model_dir: Path | str, steps: int = STEPS, *flags: str, **execute) -> Outcome:
        """Trains to step `steps`, which must succeed."""
        outcome = self.run_steps(model_dir, steps, *flags, **execute)
        self.assertEqual(outcome.code, 0, outcome.told)
        return outcome

    def with_fault(self, model_dir: Path, kind: str, at: int, **more: Path | str | int) -> dict[str, str]:
        """The environment in which the call number `at` that changes files in model_dir fails (file_faults.cc)."""
        settings = {"dir": model_dir, "kind": kind, "at": at, **more}
        return {"LD_PRELOAD": str(self.library), **{f"FAULTS_{key.upper()}": str(v) for key, v in settings.items()}}

    # ---- What a run leaves ----

    def copy(self, model_dir: Path, name: str) -> Path:
        """A copy of a model_dir. Checkpoints, which are written once, are not copied but linked."""
        target = self.folder / name
        shutil.copytree(model_dir, target, copy_function=link_checkpoint)
        return target

    def assert_same_checkpoint(self, model_dir: Path, expected: Path, why: str = "", step: int = STEPS) -> None:
        """The checkpoint of `step` has the same bytes in both, and the state file names it as the latest."""
        for suffix in (".data-00000-of-00001", ".index"):
            name = f"model.ckpt-{step}{suffix}"
            ours, theirs = (hashlib.sha256((d / name).read_bytes()).hexdigest() for d in (model_dir, expected))
            self.assertEqual(ours, theirs, f"{name} differs. {why}")
        self.assertEqual(latest_step(model_dir), step, why)

    def assert_same_metrics(self, model_dir: Path, expected: Path, why: str = "") -> None:
        """The losses of all steps and the last evaluation are the same. A step that was done twice, since a run was
        killed after it, may be there twice, with the same loss."""
        for ours, theirs in zip(metrics(model_dir), metrics(expected)):
            self.assertEqual(ours, theirs, why)

    def assert_no_temporaries(self, model_dir: Path, why: str = "") -> None:
        self.assertEqual([p.name for p in model_dir.rglob("*.incomplete*")], [], why)

    def assert_refused(self, outcome: Outcome, code: int, *words: str) -> None:
        """The run ended with this exit status and one line that has all of these words."""
        self.assertEqual(outcome.code, code, outcome.told)
        for word in words:
            self.assertIn(str(word), outcome.error, outcome.told)


def with_program(test, program: str):
    """The test method, run with one of PROGRAMS."""
    copy = functools.wraps(test)(lambda self: test(self))
    copy.program = program
    return copy


def link_checkpoint(source: Path | str, target: Path | str) -> None:
    """Copies a file; one of a finished checkpoint, which is never written to again, gets a second name only."""
    is_checkpoint = "model.ckpt" in os.path.basename(target) and ".incomplete" not in str(target)
    (os.link if is_checkpoint else shutil.copy2)(source, target)


def has_open(pid: int, folder: Path) -> bool:
    """Whether a process has a file of a folder open."""
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):  # closed meanwhile
            if link.readlink().parent == folder:
                return True
    return False


def has_signal(pid: int, number: int, state: str) -> bool:
    """Whether a process has a handler for a signal, state "SigCgt", or has been sent it and not taken it, "ShdPnd"."""
    mask = re.search(rf"{state}:\s*(\w+)", Path(f"/proc/{pid}/status").read_text())[1]
    return bool(int(mask, 16) >> (number - 1) & 1)


def latest_step(model_dir: Path) -> int:
    """The step of the checkpoint that the state file names; 0 if there is none."""
    state = model_dir / "checkpoint"
    return int(state.read_text().splitlines()[0].rstrip('"').rsplit("-", 1)[1]) if state.exists() else 0


def metrics(model_dir: Path) -> tuple[dict[int, set[float]], dict[str, float]]:
    """Of metric.log, the losses of each step before the last (several only if they differ), and the last record of each
    metric but the speed."""
    losses: dict[int, set[float]] = {}
    last: dict[str, float] = {}
    for line in (model_dir / "metric.log").read_text().splitlines():
        record = json.loads(line)
        if record["name"] == "loss":
            losses.setdefault(record["global_step"], set()).add(record["value"])
        if record["name"] != "examples_per_sec":
            last[record["name"]] = record["value"]
    # A run that stopped there has evaluated there, too.
    return {step: values for step, values in losses.items() if step < STEPS}, last


def main() -> None:
    FaultTest.library = Path(sys.argv.pop(1)).resolve()
    FaultTest.binaries = {program.name: find_binary(program) for program in PROGRAMS.values()}
    sys.argv[1:] = sys.argv[1 + len(PROGRAMS) :]
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    unittest.main(module="__main__", verbosity=2)


def find_binary(program: Program) -> Path:
    (path,) = (Path(argument) for argument in sys.argv[1 : 1 + len(PROGRAMS)] if Path(argument).name == program.binary)
    return path.resolve()
