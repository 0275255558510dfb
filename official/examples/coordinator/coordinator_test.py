"""The example trains alone and on a cluster, which does without a worker, but not without the chief or a ps.
Usage: MODULE COORDINATOR_MAIN"""

import re
import sys
import tempfile
import unittest
from pathlib import Path
from typing import NamedTuple

from official.workers import coordinated, launchers
from official.workers.coordinated import CHIEF, RESUME_ME

LINE = re.compile(r"epoch (\d+) loss (\S+) accuracy (\S+) eval_accuracy (\S+)\n")
EPOCHS = 5
ENDLESS = "--train_epochs=1000000"


class Epoch(NamedTuple):
    number: int
    loss: float
    accuracy: float
    eval_accuracy: float


def epochs_of(output: str) -> list[Epoch]:
    return [Epoch(int(number), *map(float, numbers)) for number, *numbers in LINE.findall(output)]


class CoordinatorTest(coordinated.CoordinatedCase):
    def assert_learned(self, epochs: list[Epoch], last: int = EPOCHS) -> None:
        self.assertEqual([epoch.number for epoch in epochs], list(range(1, last + 1)))
        self.assertLess(epochs[-1].loss, 0.5 * epochs[0].loss)
        self.assertGreater(epochs[-1].accuracy, 0.99)
        self.assertGreater(epochs[-1].eval_accuracy, 0.99)

    def test_alone(self) -> None:
        self.assert_learned(epochs_of(self.alone()))

    def test_a_cluster_learns_as_much(self) -> None:
        self.start_cluster()
        ended = self.finish(0)
        self.assert_learned(epochs_of(ended.pop(CHIEF).stdout))
        self.assertEqual({task.stdout for task in ended.values()}, {""})

    def test_one_worker_has_the_numbers_of_one_process(self) -> None:
        self.start({"chief": 1, "worker": 1, "ps": 2})
        self.assertEqual(self.finish(0)[CHIEF].stdout, self.alone())

    def test_workers_with_two_devices(self) -> None:
        self.start_cluster("--num_cpu_devices=2")
        self.assert_learned(epochs_of(self.finish(0)[CHIEF].stdout))

    def test_continues_from_a_checkpoint(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            self.start_cluster(f"--model_dir={folder}", "--train_epochs=2")
            first = epochs_of(self.finish(0)[CHIEF].stdout)
            # The checkpoint of two ps for a process with one.
            more = epochs_of(self.alone(f"--model_dir={folder}"))
            self.assert_learned(first + more)
            self.assertLess(more[0].loss, first[0].loss)
            ended = launchers.execute([self.program, f"--model_dir={folder}"])
            self.assertEqual((ended.code, ended.stdout), (0, ""), ended.stderr)
            self.assertIn(f"nothing to do: {folder} is trained for {EPOCHS} epochs", ended.stderr)

    # ---- Losses ----

    def test_a_worker_is_killed(self) -> None:
        last = 300
        self.start_cluster(f"--train_epochs={last}")
        self.wait_for_epoch(2)
        self.tasks["worker", 1].kill()
        ended = self.finish(0, ("worker", 1))
        self.assertEqual(epochs_of(ended[CHIEF].stdout)[-1].number, last)
        self.assertIn(f"worker 2 at {self.addresses['worker', 1]} was lost", ended[CHIEF].stderr)
        self.assertIn("; another worker runs '", ended[CHIEF].stderr)

    def test_all_workers_are_killed_and_one_comes_back(self) -> None:
        last = 300
        self.start_cluster(f"--train_epochs={last}")
        self.wait_for_epoch(2)
        for index in range(2):
            self.tasks["worker", index].kill()
        self.wait_for("no worker is left; waits up to 3600 s for one of worker 1 at", self.tasks[CHIEF].stderr)
        self.wait_for(self.addresses["worker", 1], self.tasks[CHIEF].stderr)
        self.start_task("worker", 1)
        ended = self.finish(0, ("worker", 0))
        self.assertEqual(epochs_of(ended[CHIEF].stdout)[-1].number, last)
        self.assertIn(f"worker 2 at {self.addresses['worker', 1]} is back and runs functions again", ended[CHIEF].stderr)

    def test_a_ps_is_killed(self) -> None:
        self.start_cluster(ENDLESS)
        self.wait_for_epoch(2)
        self.tasks["ps", 1].kill()
        for ended in self.finish(RESUME_ME, ("ps", 1)).values():
            self.assertIn(f"ps 1 at {self.addresses['ps', 1]} was lost", ended.stderr.splitlines()[-1])

    def test_the_chief_is_killed(self) -> None:
        self.start_cluster(ENDLESS)
        self.wait_for_epoch(2)
        self.tasks[CHIEF].kill()
        for ended in self.finish(RESUME_ME, CHIEF).values():
            self.assertIn(f"worker 0 at {self.addresses[CHIEF]} was lost", ended.stderr.splitlines()[-1])

    # ---- What is refused ----

    def assert_refused(self, jobs: dict[str, int], message: str) -> None:
        self.start(jobs)
        for ended in self.finish(2).values():
            self.assertIn(message, ended.stderr)

    def test_no_ps(self) -> None:
        self.assert_refused({"chief": 1, "worker": 1}, "There must be at least one ps.")

    def test_no_worker(self) -> None:
        self.assert_refused({"chief": 1, "ps": 1}, "There must be at least one worker.")

    def test_no_chief(self) -> None:
        self.assert_refused({"worker": 1, "ps": 1}, "TF_CONFIG describes no chief, which is the coordinator")

    def test_an_evaluator_is_outside(self) -> None:
        self.start({"chief": 1, "worker": 1, "ps": 1, "evaluator": 1})
        evaluator = self.tasks.pop(("evaluator", 0))
        returncode = evaluator.process.wait(timeout=launchers.DEADLINE)
        stderr = evaluator.stderr()
        self.assertEqual(returncode, 2, stderr)
        self.assertIn("Unrecognized task_type: 'evaluator', valid task types are: \"chief\", \"worker\", \"ps\".", stderr)
        self.finish(0)


def main() -> None:
    CoordinatorTest.program = str(Path(sys.argv.pop(1)).resolve())
    unittest.main(module="__main__", verbosity=2)


if __name__ == "__main__":
    main()
