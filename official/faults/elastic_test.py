"""With --on_peer_loss=restart the workers that are left go on, with the same bits, and take a worker back."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from official.faults import harness, workers
from official.faults.losses import IMPATIENCE, PATIENCE
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
ELASTIC = ("--on_peer_loss=restart", PATIENCE)


class ElasticTest(workers.WorkersCase):
    def setUp(self) -> None:
        super().setUp()
        if not hasattr(getattr(self, self._testMethodName), "program"):
            self.program = PROGRAMS["ncf"]  # its steps are the shortest
            self.write_data(self.data_dir)
        self.model_dir = self.folder / "model"
        self.logs: list[Path] = []

    def start_elastic(
        self, configs: list[str], *flags: str, number: int | None = None, prefix_of: dict | None = None
    ) -> list[subprocess.Popen]:
        """Starts all workers, or one of them; `prefix_of` has what stands before the command of some. Each has a log
        file of its own, also one that is started again."""
        processes = []
        for i, config in enumerate(configs):
            if number not in (None, i):
                continue
            self.logs.append(self.folder / f"log{len(self.logs)}")
            process = self.start_worker(
                self.model_dir,
                i,
                config,
                *FLAGS,
                *ELASTIC,
                workers.AS_MANY_REPLICAS,
                *flags,
                prefix=(prefix_of or {}).get(i, ()),
                log=self.logs[-1],
            )
            processes.append(process)
        return processes

    def start_late(self, chief: subprocess.Popen, configs: list[str], number: int, *flags: str) -> subprocess.Popen:
        """Starts a worker of a run that goes on. The chief stands still until the worker looks for it: however long a
        program takes to start, the run is not over by then."""
        chief.send_signal(signal.SIGSTOP)
        (process,) = self.start_elastic(configs, *flags, number=number)
        self.wait_for_log(self.logs[-1], "cluster of")
        chief.send_signal(signal.SIGCONT)
        return process

    def told(self) -> str:
        def end_of(log: Path) -> str:
            lines = [line for line in log.read_text().splitlines() if "loss =" not in line]
            return "\n".join(lines[-20:])

        return "\n".join(f"--- {log.name}\n{end_of(log)}" for log in self.logs)

    def code(self, process: subprocess.Popen) -> int:
        return self.finish(process).code

    def wait_for_step(self, step: int) -> None:
        what = f"the checkpoint of step {step}"
        self.wait_until(lambda: harness.latest_step(self.model_dir) >= step, what, self.told)

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
        self.wait_until(
            lambda: any(json.loads(line)["global_step"] <= before for line in self.losses()[known:])
            or harness.latest_step(self.model_dir) > before,
            "a step after the restart",
            self.told,
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
        open_files = f"/proc/{processes[0].pid}/fd"
        descriptors = len(os.listdir(open_files))
        seconds = self.seconds_to_next_step(processes[2].kill)
        print(f"{seconds:.2f} s from the kill to the next step", file=sys.stderr)
        for log in self.logs[:2]:
            self.assertRegex(log.read_text(), r"worker 2 at 127\.0\.0\.1:\d+ was lost \(.*; the others go on")
        # In its place one comes back; it takes part from a checkpoint on.
        processes.append(self.start_late(processes[0], configs, 2))
        self.wait_for_log(self.logs[0], "worker 2 at .* waits to take part")
        self.wait_for_log(self.logs[3], "start|resume|device")
        self.wait_for_log(self.logs[0], "another worker takes part from there on")
        self.wait_until(lambda: len(os.listdir(open_files)) < descriptors + 8, "as few open files as before", self.told)
        for process in (processes[0], processes[1], processes[3]):
            self.assertEqual(self.code(process), 0, self.told())
        self.assertIn("trained to step", self.logs[3].read_text())
        self.expect_bits_of_one_process()

    def test_while_data_are_read(self) -> None:
        # The one whose data take long sees it, too.
        is_read = self.folder / "is read"
        slow = self.with_fault(self.data_dir, "slow", 1, call="read", until=is_read)
        processes = self.start_elastic(tf_configs(3), prefix_of={1: workers.with_environment(slow)})
        self.wait_until(lambda: harness.has_open(processes[1].pid, self.data_dir), "a worker that reads", self.told)
        time.sleep(0.5)  # the others have read all
        processes[2].kill()
        for log in self.logs[:2]:
            self.wait_for_log(log, r"begins again \(1\)")
        is_read.touch()
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
        processes = self.start_elastic(tf_configs(3), IMPATIENCE)
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
                # Whether the chief begins again is known after so long a time.
                processes = self.start_elastic(tf_configs(2), IMPATIENCE)
                self.wait_for_step(100)
                ask(processes[0])
                self.assertEqual(self.code(processes[1]), 138, self.told())
                self.code(processes[0])

    # ---- How many there have to be ----

    def test_with_fewer_than_min_workers_the_run_waits(self) -> None:
        configs = tf_configs(2)
        processes = self.start_elastic(configs, "--min_workers=2")
        self.wait_for_step(100)
        processes[1].kill()
        self.wait_for_log(self.logs[0], "waiting for worker 1 at")
        step = harness.latest_step(self.model_dir)
        time.sleep(1)
        self.assertEqual(harness.latest_step(self.model_dir), step)
        processes += self.start_elastic(configs, "--min_workers=2", number=1)
        for process in (processes[0], processes[2]):
            self.assertEqual(self.code(process), 0, self.told())
        self.expect_bits_of_one_process()

    def start_chief_last(self, configs: list[str], seconds: int) -> list[subprocess.Popen]:
        """Starts the chief and worker 1, for which the chief waits so long: it is there before."""
        (worker,) = self.start_elastic(configs, "--min_workers=2", number=1)
        self.wait_for_log(self.logs[0], "cluster of")
        return self.start_elastic(configs, "--min_workers=2", f"--start_timeout_secs={seconds}", number=0) + [worker]

    def test_a_run_begins_without_a_worker_that_does_not_come(self) -> None:
        for process in self.start_chief_last(tf_configs(3), seconds=4):
            self.assertEqual(self.code(process), 0, self.told())
        self.assertIn("goes on without worker 2", self.logs[1].read_text())
        self.expect_bits_of_one_process()

    def test_without_its_last_worker_a_run_ends(self) -> None:
        processes = self.start_chief_last(tf_configs(2), seconds=4)
        self.wait_for_step(100)
        processes[1].kill()
        self.assertEqual(self.code(processes[0]), 138, self.told())
        self.assertIn("after 4 s there is no worker 1", self.logs[1].read_text())

    # ---- Who comes late ----

    def test_who_comes_late_with_another_flag_changes_nothing(self) -> None:
        configs = tf_configs(2)
        processes = self.start_elastic(configs)
        self.wait_for_step(100)
        processes[1].kill()
        self.wait_for_log(self.logs[0], "was lost")
        other = self.start_late(processes[0], configs, 1, "--learning_rate=0.5")
        self.assertEqual(self.code(other), 2, self.told())
        self.assertIn("worker 1 has flag --learning_rate 0.5, but worker 0 has", self.logs[-1].read_text())
        self.assertEqual(self.code(processes[0]), 0, self.told())
        self.expect_bits_of_one_process()

    def test_who_still_waits_at_the_end_is_done_too(self) -> None:
        configs = tf_configs(2)
        rare = ("--save_checkpoints_steps=1000000",)
        processes = self.start_elastic(configs, *rare)
        self.wait_for_records(self.model_dir, 50)
        processes[1].kill()
        self.wait_for_log(self.logs[0], "was lost")
        late = self.start_late(processes[0], configs, 1, *rare)
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
