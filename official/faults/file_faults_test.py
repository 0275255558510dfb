"""A save during which any file operation fails, or the process is killed, or the power is cut, loses no finished
checkpoint, and the next start goes on from it."""

import os
import re
import shutil
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from official.faults import harness
from official.faults.programs import STEPS

FIRST = 10  # the step up to which nothing happens
# The oldest checkpoint is removed after the save.
FLAGS = ("--keep_checkpoint_max=2", "--intra_op_parallelism_threads=1", "--log_every_n_steps=10")


class Call:
    """One line of the journal of file_faults.cc."""

    def __init__(self, line: str) -> None:
        number, self.name, self.path, self.new_path = line.rstrip("\n").split("\t")
        self.number = int(number)

    @property
    def kind(self) -> tuple[str, str, str]:
        """What is called, on which kind of file: names of the same kind differ in their numbers."""
        number = r"(?<=\.incomplete-)[0-9a-f]+|\d+"
        return self.name, *(re.sub(number, "N", os.path.basename(path)) for path in (self.path, self.new_path))

    def __str__(self) -> str:
        return f"call {self.number}: {self.name} {self.path}" + (f" to {self.new_path}" if self.new_path else "")


class FileFaultsTest(harness.FaultTest):
    def setUp(self) -> None:
        super().setUp()
        self.begun, self.whole = self.folder / "begun", self.folder / "whole"
        self.train(self.begun, FIRST, *FLAGS)
        time.sleep(1)  # event files of the next second have names of their own at once
        shutil.copytree(self.begun, self.whole)
        journal, self.synced = self.folder / "journal", self.folder / "synced"
        self.synced.mkdir()
        self.train(
            self.whole, STEPS, *FLAGS, env=self.with_fault(self.whole, "", 0, journal=journal, keep=self.synced)
        )
        self.calls = [Call(line) for line in journal.read_text().splitlines()]

    def calls_to_fail(self) -> list[Call]:
        """All calls of mnist_main; of the other programs, which save by the same code, the first call of each kind."""
        if self.program.name == "mnist":
            return self.calls
        return sorted({call.kind: call for call in reversed(self.calls)}.values(), key=lambda call: call.number)

    def check_next_start(self, model_dir: Path, why: str, at_least: int = FIRST) -> None:
        """Starts the run again, which ends as if nothing had happened."""
        outcome = self.run_steps(model_dir, STEPS, *FLAGS)
        self.assertEqual(outcome.code, 0, f"{why}\n{outcome.told}")
        resumed = re.search(r"resumed from .*model\.ckpt-(\d+)", outcome.stderr)
        self.assertIsNotNone(resumed, f"{why}\n{outcome.told}")
        self.assertGreaterEqual(int(resumed[1]), at_least, f"{why}\n{outcome.told}")
        self.assert_same_checkpoint(model_dir, self.whole, why)
        self.assert_no_temporaries(model_dir, why)
        # Two checkpoints are kept. The one before may stay, whole, until the next save if its removal was interrupted.
        files = {path.name for path in model_dir.glob("model.ckpt-*")}
        self.assertLessEqual(len(files), 6, why)
        for data in (name for name in files if ".data-" in name):
            self.assertIn(data.split(".data-")[0] + ".index", files, f"{data} has no index\n{why}")

    def at_every_call(self, kind: str, check: Callable[[Call, Path, harness.Outcome], None]) -> None:
        """Runs with a fault at each call, and checks. Each run ends with the bits of the whole one at the next start."""

        def run(call: Call) -> tuple[Call, Path, harness.Outcome]:
            model_dir = self.copy(self.begun, f"{kind} at {call.number}")
            env = self.with_fault(model_dir, kind, call.number)
            return call, model_dir, self.run_steps(model_dir, STEPS, *FLAGS, env=env)

        with ThreadPoolExecutor(2) as pool:
            for call, model_dir, outcome in pool.map(run, self.calls_to_fail()):
                with self.subTest(f"{kind} at {call}"):
                    check(call, model_dir, outcome)
                    self.check_next_start(model_dir, f"{kind} at {call}\n{outcome.told}")
                shutil.rmtree(model_dir)

    @harness.of_every_program
    def test_killed_at_every_call(self) -> None:
        def check(call: Call, model_dir: Path, outcome: harness.Outcome) -> None:
            self.assertEqual(outcome.code, 137, outcome.told)

        self.at_every_call("kill", check)

    @harness.of_every_program
    def test_interrupted_at_every_call(self) -> None:
        # Every call that reads or changes files fails once, as a signal makes it, and its repetition does not.
        model_dir, journal = self.copy(self.begun, "interrupted"), self.folder / "interrupted calls"
        env = self.with_fault(self.folder, "EINTR", 1, call="any", journal=journal)
        self.train(model_dir, STEPS, *FLAGS, env=env)
        self.assert_same_checkpoint(model_dir, self.whole)
        self.assert_same_metrics(model_dir, self.whole)
        self.assert_no_temporaries(model_dir)
        self.assertFalse((model_dir / "run.lock").exists())
        interrupted = {Call(line).name for line in journal.read_text().splitlines()}
        changes = {"create", "write", "ftruncate", "fsync", "close", "rename", "unlink"}
        self.assertLessEqual(changes | {"flock", "read", "open to read", "open directory"}, interrupted)

    @harness.of_every_program
    def test_killed_while_old_checkpoints_are_removed(self) -> None:
        for number in (1, 2):
            with self.subTest(f"before file {number} is removed"):
                model_dir = self.copy(self.begun, f"killed at {number}")
                flags = (*FLAGS, "--save_checkpoints_steps=2")
                env = self.with_fault(model_dir, "kill", number, call="unlink", path="/model.ckpt-")
                self.assertEqual(self.run_steps(model_dir, STEPS, *flags, env=env).code, 137)
                self.assertGreater(len(list(model_dir.glob("model.ckpt-*"))), 4, "nothing was left")
                self.train(model_dir, STEPS, *flags)
                kept = {path.name for path in model_dir.glob("model.ckpt-*")}
                suffixes = (".index", ".data-00000-of-00001")
                self.assertEqual(kept, {f"model.ckpt-{step}{suffix}" for step in (STEPS - 2, STEPS) for suffix in suffixes})

    def test_killed_while_a_directory_is_cleaned(self) -> None:
        # The state file goes first, then the indexes of steps 0 and 10.
        for number, origin in enumerate(("resumed", "resumed", "resumed", "fresh", "fresh", "fresh"), start=1):
            with self.subTest(f"before file {number} is removed"):
                model_dir = self.copy(self.begun, f"cleaned to {number}")
                env = self.with_fault(model_dir, "kill", number, call="unlink")
                self.assertEqual(self.run_steps(model_dir, STEPS, *FLAGS, "--clean", env=env).code, 137)
                outcome = self.train(model_dir, STEPS, *FLAGS)
                resumed = re.search(r"resumed from .*model\.ckpt-(\d+)", outcome.stderr)
                self.assertEqual(resumed and int(resumed[1]), FIRST if origin == "resumed" else None, outcome.told)
                self.assert_same_checkpoint(model_dir, self.whole)

    @harness.of_every_program
    def test_disk_full_at_every_call(self) -> None:
        self.at_every_call("ENOSPC", lambda *run: self.check_told(*run, "No space left on device"))

    def test_input_output_error_at_every_call(self) -> None:
        self.at_every_call("EIO", lambda *run: self.check_told(*run, "Input/output error"))

    def check_told(self, call: Call, model_dir: Path, outcome: harness.Outcome, reason: str) -> None:
        # Not told: a file that was made to see whether the directory can be written and does not go away, a failed close
        # of a file of events, whose bytes the system took before, the end of a lock on a file that has its name, and
        # that the lock file is not emptied at the end.
        is_probe = "/checkpoint.incomplete-" in call.path and call.name == "unlink"
        is_close = call.name == "close" and (
            "tfevents" in call.path
            or call.path.endswith(" (deleted)")
            or any(earlier.new_path == call.path for earlier in self.calls[: call.number])
        )
        is_unlock = call.path.endswith("/run.lock") and call.number > self.calls[-1].number - 2
        if outcome.code != 0 or not (is_probe or is_close or is_unlock):
            self.assert_refused(outcome, 74, reason, str(model_dir))
        # What a failed save had begun is removed at once, so that the disk has its room again. The exception is an index
        # whose data has its name already: the next start finishes that.
        if not is_probe and not (call.name == "rename" and call.new_path.endswith(".index")):
            self.assert_no_temporaries(model_dir)

    def test_a_full_disk_of_the_records_loses_no_step(self) -> None:
        model_dir = self.copy(self.begun, "records")
        env = self.with_fault(model_dir, "ENOSPC", 1, call="write", path="/metric.log")
        outcome = self.run_steps(model_dir, STEPS, *FLAGS, "--log_every_n_steps=1", env=env)
        self.assert_refused(outcome, 74, "No space left on device", model_dir / "metric.log")
        self.check_next_start(model_dir, outcome.told, at_least=FIRST + 1)

    def test_a_save_that_fails_at_the_last_step_is_tried_again(self) -> None:
        model_dir = self.copy(self.begun, "last step")
        env = self.with_fault(model_dir, "EIO", 1, call="fsync", path=f"/model.ckpt-{STEPS}.data")
        outcome = self.train(model_dir, STEPS, *FLAGS, f"--save_checkpoints_steps={STEPS}", env=env)
        self.assertIn("; the next save, if the run continues, tries again", outcome.stderr)
        self.assert_same_checkpoint(model_dir, self.whole)
        self.assert_no_temporaries(model_dir)

    @harness.of_every_program
    def test_power_cut_after_every_call(self) -> None:
        # Two disks: one on which the names are always as they were left, and the bytes only where they were synced; and
        # one on which names too are as they were when their directory was synced.
        tried = set()
        for keep_names in (True, False):
            for end in range(len(self.calls) + 1):
                names, saved_step = self.disk_after(self.calls[:end], keep_names)
                state = (frozenset(names.items()), saved_step)
                if state in tried:
                    continue
                tried.add(state)
                what = f"power cut before {self.calls[end] if end < len(self.calls) else 'the end'}"
                what += f"; on the disk: {dict(sorted(names.items()))}"
                with self.subTest(what):
                    model_dir = self.folder / "after power cut"
                    model_dir.mkdir()
                    for name, content in names.items():
                        (model_dir / name).parent.mkdir(exist_ok=True)
                        if content is None:
                            (model_dir / name).touch()
                        else:
                            harness.link_checkpoint(content, model_dir / name)
                    self.check_next_start(model_dir, what, at_least=saved_step)
                shutil.rmtree(model_dir)
        self.assertGreater(len(tried), 10, "the disk has hardly changed")

    def disk_after(self, calls: list[Call], keep_names: bool) -> tuple[dict[str, Path | None], int]:
        """The files (name to a file with its bytes; None: empty) that a power cut after these calls leaves, and the
        step of the last save that was over."""
        contents: dict[str, Path | None] = {
            str(p.relative_to(self.begun)): p for p in self.begun.rglob("*") if p.is_file()
        }
        durable = dict(contents)
        saved_step = FIRST
        for call in calls:
            name = os.path.relpath(call.path, self.whole)
            if call.name == "create" and name not in ("metric.log", "benchmark_run.log", "run.lock"):
                contents[name] = None
            elif call.name == "rename":
                contents[os.path.relpath(call.new_path, self.whole)] = contents.pop(name)
            elif call.name == "unlink":
                contents.pop(name, None)
            elif call.name == "fsync" and (self.whole / name).is_dir():
                synced = "" if name == "." else name
                durable = {file: content for file, content in durable.items() if os.path.dirname(file) != synced}
                durable |= {file: content for file, content in contents.items() if os.path.dirname(file) == synced}
                if "checkpoint" in contents and contents["checkpoint"] != self.begun / "checkpoint":
                    saved_step = STEPS
            elif call.name == "fsync":
                contents[name] = self.synced / str(call.number)
                # The bytes belong to the file, whatever its names are.
                if name in durable:
                    durable[name] = contents[name]
        return (contents if keep_names else durable), saved_step

    @harness.of_every_program
    def test_the_journal_misses_no_call(self) -> None:
        # What the library counts is what the kernel saw: else a fault could hide in a call that is never made to fail.
        model_dir, trace = self.copy(self.begun, "traced"), self.folder / "trace"
        calls = "openat,open,creat,write,pwrite64,writev,pwritev,pwritev2,ftruncate,fallocate,fsync,fdatasync,"
        calls += "sync_file_range,rename,renameat,renameat2,link,linkat,symlink,unlink,unlinkat,mkdir,mkdirat,truncate,"
        calls += "copy_file_range,sendfile,splice,mmap"
        command = ["strace", "-f", "-qq", "-y", "-s", "0", "-e", f"trace={calls}", "-o", str(trace)]
        outcome = self.execute(command + self.command(model_dir, f"--max_train_steps={STEPS}", *FLAGS))
        self.assertEqual(outcome.code, 0, f"strace must be installed and permitted here\n{outcome.told}")
        seen: dict[str, int] = {}
        for line in trace.read_text().splitlines():
            line = line.split(None, 1)[1]
            name = line.split("(")[0]
            read_only = name in ("open", "openat") and "O_RDONLY" in line or name == "mmap" and "PROT_WRITE" not in line
            if str(model_dir) not in line or "resumed>" in line or read_only:
                continue
            name = {"openat": "create", "pwrite64": "write"}.get(name, name)
            seen[name] = seen.get(name, 0) + 1
        counted: dict[str, int] = {}
        for call in self.calls:
            if call.name != "close":
                counted[call.name] = counted.get(call.name, 0) + 1
        self.assertEqual(seen, counted)


if __name__ == "__main__":
    harness.main()
