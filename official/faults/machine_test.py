"""A machine without something: disk, inodes, rights, descriptors, a GPU, a clock, an output."""

import json
import os

from official.faults import harness
from official.faults.programs import STEPS

FIRST = 10


class MachineTest(harness.FaultTest):
    def require_mount(self) -> None:
        """Skips a test where no file system can be mounted, as in most containers without privileges."""
        outcome = self.execute(["unshare", "--map-root-user", "--mount", "mount", "-t", "tmpfs", "tmpfs", str(self.folder)])
        if outcome.code != 0:
            self.skipTest(f"nothing can be mounted here: {outcome.error}")

    def mounted(self, *lines: str) -> harness.Outcome:
        """Runs lines of shell with mounts of their own."""
        script = "\n".join(["set -eu", *lines])
        return self.execute(["unshare", "--map-root-user", "--mount", "bash", "-c", script])

    def check_small_disk(self, full: str, larger: str, reason: str) -> None:
        self.require_mount()
        whole, disk = self.folder / "whole", self.folder / "disk"
        self.train(whole)
        disk.mkdir()
        model_dir = disk / "model"
        run = " ".join(f"'{word}'" for word in self.command(model_dir, f"--max_train_steps={STEPS}"))
        outcome = self.mounted(
            f"mount -t tmpfs -o {full} tmpfs '{disk}'",
            f"status=0; {run} 2>'{self.folder}/stderr' || status=$?",
            f"ls '{model_dir}' > '{self.folder}/left'",
            f"mount -o remount,{larger} '{disk}'",
            run,
            f"cp -r '{model_dir}' '{self.folder}/after'",
            "exit $status",
        )
        told = (self.folder / "stderr").read_text()
        self.assertEqual(outcome.code, 74, outcome.told + told)
        error = told.strip().splitlines()[-1]
        self.assertIn("No space left on device", error)
        self.assertIn(reason, error)
        self.assertIn(str(model_dir), error)
        left = (self.folder / "left").read_text()
        self.assertIn("model.ckpt-0.index", left)
        self.assertNotIn("incomplete", left)
        self.assert_same_checkpoint(self.folder / "after", whole)

    def test_disk_full(self) -> None:
        # Room for one checkpoint of 39 MB.
        self.check_small_disk("size=60m", "size=200m", "the checkpoint of step 20, which needs 39")

    def test_no_inodes(self) -> None:
        # Root, model, lock, two files of the checkpoint, the state, benchmark_run.log, events, metric.log.
        self.check_small_disk("nr_inodes=10", "nr_inodes=100", "0 files are free there")

    def test_read_only_disk(self) -> None:
        self.require_mount()
        model_dir = self.folder / "model"
        model_dir.mkdir()
        outcome = self.mounted(
            f"mount --bind '{model_dir}' '{model_dir}'",
            f"mount -o remount,ro,bind '{model_dir}'",
            " ".join(f"'{word}'" for word in self.command(model_dir)),
        )
        self.assert_refused(outcome, 73, model_dir, "Read-only file system")

    def test_no_permission(self) -> None:
        model_dir = self.folder / "model"
        model_dir.mkdir(mode=0o555)
        # Root is stopped by modes only without the capability to pass over them.
        powerless = []
        if os.access(model_dir, os.W_OK):
            powerless = ["unshare", "--map-root-user", "setpriv", "--bounding-set=-dac_override,-dac_read_search"]
            outcome = self.execute([*powerless, "true"])
            if outcome.code != 0:
                self.skipTest(f"the rights of root cannot be given up here: {outcome.error}")
        self.assert_refused(self.execute([*powerless, *self.command(model_dir)]), 77, model_dir, "Permission denied")
        labels = self.data_dir / "train-labels-idx1-ubyte"
        labels.chmod(0)
        outcome = self.execute([*powerless, *self.command(self.folder / "another")])
        self.assert_refused(outcome, 77, labels, "Permission denied")

    def test_places_where_no_directory_can_be(self) -> None:
        (self.folder / "file").touch()
        for model_dir in (self.folder / "file", self.folder / "file" / "below", self.folder / ("x" * 300), "/proc/model"):
            with self.subTest(model_dir):
                outcome = self.run_steps(model_dir, STEPS)
                self.assertIn(outcome.code, (73, 77), outcome.told)
                self.assertIn(str(model_dir), outcome.error)
                self.assertNotIn("step", outcome.stderr, "this must be found before the first step")

    def test_odd_names(self) -> None:
        for name in ("with space", "-dash", "quote'\"", "ünïcode 数", "a=b,c", "percent %s", "a/b/c", "x" * 200):
            with self.subTest(name):
                model_dir = self.folder / name
                self.train(model_dir, 2)
                self.train(model_dir, 3)
                self.assertEqual(harness.latest_step(model_dir), 3)

    def test_a_newline_in_a_name(self) -> None:
        # Names stand in logs and flag files, one to a line.
        outcome = self.run_steps(self.folder / "new\nline", STEPS)
        self.assertEqual(outcome.code, 2, outcome.told)
        self.assertIn("new\\nline: control characters are not allowed", outcome.stderr)

    def test_slow_disk(self) -> None:
        # Saves go on behind the training: only the next save waits for a slow one.
        model_dir = self.folder / "model"
        env = self.with_fault(model_dir, "slow", 1, call="fsync", path="ckpt-10.data", seconds=2 * harness.DEADLINE)
        last = STEPS - 1
        command = self.command(model_dir, f"--max_train_steps={last}", "--save_checkpoints_steps=10")
        process = self.start(command, env={**os.environ, **env})

        def is_trained() -> bool:
            self.assertIsNone(process.poll(), "the disk was not slow")
            return (model_dir / "metric.log").exists() and last - 1 in harness.metrics(model_dir)[0]

        self.wait_until(is_trained, "a step that did not wait for the disk")
        self.assertEqual(harness.latest_step(model_dir), 0)

    def test_a_long_wait_for_the_disk_is_told(self) -> None:
        model_dir = self.folder / "model"
        goes_on, log = self.folder / "goes on", self.folder / "log"
        env = self.with_fault(model_dir, "slow", 1, call="fsync", path="ckpt-10.data", until=goes_on)
        command = self.command(model_dir, "--max_train_steps=11", "--save_checkpoints_steps=10")
        process = self.start(command, log=log, env={**os.environ, **env})
        self.wait_for_log(log, "waiting for the checkpoint of step 10 to be written, for 2 s now")
        goes_on.touch()
        outcome = self.finish(process)
        self.assertEqual(outcome.code, 0, outcome.told)

    def test_clock_that_jumps(self) -> None:
        whole, model_dir = self.folder / "whole", self.folder / "model"
        self.train(whole)
        for name, seconds in (("to 2038", 12 * 365 * 86400), ("back to 1996", -30 * 365 * 86400), ("an hour", -3600)):
            with self.subTest(name):
                model_dir = self.folder / name
                env = {"LD_PRELOAD": str(self.library), "FAULTS_CLOCK": str(seconds)}
                self.train(model_dir, FIRST, env=env)
                outcome = self.train(model_dir, STEPS, env=env)
                self.assert_same_checkpoint(model_dir, whole)
                speeds = [
                    json.loads(line)["value"]
                    for line in (model_dir / "metric.log").read_text().splitlines()
                    if "examples_per_sec" in line
                ]
                for speed in speeds:
                    self.assertTrue(1 < speed < 1e6, f"{speed} examples a second\n{outcome.told}")

    def test_batches_that_do_not_fit(self) -> None:
        for batch in (1_000_000, 2**31 - 1):
            outcome = self.run_steps(self.folder / "model", STEPS, f"--batch_size={batch}")
            if outcome.code == 0 and batch == 1_000_000:
                continue  # a machine with hundreds of gigabytes
            self.assert_refused(outcome, 2, f"--batch_size={batch}", "of memory", "would fit")

    def test_no_descriptors(self) -> None:
        for limit in (4, 5, 6, 8):
            with self.subTest(limit):
                model_dir = self.folder / f"{limit} descriptors"
                command = ["prlimit", f"--nofile={limit}", *self.command(model_dir, f"--max_train_steps={STEPS}")]
                outcome = self.execute(command)
                self.assertLess(outcome.code, 128, outcome.told)
                if outcome.code not in (0, 127):  # 127: the loader cannot open the libraries
                    self.assert_refused(outcome, 74, "Too many open files")

    def test_no_gpu(self) -> None:
        env = {"CUDA_VISIBLE_DEVICES": ""}
        self.train(self.folder / "model", 2, env=env)
        outcome = self.run_steps(self.folder / "model", 3, "--num_gpus=99", env=env)
        self.assert_refused(outcome, 2, "--num_gpus=99")

    def test_no_output(self) -> None:
        whole = self.folder / "whole"
        self.train(whole)
        for name, redirect in (("closed", ">&-"), ("full", ">/dev/full")):
            with self.subTest(name):
                model_dir = self.folder / name
                command = self.command(model_dir, f"--max_train_steps={STEPS}")
                outcome = self.execute(["bash", "-c", f'exec "$@" {redirect}', "bash", *command])
                self.assert_refused(outcome, 74, "cannot write to standard output")
                self.assert_same_checkpoint(model_dir, whole)
        for name, redirect in (("closed", "2>&-"), ("full", "2>/dev/full"), ("all closed", "<&- >&- 2>&-")):
            with self.subTest(f"standard error {name}"):
                model_dir = self.folder / f"error {name}"
                command = self.command(model_dir, f"--max_train_steps={STEPS}")
                outcome = self.execute(["bash", "-c", f'exec "$@" {redirect}', "bash", *command])
                self.assertEqual(outcome.code, 74 if "all" in name else 0, outcome.told)
                # Nothing that was meant for a closed stream went into a file.
                self.assert_same_checkpoint(model_dir, whole)
                self.assert_same_metrics(model_dir, whole)

    def test_a_reader_that_goes_away(self) -> None:
        model_dir = self.folder / "model"
        command = self.command(model_dir, f"--max_train_steps={STEPS}", "--log_every_n_steps=1")
        outcome = self.execute(["bash", "-c", 'set -o pipefail; "$@" 2>&1 | head -n 1', "bash", *command])
        self.assertIn(outcome.code, (0, 74, 141), outcome.told)


if __name__ == "__main__":
    harness.main()
