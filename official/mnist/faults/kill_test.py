"""A run that is killed at any moment, again and again, ends with the same bits as one that is not."""

import random
import signal
import time

from official.mnist.faults import harness

STEPS = 40  # in six epochs
KILLS = 20
FLAGS = ("--train_epochs=6", "--epochs_between_evals=6", "--save_checkpoints_steps=10")


class KillTest(harness.FaultTest):
    def check(self, *flags: str) -> None:
        flags = (*FLAGS, *flags)
        whole, model_dir = self.folder / "whole", self.folder / "model"
        start = time.monotonic()
        self.train(whole, STEPS, *flags)
        duration = time.monotonic() - start

        rng = random.Random(1)
        reached, killed, restarts_above_0 = 0, 0, 0
        while killed < KILLS:
            # The later half of the runs begins anew when one is done: every phase is to be hit often.
            if harness.latest_step(model_dir) >= STEPS:
                self.check_end(model_dir, whole)
                model_dir = self.folder / f"model {killed}"
                reached = 0
            restarts_above_0 += harness.latest_step(model_dir) > 0
            process = self.start(self.command(model_dir, f"--max_train_steps={STEPS}", *flags))
            # Most checkpoints need a third of the run or so; some moments lie in the start-up and in the save.
            time.sleep(rng.uniform(0, 0.8) * duration)
            process.send_signal(signal.SIGKILL)
            outcome = self.finish(process)
            if outcome.code == 128 + signal.SIGKILL:
                killed += 1
            else:
                self.assertEqual(outcome.code, 0, outcome.told)
            step = harness.latest_step(model_dir)
            self.assertGreaterEqual(step, reached, f"the run went back to an earlier checkpoint\n{outcome.told}")
            reached = step
        self.assertGreaterEqual(restarts_above_0, 10, "too few restarts above step 0 to say anything")
        self.train(model_dir, STEPS, *flags)
        self.check_end(model_dir, whole)

    def check_end(self, model_dir, whole) -> None:
        self.assert_same_checkpoint(model_dir, whole, step=STEPS)
        self.assert_no_temporaries(model_dir)

    def test_float32(self) -> None:
        self.check()

    def test_bfloat16(self) -> None:
        self.check("--dtype=bf16")


if __name__ == "__main__":
    harness.main()
