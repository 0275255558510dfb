"""A worker is killed or frozen, whatever it does at that moment: the others end and name it, and all can go on."""

import random
import signal
import struct
import time

from official.faults import harness, losses, workers
from official.faults.losses import ENDLESS, IMPATIENCE, PATIENCE, VICTIMS, WORKERS

SAVES = "--save_checkpoints_steps=3"
KILLS = 6  # at any moment


class WorkerLossTest(losses.LossCase):
    def test_killed_at_any_moment(self) -> None:
        rng = random.Random(1)
        for i in range(KILLS):
            self.begin(*ENDLESS, PATIENCE, SAVES)
            self.wait_for_a_save()
            self.wait_for_steps(rng.randrange(4, 10))
            time.sleep(rng.uniform(0, 0.05))
            self.kill(i % WORKERS)
            self.assert_as_alone(*ENDLESS)
        self.assert_goes_on()

    def test_killed_while_the_others_wait_for_it(self) -> None:
        for victim in VICTIMS:
            self.begin(*ENDLESS, PATIENCE, SAVES)
            self.wait_for_a_save()
            self.wait_for_steps(4)
            self.processes[victim].send_signal(signal.SIGSTOP)
            time.sleep(0.3)  # by then they wait, most often in a sum
            self.kill(victim)
        self.assert_goes_on()

    def test_killed_in_an_evaluation(self) -> None:
        count = 3000  # images, which take some seconds
        images = struct.pack(">4I", 2051, count, 28, 28) + bytes(count * 784)
        (self.data_dir / "t10k-images-idx3-ubyte").write_bytes(images)
        (self.data_dir / "t10k-labels-idx1-ubyte").write_bytes(struct.pack(">2I", 2049, count) + bytes(count))
        epoch = ("--train_epochs=1", "--epochs_between_evals=1", PATIENCE)
        for victim in VICTIMS:
            self.model_dir = self.folder / f"model {victim}"
            self.begin(*epoch)
            self.wait_for_a_save()  # which is at the end of the epoch
            time.sleep(0.3)
            self.kill(victim)
            self.assertNotIn("accuracy", (self.model_dir / "metric.log").read_text(), "the evaluation was over")
            self.assert_as_alone()
        self.begin(*epoch)
        for process in self.processes:
            outcome = self.finish(process)
            self.assertEqual(outcome.code, 0, outcome.told)
        self.assertIn("accuracy", (self.model_dir / "metric.log").read_text())

    def test_killed_while_data_are_read(self) -> None:
        reader = 1
        slow = self.with_fault(self.data_dir, "slow", 1, call="read", seconds=2 * harness.DEADLINE)
        for victim in range(WORKERS):
            self.begin(*ENDLESS, PATIENCE, prefix_of={reader: workers.with_environment(slow)})
            pid = self.processes[reader].pid
            self.wait_until(lambda pid=pid: harness.has_open(pid, self.data_dir), "a worker that reads")
            time.sleep(0.5)  # the others have read all
            self.kill(victim)
            self.assertEqual(list(self.model_dir.glob("*ckpt*")), [])

    def test_frozen(self) -> None:
        for victim in VICTIMS:
            self.begin(*ENDLESS, IMPATIENCE, SAVES)
            self.wait_for_a_save()
            self.wait_for_steps(4)
            self.processes[victim].send_signal(signal.SIGSTOP)
            self.wait_for_others(victim)
            self.processes[victim].send_signal(signal.SIGCONT)
            outcome = self.finish(self.processes[victim])
            self.assertEqual(outcome.code, 138, outcome.told)
            # If it was the chief, it has saved no step but those that all have done.
            self.assert_as_alone(*ENDLESS)
        self.assert_goes_on()


if __name__ == "__main__":
    harness.main()
