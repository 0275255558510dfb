"""Workers that are started again whenever they exit with 138 or are killed end with the bits of an unbroken run."""

import random
import subprocess
import sys
import time
from pathlib import Path

from official.faults import harness, workers

WORKERS = 3
STEPS = 120
KILLS = 6
FLAGS = ("--train_epochs=20", "--epochs_between_evals=20", "--save_checkpoints_steps=5")


class WorkerRestartTest(workers.WorkersCase):
    def setUp(self) -> None:
        super().setUp()
        self.model_dir = self.folder / "model"
        self.configs = workers.tf_configs(WORKERS)
        self.running: dict[int, subprocess.Popen] = {}  # by number of the worker

    def start_again(self, worker: int) -> None:
        flags = (workers.AS_MANY_REPLICAS, *FLAGS, f"--max_train_steps={STEPS}")
        self.running[worker] = self.start_worker(self.model_dir, worker, self.configs[worker], *flags)

    def supervise(self, killed: int | None = None) -> set[int]:
        """Starts those again that have ended, and returns their numbers. Those that have finished stay away."""
        ended = {worker: process for worker, process in self.running.items() if process.poll() is not None}
        for worker, process in ended.items():
            outcome = self.finish(process)
            del self.running[worker]
            if outcome.code != 0:
                self.assertIn(outcome.code, (137, 138) if worker == killed else (138,), outcome.told)
                self.start_again(worker)
        return set(ended)

    def wait_for_records(self, model_dir: Path, count: int, killed: int | None = None) -> None:
        """Waits until the run has written so many records. None of its workers may end meanwhile but the one that is
        killed, and others for it."""

        def are_there() -> bool:
            ended = self.supervise(killed)
            self.assertTrue(killed is not None or not ended, "a worker has ended that was not to")
            return workers.count_records(model_dir) >= count

        self.wait_until(are_there, f"{count} records")

    def kill_and_wait_for_a_step(self, victim: int) -> float:
        """Kills a worker, and returns after how many seconds the run has done its next step."""
        begin = time.monotonic()
        self.running[victim].kill()
        self.wait_until(lambda: 0 in self.supervise(killed=victim), "the end of the chief")
        # What the chief has written it has written by now, and the next one needs longer for its first step.
        self.wait_for_records(self.model_dir, workers.count_records(self.model_dir) + 1, killed=victim)
        return time.monotonic() - begin

    def test_all_that_end_are_started_again(self) -> None:
        rng = random.Random(1)
        alone = self.folder / "alone"
        self.train_alone(alone, *FLAGS, steps=STEPS)
        for worker in range(WORKERS):
            self.start_again(worker)
        took = []
        for kill in range(KILLS):
            self.wait_for_records(self.model_dir, workers.count_records(self.model_dir) + rng.randrange(3, 10))
            took.append(self.kill_and_wait_for_a_step(kill % WORKERS))
        self.wait_until(lambda: not self.supervise() and not self.running, "the end of the run")
        self.assert_same_checkpoint(self.model_dir, alone, step=STEPS)
        self.assert_same_metrics(self.model_dir, alone)
        self.assert_no_temporaries(self.model_dir)
        print("seconds from kills to the next steps:", *(f"{each:.2f}" for each in took), file=sys.stderr)


if __name__ == "__main__":
    harness.main()
