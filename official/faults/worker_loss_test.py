"""A worker is killed or frozen, whatever it does at that moment: the others end and name it, and all can go on."""

import contextlib
import random
import signal
import struct
import subprocess
import time
from pathlib import Path

from official.faults import harness, losses, workers
from official.faults.losses import ENDLESS, PATIENCE, PEER_TIMEOUT, SOON, VICTIMS, WORKERS

SAVES = "--save_checkpoints_steps=3"
KILLS = 6  # at any moment


class WorkerLossTest(losses.LossCase):
    def wait_until(self, is_so, what: str) -> None:
        until = time.monotonic() + harness.DEADLINE
        while not is_so():
            self.assertLess(time.monotonic(), until, f"there was never {what}")
            time.sleep(0.005)

    def test_killed_at_any_moment(self) -> None:
        rng = random.Random(1)

        def lose(victim: int) -> float:
            self.begin(*ENDLESS, PATIENCE, SAVES)
            self.wait_for_steps(rng.randrange(4, 10))
            time.sleep(rng.uniform(0, 0.05))
            return self.kill(victim)

        for i in range(KILLS):
            self.assert_in_time(SOON, lose, i % WORKERS)
            self.assert_as_alone(*ENDLESS)
        self.assert_goes_on()

    def test_killed_while_the_others_wait_for_it(self) -> None:
        def lose(victim: int) -> float:
            self.begin(*ENDLESS, PATIENCE, SAVES)
            self.wait_for_steps(4)
            self.processes[victim].send_signal(signal.SIGSTOP)
            time.sleep(0.3)  # by then they wait, most often in a sum
            return self.kill(victim)

        for victim in VICTIMS:
            self.assert_in_time(SOON, lose, victim)
        self.assert_goes_on()

    def test_killed_in_an_evaluation(self) -> None:
        count = 3000  # images, which take some seconds
        images = struct.pack(">4I", 2051, count, 28, 28) + bytes(count * 784)
        (self.data_dir / "t10k-images-idx3-ubyte").write_bytes(images)
        (self.data_dir / "t10k-labels-idx1-ubyte").write_bytes(struct.pack(">2I", 2049, count) + bytes(count))
        epoch = ("--train_epochs=1", "--epochs_between_evals=1", PATIENCE)

        def lose(victim: int) -> float:
            self.model_dir = self.folder / f"model {victim} {time.monotonic()}"
            self.begin(*epoch)
            self.wait_until(lambda: harness.latest_step(self.model_dir) > 0, "a checkpoint at the end of the epoch")
            time.sleep(0.3)
            took = self.kill(victim)
            self.assertNotIn("accuracy", (self.model_dir / "metric.log").read_text(), "the evaluation was over")
            return took

        for victim in VICTIMS:
            self.assert_in_time(SOON, lose, victim)
            self.assert_as_alone()
        self.begin(*epoch)
        for process in self.processes:
            outcome = self.finish(process)
            self.assertEqual(outcome.code, 0, outcome.told)
        self.assertIn("accuracy", (self.model_dir / "metric.log").read_text())

    def test_killed_while_data_are_read(self) -> None:
        reader = 1
        slow = self.with_fault(self.data_dir, "slow", 1, call="read", seconds=2 * harness.DEADLINE)

        def lose(victim: int) -> float:
            self.begin(*ENDLESS, PATIENCE, prefix_of={reader: workers.with_environment(slow)})
            self.wait_until(lambda: has_open(self.processes[reader], self.data_dir), "a worker that reads")
            time.sleep(0.5)  # the others have read all
            return self.kill(victim)

        for victim in range(WORKERS):
            self.assert_in_time(SOON, lose, victim)
            self.assertEqual(list(self.model_dir.glob("*ckpt*")), [])

    def test_frozen(self) -> None:
        def lose(victim: int) -> float:
            self.begin(*ENDLESS, PATIENCE, SAVES)
            self.wait_for_steps(4)
            self.processes[victim].send_signal(signal.SIGSTOP)
            took = self.wait_for_others(victim)
            self.processes[victim].send_signal(signal.SIGCONT)
            outcome = self.finish(self.processes[victim])
            self.assertEqual(outcome.code, 138, outcome.told)
            # If it was the chief, it has saved no step but those that all have done.
            self.assert_as_alone(*ENDLESS)
            return took

        for victim in VICTIMS:
            self.assert_in_time(PEER_TIMEOUT + 2, lose, victim)
        self.assert_goes_on()


def has_open(process: subprocess.Popen, folder: Path) -> bool:
    """Whether a process has a file of a folder open."""
    for link in Path(f"/proc/{process.pid}/fd").iterdir():
        with contextlib.suppress(OSError):  # closed meanwhile
            if link.readlink().parent == folder:
                return True
    return False


if __name__ == "__main__":
    harness.main()
