"""An evaluator beside the workers: each checkpoint is evaluated once, and neither side needs the other to live."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path

from official.faults import harness, workers

AT_ONCE = ("--eval_start_delay_secs=0", "--eval_throttle_secs=0")
# There is always another step to do.
ENDLESS = (
    "--train_epochs=1000000",
    "--epochs_between_evals=1000000",
    "--save_checkpoints_steps=50",
    "--log_every_n_steps=100000",
)
LOOKS = 3  # seconds: the chief looks for the evaluator once a second
LAST = 1000  # step, to which a chief gets in some seconds


def evaluations(stdout: str) -> list[dict]:
    """What a process with --output=json has evaluated."""
    records = [json.loads(line) for line in stdout.splitlines()]
    return [record for record in records if record["event"] == "evaluation"]


class EvaluatorTest(workers.WorkersCase):
    def setUp(self) -> None:
        super().setUp()
        self.model_dir = self.folder / "model"
        self.evaluated = self.model_dir / "eval" / "evaluated_step"

    def start_evaluator(self, *flags: str, cluster: dict | None = None) -> subprocess.Popen:
        # Nobody connects to its workers, and it need not be in the cluster itself.
        config = {"cluster": cluster or {"chief": ["127.0.0.1:1"]}, "task": {"type": "evaluator", "index": 0}}
        command = self.command(self.model_dir, *workers.BATCH.get(self.program.name, ()), "--output=json", *flags)
        return self.start(command, env={**os.environ, "TF_CONFIG": json.dumps(config)})

    def start_chief(self, *flags: str, log: Path | None = None) -> subprocess.Popen:
        batch = workers.BATCH.get(self.program.name, ())
        return self.start(self.command(self.model_dir, *batch, "--separate_evaluator", *flags), log=log)

    def wait_until_evaluated(self, step: int) -> int:
        """Waits until a step after this one is evaluated, and returns it."""

        def is_evaluated() -> bool:
            return self.evaluated.exists() and int(self.evaluated.read_text()) > step

        self.wait_until(is_evaluated, f"an evaluation of a step after {step}")
        return int(self.evaluated.read_text())

    @harness.of_every_program
    def test_the_evaluator_has_the_results(self) -> None:
        addresses = workers.free_addresses(2)
        cluster = {"worker": addresses, "evaluator": ["127.0.0.1:1"]}
        configs = [json.dumps({"cluster": cluster, "task": {"type": "worker", "index": i}}) for i in (0, 1)]
        to_the_end = f"--max_train_steps={harness.STEPS}"
        evaluator = self.start_evaluator(*AT_ONCE, to_the_end, cluster=cluster)
        flags = ("--num_cpu_devices=2", to_the_end, "--save_checkpoints_steps=7", "--output=json")
        processes = self.start_workers(self.model_dir, 2, *flags, configs=configs)
        for process in processes:
            outcome = self.finish(process)
            self.assertEqual(outcome.code, 0, outcome.told)
            self.assertEqual(evaluations(outcome.stdout), [], outcome.told)
        outcome = self.finish(evaluator)
        self.assertEqual(outcome.code, 0, outcome.told)
        results = evaluations(outcome.stdout)
        steps = [result["global_step"] for result in results]
        self.assertEqual(steps, sorted(set(steps)), outcome.told)
        self.assertEqual(steps[-1], harness.STEPS, outcome.told)
        self.assertEqual(list((self.model_dir / "eval").glob("*.lock")), [])
        batch = workers.BATCH.get(self.program.name, ())
        once = self.execute(self.command(self.model_dir, *batch, to_the_end, "--eval_only", "--output=json"))
        self.assertEqual(evaluations(once.stdout)[-1], results[-1], once.told)

    def test_none_is_missed_that_there_is_time_for(self) -> None:
        chief = self.start_chief(*ENDLESS, "--save_checkpoints_steps=1000000000", "--keep_checkpoint_max=100")
        evaluator = self.start_evaluator(*AT_ONCE, *ENDLESS, "--num_cpu_devices=2")
        self.wait_until(lambda: any(self.model_dir.glob("model.ckpt-*.index")), "a checkpoint")
        step = self.wait_until_evaluated(-1)
        for _ in range(4):
            chief.send_signal(signal.SIGUSR2)
            step = self.wait_until_evaluated(step)
        saved = sorted(int(path.stem.split("-")[1]) for path in self.model_dir.glob("model.ckpt-*.index"))
        evaluator.send_signal(signal.SIGTERM)
        outcome = self.finish(evaluator)
        self.assertEqual(outcome.code, 143, outcome.told)
        self.assertGreaterEqual(len(saved), 4)
        self.assertEqual([result["global_step"] for result in evaluations(outcome.stdout)], saved, outcome.told)
        self.assertRegex(outcome.stderr, r"device cpu:0 \(.*\), cpu:1 ")
        chief.send_signal(signal.SIGTERM)
        self.assertEqual(self.finish(chief).code, 143)

    def test_the_evaluator_is_killed(self) -> None:
        log = self.folder / "log of the chief"
        chief = self.start_chief(*ENDLESS, log=log)
        first = self.start_evaluator(*AT_ONCE, *ENDLESS)
        step = self.wait_until_evaluated(0)
        time.sleep(LOOKS)
        self.wait_until_evaluated(step)  # the chief has not stood still meanwhile
        first.kill()
        outcome = self.finish(first)
        seen = [result["global_step"] for result in evaluations(outcome.stdout)]
        self.wait_for_log(log, rf"W \d.*the evaluator \(process {first.pid} on .*\) has gone; the training goes on")
        second = self.start_evaluator(*AT_ONCE, *ENDLESS)
        self.wait_until_evaluated(self.wait_until_evaluated(max(seen)))
        second.send_signal(signal.SIGTERM)
        ended = self.finish(second)
        self.assertEqual(ended.code, 143, ended.told)
        seen += [result["global_step"] for result in evaluations(ended.stdout)]
        self.assertEqual(seen, sorted(set(seen)), "a step was evaluated twice")
        chief.send_signal(signal.SIGTERM)
        outcome = self.finish(chief)
        self.assertEqual(outcome.code, 143, outcome.told)

    def test_the_chief_is_killed(self) -> None:
        chief = self.start_chief(*ENDLESS, f"--max_train_steps={LAST - 50}")
        evaluator = self.start_evaluator(*AT_ONCE, *ENDLESS, f"--max_train_steps={LAST}")
        step = self.wait_until_evaluated(0)
        chief.kill()
        self.finish(chief)
        self.assertLess(harness.latest_step(self.model_dir), LAST)
        outcome = self.finish(self.start_chief(*ENDLESS, f"--max_train_steps={LAST}"))
        self.assertEqual(outcome.code, 0, outcome.told)
        ended = self.finish(evaluator)
        self.assertEqual(ended.code, 0, ended.told)
        steps = [result["global_step"] for result in evaluations(ended.stdout)]
        self.assertEqual(steps, sorted(set(steps)), ended.told)
        self.assertIn(step, steps)
        self.assertEqual(steps[-1], LAST)

    def test_a_second_evaluator_is_refused(self) -> None:
        self.train(self.model_dir, harness.STEPS, "--separate_evaluator")
        first = self.start_evaluator(*AT_ONCE, *ENDLESS)
        self.wait_until_evaluated(harness.STEPS - 1)
        self.assert_refused(self.finish(self.start_evaluator(*AT_ONCE, *ENDLESS)), 73, "in use by", first.pid)
        first.send_signal(signal.SIGTERM)
        self.assertEqual(self.finish(first).code, 143)

    def test_nobody_trains(self) -> None:
        outcome = self.finish(self.start_evaluator("--eval_timeout_secs=1"))
        self.assert_refused(outcome, 69, "no new checkpoint for 1 s", "the first checkpoint", "is the chief training")
        self.assertFalse(Path(self.model_dir).exists())


if __name__ == "__main__":
    harness.main()
