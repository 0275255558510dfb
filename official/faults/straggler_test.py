"""A worker that is slower than the others is named, and so is one that others wait for; the bits stay the same."""

import re
import signal
import sys
import time

from official.faults import harness, workers
from official.faults.programs import PROGRAMS
from official.faults.workers import REPLICAS, addresses_of, tf_configs

SECONDS = 12  # longer than it takes until a wait is told of
MOST_SECONDS = 33  # three times as long as it takes until somebody is named
STEPS = 2500
FLAGS = ("--train_epochs=10000", "--epochs_between_evals=10000", f"--max_train_steps={STEPS}", "--log_every_n_steps=100")


class StragglerTest(workers.WorkersCase):
    def setUp(self) -> None:
        super().setUp()
        self.program = PROGRAMS["ncf"]  # its steps are the shortest
        self.write_data(self.data_dir)
        self.model_dir = self.folder / "model"
        self.configs = tf_configs(3)
        replicas = f"--num_replicas={REPLICAS}"
        patient = "--peer_timeout_secs=60"
        self.processes = self.start_workers(self.model_dir, 3, *FLAGS, replicas, patient, configs=self.configs)
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
        # It has a tenth of the time. Where it is stopped while it waits itself, that is not its work.
        until = time.monotonic() + MOST_SECONDS
        while time.monotonic() < until and self.processes[1].poll() is None:
            self.processes[1].send_signal(signal.SIGSTOP)
            time.sleep(0.09)
            self.processes[1].send_signal(signal.SIGCONT)
            time.sleep(0.01)
        chief = self.outcomes()[0]
        address = addresses_of(self.configs)[1]
        named = re.findall(r"(.*) keeps the others waiting: it computes for ([\d.]+) ms a step and replica", chief.stderr)
        print(named, file=sys.stderr)
        self.assertTrue(named, chief.told)
        for name, _ in named:
            self.assertIn(f"worker 1 at {address}", name, chief.told)

    def test_a_worker_that_is_waited_for(self) -> None:
        self.processes[2].send_signal(signal.SIGSTOP)
        time.sleep(SECONDS)
        self.processes[2].send_signal(signal.SIGCONT)
        told = "".join(outcome.stderr for outcome in self.outcomes()[:2])
        self.assertIn(f"has waited 10 s for worker 2 at {addresses_of(self.configs)[2]}", told)


if __name__ == "__main__":
    harness.main()
