"""Runs that are killed at any moment, again and again, and end with the same bits as one that is not."""

import random
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from official.faults import harness
from official.faults.programs import STEPS_PER_EPOCH


class KilledRunsTest(harness.FaultTest):
    steps = 100  # of a whole run
    steps_per_save = 10
    kills = 10
    restarts = 5  # at least, of runs that go on from a checkpoint
    max_runs = 100  # for so many kills and restarts; a run of NCF may be over before it is killed
    # A run is killed after one of these numbers of steps, drawn at random.
    steps_before_kill: Sequence[int] = (0, 0, *range(30))

    def flags(self) -> tuple[str, ...]:
        epochs = 1 + self.steps // STEPS_PER_EPOCH
        return (
            f"--train_epochs={epochs}",
            f"--epochs_between_evals={epochs}",
            f"--save_checkpoints_steps={self.steps_per_save}",
            f"--max_train_steps={self.steps}",
        )

    def check(self, *flags: str) -> None:
        whole, model_dir = self.folder / "whole", self.folder / "model"
        outcome = self.execute(self.command(whole, *self.flags(), *flags))
        self.assertEqual(outcome.code, 0, outcome.told)

        rng = random.Random(1)
        reached, runs, killed, restarts = 0, 0, 0, 0
        while killed < self.kills or restarts < self.restarts:
            self.assertLess(runs, self.max_runs, f"{killed} kills and {restarts} restarts are too few to say anything")
            runs += 1
            if reached == self.steps:
                self.check_end(model_dir, whole, *flags)
                model_dir, reached = self.folder / f"model of run {runs}", 0
            restarts += reached > 0
            process = self.start(self.command(model_dir, *self.flags(), *flags))
            self.wait(process, model_dir, steps=rng.choice(self.steps_before_kill))
            time.sleep(rng.uniform(0, 0.05))
            process.send_signal(signal.SIGKILL)
            outcome = self.finish(process)
            self.assertIn(outcome.code, (0, 128 + signal.SIGKILL), outcome.told)
            killed += outcome.code != 0
            step = harness.latest_step(model_dir)
            self.assertGreaterEqual(step, reached, f"the run went back to an earlier checkpoint\n{outcome.told}")
            reached = step
        self.check_end(model_dir, whole, *flags)

    def wait(self, process: subprocess.Popen, model_dir: Path, steps: int) -> None:
        """Waits until a run has logged so many steps, or is over."""
        log = model_dir / "metric.log"

        def lines() -> int:
            return log.read_bytes().count(b"\n") if log.exists() else 0

        end, until = lines() + steps, time.monotonic() + harness.DEADLINE
        while lines() < end and process.poll() is None and time.monotonic() < until:
            time.sleep(0.002)

    def check_end(self, model_dir: Path, whole: Path, *flags: str) -> None:
        """Runs to the end once more: the last run may have been killed in what follows the last step."""
        outcome = self.execute(self.command(model_dir, *self.flags(), *flags))
        self.assertEqual(outcome.code, 0, outcome.told)
        self.assert_same_checkpoint(model_dir, whole, step=self.steps)
        self.assert_no_temporaries(model_dir)
