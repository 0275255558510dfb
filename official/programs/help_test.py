"""What every program answers to --help, --version and flags that it does not know.

Usage: MODULE PROGRAM...
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

DEADLINE = 120  # seconds for one run, which takes less than one on an idle machine
TRAINING = ("mnist_main", "resnet_main", "ncf_main", "transformer_main")

programs = {Path(path).name: Path(path).absolute() for path in sys.argv[1:]}


def run(name: str, *flags: str) -> subprocess.CompletedProcess:
    return subprocess.run([programs[name], *flags], capture_output=True, timeout=DEADLINE, text=True)


class HelpTest(unittest.TestCase):
    def answer(self, name: str, *flags: str) -> str:
        """Standard output of a run that succeeds and says nothing else."""
        done = run(name, *flags)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stderr, "")
        return done.stdout

    def refuse(self, name: str, flag: str, *words: str) -> None:
        with self.subTest(f"{name} {flag}"):
            done = run(name, flag)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertEqual(done.stdout, "")
            error = done.stderr.splitlines()[0]
            self.assertTrue(error.startswith("FATAL Flags parsing error: "), error)
            for word in words:
                self.assertIn(word, error)

    def test_help(self) -> None:
        for name in programs:
            with self.subTest(name):
                text = self.answer(name, "--help")
                self.assertTrue(text.startswith(f"{name}: "), text)
                self.assertIn(f"\nUsage: {name}", text)
                self.assertEqual(self.answer(name, "-h"), text)
                full = self.answer(name, "--helpfull")
                self.assertGreaterEqual(len(full), len(text))
                examples = [line for line in full.splitlines() if line.startswith(f"  {name} ")]
                for line in full.splitlines():
                    self.assertTrue(len(line) <= 80 or line in examples, line)

    def test_help_is_in_plain_words(self) -> None:
        odd = re.compile(
            r"\b(wants?|lacks?|anew|afresh|goes on|in place of|makes? up for|begun|beside|behind|which see)\b"
        )
        for name in programs:
            with self.subTest(name):
                self.assertIsNone(odd.search(self.answer(name, "--helpfull").replace("\n      ", " ")))

    def test_version(self) -> None:
        for name in programs:
            with self.subTest(name):
                version = r"\d+\.\d+\.\d+, commit (unknown|[0-9a-f]{12}(\+changes)?), \S.*"
                self.assertRegex(self.answer(name, "--version"), rf"\A{name} {version}\n\Z")

    def test_the_run_record_names_the_commit(self) -> None:
        with tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR")) as folder:
            done = run("mnist_main", f"--model_dir={folder}", "--use_synthetic_data", "--max_train_steps=1")
            self.assertEqual(done.returncode, 0, done.stderr)
            record = json.loads((Path(folder) / "benchmark_run.log").read_text())
        version = record["tensorflow_version"]
        prefix = f"mnist_main {version['version']}, commit {version['git_hash']}, "
        self.assertTrue(self.answer("mnist_main", "--version").startswith(prefix), version)

    def test_required_flags(self) -> None:
        for name, flag in (
            ("translate_main", "--vocab_file"),
            ("compute_bleu_main", "--translation"),
            ("imagenet_to_tfrecords_main", "--images_dir"),
        ):
            with self.subTest(name):
                done = run(name)
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertIn(f"flag {flag} is required: ", done.stderr.splitlines()[0])

    def test_flags_of_other_programs(self) -> None:
        for name in TRAINING:
            self.refuse(name, "--multi_gpu", "did you mean --num_gpus=-1")
            self.refuse(name, "--epochs=3", "did you mean --train_epochs?")
            self.refuse(name, "--output_dir=x", "did you mean --model_dir?")
            self.refuse(name, "--dtype=float32", "did you mean fp32?")
        self.refuse("mnist_main", "--base_learning_rate=1", "did you mean --learning_rate?")
        self.refuse("resnet_main", "--learning_rate=1", "did you mean --base_learning_rate?")
        self.refuse("ncf_main", "--negatives=4", "did you mean --num_neg?")
        self.refuse("transformer_main", "--learning_rate=1", "did you mean --params_override=learning_rate=...?")
        self.refuse("transformer_main", "--num_heads=4", "did you mean --params_override=num_heads=...?")
        self.refuse("translate_main", "--beam_size=4", "did you mean --params_override=beam_size=...?")
        self.refuse("translate_main", "--checkpoint_dir=x", "did you mean --model_dir?")

    def test_thresholds(self) -> None:
        self.refuse("mnist_main", "--stop_threshold=2", "--stop_threshold=2: ", "from 0 to 1, the range of the accuracy")
        self.refuse("resnet_main", "--stop_threshold=76", "from 0 to 1, the range of the accuracy (90 % is 0.9)")
        self.refuse("ncf_main", "--hr_threshold=1.5", "--hr_threshold=1.5: ", "from 0 to 1, the range of the HR")
        bleu = "from 0 to 100, the range of the uncased BLEU"
        done = run("transformer_main", "--bleu_source=x", "--bleu_ref=x", "--vocab_file=x", "--stop_threshold=101")
        self.assertEqual(done.returncode, 2)
        self.assertIn(bleu, done.stderr)

    def test_network_sizes_of_the_other_data_set(self) -> None:
        self.refuse("resnet_main", "--resnet_size=20", "18, 34, 50, 101, 152, 200", "did you forget --dataset_name=cifar10?")
        done = run("resnet_main", "--dataset_name=cifar10", "--resnet_size=18")
        self.assertEqual(done.returncode, 2)
        self.assertIn("did you forget --dataset_name=imagenet?", done.stderr)
        self.assertNotIn("did you forget", run("resnet_main", "--resnet_size=33").stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
