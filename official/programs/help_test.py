"""What every program answers to --help, --version and flags that it does not know.

Usage: MODULE PROGRAM...
"""

import json
import os
import re
import shutil
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
                version = r"\d+\.\d+\.\d+, commit (unknown|[0-9a-f]{12}(\+changes)?), \S.*, "
                version += r"(without kernels for GPUs|kernels for GPUs by CUDA \d+\.\d+, cuDNN \d+\.\d+\.\d+ and NCCL \d+\.\d+\.\d+)"
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

    def test_the_configuration_reads_back(self) -> None:
        required = {
            "translate_main": ("--vocab_file=v",),
            "compute_bleu_main": ("--translation=a", "--reference=b"),
            "imagenet_to_tfrecords_main": ("--images_dir=i", "--output_dir=o"),
            "decode_benchmark_main": ("--lengths=8",),
            "serve_main": ("--model_dir=r",),
            "resnet_main": ("--dataset_name=cifar10",),
            "transformer_main": ("--param_set=tiny", "--params_override=num_heads=2,learning_rate=1.5"),
            "ncf_main": ("--layers=8,4", "--hr_threshold=0.7"),
        }
        with tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR")) as folder:
            for name in programs:
                with self.subTest(name):
                    first = self.answer(name, "--dump_config", *required.get(name, ()))
                    path = Path(folder) / name
                    path.write_text(first)
                    second = self.answer(name, f"--flagfile={path}", "--dump_config")
                    flags, flags_again = (
                        [line for line in text.splitlines() if line.startswith("--")] for text in (first, second)
                    )
                    self.assertEqual(flags, flags_again)
                    for flag in required.get(name, ()):
                        self.assertIn(f"\n# command line\n{flag}\n", first)
                        self.assertIn(f"\n# {path}:{first.splitlines().index(flag) + 1}\n{flag}\n", second)
                    full = self.answer(name, "--helpfull")
                    full = full[: full.index("\ngeneral:\n")]
                    named = re.findall(r"^  (?:-\S+ )?--(?:\[no\])?(\w+)$", full, re.MULTILINE)
                    self.assertEqual(named, [flag[2 : flag.index("=")] for flag in flags])

    def complete(self, name: str, *words: str) -> list[str]:
        """What bash offers for the last of the words."""
        script = 'source <("$1" --completion=bash); f=$2; shift 2; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); "$f"; '
        script += "printf '%s\\n' \"${COMPREPLY[@]}\""
        done = subprocess.run(
            ["bash", "-c", script, "bash", programs[name], f"_{name}_completion", name, *words],
            capture_output=True, timeout=DEADLINE, text=True, check=True,
        )  # fmt: skip
        self.assertEqual(done.stderr, "")
        return done.stdout.split()

    def test_completion_in_bash(self) -> None:
        for name in programs:
            with self.subTest(name):
                offered = self.complete(name, "--")
                full = self.answer(name, "--helpfull")
                for flag, help_text in re.findall(r"^  (?:-\S+ )?(--(?:\[no\])?\w+).*\n((?:      .*\n)+)", full, re.M):
                    plain = flag.replace("[no]", "")
                    used = not help_text.startswith("      Not used: ")
                    self.assertEqual(used, plain in offered or f"{plain}=" in offered, flag)
                    self.assertEqual(used and flag != plain, plain.replace("--", "--no", 1) in offered, flag)
                self.assertEqual(self.complete(name, "--completion", "=", "b"), ["bash"])
        for name in TRAINING:
            self.assertEqual(self.complete(name, "--dty"), ["--dtype="])
            self.assertEqual(self.complete(name, "--dtype", "=", "b"), ["bf16"])
            self.assertEqual(self.complete(name, "--dtype", "="), ["fp16", "bf16", "fp32"])
            self.assertEqual(self.complete(name, "-dt", "f"), ["fp16", "fp32"])
            self.assertEqual(self.complete(name, "--dtype=b"), ["--dtype=bf16"])  # with no = in COMP_WORDBREAKS
            self.assertEqual(self.complete(name, "--clean", "=", "t"), ["true"])
            self.assertEqual(self.complete(name, "--hooks", "=", "ProfilerHook,LoggingT"),
                             ["ProfilerHook,LoggingTensorHook"])
            self.assertEqual(self.complete(name, "--batch_size", "="), [])
            self.assertEqual(self.complete(name, "--data_dir", "=", "/us"), ["/usr"])
            self.assertIn("/etc/passwd", self.complete(name, "--flagfile", "/etc/pass"))

    def test_completion_in_other_shells(self) -> None:
        for shell in ("zsh", "fish"):
            for name in programs:
                with self.subTest(f"{name} {shell}"):
                    script = self.answer(name, f"--completion={shell}")
                    self.assertIn("dump_config", script)
                    self.assertEqual(script.replace("\\'", "").count("'") % 2, 0)
                    self.assertIsNotNone(shutil.which(shell), f"there is no {shell}; tools/test installs it")
                    done = subprocess.run([shell, "-n"], input=script, capture_output=True, timeout=DEADLINE, text=True)
                    self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_environment(self) -> None:
        for name in TRAINING:
            with self.subTest(name):
                report = json.loads(self.answer(name, "--env", "--output=json"))
                version = self.answer(name, "--version").strip()
                self.assertEqual(version, "{program} {version}, commit {commit}, {compiler}, {gpu_kernels}".format(**report))
                cores = len(os.sched_getaffinity(0))
                self.assertEqual(report["processor"]["cores_of_affinity"], cores)
                self.assertLessEqual(report["processor"]["cores_to_use"], cores)
                self.assertEqual(report["environment"]["HOME"], os.environ["HOME"])
                gpus = report["gpus"]
                self.assertEqual(gpus["visible"] == 0, "why_none" in gpus)
                for library in ("onednn", "protobuf", "grpc_core"):
                    self.assertRegex(report["libraries"][library], r"\A\d+\.\d+\.\d+\Z")
                text = self.answer(name, "--env")
                self.assertIn(f"\nsystem.kernel: {report['system']['kernel']}\n", text)
        self.refuse("checkpoint_tool", "--env", "unknown flag --env")

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
