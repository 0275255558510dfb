"""With --on_peer_loss=restart the workers that are left go on, with the same bits, and take a worker back."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

from official.faults import harness, workers
from official.faults.programs import PROGRAMS
from official.faults.workers import REPLICAS, tf_configs

STEPS = 1500
FLAGS = (
    "--train_epochs=10000",
    "--epochs_between_evals=10000",
    "--save_checkpoints_steps=100",
    f"--max_train_steps={STEPS}",
)
# Of a program with longer steps.
FEW_STEPS = 60
SHORT = (f"--max_train_steps={FEW_STEPS}", "--save_checkpoints_steps=10")
ELASTIC = ("--on_peer_loss=restart", "--peer_timeout_secs=2", "--start_timeout_secs=60")
SECONDS_TO_NEXT_STEP = 3


class ElasticTest(workers.WorkersCase):
    def setUp(self) -> None:
        super().setUp()
        if not hasattr(getattr(self, self._testMethodName), "program"):
            self.program = PROGRAMS["ncf"]  # its steps are the shortest
            self.write_data(self.data_dir)
        self.model_dir = self.folder / "model"
        self.logs: list[Path] = []

    def start_elastic(
        self, configs: list[str], *flags: str, number: int | None = None, special: int | None = None, env: dict | None = None
    ) -> list[subprocess.Popen]:
        """Starts all workers, or one of them; one may have a further environment. Each writes to a file of its own, so
        that it can be read meanwhile."""
        processes = []
        for i, config in enumerate(configs):
            if number not in (None, i):
                continue
            directory = self.model_dir if i == 0 else "/dev/null/none"
            replicas = f"--num_replicas={REPLICAS}"
            batch = workers.BATCH.get(self.program.name, ())
            command = self.command(directory, *batch, *FLAGS, *ELASTIC, replicas, *flags)
            self.logs.append(self.folder / f"log{len(self.logs)}")
            with self.logs[-1].open("w") as log:
                process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env={**os.environ, "TF_CONFIG": config, "OMP_NUM_THREADS": "1", **(env if i == special else {})},
                )
            self.addCleanup(lambda process=process: (process.kill(), process.wait()))
            processes.append(process)
        return processes

    def told(self) -> str:
        def end_of(log: Path) -> str:
            lines = [line for line in log.read_text().splitlines() if "loss =" not in line]
            return "\n".join(lines[-20:])

        return "\n".join(f"--- {log.name}\n{end_of(log)}" for log in self.logs)

    def code(self, process: subprocess.Popen, deadline: float = harness.DEADLINE) -> int:
        try:
            code = process.wait(timeout=deadline)
        except subprocess.TimeoutExpired:
            self.fail(f"a worker is not done after {deadline} s\n{self.told()}")
        return code if code >= 0 else 128 - code

    def wait_for(self, what: str, condition, deadline: float = harness.DEADLINE) -> None:
        until = time.monotonic() + deadline
        while not condition():
            self.assertLess(time.monotonic(), until, f"no {what} after {deadline} s\n{self.told()}")
            time.sleep(0.005)

    def records(self) -> int:
        """The number of losses in metric.log, which has one of each step."""
        log = self.model_dir / "metric.log"
        return sum('"loss"' in line for line in log.read_text().splitlines()) if log.exists() else 0

    def wait_for_step(self, step: int) -> None:
        self.wait_for(f"checkpoint of step {step}", lambda: harness.latest_step(self.model_dir) >= step)

    def wait_for_log(self, log: Path, words: str, deadline: float = harness.DEADLINE) -> None:
        self.wait_for(f"'{words}' in {log.name}", lambda: re.search(words, log.read_text()), deadline)

    def expect_bits_of_one_process(self, *flags: str, steps: int = STEPS) -> None:
        alone = self.folder / "alone"
        batch = workers.BATCH.get(self.program.name, ())
        outcome = self.execute(self.command(alone, *batch, *FLAGS, f"--num_cpu_devices={REPLICAS}", *flags))
        self.assertEqual(outcome.code, 0, outcome.told)
        self.assert_same_checkpoint(self.model_dir, alone, self.told(), step=steps)

    def seconds_to_next_step(self, act) -> float:
        """Does something, and returns after how long the run trains a step that it had not trained before."""
        before = max((json.loads(line)["global_step"] for line in self.losses()), default=0)
        act()
        start = time.monotonic()
        known = len(self.losses())
        # What comes after the restart begins with the step after a checkpoint.
        self.wait_for(
            "step after the restart",
            lambda: any(json.loads(line)["global_step"] <= before for line in self.losses()[known:])
            or harness.latest_step(self.model_dir) > before,
        )
        return time.monotonic() - start

    def losses(self) -> list[str]:
        log = self.model_dir / "metric.log"
        lines = log.read_text().splitlines(keepends=True) if log.exists() else []
        return [line for line in lines if line.endswith("\n") and '"loss"' in line]

    # ---- Workers that are lost ----

    def test_a_worker_is_killed_and_comes_back(self) -> None:
        configs = tf_configs(3)
        processes = self.start_elastic(configs)
        self.wait_for_step(200)
        descriptors = len(os.listdir(f"/proc/{processes[0].pid}/fd"))
        seconds = self.seconds_to_next_step(processes[2].kill)
        print(f"{seconds:.2f} s from the kill to the next step", file=sys.stderr)
        self.assertLess(seconds, SECONDS_TO_NEXT_STEP, self.told())
        for log in self.logs[:2]:
            self.assertRegex(log.read_text(), r"worker 2 at 127\.0\.0\.1:\d+ was lost \(.*; the others go on")
        # In its place one comes back; it takes part from a checkpoint on.
        processes += self.start_elastic(configs, number=2)
        self.wait_for_log(self.logs[0], "worker 2 at .* waits to take part")
        self.wait_for_log(self.logs[3], "start|resume|device")
        self.wait_for_log(self.logs[0], "another worker takes part from there on")
        self.assertLess(len(os.listdir(f"/proc/{processes[0].pid}/fd")), descriptors + 8)
        for process in (processes[0], processes[1], processes[3]):
            self.assertEqual(self.code(process), 0, self.told())
        self.assertIn("trained to step", self.logs[3].read_text())
        self.expect_bits_of_one_process()

    def test_while_data_are_read(self) -> None:
        # The one whose data take long sees it, too.
        slow = self.with_fault(self.data_dir, "slow", 1, call="read", seconds=6)
        processes = self.start_elastic(tf_configs(3), special=1, env=slow)
        self.wait_for_log(self.logs[2], "cluster of")
        time.sleep(2)
        processes[2].kill()
        for log in self.logs[:2]:
            self.wait_for_log(log, r"begins again \(1\)", deadline=SECONDS_TO_NEXT_STEP)
        for process in processes[:2]:
            self.assertEqual(self.code(process), 0, self.told())
        self.expect_bits_of_one_process()

    @harness.of_every_program
    def test_the_others_go_on(self) -> None:
        processes = self.start_elastic(tf_configs(3), *SHORT)
        self.wait_for_step(20)
        processes[1].kill()
        for process in (processes[0], processes[2]):
            self.assertEqual(self.code(process), 0, self.told())
        self.assertIn("begins again (1)", self.logs[2].read_text())
        self.expect_bits_of_one_process(*SHORT, steps=FEW_STEPS)

    def test_a_run_that_may_not_resume_another_goes_on_with_itself(self) -> None:
        processes = self.start_elastic(tf_configs(2), "--resume=never")
        self.wait_for_step(100)
        processes[1].kill()
        self.assertEqual(self.code(processes[0]), 0, self.told())
        self.assertIn("begins again (1)", self.logs[0].read_text())
        self.expect_bits_of_one_process()

    def test_one_after_the_other_is_killed(self) -> None:
        processes = self.start_elastic(tf_configs(4))
        for i, worker in enumerate((1, 3, 2)):
            self.wait_for_step(200 * (i + 1))
            processes[worker].kill()
        self.assertEqual(self.code(processes[0]), 0, self.told())
        self.assertEqual(self.logs[0].read_text().count("was lost"), 3, self.told())
        self.expect_bits_of_one_process()

    def test_a_worker_that_was_frozen_comes_back_by_itself(self) -> None:
        processes = self.start_elastic(tf_configs(3))
        self.wait_for_step(100)
        processes[1].send_signal(signal.SIGSTOP)
        self.wait_for_log(self.logs[0], "worker 1 at .* was lost")
        step = harness.latest_step(self.model_dir)
        self.wait_for_step(step + 100)
        processes[1].send_signal(signal.SIGCONT)
        self.wait_for_log(self.logs[0], "another worker takes part from there on")
        for process in processes:
            self.assertEqual(self.code(process), 0, self.told())
        self.expect_bits_of_one_process()

    def test_a_worker_that_is_asked_to_stop_leaves_the_others(self) -> None:
        processes = self.start_elastic(tf_configs(3))
        self.wait_for_step(100)
        processes[2].terminate()
        self.assertEqual(self.code(processes[2]), 143, self.told())
        for process in processes[:2]:
            self.assertEqual(self.code(process), 0, self.told())
        self.expect_bits_of_one_process()

    def test_the_chief_ends_the_run(self) -> None:
        for number, ask in enumerate((subprocess.Popen.terminate, subprocess.Popen.kill)):
            with self.subTest(ask.__name__):
                self.model_dir = self.folder / f"model{number}"
                processes = self.start_elastic(tf_configs(2))
                self.wait_for_step(100)
                ask(processes[0])
                self.assertEqual(self.code(processes[1], deadline=30), 138, self.told())
                self.code(processes[0])

    # ---- How many there have to be ----

    def test_with_fewer_than_min_workers_the_run_waits(self) -> None:
        configs = tf_configs(2)
        processes = self.start_elastic(configs, "--min_workers=2")
        self.wait_for_step(100)
        processes[1].kill()
        self.wait_for_log(self.logs[0], "waiting for worker 1 at", deadline=30)
        step = harness.latest_step(self.model_dir)
        time.sleep(1)
        self.assertEqual(harness.latest_step(self.model_dir), step)
        processes += self.start_elastic(configs, "--min_workers=2", number=1)
        for process in (processes[0], processes[2]):
            self.assertEqual(self.code(process), 0, self.told())
        self.expect_bits_of_one_process()

    def test_a_run_begins_without_a_worker_that_does_not_come(self) -> None:
        configs = tf_configs(3)
        processes = []
        for number in (0, 1):
            processes += self.start_elastic(configs, "--min_workers=2", "--start_timeout_secs=3", number=number)
        for process in processes:
            self.assertEqual(self.code(process), 0, self.told())
        self.assertIn("goes on without worker 2", self.logs[0].read_text())
        self.expect_bits_of_one_process()

    def test_without_its_last_worker_a_run_ends(self) -> None:
        processes = self.start_elastic(tf_configs(2), "--min_workers=2", "--start_timeout_secs=4")
        self.wait_for_step(100)
        processes[1].kill()
        self.assertEqual(self.code(processes[0], deadline=30), 138, self.told())
        self.assertIn("after 4 s there is no worker 1", self.logs[0].read_text())

    # ---- Who comes late ----

    def test_who_comes_late_with_another_flag_changes_nothing(self) -> None:
        configs = tf_configs(2)
        processes = self.start_elastic(configs)
        self.wait_for_step(100)
        processes[1].kill()
        self.wait_for_log(self.logs[0], "was lost")
        (other,) = self.start_elastic(configs, "--learning_rate=0.5", number=1)
        self.assertEqual(self.code(other), 2, self.told())
        self.assertIn("worker 1 has flag --learning_rate 0.5, but worker 0 has", self.logs[-1].read_text())
        self.assertEqual(self.code(processes[0]), 0, self.told())
        self.expect_bits_of_one_process()

    def test_who_still_waits_at_the_end_is_done_too(self) -> None:
        configs = tf_configs(2)
        rare = ("--save_checkpoints_steps=1000000",)
        processes = self.start_elastic(configs, *rare)
        self.wait_for("step", lambda: self.records() > 50)
        processes[1].kill()
        self.wait_for_log(self.logs[0], "was lost")
        (late,) = self.start_elastic(configs, *rare, number=1)
        self.wait_for_log(self.logs[0], "waits to take part")
        self.assertEqual(self.code(processes[0]), 0, self.told())
        self.assertEqual(self.code(late), 0, self.told())

    def test_flags_that_do_not_fit(self) -> None:
        for flags, words in (
            (("--min_workers=1", "--on_peer_loss=exit"), "give --on_peer_loss=restart, too, or leave it out"),
            (("--min_workers=3",), "TF_CONFIG describes only 2 workers"),
        ):
            with self.subTest(flags):
                for process in self.start_elastic(tf_configs(2), *flags):
                    self.assertEqual(self.code(process), 2, self.told())
                self.assertIn(words, self.logs[-1].read_text())


if __name__ == "__main__":
    harness.main()
