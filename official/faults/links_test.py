"""Symbolic links and pipes in a model_dir that others can write: no file outside is changed, and nothing hangs."""

import os
from collections.abc import Callable
from pathlib import Path

from official.faults import harness
from official.faults.programs import STEPS

LOGS = ("metric.log", "benchmark_run.log")
# The files that a run writes under names of their own and that are then refused, in the order in which it looks at them.
FIXED_NAMES = (
    "run.lock",
    "checkpoint",
    "flags.txt",
    "algorithms.txt",
    "eval/evaluated_step",
    "eval/results.txt",
    *LOGS,
)
# The names that temporary files would have if they could be foreseen.
TEMPORARY_NAMES = ("checkpoint.incomplete", "flags.txt.incomplete", f"model.ckpt-{STEPS}.index.incomplete")


class LinksTest(harness.FaultTest):
    def setUp(self) -> None:
        super().setUp()
        self.model_dir = self.folder / "model"
        self.precious = self.folder / "precious"
        self.precious.write_text("precious\n")

    def link(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(self.precious)

    def pipe(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        os.mkfifo(path)

    def check_refused(self, make: Callable[[Path], None], what: str, names: tuple[str, ...]) -> None:
        for name in names:
            with self.subTest(name):
                path = self.model_dir / name
                make(path)
                outcome = self.run_steps(self.model_dir, STEPS)
                self.assert_refused(outcome, 73, f"cannot write {path}: it is {what}, not a regular file")
                self.assertFalse(any(self.model_dir.glob("model.ckpt-*")), "it had begun to train")
                path.unlink()
        self.assertEqual(self.precious.read_text(), "precious\n")

    def test_links(self) -> None:
        self.check_refused(self.link, "a symbolic link", FIXED_NAMES)

    def test_pipes(self) -> None:
        self.check_refused(self.pipe, "a pipe", FIXED_NAMES)

    def test_what_is_in_the_way_of_the_best_checkpoints(self) -> None:
        results = self.model_dir / "eval" / "results.txt"
        results.mkdir(parents=True)
        flags = ("--keep_best=loss:min", "--early_stop=loss:min:3")
        for path, what in (
            (results, "a directory, not a regular file"),
            (self.model_dir / "best", "a file, not a directory"),
        ):
            for request in ((), ("--dry_run",)):
                with self.subTest(f"{path.name} {request}"):
                    outcome = self.run_steps(self.model_dir, STEPS, *flags, *request)
                    self.assert_refused(outcome, 73, f"{path}: it is {what}")
                    self.assertFalse(any(self.model_dir.glob("model.ckpt-*")), "it had begun to train")
            if path == results:
                results.rmdir()
                (self.model_dir / "best").touch()

    @harness.of_every_program
    def test_lock_and_log(self) -> None:
        self.check_refused(self.link, "a symbolic link", ("run.lock", "metric.log"))
        self.check_refused(self.pipe, "a pipe", ("metric.log",))

    @harness.of_every_program
    def test_names_of_temporary_files_and_checkpoints(self) -> None:
        # The former are of no interest to the run, the latter are replaced, whatever they are.
        for make in (self.link, self.pipe):
            model_dir = self.folder / make.__name__
            self.train(model_dir, 1)
            names = (*TEMPORARY_NAMES, f"model.ckpt-{STEPS}.index", f"model.ckpt-{STEPS}.data-00000-of-00001")
            for name in names:
                make(model_dir / name)
            self.train(model_dir)
            self.assertEqual(harness.latest_step(model_dir), STEPS)
            self.assertFalse((model_dir / names[-1]).is_symlink())
        self.assertEqual(self.precious.read_text(), "precious\n")

    def test_a_link_to_the_model_dir_is_the_users_choice(self) -> None:
        (self.folder / "other disk").mkdir()
        self.model_dir.symlink_to(self.folder / "other disk")
        self.train(self.model_dir)
        self.assertEqual(harness.latest_step(self.folder / "other disk"), STEPS)

    def test_files_have_the_mode_of_the_umask(self) -> None:
        self.train(self.model_dir, umask=0o022)
        modes = {path.stat().st_mode & 0o777 for path in self.model_dir.rglob("*") if path.is_file()}
        self.assertEqual(modes, {0o644})

    def test_a_default_directory_of_another_user(self) -> None:
        home = self.folder / "home"
        directory = home / ".local/share/official-models/mnist_model"
        directory.mkdir(parents=True)
        try:
            os.chown(directory, 12345, 12345)
        except OSError as error:  # not root, or root of a sandbox that knows no other user
            self.skipTest(f"cannot make a directory of another user: {error}")
        command = [part for part in self.command("") if not part.startswith("--model_dir")]
        env = {"HOME": str(home), "XDG_DATA_HOME": "", "XDG_CACHE_HOME": ""}
        outcome = self.execute([*command, "--max_train_steps=1"], env=env)
        self.assert_refused(outcome, 77, directory, "belongs to another user (uid 12345", "--model_dir")
        self.assertEqual(list(directory.iterdir()), [])
        # Who names it has chosen it.
        self.train(directory, 1)
        os.chown(directory, 0, 0)
        outcome = self.execute([*command, "--max_train_steps=2"], env=env)
        self.assertEqual(outcome.code, 0, outcome.told)
        self.assertEqual(harness.latest_step(directory), 2)

    def test_a_pipe_that_somebody_holds_open_does_not_deafen_the_run(self) -> None:
        # With a reader that reads nothing, opening succeeds, and writing would block for ever once the pipe is full.
        path = self.model_dir / "metric.log"
        self.pipe(path)
        reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        self.addCleanup(os.close, reader)
        process = self.start(self.command(self.model_dir))
        outcome = self.finish(process)
        self.assert_refused(outcome, 73, "it is a pipe")


if __name__ == "__main__":
    harness.main()
