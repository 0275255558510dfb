"""What becomes of workers when one of them is lost: what the tests of that share."""

import re
import signal
import subprocess
import sys
import time
from pathlib import Path

from official.faults import harness, workers

WORKERS = 3
VICTIMS = (0, 2)  # the chief and another one
# The end of its connections tells of a worker that is killed: who would notice only that it is silent would be too late
# for the test. Nor is a worker lost because the machine is busy.
PATIENCE = f"--peer_timeout_secs={10 * harness.DEADLINE}"
# Of one that is frozen or cut off nothing else tells.
IMPATIENCE = "--peer_timeout_secs=3"
ENDLESS = ("--train_epochs=1000000", "--epochs_between_evals=1000000")


class LossCase(workers.WorkersCase):
    model_dir: Path
    addresses: list[str]
    processes: list[subprocess.Popen]

    def setUp(self) -> None:
        super().setUp()
        self.model_dir = self.folder / "model"

    def begin(self, *flags: str, prefix_of: dict | None = None) -> None:
        """Starts the workers of a run in model_dir."""
        self.begin_at(workers.free_addresses(WORKERS), *flags, prefix_of=prefix_of)

    def begin_at(self, addresses: list[str], *flags: str, prefix_of: dict | None) -> None:
        self.addresses = addresses
        self.processes = self.start_workers(
            self.model_dir,
            WORKERS,
            workers.AS_MANY_REPLICAS,
            *flags,
            configs=workers.configs_of(addresses),
            prefix_of=prefix_of,
        )

    def wait_for_steps(self, count: int) -> None:
        """Waits until the run has done so many steps more."""
        self.wait_for_records(self.model_dir, workers.count_records(self.model_dir) + count)

    def wait_for_a_save(self) -> None:
        """Waits until there is a checkpoint to go on from, after that of step 0."""
        self.wait_until(lambda: harness.latest_step(self.model_dir) > 0, "a checkpoint")

    def kill(self, victim: int) -> None:
        """Kills a worker: the others end and name it."""
        self.processes[victim].send_signal(signal.SIGKILL)
        self.wait_for_others(victim)
        self.finish(self.processes[victim])

    def wait_for_others(self, lost: int) -> None:
        """Waits until the others have ended, having named the one that is lost."""
        others = [process for worker, process in enumerate(self.processes) if worker != lost]
        self.wait_for_end(others)
        self.assert_name_the_lost([self.finish(process) for process in others], lost)

    def wait_for_end(self, processes: list[subprocess.Popen]) -> None:
        """Waits until all of these have ended, and tells how long that took."""
        begin = time.monotonic()

        def told() -> str:
            return "\n".join(map(self.killed, processes))

        self.wait_until(lambda: all(process.poll() is not None for process in processes), "the end of all", told)
        print(f"ended after {time.monotonic() - begin:.2f} s", file=sys.stderr)

    def killed(self, process: subprocess.Popen) -> str:
        """What a process has told until now."""
        process.kill()
        return self.finish(process).told

    def assert_name_the_lost(self, outcomes: list[harness.Outcome], lost: int) -> None:
        """These workers ask to be started again, and name the same one, which is the first cause."""
        for outcome in outcomes:
            words = (f"worker {lost} at {self.addresses[lost]} was lost", "start all workers again")
            self.assert_refused(outcome, 138, *words)
            named = re.findall(r"worker (\d+) at \S+ was lost", outcome.stderr)
            self.assertEqual(set(named), {str(lost)}, outcome.told)
            self.assertNotIn("AllReduceDone: ", outcome.stderr)  # which is not what the user asked for

    def assert_as_alone(self, *flags: str) -> None:
        """The last checkpoint has the bits of one process that was stopped at the same step."""
        step = harness.latest_step(self.model_dir)
        self.assertGreater(step, 0)
        alone = self.folder / f"alone to {step}"
        if not alone.exists():
            self.train_alone(alone, *flags, steps=step)
        self.assert_same_checkpoint(self.model_dir, alone, step=step)

    def assert_goes_on(self) -> None:
        """The last checkpoint has the bits of an unbroken run, and so has the end of a run that continues from it."""
        self.assert_as_alone(*ENDLESS)
        steps = harness.latest_step(self.model_dir) + 2
        self.train_workers(self.model_dir, WORKERS, workers.AS_MANY_REPLICAS, *ENDLESS, steps=steps)
        self.assert_as_alone(*ENDLESS)
        self.assert_no_temporaries(self.model_dir)
