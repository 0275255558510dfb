"""Training with parameter servers: it has the bits of one process where there is one worker, and goes on when another
worker is lost, which may come back, but not without a server or the chief."""

import ast
import json
import re
import signal
import struct
import subprocess
from collections.abc import Sequence
from pathlib import Path

from official.faults import harness, workers
from official.faults.losses import ENDLESS, IMPATIENCE, PATIENCE

HALF = harness.STEPS // 2
ALL_STEPS = 24  # of the three epochs, with batches of 8
SOME, MANY = 60, 150  # steps; many take some seconds
EPOCH_STEPS = ALL_STEPS // 3
SHORT, LONG = 15, 45  # epochs; a long run is not over before a worker has come back, a short one is held until then


def epochs_flags(epochs: int) -> tuple[str, ...]:
    """Trains so many epochs, and evaluates at the end."""
    return (f"--train_epochs={epochs}", f"--epochs_between_evals={epochs}")


def as_float32(value: float) -> float:
    return struct.unpack("f", struct.pack("f", value))[0]


class ParameterServerTest(workers.WorkersCase):
    def setUp(self) -> None:
        super().setUp()
        self.model_dir, self.alone = self.folder / "model", self.folder / "alone"

    def begin(
        self, num_workers: int, num_servers: int, *flags: str, watched: Sequence[int] = ()
    ) -> list[subprocess.Popen]:
        """Starts a chief, the other workers and then the servers. The `watched` tasks write their logs to files."""
        self.addresses, self.num_workers = workers.free_addresses(num_workers + num_servers), num_workers
        tasks = range(num_workers + num_servers)
        return [self.start_task(task, *flags, log=task if task in watched else None) for task in tasks]

    def start_task(
        self, number: int, *flags: str, address: str | None = None, log: int | str | None = None
    ) -> subprocess.Popen:
        """Starts the chief, another worker or a server, by its place in `addresses`; `address` is another one for it.
        With `log`, a name, its log goes to a file."""
        addresses, end = list(self.addresses), self.num_workers
        addresses[number] = address or addresses[number]
        cluster = {"chief": addresses[:1], "worker": addresses[1:end], "ps": addresses[end:]}
        if end == 1:
            del cluster["worker"]
        job, index = ("chief", 0) if number == 0 else ("worker", number - 1) if number < end else ("ps", number - end)
        config = json.dumps({"cluster": cluster, "task": {"type": job, "index": index}})
        prefix = () if log is None else ("sh", "-c", f"exec \"$@\" 2>'{self.log_of(log)}'", "sh")
        return self.start_worker(self.model_dir, number, config, *flags, prefix=prefix)

    def log_of(self, task: int | str) -> Path:
        return self.folder / f"log of {task}"

    def wait_for_log(self, task: int | str, words: str) -> None:
        """Waits until the log of a watched task has these words."""

        def text() -> str:
            return self.log_of(task).read_text() if self.log_of(task).exists() else ""

        self.wait_until(lambda: words in text(), f"{words!r} in the log of {task}", text)

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

    def train_one(self, steps: int, *flags: str) -> None:
        """Trains in one process."""
        self.train(self.alone, steps, *workers.BATCH.get(self.program.name, ()), *flags)

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

    def test_shards(self) -> None:
        # More servers than whole variables: without shards there would be an error.
        self.assert_bits_of_one_process(9, "--ps_partitioner=fixed_size:3")

    @harness.of("resnet")
    def test_shards_and_moving_averages(self) -> None:
        self.assert_bits_of_one_process(2, "--ps_partitioner=fixed_size:2")

    @harness.of("ncf")
    def test_shards_of_embeddings(self) -> None:
        self.assert_bits_of_one_process(3, "--ps_placement=greedy", "--ps_partitioner=max_size:512")

    @harness.of("transformer")
    def test_shards_of_shared_embedding(self) -> None:
        self.assert_bits_of_one_process(2, "--ps_partitioner=min_size:4096")

    def assert_bits_of_one_process_with_devices(self) -> None:
        devices = "--num_cpu_devices=2"
        self.train_one(harness.STEPS, devices)
        self.train_with_servers(1, 2, harness.STEPS, devices)
        self.assert_same_checkpoint(self.model_dir, self.alone)
        # The losses of two devices are added as float32 here, as float64 in one process without micro-batches.
        (ours, our_last), (theirs, their_last) = map(harness.metrics, (self.model_dir, self.alone))
        self.assertEqual(ours, {step: set(map(as_float32, values)) for step, values in theirs.items()})
        for name, value in their_last.items():
            self.assertIn(our_last[name], (value, as_float32(value)), name)

    @harness.of("resnet")
    def test_devices_and_batch_normalization(self) -> None:
        self.assert_bits_of_one_process_with_devices()

    @harness.of("ncf")
    def test_devices_and_embeddings(self) -> None:
        self.assert_bits_of_one_process_with_devices()

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

    def stop_before_it_trains(self, process: subprocess.Popen, watched: int) -> None:
        """Stops a worker when the watched task has begun: all have joined by then, and none has trained. After some
        steps of the chief, which writes files, the worker may have done all of its own, however few they are."""
        self.wait_for_log(watched, "strategy parameter_server")
        process.send_signal(signal.SIGSTOP)

    def begin_with_stopped_worker(self, epochs: int, *flags: str) -> list[subprocess.Popen]:
        """Starts two workers and a server, stops worker 1, and waits until the chief has done its part and says so."""
        processes = self.begin(2, 1, *epochs_flags(epochs), PATIENCE, *flags, watched=[0])
        self.stop_before_it_trains(processes[1], watched=0)
        self.wait_for_log(0, f"waiting for worker 1 at {self.addresses[1]}")
        return processes

    def begin_with_slow_worker(self, epochs: int, *flags: str) -> list[subprocess.Popen]:
        """Starts such a job, and lets worker 1 go on."""
        processes = self.begin_with_stopped_worker(epochs, *flags)
        processes[1].send_signal(signal.SIGCONT)
        return processes

    def test_the_chief_waits_for_a_slow_worker(self) -> None:
        outcomes = self.finish_all(self.begin_with_slow_worker(9))
        self.assertEqual(harness.latest_step(self.model_dir), 3 * ALL_STEPS, outcomes[0].told)

    def test_evaluator_beside_a_slow_worker(self) -> None:
        # Each step is saved, but none before the last counts as that.
        config = json.dumps({"cluster": {"chief": ["localhost:1"]}, "task": {"type": "evaluator", "index": 0}})
        flags = ("--separate_evaluator", "--eval_start_delay_secs=0", "--eval_throttle_secs=0", "--save_checkpoints_steps=1")
        evaluator = self.start_worker(self.model_dir, 0, config, *epochs_flags(9), *flags)
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

    def assert_synchronous_workers_are_replicas(self) -> None:
        steps = 3  # of whole batches; the evaluation has as many, too
        flags = ("--sync_replicas", "--batch_size=10", f"--max_train_steps={steps}")
        outcomes = self.finish_all(self.begin(2, 2, *flags))
        self.assertEqual(harness.latest_step(self.model_dir), steps, outcomes[0].told)
        alone = self.run_steps(self.alone, steps, "--num_cpu_devices=2", "--batch_size=20")
        self.assert_evaluates_like(outcomes[0], alone)

    def test_synchronous_workers_are_replicas(self) -> None:
        self.assert_synchronous_workers_are_replicas()

    @harness.of("ncf")
    def test_synchronous_embeddings(self) -> None:
        self.assert_synchronous_workers_are_replicas()

    def test_synchronous_workers_share_the_epochs(self) -> None:
        outcomes = self.finish_all(self.begin(2, 1, "--sync_replicas", "--log_every_n_steps=1"))
        self.assertEqual(harness.latest_step(self.model_dir), ALL_STEPS // 2, outcomes[0].told)
        self.assertIn(f"100% of {ALL_STEPS // 2} steps", outcomes[0].stderr)

    def test_stopped_worker_is_not_waited_for(self) -> None:
        flags = ("--sync_replicas", "--replicas_to_aggregate=2", f"--max_train_steps={SOME}", PATIENCE)
        processes = self.begin(3, 2, *ENDLESS, *flags)
        self.wait_for_records(self.model_dir, 4)
        processes[2].send_signal(signal.SIGSTOP)
        self.wait_for_records(self.model_dir, SOME - 1)
        processes[2].send_signal(signal.SIGCONT)
        self.finish_all(processes)

    def test_lost_worker_of_synchronous_steps(self) -> None:
        processes = self.begin(3, 2, *ENDLESS, "--sync_replicas", f"--max_train_steps={SOME}", PATIENCE)
        self.wait_for_records(self.model_dir, 4)
        lost = processes.pop(2)
        lost.kill()
        self.finish(lost)
        self.finish_all(processes)
        self.assertEqual(harness.latest_step(self.model_dir), SOME)

    def test_several_gradients_of_a_worker(self) -> None:
        outcomes = self.finish_all(self.begin(2, 1, "--sync_replicas", "--replicas_to_aggregate=4"))
        # Who ends first leaves the last steps to the other one, and half as many gradients to each.
        self.assertGreaterEqual(harness.latest_step(self.model_dir), ALL_STEPS // 4, outcomes[0].told)
        self.assertLess(harness.latest_step(self.model_dir), ALL_STEPS // 2, outcomes[0].told)

    def test_staleness(self) -> None:
        flags = ("--max_gradient_staleness=0", f"--max_train_steps={SOME}")
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
            self.assert_refused(self.finish(process), 138, *words)

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
        # A worker may not have heard from the chief that all must start again.
        self.assert_end(processes, f"ps 1 at {self.addresses[4]} was lost", "start ", " again")

    def test_server_stopped(self) -> None:
        processes = self.begin_endless()
        processes[3].send_signal(signal.SIGTERM)
        self.assertEqual(self.finish(processes.pop(3)).code, 128 + signal.SIGTERM)
        self.assert_end(processes, f"ps 0 at {self.addresses[3]} has failed: it was asked to stop")

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

    # ---- A worker that comes back ----

    def begin_epochs(self, epochs: int, patience: str) -> list[subprocess.Popen]:
        """Starts three workers and two servers. The first server is watched."""
        self.flags, self.all_steps = (*epochs_flags(epochs), patience), epochs * EPOCH_STEPS
        return self.begin(3, 2, *self.flags, watched=[3])

    def begin_long(self, patience: str = PATIENCE) -> list[subprocess.Popen]:
        """A job that goes on for some ten seconds, after some steps."""
        processes = self.begin_epochs(LONG, patience)
        self.wait_for_records(self.model_dir, 4)
        return processes

    def begin_held(self) -> list[subprocess.Popen]:
        """A short job, after some steps. Its worker 2 stands still: it does not end before `end_held`."""
        processes = self.begin_epochs(SHORT, PATIENCE)
        self.stop_before_it_trains(processes[2], watched=3)
        self.wait_for_records(self.model_dir, 4)
        return processes

    def end_held(self, processes: list[subprocess.Popen]) -> list[harness.Outcome]:
        """Starts worker 1 of such a job again, lets the job go on when it takes part, and waits for its end."""
        processes[1] = self.start_again(log="again")
        self.wait_for_log("again", "joins the job at step")
        processes[2].send_signal(signal.SIGCONT)
        return self.assert_all_is_trained(processes)

    def start_again(self, *flags: str, address: str | None = None, log: str | None = None) -> subprocess.Popen:
        """Starts worker 1 of the job again."""
        return self.start_task(1, *self.flags, *flags, address=address, log=log)

    def kill(self, process: subprocess.Popen) -> None:
        process.kill()
        self.finish(process)

    def assert_all_is_trained(self, processes: list[subprocess.Popen]) -> list[harness.Outcome]:
        """All succeed, and the job has trained on every batch of every worker once."""
        outcomes = self.finish_all(processes)
        self.assertEqual(harness.latest_step(self.model_dir), self.all_steps, outcomes[0].told)
        return outcomes

    def test_killed_worker_comes_back(self) -> None:
        processes = self.begin_held()
        self.kill(processes[1])
        outcomes = self.end_held(processes)
        self.assertRegex(self.log_of("again").read_text(), r"joins the job at step [1-9]")
        self.assertIn(f"worker 1 at {self.addresses[1]} takes part from now on", outcomes[0].stderr)
        self.assertIn("takes part from now on", self.log_of(3).read_text())

    def test_worker_comes_back_twice(self) -> None:
        processes = self.begin_long()
        self.kill(processes[1])
        again = self.start_again(log="again")
        self.wait_for_log("again", "joins the job at step")
        self.wait_for_records(self.model_dir, workers.count_records(self.model_dir) + 20)
        self.kill(again)
        processes[1] = self.start_again()
        self.assert_all_is_trained(processes)

    def test_worker_that_was_stopped_comes_back(self) -> None:
        processes = self.begin_held()
        processes[1].send_signal(signal.SIGTERM)
        self.assertEqual(self.finish(processes[1]).code, 128 + signal.SIGTERM)
        self.end_held(processes)

    def test_frozen_worker_is_replaced(self) -> None:
        processes = self.begin_long(IMPATIENCE)
        frozen = processes[1]
        frozen.send_signal(signal.SIGSTOP)
        self.wait_for_log(3, f"worker 1 at {self.addresses[1]} was lost")
        # The process still has its port.
        processes[1] = self.start_again(address=workers.free_addresses(1)[0], log="again")
        self.wait_for_log("again", "joins the job at step")
        frozen.send_signal(signal.SIGCONT)
        self.assert_refused(self.finish(frozen), 138, " was lost", "start this worker again: it takes part again")
        self.assert_all_is_trained(processes)

    def test_worker_comes_back_with_another_flag(self) -> None:
        processes = self.begin_held()
        self.kill(processes[1])
        outcome = self.finish(self.start_again("--batch_size=4"))
        self.assert_refused(outcome, 2, "worker 1 has flag --batch_size 4, but worker 0 has 8")
        self.end_held(processes)

    def test_worker_comes_back_with_other_data(self) -> None:
        processes = self.begin_held()
        self.kill(processes[1])
        self.data_dir = self.folder / "other data"
        self.write_data(self.data_dir, seed=2)
        outcome = self.finish(self.start_again())
        self.assert_refused(outcome, 2, "worker 1 has the data set", "give all workers the same data")
        self.data_dir = self.folder / "data"
        self.end_held(processes)

    def test_worker_that_comes_late(self) -> None:
        self.addresses, self.num_workers = workers.free_addresses(3), 2
        flags, self.all_steps = (*epochs_flags(LONG), "--start_timeout_secs=6"), LONG * EPOCH_STEPS
        chief, server = self.start_task(0, *flags, log=0), self.start_task(2, *flags)
        self.wait_for_log(0, f"goes on without worker 1 at {self.addresses[1]}")
        self.wait_for_records(self.model_dir, 4)
        outcomes = self.assert_all_is_trained([chief, self.start_task(1, *flags), server])
        self.assertRegex(outcomes[1].stderr, r"joins the job at step [1-9]")

    def test_all_continue_where_each_worker_was(self) -> None:
        flags, self.all_steps = (*epochs_flags(SHORT), PATIENCE), SHORT * EPOCH_STEPS
        processes = self.begin(2, 1, *flags)
        self.wait_for_records(self.model_dir, 4)
        processes[1].send_signal(signal.SIGSTOP)
        self.wait_for_records(self.model_dir, 20)
        processes[0].send_signal(signal.SIGTERM)
        codes = [self.finish(processes[0]).code]
        processes[1].send_signal(signal.SIGCONT)
        codes += [self.finish(process).code for process in processes[1:]]
        self.assertEqual(codes, [128 + signal.SIGTERM, 138, 138])
        self.assertLess(harness.latest_step(self.model_dir), self.all_steps)
        self.assert_all_is_trained(self.begin(2, 1, *flags))

    def test_chief_stopped_while_it_waits(self) -> None:
        flags, self.all_steps = (*epochs_flags(SHORT), PATIENCE), SHORT * EPOCH_STEPS
        processes = self.begin_with_stopped_worker(SHORT)
        processes[0].send_signal(signal.SIGTERM)
        codes = [self.finish(processes[0]).code]
        processes[1].send_signal(signal.SIGCONT)
        codes += [self.finish(process).code for process in processes[1:]]
        self.assertEqual(codes, [128 + signal.SIGTERM, 138, 138])
        self.assertLess(harness.latest_step(self.model_dir), self.all_steps)
        outcomes = self.assert_all_is_trained(self.begin(2, 1, *flags))
        self.assertEqual(outcomes[0].stdout.count("Evaluation results"), 1, outcomes[0].told)
        for outcome in self.finish_all(self.begin(2, 1, *flags))[:2]:
            self.assertIn(f"is trained to step {self.all_steps}", outcome.stderr)

    def test_chief_saves_while_it_waits(self) -> None:
        flags, self.all_steps = (*epochs_flags(SHORT), PATIENCE), SHORT * EPOCH_STEPS
        processes = self.begin_with_stopped_worker(SHORT)
        processes[0].send_signal(signal.SIGUSR2)
        self.wait_for_log(0, "on SIGUSR2")
        saved = harness.latest_step(self.model_dir)
        self.assertLess(saved, self.all_steps)
        processes[2].kill()
        processes[1].send_signal(signal.SIGCONT)
        self.assertEqual([self.finish(process).code for process in processes], [138, 138, 128 + signal.SIGKILL])
        self.assertEqual(harness.latest_step(self.model_dir), saved)
        self.assert_all_is_trained(self.begin(2, 1, *flags))

    # ---- What is refused ----

    def test_server_with_other_data(self) -> None:
        self.addresses, self.num_workers = workers.free_addresses(2), 1
        chief = self.start_task(0)
        self.data_dir = self.folder / "other data"
        self.write_data(self.data_dir, seed=2)
        for process in (chief, self.start_task(1)):
            self.assert_refused(self.finish(process), 2, f"ps 0 at {self.addresses[1]} has the data set")

    def test_more_servers_than_variables(self) -> None:
        processes = self.begin(1, 9, "--max_train_steps=3", PATIENCE)
        outcomes = [self.finish(process) for process in processes]
        self.assertNotEqual({outcome.code for outcome in outcomes}, {0})
        told = "\n".join(outcome.error for outcome in outcomes)
        self.assertIn("the cluster has 9 ps, and of the 8 variables of model mnist, which are placed on them in turn, ps 0", told)

    def test_no_servers(self) -> None:
        cluster = json.dumps({"cluster": {"worker": ["127.0.0.1:1", "127.0.0.1:2"]}, "task": {"type": "worker", "index": 0}})
        flags = ("--distribution_strategy=parameter_server",)
        outcome = self.run_steps(self.model_dir, 3, *flags, env={"TF_CONFIG": cluster})
        self.assert_refused(outcome, 2, *flags, "needs to have `ps` jobs")


if __name__ == "__main__":
    harness.main()
