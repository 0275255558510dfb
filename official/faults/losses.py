"""What becomes of workers when one of them is lost: what the tests of that share."""

import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from official.faults import harness, workers

WORKERS = 3
VICTIMS = (0, 2)  # the chief and another one
SOON = 1  # seconds in which the others end when one was killed
PEER_TIMEOUT = 2
HANG = 8  # seconds after which workers that are to end hang, however busy the machine is
PATIENCE = f"--peer_timeout_secs={PEER_TIMEOUT}"
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

    def kill(self, victim: int) -> float:
        """Kills a worker, and returns after how many seconds the others have ended and named it."""
        self.processes[victim].send_signal(signal.SIGKILL)
        took = self.wait_for_others(victim)
        self.finish(self.processes[victim])
        return took

    def wait_for_others(self, lost: int) -> float:
        """Waits until the others have ended and named the one that is lost, and returns how long that took."""
        others = [process for worker, process in enumerate(self.processes) if worker != lost]
        took = self.seconds_until_end(others)
        self.assert_name_the_lost([self.finish(process) for process in others], lost)
        return took

    def seconds_until_end(self, processes: list[subprocess.Popen]) -> float:
        """Waits until all of these have ended, and returns how long that took."""
        begin = time.monotonic()
        while any(process.poll() is None for process in processes):
            if time.monotonic() > begin + HANG:
                self.fail(f"not all have ended after {HANG} s:\n" + "\n".join(map(self.killed, processes)))
            time.sleep(0.002)
        return time.monotonic() - begin

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

    def assert_in_time(self, seconds: float, lose: Callable[..., float], *arguments) -> None:
        """lose() returns no more than that. Other work may hold it up, so one of three times counts."""
        took = []
        while len(took) < 3 and (not took or took[-1] > seconds):
            took.append(lose(*arguments))
        print("the others ended after", *(f"{each:.2f} s" for each in took), file=sys.stderr)
        self.assertLessEqual(took[-1], seconds)

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
