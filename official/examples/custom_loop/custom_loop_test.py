"""The example trains, and alike however many devices and workers divide its batches.
Usage: MODULE CUSTOM_LOOP_MAIN LINEAR_MAIN"""

import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from official.workers import launchers

NUMBER = r"(\d+\.\d+(?:e-?\d+)?)"
LINE = re.compile(rf"epoch (\d+) loss {NUMBER} test_loss {NUMBER} test_accuracy {NUMBER}\n")
EPOCHS = 5
RESUME_ME = 138  # misc::kExitResumeMe
TEST_POINTS = 330
# A float32 has 24 bits, and a printed loss is a sum of a few of batches, divided: a few roundings.
ROUNDING = 4 * 2**-24
# Three devices also sum gradients in another order, in every step, so that a test point may come out otherwise.
ROUNDING_OF_THREE = 1e-5


class CustomLoopTest(unittest.TestCase):
    program: str
    linear_main: str
    one: list[tuple[float, ...]]

    @classmethod
    def setUpClass(cls) -> None:
        cls.one = cls.numbers(cls.output(1))

    @classmethod
    def output(cls, devices: int, *flags: str) -> str:
        ended = launchers.execute([cls.program, f"--num_cpu_devices={devices}", *flags])
        if ended.code != 0:
            raise AssertionError(ended.stderr)
        return ended.stdout

    @classmethod
    def numbers(cls, output: str) -> list[tuple[float, ...]]:
        """For each epoch its number, the loss, the test loss and the test accuracy."""
        return [tuple(map(float, line)) for line in LINE.findall(output)]

    def outputs_of_workers(self, workers: int, devices: int, *flags: str) -> set[str]:
        addresses = [f"127.0.0.1:{port}" for port in launchers.free_ports(workers)]
        processes = launchers.tf_config([self.program, f"--num_cpu_devices={devices}", *flags], addresses)
        self.assertEqual({process.code for process in processes}, {0}, processes)
        return {process.stdout for process in processes}

    def test_one_device_learns(self) -> None:
        self.assertEqual([epoch for epoch, *_ in self.one], list(range(1, EPOCHS + 1)))
        losses = [loss for _, loss, *_ in self.one]
        self.assertEqual(losses, sorted(losses, reverse=True))
        self.assertLess(losses[-1], 0.4 * losses[0])
        self.assertGreater(self.one[-1][-1], 0.95)

    def test_the_numbers_of_several_devices_differ_by_rounding(self) -> None:
        """Each device sums its own losses, so that they round in another order."""
        for devices in (2, 3, 4):
            rounding, points = (ROUNDING_OF_THREE, 1.01) if devices == 3 else (ROUNDING, 0)
            numbers = self.numbers(self.output(devices))
            self.assertEqual(len(numbers), EPOCHS)
            for (_, *losses, accuracy), (_, *losses_of_one, accuracy_of_one) in zip(numbers, self.one):
                for loss, loss_of_one in zip(losses, losses_of_one):
                    self.assertAlmostEqual(loss, loss_of_one, delta=rounding * loss_of_one)
                self.assertAlmostEqual(accuracy, accuracy_of_one, delta=points / TEST_POINTS)

    def test_one_two_and_four_devices_train_the_same_bits(self) -> None:
        digests = set()
        for devices in (1, 2, 4):
            with tempfile.TemporaryDirectory() as folder:
                self.output(devices, f"--model_dir={folder}")
                content = Path(folder, f"model.ckpt-{EPOCHS}.data-00000-of-00001").read_bytes()
                digests.add(hashlib.sha256(content).hexdigest())
        self.assertEqual(len(digests), 1)

    def test_one_copy_of_the_variables_trains_the_same_bits(self) -> None:
        checkpoints = []
        for strategy in ("mirrored", "central_storage"):
            with tempfile.TemporaryDirectory() as folder:
                self.output(3, f"--model_dir={folder}", f"--distribution_strategy={strategy}")
                checkpoints.append(Path(folder, f"model.ckpt-{EPOCHS}.data-00000-of-00001").read_bytes())
        self.assertEqual(checkpoints[0], checkpoints[1])

    def test_workers_see_what_one_process_does(self) -> None:
        self.assertEqual(self.outputs_of_workers(2, devices=1), {self.output(2)})
        self.assertEqual(self.outputs_of_workers(2, devices=2), {self.output(4)})

    def test_a_run_that_others_continue_has_the_numbers_of_one(self) -> None:
        whole = self.output(2).splitlines(keepends=True)
        with tempfile.TemporaryDirectory() as folder:
            self.assertEqual(self.output(2, "--train_epochs=1", f"--model_dir={folder}"), whole[0])
            middle = "".join(whole[1:3])
            self.assertEqual(self.outputs_of_workers(2, 1, "--train_epochs=3", f"--model_dir={folder}"), {middle})
            self.assertEqual(self.output(2, f"--model_dir={folder}"), "".join(whole[3:]))
            ended = launchers.execute([self.program, f"--model_dir={folder}"])
            self.assertEqual((ended.code, ended.stdout), (0, ""), ended.stderr)
            self.assertIn(f"nothing to do: {folder} is trained for {EPOCHS} epochs", ended.stderr)

    def test_the_directory_of_another_program_is_refused(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            self.assertEqual(launchers.execute([self.linear_main, folder]).code, 0)
            ended = launchers.execute([self.program, f"--model_dir={folder}"])
        self.assertEqual((ended.code, ended.stdout), (2, ""), ended.stderr)
        self.assertRegex(ended.stderr, "has no variable test_.*; restore it with the program that has trained it")

    def start_workers(self, *flags_of: tuple[str, ...]) -> tuple[list[str], list[subprocess.Popen]]:
        """Starts a worker with each of these flags, and returns their addresses, too."""
        addresses = [f"127.0.0.1:{port}" for port in launchers.free_ports(len(flags_of))]
        cluster = {"worker": addresses}
        processes = []
        for index, flags in enumerate(flags_of):
            task = json.dumps({"cluster": cluster, "task": {"type": "worker", "index": index}})
            process = subprocess.Popen(
                [self.program, *flags],
                env={**os.environ, "TF_CONFIG": task},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            self.addCleanup(process.kill)
            processes.append(process)
        return addresses, processes

    def test_a_lost_worker_ends_the_other_which_names_it(self) -> None:
        endless = ("--train_epochs=1000000",)
        addresses, processes = self.start_workers(endless, endless)
        self.assertIn("epoch 1 ", processes[0].stdout.readline())
        processes[1].kill()
        _, stderr = processes[0].communicate(timeout=launchers.DEADLINE)
        processes[1].communicate()
        self.assertEqual(processes[0].returncode, RESUME_ME, stderr)
        self.assertIn(f"worker 1 at {addresses[1]}", stderr.splitlines()[-1])

    def test_a_directory_that_one_worker_has_all_must_have(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            for worker in (0, 1):
                flags_of: list[tuple[str, ...]] = [(), ()]
                flags_of[worker] = (f"--model_dir={folder}",)
                has = ["none", "none"]
                has[worker] = folder
                for process in self.start_workers(*flags_of)[1]:
                    _, stderr = process.communicate(timeout=launchers.DEADLINE)
                    self.assertEqual(process.returncode, 2, stderr)
                    self.assertIn(f"worker 1 has flag --model_dir {has[1]}, but worker 0 has {has[0]}; ", stderr)

    def test_an_evaluator_is_no_worker(self) -> None:
        task = {"cluster": {"worker": ["127.0.0.1:1"]}, "task": {"type": "evaluator", "index": 0}}
        ended = launchers.execute([self.program], env={"TF_CONFIG": json.dumps(task)})
        self.assertEqual(ended.code, 2, ended.stderr)
        self.assertIn("Unrecognized task_type: 'evaluator', valid task types are: \"chief\", \"worker\".", ended.stderr)

    def test_no_devices(self) -> None:
        ended = launchers.execute([self.program, "--num_cpu_devices=0"])
        self.assertEqual(ended.code, 2)
        self.assertIn("flag --num_cpu_devices=0: needs an integer, at least 1", ended.stderr)


def main() -> None:
    CustomLoopTest.program, CustomLoopTest.linear_main = (str(Path(sys.argv.pop(1)).resolve()) for _ in range(2))
    unittest.main(module="__main__", verbosity=2)


if __name__ == "__main__":
    main()
