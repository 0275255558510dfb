"""A worker that is slower than the others is named, and so is one that others wait for; the bits stay the same."""

import re
import signal
import sys
import time

from official.faults import harness, workers
from official.faults.losses import PATIENCE
from official.faults.programs import PROGRAMS
from official.faults.workers import AS_MANY_REPLICAS, REPLICAS, addresses_of, tf_configs

STEPS = 2500
FLAGS = ("--train_epochs=10000", "--epochs_between_evals=10000", f"--max_train_steps={STEPS}", "--log_every_n_steps=100")


class StragglerTest(workers.WorkersCase):
    def setUp(self) -> None:
        super().setUp()
        self.program = PROGRAMS["ncf"]  # its steps are the shortest
        self.write_data(self.data_dir)
        self.model_dir = self.folder / "model"
        self.configs = tf_configs(3)
        self.logs = [self.folder / f"log of worker {i}" for i in range(3)]
        flags, log_of = (*FLAGS, AS_MANY_REPLICAS, PATIENCE), dict(enumerate(self.logs))
        self.processes = self.start_workers(self.model_dir, 3, *flags, log_of=log_of, configs=self.configs)
        self.wait_for_records(self.model_dir, 1)

    def outcomes(self) -> list[harness.Outcome]:
        """Of the workers, which end with the bits of one process."""
        outcomes = [self.finish(process) for process in self.processes]
        for outcome in outcomes:
            self.assertEqual(outcome.code, 0, outcome.told)
        alone = self.folder / "alone"
        outcome = self.execute(self.command(alone, *FLAGS, f"--num_cpu_devices={REPLICAS}"))
        self.assertEqual(outcome.code, 0, outcome.told)
        self.assert_same_checkpoint(self.model_dir, alone, step=STEPS)
        return outcomes

    def test_a_slow_worker(self) -> None:
        names = re.compile(r"(.*) keeps the others waiting: it computes for ([\d.]+) ms a step and replica")

        def is_named() -> bool:
            # It has a tenth of the time. Where it is stopped while it waits itself, that is not its work.
            self.processes[1].send_signal(signal.SIGSTOP)
            time.sleep(0.09)
            self.processes[1].send_signal(signal.SIGCONT)
            time.sleep(0.005)
            return bool(names.search(self.logs[0].read_text()))

        self.wait_until(is_named, "somebody is named", self.logs[0].read_text)
        chief = self.outcomes()[0]
        address = addresses_of(self.configs)[1]
        named = names.findall(chief.stderr)
        print(named, file=sys.stderr)
        for name, _ in named:
            self.assertIn(f"worker 1 at {address}", name, chief.told)

    def test_a_worker_that_is_waited_for(self) -> None:
        self.processes[2].send_signal(signal.SIGSTOP)
        words = f"has waited 10 s for worker 2 at {addresses_of(self.configs)[2]}"

        def is_told() -> bool:
            return any(words in log.read_text() for log in self.logs[:2])

        self.wait_until(is_told, words, self.logs[0].read_text)
        self.processes[2].send_signal(signal.SIGCONT)
        self.outcomes()


if __name__ == "__main__":
    harness.main()
