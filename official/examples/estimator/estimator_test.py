"""The example learns, as every task of a run. Usage: MODULE ESTIMATOR_MAIN"""

import json
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from official.workers import launchers

STEPS = 125


def evaluations(stdout: str) -> list[dict]:
    records = [json.loads(line) for line in stdout.splitlines()]
    return [record for record in records if record["event"] == "evaluation"]


class EstimatorTest(unittest.TestCase):
    program: str

    def setUp(self) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)

    def command(self, model_dir: str, *flags: str) -> list[str]:
        return [self.program, f"--model_dir={self.folder / model_dir}", "--output=json", *flags]

    def checkpoint(self, model_dir: str) -> bytes:
        return (self.folder / model_dir / f"model.ckpt-{STEPS}.data-00000-of-00001").read_bytes()

    def train(self, model_dir: str, *flags: str) -> list[dict]:
        ended = launchers.execute(self.command(model_dir, *flags))
        self.assertEqual(ended.code, 0, ended.stderr)
        return evaluations(ended.stdout)

    def test_it_learns_and_evaluates_after_each_epoch(self) -> None:
        results = self.train("alone")
        self.assertEqual([result["global_step"] for result in results], [25, 50, 75, 100, STEPS])
        self.assertLess(results[-1]["loss"], 1e-12)
        # Again there is nothing to do.
        self.assertEqual(self.train("alone"), [])

    def test_it_learns_in_every_type(self) -> None:
        for dtype in ("bf16", "fp16"):
            with self.subTest(dtype):
                self.assertLess(self.train(dtype, f"--dtype={dtype}")[-1]["loss"], 1e-4)

    def test_flags_without_effect_change_nothing(self) -> None:
        ended = launchers.execute(self.command("own", "--save_meta_graph", f"--export_dir={self.folder / 'export'}"))
        self.assertEqual(ended.code, 0, ended.stderr)
        for flag in ("save_meta_graph", "export_dir"):
            self.assertIn(f"--{flag} has no effect here: the example exports nothing", ended.stderr)
        self.assertEqual(list(self.folder.rglob("*.meta")), [])
        self.assertFalse((self.folder / "export").exists())

    def test_workers_and_an_evaluator_end_as_two_devices(self) -> None:
        self.train("mirrored", "--num_cpu_devices=2")
        chief, worker = (f"127.0.0.1:{port}" for port in launchers.free_ports(2))
        cluster = {"chief": [chief], "worker": [worker], "evaluator": ["127.0.0.1:1"]}
        tasks = [{"cluster": cluster, "task": {"type": job, "index": 0}} for job in cluster]
        # The evaluator alone could wait; the others have no use for its flag.
        command = self.command("workers", "--eval_start_delay_secs=0")
        *trained, evaluated = launchers.start_each(command, [{"TF_CONFIG": json.dumps(task)} for task in tasks])
        self.assertEqual([ended.code for ended in (*trained, evaluated)], [0, 0, 0], (trained, evaluated))
        self.assertEqual([evaluations(ended.stdout) for ended in trained], [[], []])
        last = evaluations(evaluated.stdout)[-1]
        self.assertEqual(last["global_step"], STEPS)
        self.assertLess(last["loss"], 1e-12)
        self.assertEqual(self.checkpoint("workers"), self.checkpoint("mirrored"))

    def test_the_cluster_of_the_document_has_parameter_servers(self) -> None:
        """Three workers and two ps, the index of a task as text."""
        addresses = [f"127.0.0.1:{port}" for port in launchers.free_ports(5)]
        cluster = {"worker": addresses[:3], "ps": addresses[3:]}
        tasks = [
            {"cluster": cluster, "task": {"type": job, "index": str(index)}}
            for job, hosts in cluster.items()
            for index in range(len(hosts))
        ]
        command = self.command("servers", "--sync_replicas", "--max_train_steps=200", "--train_epochs=100")
        chief, *others = launchers.start_each(command, [{"TF_CONFIG": json.dumps(task)} for task in tasks])
        self.assertEqual([ended.code for ended in (chief, *others)], [0] * 5, (chief, others))
        self.assertEqual([ended.stdout for ended in others], [""] * 4)
        last = evaluations(chief.stdout)[-1]
        self.assertEqual(last["global_step"], 200)
        self.assertLess(last["loss"], 1e-12)

    def test_servers_that_wait_for_a_client_run_the_workers(self) -> None:
        self.train("mirrored", "--num_cpu_devices=2")
        addresses = [f"127.0.0.1:{port}" for port in launchers.free_ports(2)]
        for address in addresses:
            server = subprocess.Popen(
                [self.program, f"--serve={address}", "--insecure_cluster"],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )  # fmt: skip
            self.addCleanup(lambda server=server: (server.kill(), server.wait()))
        remote_cluster = f"--remote_cluster={json.dumps({'worker': addresses})}"
        results = self.train("remote", remote_cluster, "--insecure_cluster")
        self.assertEqual(results[-1]["global_step"], STEPS)
        self.assertEqual(self.checkpoint("remote"), self.checkpoint("mirrored"))


def main() -> None:
    EstimatorTest.program = str(Path(sys.argv.pop(1)).resolve())
    unittest.main(module="__main__", verbosity=2)


if __name__ == "__main__":
    main()
