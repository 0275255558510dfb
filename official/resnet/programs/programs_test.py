"""What resnet_main does with the network of a training, and says to another: one line, and the documented exit status.

Usage: MODULE RESNET_MAIN MNIST_MAIN [unittest argument...]
"""

import shutil
import subprocess
import unittest
from pathlib import Path

from official.programs.program_test_case import ProgramTestCase, png, programs_of_arguments

resnet, mnist = programs_of_arguments(2)


class ProgramsTest(ProgramTestCase):
    """All tests use one network of 14 layers for CIFAR-10, trained for a step."""

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        cls.model_dir = cls.folder / "model"
        cls.picture = cls.write("picture.png", png(32, b"\x80" * 3 * 32 * 32))
        done = cls.run_resnet(cls.model_dir, "--dataset_name=cifar10", "--resnet_size=14", "--base_learning_rate=0.2")
        assert done.returncode == 0, done.stderr

    @classmethod
    def run_resnet(cls, model_dir: Path, *flags: object) -> subprocess.CompletedProcess[str]:
        shared = ("--use_synthetic_data", "--batch_size=2", "--max_train_steps=1", f"--model_dir={model_dir}")
        return cls.execute(resnet, *shared, *flags)

    def test_the_network_is_that_of_the_training(self) -> None:
        taken = f"as {self.model_dir} was trained: --dataset_name=cifar10 --resnet_size=14\n"
        predicted = self.run_resnet(self.model_dir, f"--predict={self.picture}")
        self.assert_succeeded(predicted, taken)
        self.assertEqual(len(predicted.stdout.splitlines()), 6)  # five classes
        self.assert_succeeded(self.run_resnet(self.model_dir, "--eval_only"), taken)
        export_dir = self.folder / "export"
        self.assert_succeeded(self.run_resnet(self.model_dir, f"--export_dir={export_dir}"), taken, "nothing to do")
        self.assertEqual(len(list(export_dir.glob("*/saved_model.pb"))), 1)

    def test_another_network_is_refused_with_its_flags(self) -> None:
        cifar10 = "--dataset_name=cifar10"
        told = f"the network in --model_dir={self.model_dir} was trained with "
        of_another_size = f"{told}--resnet_size=14, but this command has --resnet_size="
        use = "; add --resnet_size=14 to use that network, or name another --model_dir"
        for flags, words in (
            ([cifar10, "--resnet_size=20"], [of_another_size + "20" + use]),
            ([cifar10], [of_another_size + "32" + use]),
            ([f"--predict={self.picture}", "--resnet_size=20"], [of_another_size + "20" + use]),
            (["--eval_only", "--resnet_version=1"], [told + "--resnet_version=2, but this command has --resnet_version=1;"]),
            ([], [told + "--dataset_name=cifar10 and --resnet_size=14, but", "add --dataset_name=cifar10 --resnet_size=14"]),
        ):
            with self.subTest(flags):
                self.assert_refused(self.run_resnet(self.model_dir, *flags), 2, "FATAL Flags parsing error: ", *words)

    def test_a_finished_run_names_changed_flags(self) -> None:
        done = self.run_resnet(self.model_dir, "--dataset_name=cifar10", "--resnet_size=14", "--base_learning_rate=0.3")
        self.assert_succeeded(done, "nothing to do", "differ from this run's last: --base_learning_rate=0.3 (was 0.2)")

    def test_an_evaluation_names_flags_that_change_its_results(self) -> None:
        model_dir = self.folder / "evaluated"
        network = ("--dataset_name=cifar10", "--resnet_size=14")
        trained = ("--label_smoothing=0.3", "--weight_decay=0.01", "--overfit_batches=1")
        self.assert_succeeded(self.run_resnet(model_dir, *network, *trained))
        told = "flags that differ from this run's last: "
        same = self.run_resnet(model_dir, "--eval_only", *trained)
        self.assert_succeeded(same)
        self.assertNotIn(told, same.stderr)
        changed = (
            "--label_smoothing=0 (was 0.3)",
            "--weight_decay=0.0002 (was 0.01)",
            "--overfit_batches= (was 1)",
            "--max_train_steps=2 (was 1)",
        )
        self.assert_succeeded(self.run_resnet(model_dir, "--eval_only", "--max_train_steps=2"), told, *changed)

    def test_a_checkpoint_without_its_flags(self) -> None:
        foreign = self.folder / "foreign"
        shutil.copytree(self.model_dir, foreign)
        for content in (None, b"\xff\0" * 1000, b"--resnet_size=fourteen\n--dataset_name=\n"):
            (foreign / "flags.txt").unlink(missing_ok=True)
            if content is not None:
                (foreign / "flags.txt").write_bytes(content)
            with self.subTest(content):
                flags = ["--dataset_name=cifar10", f"--predict={self.picture}"]
                done = self.run_resnet(foreign, *flags, "--resnet_size=20")
                self.assert_refused(done, 65, "not of this model (resnet)", "it has no", "more")
                self.assert_succeeded(self.run_resnet(foreign, *flags, "--resnet_size=14"))

    def test_fine_tuning_names_few_variables(self) -> None:
        flags = ["--dataset_name=cifar10", "--resnet_size=20", f"--fine_tune={self.model_dir}/checkpoint"]
        done = self.run_resnet(self.folder / "tuned", *flags)
        self.assert_succeeded(done, f"fine-tuning from {self.model_dir}/model.ckpt-1: took ")
        self.assertLess(max(map(len, done.stderr.splitlines())), 1000)

    def test_fine_tuning_of_another_model(self) -> None:
        other, tuned = self.folder / "mnist", self.folder / "of_mnist"
        self.assert_succeeded(
            self.execute(mnist, "--use_synthetic_data", "--batch_size=2", "--max_train_steps=1", f"--model_dir={other}")
        )
        flags = ["--dataset_name=cifar10", "--resnet_size=14", f"--fine_tune={other}"]
        told = f"variables is in the checkpoint {other}/model.ckpt-1, resnet_model/"
        words = ["resnet_main: ", "none of the model's ", told, "(not there); is it one of another model?"]
        self.assert_refused(self.run_resnet(tuned, *flags), 2, *words)
        self.assertEqual(list(tuned.glob("model.ckpt*")), [])

    def test_half_precision_of_version_1(self) -> None:
        half = self.folder / "half"
        done = self.run_resnet(half, "--dataset_name=cifar10", "--dtype=fp16", "--resnet_version=1")
        told = "flag --dtype=fp16: cannot be combined with --resnet_version=1; use --resnet_version=2 or --dtype=bf16"
        self.assert_refused(done, 2, told)
        self.assertFalse(half.exists())


if __name__ == "__main__":
    unittest.main(verbosity=2)
