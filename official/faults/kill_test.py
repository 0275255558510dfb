"""A run that is killed at any moment, again and again, ends with the same bits as one that is not."""

import random
import signal
import subprocess
import time
from pathlib import Path

from official.faults import harness

STEPS = 100  # in 15 epochs
KILLS = 10
FLAGS = ("--train_epochs=15", "--epochs_between_evals=15", "--save_checkpoints_steps=10", f"--max_train_steps={STEPS}")


class KillTest(harness.FaultTest):
    def check(self, *flags: str) -> None:
        whole, model_dir = self.folder / "whole", self.folder / "model"
        outcome = self.execute(self.command(whole, *FLAGS, *flags))
        self.assertEqual(outcome.code, 0, outcome.told)

        rng = random.Random(1)
        reached, killed, restarts_above_0 = 0, 0, 0
        while killed < KILLS:
            if reached == STEPS:
                self.check_end(model_dir, whole, *flags)
                model_dir, reached = self.folder / f"model after {killed}", 0
            restarts_above_0 += reached > 0
            process = self.start(self.command(model_dir, *FLAGS, *flags))
            self.wait(process, model_dir, steps=rng.choice([0, 0, *range(30)]))
            time.sleep(rng.uniform(0, 0.05))
            process.send_signal(signal.SIGKILL)
            outcome = self.finish(process)
            self.assertIn(outcome.code, (0, 128 + signal.SIGKILL), outcome.told)
            killed += outcome.code != 0
            step = harness.latest_step(model_dir)
            self.assertGreaterEqual(step, reached, f"the run went back to an earlier checkpoint\n{outcome.told}")
            reached = step
        self.assertGreaterEqual(restarts_above_0, KILLS // 2, "too few restarts above step 0 to say anything")
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
        outcome = self.execute(self.command(model_dir, *FLAGS, *flags))
        self.assertEqual(outcome.code, 0, outcome.told)
        self.assert_same_checkpoint(model_dir, whole, step=STEPS)
        self.assert_no_temporaries(model_dir)

    @harness.of_every_program
    def test_float32(self) -> None:
        self.check()

    def test_bfloat16(self) -> None:
        self.check("--dtype=bf16")

    def test_two_replicas(self) -> None:
        self.check("--num_cpu_devices=2")


if __name__ == "__main__":
    harness.main()
