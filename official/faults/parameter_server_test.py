"""Training with parameter servers: it has the bits of one process where there is one worker, and goes on when another
worker is lost, but not without a server or the chief."""

import ast
import json
import re
import signal
import subprocess
import time

from official.faults import harness, losses, workers
from official.faults.losses import ENDLESS, PATIENCE, SOON

HALF = harness.STEPS // 2
ALL_STEPS = 24  # of the three epochs, with batches of 8
MANY = 300  # steps, which take some seconds


class ParameterServerTest(workers.WorkersCase):
    def setUp(self) -> None:
        super().setUp()
        self.model_dir, self.alone = self.folder / "model", self.folder / "alone"

    def begin(self, num_workers: int, num_servers: int, *flags: str) -> list[subprocess.Popen]:
        """Starts a chief, the other workers and then the servers."""
        self.addresses = workers.free_addresses(num_workers + num_servers)
        cluster = {
            "chief": self.addresses[:1],
            "worker": self.addresses[1:num_workers],
            "ps": self.addresses[num_workers:],
        }
        if num_workers == 1:
            del cluster["worker"]
        tasks = [("chief", 0), *(("worker", i) for i in range(num_workers - 1))]
        tasks += (("ps", i) for i in range(num_servers))
        configs = [json.dumps({"cluster": cluster, "task": {"type": job, "index": i}}) for job, i in tasks]
        return self.start_workers(self.model_dir, len(tasks), *flags, configs=configs)

    def finish_all(self, processes: list[subprocess.Popen]) -> list[harness.Outcome]:
        """Waits for all, which must succeed; only the chief has results."""
        outcomes = [self.finish(process) for process in processes]
        for outcome in outcomes:
            self.assertEqual(outcome.code, 0, "\n".join(o.told for o in outcomes))
        for outcome in outcomes[1:]:
            self.assertEqual(outcome.stdout, "", outcome.told)
        return outcomes

    def train_with_servers(self, num_workers: int, num_servers: int, steps: int, *flags: str) -> None:
        self.finish_all(self.begin(num_workers, num_servers, f"--max_train_steps={steps}", *flags))

    def train_one(self, steps: int) -> None:
        """Trains in one process."""
        self.train(self.alone, steps, *workers.BATCH.get(self.program.name, ()))

    # ---- Bits ----

    def assert_bits_of_one_process(self, num_servers: int, *flags: str) -> None:
        self.train_one(harness.STEPS)
        self.train_with_servers(1, num_servers, harness.STEPS, *flags)
        self.assert_same_checkpoint(self.model_dir, self.alone)
        self.assert_same_metrics(self.model_dir, self.alone)

    def test_one_server(self) -> None:
        self.assert_bits_of_one_process(1)

    def test_two_servers(self) -> None:
        self.assert_bits_of_one_process(2)

    @harness.of("resnet")
    def test_batch_normalization(self) -> None:
        self.assert_bits_of_one_process(2)

    @harness.of("ncf")
    def test_embeddings(self) -> None:
        self.assert_bits_of_one_process(2, "--ps_placement=greedy")

    @harness.of("transformer")
    def test_shared_embedding(self) -> None:
        self.assert_bits_of_one_process(2)

    def test_continues_alone_and_back(self) -> None:
        self.train_one(harness.STEPS)
        self.train_with_servers(1, 2, HALF)
        self.train(self.model_dir, HALF + 5, *workers.BATCH["mnist"])
        self.train_with_servers(1, 1, harness.STEPS)
        self.assert_same_checkpoint(self.model_dir, self.alone)

    # ---- Several workers ----

    def test_workers_share_the_epochs(self) -> None:
        outcomes = self.finish_all(self.begin(3, 2))
        self.assertEqual(harness.latest_step(self.model_dir), ALL_STEPS, outcomes[0].told)
        self.assertIn(f"'global_step': {ALL_STEPS}", outcomes[0].stdout)
        for outcome in self.finish_all(self.begin(3, 2))[:3]:
            self.assertIn(f"is trained to step {ALL_STEPS}", outcome.stderr)

    def begin_with_slow_worker(self, epochs: int, *flags: str) -> list[subprocess.Popen]:
        """Starts two workers and a server, and stops worker 1 until the chief has done its part and has told so."""
        epochs_flags = (f"--train_epochs={epochs}", f"--epochs_between_evals={epochs}")
        processes = self.begin(2, 1, *epochs_flags, "--peer_timeout_secs=60", *flags)
        self.wait_for_records(self.model_dir, 1)
        processes[1].send_signal(signal.SIGSTOP)
        self.wait_for_records(self.model_dir, ALL_STEPS // 3 * epochs // 2)
        time.sleep(3)  # it tells after a second
        processes[1].send_signal(signal.SIGCONT)
        return processes

    def test_the_chief_waits_for_a_slow_worker(self) -> None:
        outcomes = self.finish_all(self.begin_with_slow_worker(9))
        self.assertIn(f"waiting for worker 1 at {self.addresses[1]}", outcomes[0].stderr, outcomes[0].told)
        self.assertEqual(harness.latest_step(self.model_dir), 3 * ALL_STEPS, outcomes[0].told)

    def test_evaluator_beside_a_slow_worker(self) -> None:
        # Each step is saved, but none before the last counts as that.
        config = json.dumps({"cluster": {"chief": ["localhost:1"]}, "task": {"type": "evaluator", "index": 0}})
        epochs = ("--train_epochs=9", "--epochs_between_evals=9")
        flags = ("--separate_evaluator", "--eval_start_delay_secs=0", "--eval_throttle_secs=0", "--save_checkpoints_steps=1")
        evaluator = self.start_worker(self.model_dir, 0, config, *epochs, *flags)
        processes = self.begin_with_slow_worker(9, *flags)
        outcome = self.finish(evaluator)
        self.assertEqual(outcome.code, 0, outcome.told)
        self.assertIn(f"'global_step': {3 * ALL_STEPS}", outcome.stdout, outcome.told)
        for process in processes:
            self.assertEqual(self.finish(process).stdout.count("Evaluation results"), 0)

    def test_max_train_steps_counts_all_workers(self) -> None:
        self.finish_all(self.begin(2, 2, f"--max_train_steps={HALF}", "--train_epochs=100"))
        self.assertIn(harness.latest_step(self.model_dir), (HALF, HALF + 1))

    # ---- Synchronous steps ----

    def assert_evaluates_like(self, outcome: harness.Outcome, expected: harness.Outcome) -> None:
        results = [re.findall(r"\{'.*\}", o.stdout) for o in (outcome, expected)]
        ours, theirs = (ast.literal_eval(lines[-1]) for lines in results)
        self.assertEqual(ours.keys(), theirs.keys())
        for name, value in theirs.items():
            self.assertAlmostEqual(ours[name], value, delta=1e-6 * abs(value), msg=outcome.told)

    def test_synchronous_workers_are_replicas(self) -> None:
        steps = 3  # of whole batches; the evaluation has as many, too
        flags = ("--sync_replicas", "--batch_size=10", f"--max_train_steps={steps}")
        outcomes = self.finish_all(self.begin(2, 2, *flags))
        self.assertEqual(harness.latest_step(self.model_dir), steps, outcomes[0].told)
        alone = self.run_steps(self.alone, steps, "--num_cpu_devices=2", "--batch_size=20")
        self.assert_evaluates_like(outcomes[0], alone)

    def test_stopped_worker_is_not_waited_for(self) -> None:
        flags = ("--sync_replicas", "--replicas_to_aggregate=2", f"--max_train_steps={MANY}", "--peer_timeout_secs=60")
        processes = self.begin(3, 2, *ENDLESS, *flags)
        self.wait_for_records(self.model_dir, 4)
        processes[2].send_signal(signal.SIGSTOP)
        self.wait_for_records(self.model_dir, MANY - 1)
        processes[2].send_signal(signal.SIGCONT)
        self.finish_all(processes)

    def test_lost_worker_of_synchronous_steps(self) -> None:
        processes = self.begin(3, 2, *ENDLESS, "--sync_replicas", f"--max_train_steps={MANY}", PATIENCE)
        self.wait_for_records(self.model_dir, 4)
        lost = processes.pop(2)
        lost.kill()
        self.finish(lost)
        self.finish_all(processes)
        self.assertEqual(harness.latest_step(self.model_dir), MANY)

    def test_several_gradients_of_a_worker(self) -> None:
        outcomes = self.finish_all(self.begin(2, 1, "--sync_replicas", "--replicas_to_aggregate=4"))
        # Who ends first leaves the last steps to the other one, and half as many gradients to each.
        self.assertGreaterEqual(harness.latest_step(self.model_dir), ALL_STEPS // 4, outcomes[0].told)
        self.assertLess(harness.latest_step(self.model_dir), ALL_STEPS // 2, outcomes[0].told)

    def test_staleness(self) -> None:
        flags = ("--max_gradient_staleness=0", f"--max_train_steps={MANY}")
        processes = self.begin(3, 2, *ENDLESS, *flags)
        outcomes = self.finish_all(processes)
        events = b"".join(path.read_bytes() for path in self.model_dir.glob("events.out.*"))
        self.assertIn(b"Gradient staleness percentage", events)
        # Three workers at the same speed are seldom alone.
        self.assertRegex(outcomes[3].stderr, r"dropped [0-9]+ gradients that were of older steps than others")

    # ---- Losses ----

    def begin_endless(self) -> list[subprocess.Popen]:
        """Starts three workers and two servers that train until something happens, and waits for some steps."""
        processes = self.begin(3, 2, *ENDLESS, PATIENCE)
        self.wait_for_records(self.model_dir, 4)
        return processes

    def assert_end(self, processes: list[subprocess.Popen], *words: str) -> None:
        for process in processes:
            self.assert_refused(self.finish(process, SOON + losses.HANG), 138, *words)

    def test_worker_killed(self) -> None:
        processes = self.begin(3, 2, *ENDLESS, f"--max_train_steps={MANY}", PATIENCE)
        self.wait_for_records(self.model_dir, 4)
        lost = processes.pop(2)
        lost.kill()
        self.finish(lost)
        outcomes = self.finish_all(processes)
        self.assertGreaterEqual(harness.latest_step(self.model_dir), MANY)
        for outcome in outcomes[2:]:
            self.assertIn(f"worker 2 at {self.addresses[2]} was lost", outcome.stderr)
            self.assertIn("the others train on without it", outcome.stderr)

    def test_worker_stopped(self) -> None:
        processes = self.begin(2, 1, *ENDLESS, f"--max_train_steps={MANY}", PATIENCE)
        self.wait_for_records(self.model_dir, 4)
        processes[1].send_signal(signal.SIGTERM)
        outcome = self.finish(processes.pop(1))
        self.assertEqual(outcome.code, 128 + signal.SIGTERM)
        self.assertIn("the other workers train on without this one", outcome.error)
        self.finish_all(processes)
        self.assertGreaterEqual(harness.latest_step(self.model_dir), MANY)

    def test_server_killed(self) -> None:
        processes = self.begin_endless()
        lost = processes.pop(4)
        lost.kill()
        self.finish(lost)
        self.assert_end(processes, f"ps 1 at {self.addresses[4]} was lost", "start all workers again")

    def test_server_stopped(self) -> None:
        processes = self.begin_endless()
        processes[3].send_signal(signal.SIGTERM)
        self.assertEqual(self.finish(processes.pop(3)).code, 128 + signal.SIGTERM)
        self.assert_end(processes, "ps 0 has failed: it was asked to stop")

    def test_chief_killed(self) -> None:
        processes = self.begin_endless()
        lost = processes.pop(0)
        lost.kill()
        self.finish(lost)
        self.assert_end(processes, f"worker 0 at {self.addresses[0]} was lost")

    def test_chief_stopped(self) -> None:
        processes = self.begin_endless()
        processes[0].send_signal(signal.SIGTERM)
        outcome = self.finish(processes.pop(0))
        self.assertEqual(outcome.code, 128 + signal.SIGTERM, outcome.told)
        step = harness.latest_step(self.model_dir)
        self.assertGreater(step, 4)
        self.assert_end(processes, "worker 0")
        self.finish_all(self.begin(2, 1, *ENDLESS, f"--max_train_steps={step + 5}"))
        self.assertGreaterEqual(harness.latest_step(self.model_dir), step + 5)

    # ---- What is refused ----

    def test_more_servers_than_variables(self) -> None:
        processes = self.begin(1, 9, "--max_train_steps=3", PATIENCE)
        outcomes = [self.finish(process) for process in processes]
        self.assertNotEqual({outcome.code for outcome in outcomes}, {0})
        told = "\n".join(outcome.error for outcome in outcomes)
        self.assertIn("the cluster has 9 ps, and of the 8 variables of model mnist, which are placed on them in turn, ps 0", told)

    def test_no_servers(self) -> None:
        outcome = self.run_steps(self.model_dir, 3, "--distribution_strategy=parameter_server")
        self.assert_refused(outcome, 2, "--distribution_strategy=parameter_server", "needs to have `ps` jobs")


if __name__ == "__main__":
    harness.main()
