"""mnist_main on the devices of a PJRT plugin, XLA for CPUs: what it computes there, and what it refuses.

Usage: MODULE MNIST_MAIN PLUGIN NO_PLUGIN OLD_PLUGIN STUCK_PLUGIN TPU_PLUGIN
"""

import array
import json
import math
import os
import random
import struct
import unittest
from pathlib import Path
from unittest import mock

from official.programs.program_test_case import ProgramTestCase, programs_of_arguments
from third_party.pjrt.plugin_of_tests import plugin_of_tests

mnist_main, xla_cpu, no_plugin, old_plugin, stuck_plugin, tpu_plugin = programs_of_arguments(6)
plugin = plugin_of_tests(xla_cpu)
TPU = ("--distribution_strategy=tpu", f"--pjrt_plugin={plugin}")
AARCH64 = 183  # e_machine in the header of ELF files, at byte 18
BATCH = 8
STEPS_PER_EPOCH = 3


def write_digits(folder: Path, prefix: str, count: int) -> None:
    """IDX files of images: a bright bar whose column is the label's, in noise."""
    noise = random.Random(prefix)
    images = bytearray(struct.pack(">4I", 0x803, count, 28, 28))
    for i in range(count):
        for p in range(28 * 28):
            dark = noise.randrange(64)
            images.append(255 - dark if p % 28 // 2 == i % 10 + 1 else dark)
    (folder / f"{prefix}-images-idx3-ubyte").write_bytes(images)
    (folder / f"{prefix}-labels-idx1-ubyte").write_bytes(struct.pack(">2I", 0x801, count) + bytes(i % 10 for i in range(count)))


class PjrtTest(ProgramTestCase):
    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        write_digits(cls.folder, "train", BATCH * STEPS_PER_EPOCH)
        write_digits(cls.folder, "t10k", 2 * BATCH)
        # What most tests begin with: two epochs of one device.
        cls.whole = cls.folder / "whole"
        cls.trained = cls.results_of(cls.whole, *TPU, "--train_epochs=2")

    @classmethod
    def run_mnist(cls, model_dir: Path, *flags: object):
        return cls.execute(mnist_main, f"--data_dir={cls.folder}", f"--model_dir={model_dir}", f"--batch_size={BATCH}",
                           "--epochs_between_evals=2", "--output=json", *flags)

    @classmethod
    def results_of(cls, model_dir: Path, *flags: object) -> list[dict]:
        done = cls.run_mnist(model_dir, *flags)
        if done.returncode != 0:
            raise AssertionError(f"{done.args}\n{done.stderr}")
        return [json.loads(line) for line in done.stdout.splitlines()]

    def assert_same_bits(self, one: Path, other: Path, step: int) -> None:
        name = f"model.ckpt-{step}.data-00000-of-00001"
        self.assertEqual((one / name).read_bytes(), (other / name).read_bytes())

    def numbers_of(self, model_dir: Path) -> array.array:
        """Some of the float32 numbers of the last checkpoint, from all tensors that are not small.

        Strings of any length are in front of them, a few integers behind.
        """
        numbers = array.array("f")
        data = (model_dir / f"model.ckpt-{2 * STEPS_PER_EPOCH}.data-00000-of-00001").read_bytes()
        numbers.frombytes(data[len(data) % 4 :])
        return numbers[64:-64:23]

    def assert_near(self, results: list[dict], want: list[dict]) -> None:
        """The first of the results, an evaluation."""
        self.assertEqual(results[0]["global_step"], want[0]["global_step"])
        self.assertAlmostEqual(results[0]["loss"], want[0]["loss"], delta=1e-5)

    def test_what_is_stopped_goes_on_with_the_same_bits(self) -> None:
        parts = self.folder / "parts"
        self.results_of(parts, *TPU, "--train_epochs=2", "--max_train_steps=4")
        self.results_of(parts, *TPU, "--train_epochs=2")
        self.assert_same_bits(self.whole, parts, 2 * STEPS_PER_EPOCH)

    def test_checkpoints_are_those_of_the_cpu(self) -> None:
        on_cpu = self.folder / "on_cpu"
        self.assert_near(self.results_of(on_cpu, "--train_epochs=2"), self.trained)
        self.assert_near(self.results_of(self.whole, "--eval_only"), self.trained)
        # Each goes on from what the other has trained.
        other = self.results_of(on_cpu, *TPU, "--train_epochs=4")
        mixed = self.folder / "mixed"
        self.results_of(mixed, *TPU, "--train_epochs=2")
        self.assert_near(self.results_of(mixed, "--train_epochs=4"), other)

    def test_predictions(self) -> None:
        images = f"--predict={self.folder}/t10k-images-idx3-ubyte"
        on_plugin = self.results_of(self.whole, *TPU, images)
        self.assertEqual(len(on_plugin), 2 * BATCH)
        for one, other in zip(on_plugin, self.results_of(self.whole, images), strict=True):
            self.assertEqual((one["index"], one["class"]), (other["index"], other["class"]))
            for p, want in zip(one["probabilities"], other["probabilities"], strict=True):
                self.assertAlmostEqual(p, want, delta=1e-5)

    def test_four_devices_train_as_four_of_the_cpu(self) -> None:
        four = ("--num_cpu_devices=4", "--train_epochs=2")
        on_plugin, on_cpu = self.folder / "four", self.folder / "four_of_cpu"
        self.assert_near(self.results_of(on_plugin, *TPU, *four), self.results_of(on_cpu, *four))
        numbers, want = self.numbers_of(on_plugin), self.numbers_of(on_cpu)
        difference = math.sqrt(sum((a - b) ** 2 for a, b in zip(numbers, want, strict=True)))
        self.assertLess(difference / math.sqrt(sum(b**2 for b in want)), 1e-5)

    def refuse(self, code: int, words: tuple[object, ...], *flags: object) -> None:
        with self.subTest(flags=flags):
            self.assert_refused(self.run_mnist(self.folder / "refused", *flags), code, *words)

    def test_plugins_that_cannot_be_used_are_refused(self) -> None:
        text = self.write("text.so", "no library\n")
        other_machine = bytearray(plugin_bytes := no_plugin.read_bytes())
        other_machine[18] = AARCH64
        arm = self.write("arm.so", bytes(other_machine))
        self.assertNotEqual(plugin_bytes, arm.read_bytes())
        for path, why in ((self.folder / "missing.so", "No such file or directory"),
                          (text, "it is no shared object"),
                          (arm, "64-bit ARM"),
                          (no_plugin, "has no function GetPjrtApi"),
                          (old_plugin, "has version 0.7 of PJRT's C interface"),
                          (tpu_plugin, "is for TPUs, and this machine has none")):
            self.refuse(2, ("--distribution_strategy=tpu: ", path, why), TPU[0], f"--pjrt_plugin={path}")

    def test_a_plugin_that_is_stuck_ends_the_run(self) -> None:
        flags = (TPU[0], f"--pjrt_plugin={stuck_plugin}", "--all_reduce_timeout_secs=2")
        words = (f"running a program: the PJRT plugin {stuck_plugin} has not done this within 2 s", "--all_reduce_timeout_secs")
        self.refuse(1, words, *flags)

    def test_without_the_flag_libtpu_is_looked_for(self) -> None:
        with mock.patch.dict(os.environ, TPU_LIBRARY_PATH=str(tpu_plugin)):
            self.refuse(2, (tpu_plugin, "is for TPUs, and this machine has none"), TPU[0])
        packages = self.folder / ".local/lib/python3.11/site-packages/libtpu"
        packages.mkdir(parents=True)
        (packages / "libtpu.so").write_text("")
        with mock.patch.dict(os.environ, HOME=str(self.folder)):
            self.refuse(2, (packages / "libtpu.so", "it is no shared object"), TPU[0])

    def test_what_does_not_go_together_is_refused(self) -> None:
        self.refuse(2, ("--pjrt_plugin", "is for --distribution_strategy=tpu"), TPU[1])
        self.refuse(2, ("--num_gpus=1", "is not for --distribution_strategy=tpu"), *TPU, "--num_gpus=1")
        self.refuse(2, ("--num_replicas=2", "has 1 devices"), *TPU, "--num_replicas=2")
        self.refuse(2, ("Found 3 devices with a batch size of 8",), *TPU, "--num_cpu_devices=3")
        self.refuse(2, ("--tpu=my-tpu", "of the machine that it runs on"), "--tpu=my-tpu")
        self.refuse(2, ("--model_dir=gs://bucket/run", "Google Cloud Storage", "gcsfuse"), "--model_dir=gs://bucket/run")
        self.refuse(2, ("--tf32", "is not for --distribution_strategy=tpu"), *TPU, "--tf32")

    def test_batches_that_cannot_be_divided_are_refused_before_the_first_step(self) -> None:
        five = (*TPU, "--num_cpu_devices=5", "--batch_size=10")
        # The last batch of an epoch of 24 examples.
        words = ("multiples of 5", "with --batch_size=10 the last batch of them has 4; --num_replicas=1 would work")
        model_dir = self.folder / "uneven"
        self.assert_refused(self.run_mnist(model_dir, *five), 2, *words)
        self.assertEqual(list(model_dir.glob("model.ckpt-*")), [])
        done = self.run_mnist(model_dir, *five, "--dry_run")
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn(words[1], done.stderr)
        # Training ends before that batch.
        self.results_of(self.folder / "two_steps", *five, "--max_train_steps=2")

    def test_an_evaluation_needs_no_equal_shares(self) -> None:
        three = ("--num_cpu_devices=3", "--batch_size=9", "--train_epochs=2")  # and 16 examples to evaluate on
        on_cpu = self.results_of(self.folder / "three_of_cpu", *three)
        self.assert_near(self.results_of(self.folder / "three", *TPU, *three), on_cpu)

    def test_what_the_plugin_decides(self) -> None:
        done = self.run_mnist(self.folder / "dry", *TPU, "--intra_op_parallelism_threads=2", "--dry_run")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("--intra_op_parallelism_threads=2 does not change how --distribution_strategy=tpu computes", done.stderr)
        (memory,) = (item for item in map(json.loads, done.stdout.splitlines()) if item["item"] == "memory")
        self.assertNotIn("intermediate_bytes", memory)
        self.assertIn("training step not known before the plugin runs it, batch ", memory["message"])


if __name__ == "__main__":
    unittest.main()
