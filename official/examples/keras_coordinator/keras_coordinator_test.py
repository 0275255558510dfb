"""Model.fit learns alone and on a cluster, which does without a worker, but not without a ps.
Usage: MODULE KERAS_COORDINATOR_MAIN"""

import re
import sys
import tempfile
import unittest
from pathlib import Path
from typing import NamedTuple

from official.workers import coordinated
from official.workers.coordinated import CHIEF, RESUME_ME

LINE = re.compile(r"epoch (\d+) loss (\S+) accuracy (\S+) val_loss (\S+) val_accuracy (\S+)\n")
EVALUATED = re.compile(r"evaluated loss (\S+) accuracy (\S+)\n")
EPOCHS = 20  # enough for workers that wait long for a core, and so read old values


class Epoch(NamedTuple):
    number: int
    loss: float
    accuracy: float
    val_loss: float
    val_accuracy: float


def epochs_of(output: str) -> list[Epoch]:
    return [Epoch(int(number), *map(float, numbers)) for number, *numbers in LINE.findall(output)]


class KerasCoordinatorTest(coordinated.CoordinatedCase):
    def start(self, jobs: dict[str, int], *flags: str) -> None:
        super().start(jobs, f"--train_epochs={EPOCHS}", *flags)

    def alone(self, *flags: str) -> str:
        return super().alone(f"--train_epochs={EPOCHS}", *flags)

    def assert_learned(self, output: str, first: int = 1) -> None:
        epochs = epochs_of(output)
        self.assertEqual([epoch.number for epoch in epochs], list(range(first, EPOCHS + 1)))
        self.assertGreater(epochs[-1].accuracy, 0.99)
        self.assertGreater(epochs[-1].val_accuracy, 0.99)
        # Nothing is trained between the last validation and the evaluation.
        self.assertEqual(EVALUATED.findall(output), [(f"{epochs[-1].val_loss:g}", f"{epochs[-1].val_accuracy:g}")])

    def test_alone(self) -> None:
        output = self.alone()
        self.assert_learned(output)
        epochs = epochs_of(output)
        self.assertLess(epochs[-1].loss, 0.5 * epochs[0].loss)

    def test_a_cluster_learns_as_much(self) -> None:
        self.start_cluster()
        ended = self.finish(0)
        self.assert_learned(ended.pop(CHIEF).stdout)
        self.assertEqual({task.stdout for task in ended.values()}, {""})

    def test_one_worker_has_the_numbers_of_one_process(self) -> None:
        self.start({"chief": 1, "worker": 1, "ps": 2})
        self.assertEqual(self.finish(0)[CHIEF].stdout, self.alone())

    def test_workers_with_two_devices(self) -> None:
        self.start_cluster("--num_cpu_devices=2")
        self.assert_learned(self.finish(0)[CHIEF].stdout)

    def test_continues_from_a_checkpoint(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            self.start_cluster(f"--model_dir={folder}", "--train_epochs=2")
            first = epochs_of(self.finish(0)[CHIEF].stdout)
            more = self.alone(f"--model_dir={folder}")
            self.assert_learned(more, first=3)
            self.assertLess(epochs_of(more)[0].loss, first[0].loss)
            self.assertEqual(epochs_of(self.alone(f"--model_dir={folder}")), [])

    def test_a_worker_is_killed(self) -> None:
        last = 200
        self.start_cluster(f"--train_epochs={last}")
        self.wait_for(f"Epoch 2/{last} ", self.tasks[CHIEF].stderr)
        self.tasks["worker", 1].kill()
        ended = self.finish(0, ("worker", 1))
        self.assertEqual(epochs_of(ended[CHIEF].stdout)[-1].number, last)
        self.assertGreater(epochs_of(ended[CHIEF].stdout)[-1].val_accuracy, 0.99)
        self.assertIn(f"worker 2 at {self.addresses['worker', 1]} was lost", ended[CHIEF].stderr)

    def test_a_ps_is_killed(self) -> None:
        self.start_cluster("--train_epochs=1000000")
        self.wait_for("Epoch 2/1000000 ", self.tasks[CHIEF].stderr)
        self.tasks["ps", 1].kill()
        for ended in self.finish(RESUME_ME, ("ps", 1)).values():
            self.assertIn(f"ps 1 at {self.addresses['ps', 1]} was lost", ended.stderr.splitlines()[-1])


def main() -> None:
    KerasCoordinatorTest.program = str(Path(sys.argv.pop(1)).resolve())
    unittest.main(module="__main__", verbosity=2)


if __name__ == "__main__":
    main()
