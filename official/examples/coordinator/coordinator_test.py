"""The example trains alone and on a cluster, which does without a worker, but not without the chief or a ps.
Usage: MODULE COORDINATOR_MAIN"""

import json
import os
import re
import subprocess
import sys
import tempfile
import time
import unittest
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from official.workers import launchers

LINE = re.compile(r"epoch (\d+) loss (\S+) accuracy (\S+) eval_accuracy (\S+)\n")
EPOCHS = 5
RESUME_ME = 138  # misc::kExitResumeMe
ENDLESS = "--train_epochs=1000000"
CHIEF = ("chief", 0)


class Epoch(NamedTuple):
    number: int
    loss: float
    accuracy: float
    eval_accuracy: float


def epochs_of(output: str) -> list[Epoch]:
    return [Epoch(int(number), *map(float, numbers)) for number, *numbers in LINE.findall(output)]


class Task:
    """A process of the job, which writes to files, so that it never waits for this one."""

    def __init__(self, command: list[str], config: str, folder: Path) -> None:
        files = [tempfile.mkstemp(dir=folder) for _ in range(2)]
        self.paths = [Path(path) for _, path in files]
        self.process = subprocess.Popen(
            command,
            env={**os.environ, "TF_CONFIG": config, "OMP_NUM_THREADS": "1"},
            stdin=subprocess.DEVNULL,
            stdout=files[0][0],
            stderr=files[1][0],
        )
        for file, _ in files:
            os.close(file)

    def stdout(self) -> str:
        return self.paths[0].read_text()

    def stderr(self) -> str:
        return self.paths[1].read_text()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


class CoordinatorTest(unittest.TestCase):
    program: str

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def start(self, jobs: dict[str, int], *flags: str) -> None:
        """Starts the tasks of a cluster with so many tasks of each job."""
        self.flags = flags
        ports = iter(launchers.free_ports(sum(jobs.values())))
        cluster = {job: [f"127.0.0.1:{next(ports)}" for _ in range(count)] for job, count in jobs.items()}
        self.tasks: dict[tuple[str, int], Task] = {}
        self.addresses = {(job, i): address for job, addresses in cluster.items() for i, address in enumerate(addresses)}
        self.cluster = cluster
        for job, index in self.addresses:
            self.start_task(job, index)

    def start_task(self, job: str, index: int) -> None:
        task = json.dumps({"cluster": self.cluster, "task": {"type": job, "index": index}})
        self.tasks[job, index] = Task([self.program, *self.flags], task, self.folder)
        self.addCleanup(self.tasks[job, index].kill)

    def start_cluster(self, *flags: str) -> None:
        self.start({"chief": 1, "worker": 2, "ps": 2}, *flags)

    def wait_for(self, text: str, written: Callable[[], str]) -> None:
        until = time.monotonic() + launchers.DEADLINE
        while text not in written():
            self.assertLess(time.monotonic(), until, f"{text}: {self.tasks[CHIEF].stderr()}")
            time.sleep(0.01)

    def wait_for_epoch(self, number: int) -> None:
        self.wait_for(f"epoch {number} ", self.tasks[CHIEF].stdout)

    def finish(self, code: int, *without: tuple[str, int]) -> dict[tuple[str, int], launchers.Ended]:
        """Waits for all tasks but some, which must end with this status."""
        ended = {}
        for name, task in self.tasks.items():
            if name in without:
                continue
            returncode = task.process.wait(timeout=launchers.DEADLINE)
            ended[name] = launchers.Ended(returncode, task.stdout(), task.stderr())
        self.assertEqual({task.code for task in ended.values()}, {code}, ended)
        return ended

    def alone(self, *flags: str) -> str:
        ended = launchers.execute([self.program, *flags])
        self.assertEqual(ended.code, 0, ended.stderr)
        return ended.stdout

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

    def test_continues_from_a_checkpoint(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            self.start_cluster(f"--model_dir={folder}", "--train_epochs=2")
            first = epochs_of(self.finish(0)[CHIEF].stdout)
            # The checkpoint of two ps for a process with one.
            more = epochs_of(self.alone(f"--model_dir={folder}"))
            self.assert_learned(first + more)
            self.assertLess(more[0].loss, first[0].loss)
            self.assertEqual(self.alone(f"--model_dir={folder}"), "")

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
