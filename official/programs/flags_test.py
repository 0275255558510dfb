"""No flag that lies: each does something in its program, or is said to do nothing; and advice names flags that exist.

Usage: MODULE PROGRAM... Reads the sources of the tree, which are too many to be listed as data.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from tools.structure import build_files

DEADLINE = 300  # seconds for a run that takes a second on an idle machine
VALIDATED = ("tpu",)  # read by its validator alone
# Runs that diverge at once. Not of mnist_main: its synthetic images are zeros, which it learns at any rate.
DIVERGING = {
    "resnet_main": ("--dataset_name=cifar10", "--resnet_size=8", "--batch_size=4", "--base_learning_rate=1e30"),
    "transformer_main": ("--param_set=tiny", "--batch_size=128", "--params_override=learning_rate=1e30"),
    "ncf_main": ("--dataset=ml-100k", "--num_factors=2", "--layers=4,2", "--learning_rate=1e30"),
}

programs = {Path(path).name: Path(path).absolute() for path in sys.argv[1:]}
root = Path(build_files.__file__).resolve().parents[2]
targets = build_files.read_targets(root)


def run(name: str, *flags: str) -> subprocess.CompletedProcess:
    return subprocess.run([programs[name], *flags], capture_output=True, timeout=DEADLINE, text=True)


def run_a_step(name: str, model_dir: Path, **environment: str) -> subprocess.CompletedProcess:
    flags = ("--use_synthetic_data", "--max_train_steps=1", f"--model_dir={model_dir}")
    return subprocess.run([programs[name], *flags], capture_output=True, timeout=DEADLINE, text=True,
                          env={**os.environ, **environment})


def flags_of(name: str) -> dict[str, str]:
    """The flags of a program, with their help."""
    done = run(name, "--helpfull")
    text = done.stdout[: done.stdout.index("\ngeneral:\n")]
    found = re.findall(r"^  (?:-\S+ )?--(?:\[no\])?(\w+)\n((?:      .*\n)+)", text, re.MULTILINE)
    return {flag: " ".join(help_text.split()) for flag, help_text in found}


def sources_of(name: str) -> list[str]:
    """The C++ that a program is made of, but for the group definitions, which fill configurations from flags."""
    label = next(label for label in targets if label.endswith(f":{name}"))
    paths = {path for target in build_files.closure(targets, label) for path in target.sources}
    code = {path: (root / path).read_text() for path in sorted(paths) if path.endswith((".cc", ".h"))}
    groups = {Path(path).with_suffix("") for path, text in code.items() if "\nOFFICIAL_FLAG_GROUP(" in text}
    return [text for path, text in code.items() if Path(path).with_suffix("") not in groups]


class FlagsTest(unittest.TestCase):
    def test_every_flag_has_a_reader_or_says_that_it_is_not_used(self) -> None:
        for name in programs:
            flags = flags_of(name)
            self.assertIn("batch_size", flags)
            code = "\n".join(sources_of(name))
            for flag, help_text in flags.items():
                if flag in VALIDATED:
                    continue
                with self.subTest(f"{name} --{flag}"):
                    # A flag of the program's own is read as such; one of a group, as the field of a configuration.
                    is_own = re.search(rf"\bABSL_FLAG\(\s*[\w:<>, ]+,\s*{flag},", code) is not None
                    reader = rf"\bFLAGS_{flag}\b" if is_own else rf"(\.|->){flag}\b|\bFLAGS_{flag}\b"
                    read = re.search(reader, code) is not None
                    self.assertNotEqual(read, help_text.startswith("Not used: "), help_text)

    def test_a_flag_that_is_not_used_says_so_once(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            flags = ("--gcp_project=p", "--bigquery_run_table=t", "--tpu_zone=z", "--inter_op_parallelism_threads=2")
            done = run("mnist_main", "--use_synthetic_data", "--max_train_steps=1", f"--model_dir={folder}", *flags)
            self.assertEqual(done.returncode, 0, done.stderr)
            for flag in flags:
                told = f"{flag.split('=')[0]} has no effect here: "
                self.assertEqual(done.stderr.count(told), 1, done.stderr)

    def test_records_go_where_the_logger_type_says(self) -> None:
        for kind, in_files in (("", True), ("BenchmarkFileLogger", True), ("BaseBenchmarkLogger", False)):
            with self.subTest(kind), tempfile.TemporaryDirectory() as folder:
                flags = (f"--benchmark_logger_type={kind}",) if kind else ()
                done = run("mnist_main", "--use_synthetic_data", "--max_train_steps=1", f"--model_dir={folder}/model",
                           f"--benchmark_log_dir={folder}/log", *flags)
                self.assertEqual(done.returncode, 0, done.stderr)
                for record in ("metric.log", "benchmark_run.log"):
                    self.assertEqual((Path(folder) / "log" / record).exists(), in_files)
                    self.assertFalse((Path(folder) / "model" / record).exists())
                self.assertEqual("Benchmark run: {" in done.stderr, not in_files, done.stderr)

    def test_a_strategy_is_named_or_refused(self) -> None:
        flags = ("--use_synthetic_data", "--max_train_steps=1", "--batch_size=4")
        for strategy, devices, code, told in (
            ("off", 1, 0, "strategy one_device"),
            ("mirrored", 1, 0, "strategy mirrored"),
            ("collective_all_reduce", 2, 0, "strategy multi_worker_mirrored"),
            ("one_device", 2, 2, "--distribution_strategy=one_device is for one device, and this run has 2 CPU devices"),
        ):
            with self.subTest(strategy), tempfile.TemporaryDirectory() as folder:
                done = run("mnist_main", *flags, f"--model_dir={folder}", f"--num_cpu_devices={devices}", "--num_gpus=0",
                           f"--distribution_strategy={strategy}")
                self.assertEqual(done.returncode, code, done.stderr)
                self.assertIn(told, done.stderr)

    def test_a_worker_that_strangers_can_reach_needs_a_secret(self) -> None:
        cluster = '{"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 1}}'
        for name in programs:
            with self.subTest(name), tempfile.TemporaryDirectory() as folder:
                done = run_a_step(name, Path(folder) / "model", TF_CONFIG=cluster)
                self.assertEqual(done.returncode, 2, done.stderr)
                described, refused = done.stderr.splitlines()
                self.assertIn("cluster of TF_CONFIG: worker 0 at a:1 (chief), worker 1 at b:1 (this process)", described)
                self.assertIn("worker 0 listens at a:1, where strangers may take part", refused)
                self.assertFalse((Path(folder) / "model").exists())

    def test_what_a_launcher_says_is_read_from_the_environment(self) -> None:
        step = {
            "SLURM_JOB_ID": "7",
            "SLURM_STEP_ID": "0",
            "SLURM_PROCID": "1",
            "SLURM_NODEID": "1",
            "SLURM_STEP_NUM_TASKS": "2",
            "SLURM_STEP_NODELIST": "n[1-2]",
        }
        for environment, told in (
            ({"TF_CONFIG": "[1]"}, "TF_CONFIG: it is [1]; write "),
            (step, "cluster of Slurm: worker 0 at n1:20112 (chief), worker 1 (this process)"),
            ({"WORLD_SIZE": "4"}, "WORLD_SIZE is 4, but RANK is not set"),
        ):
            with self.subTest(told), tempfile.TemporaryDirectory() as folder:
                done = run_a_step("mnist_main", Path(folder) / "model", **environment)
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertIn(told, done.stderr)

    def test_one_process_of_a_launcher_trains(self) -> None:
        alone = '{"cluster": {"chief": ["a:1"]}, "task": {"type": "chief", "index": 0}}'
        with tempfile.TemporaryDirectory() as folder:
            # The shell of salloc -n4 has the number of tasks, and is none of them.
            done = run_a_step("mnist_main", Path(folder), TF_CONFIG=alone, SLURM_NTASKS="4", RANK="0", WORLD_SIZE="1")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("cluster of TF_CONFIG: chief 0 at a:1 (chief, this process)", done.stderr.splitlines()[0])

    def rehearse(self, name: str, model_dir: Path, *flags: str, code: int = 0) -> list[dict]:
        """The objects that a rehearsal prints."""
        done = run(name, "--output=json", f"--model_dir={model_dir}", *flags)
        self.assertEqual(done.returncode, code, done.stderr)
        return [json.loads(line) for line in done.stdout.splitlines()]

    def schedule(self, name: str, *flags: str) -> list[tuple[int, float]]:
        with tempfile.TemporaryDirectory() as folder:
            points = self.rehearse(name, Path(folder) / "model", "--use_synthetic_data", "--print_schedule", *flags)
            self.assertFalse((Path(folder) / "model").exists())
        self.assertEqual({point["event"] for point in points}, {"schedule"})
        return [(point["global_step"], point["learning_rate"]) for point in points]

    def test_the_schedule_of_a_few_batches_ends_with_them(self) -> None:
        flags = ("--dataset_name=cifar10", "--overfit_batches=2", "--train_epochs=10", "--lr_schedule=linear")
        points = self.schedule("resnet_main", *flags)
        (_, first), (last_step, last) = points[0], points[-1]
        self.assertEqual(last_step, 19)
        self.assertLess(last, 0.1 * first)

    def test_the_plan_of_a_step_is_described(self) -> None:
        flags = ("--use_synthetic_data", "--batch_size=8", "--max_train_steps=2", "--describe_plan")
        with tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR")) as folder:
            as_json = run("mnist_main", *flags, f"--model_dir={folder}/json", "--log_format=json")
            done = run("mnist_main", *flags, f"--model_dir={folder}/text")
        self.assertEqual((as_json.returncode, done.returncode), (0, 0), as_json.stderr + done.stderr)
        events = [json.loads(line) for line in as_json.stderr.splitlines()]
        (plan,) = [event for event in events if event["event"] == "plan"]
        self.assertEqual(plan["device"], "/device:CPU:0")
        ops = plan["ops"]
        self.assertEqual([op["ms"] for op in ops], sorted((op["ms"] for op in ops), reverse=True))
        self.assertAlmostEqual(sum(op["ms"] for op in ops), plan["ms"], delta=0.01)
        for op in ops:
            self.assertAlmostEqual(op["share"], op["ms"] / plan["ms"], delta=0.01)
        # The weights of the dense layer, 8 examples of 7 * 7 pixels in 64 channels by 1024 units.
        (product,) = [op for op in ops if op["result"] == "float32[3136,1024]"]
        self.assertEqual((product["op"], product["count"]), ("MatMul", 1))
        title = r"plan of a step on /device:CPU:0, which takes [\d.]+ ms if each op is timed\n"
        table = re.search(rf"{title} share   ops        ms  op +result +algorithm\n((?: .*\n)+)", done.stderr)
        self.assertIsNotNone(table, done.stderr)
        lines = table[1].splitlines()
        self.assertEqual(len(lines), len(ops))
        self.assertTrue(any(re.fullmatch(r" +[\d.]+% +1 +[\d.]+  MatMul +float32\[3136,1024\] +\S.*", x) for x in lines))

    def test_the_schedule_is_shown(self) -> None:
        # A batch of 128 of 50000 images: the rate is divided by 10 after 100 and 150 epochs, as upstream's. Each of the
        # 16 rounds of 10 epochs ends with a batch of what is left: 3907 steps.
        drops = [(0, 0.1), (39063, 0.01), (58594, 0.001), (16 * 3907 - 1, 0.001)]
        points = self.schedule("resnet_main", "--dataset_name=cifar10", "--batch_size=128", "--train_epochs=160")
        self.assertEqual([step for step, _ in points], [step for step, _ in drops])
        for (_, rate), (_, expected) in zip(points, drops, strict=True):
            self.assertAlmostEqual(rate, expected, places=9)
        points = self.schedule("transformer_main", "--param_set=tiny", "--max_train_steps=2000",
                               "--params_override=hidden_size=16,learning_rate=2,learning_rate_warmup_steps=500")
        self.assertEqual((len(points), points[-1][0]), (20, 1999))
        for step, rate in points:
            self.assertAlmostEqual(rate, 2 * 16**-0.5 * min(1, step / 500) * max(step, 500) ** -0.5, places=6)
        self.assertEqual(self.schedule("mnist_main", "--learning_rate=0.5", "--max_train_steps=9"), [(0, 0.5), (8, 0.5)])
        points = self.schedule("ncf_main", "--dataset=ml-100k", "--learning_rate=0.25", "--max_train_steps=9")
        self.assertEqual(points, [(0, 0.25), (8, 0.25)])

    def test_a_dry_run_computes_and_writes_nothing(self) -> None:
        small = {
            "mnist_main": ("--batch_size=8",),
            "resnet_main": ("--dataset_name=cifar10", "--resnet_size=8", "--batch_size=4"),
            "transformer_main": ("--param_set=tiny", "--batch_size=128"),
            "ncf_main": ("--dataset=ml-100k", "--num_factors=2", "--layers=4,2"),
        }
        for name, flags in small.items():
            with self.subTest(name), tempfile.TemporaryDirectory() as folder:
                model_dir = Path(folder) / "model"
                flags = (*flags, "--use_synthetic_data", f"--data_dir={folder}", "--num_gpus=0")
                items = {item["item"]: item for item in self.rehearse(name, model_dir, *flags, "--dry_run")}
                self.assertEqual(list(Path(folder).iterdir()), [])
                self.assertEqual(
                    list(items),
                    ["model_dir", "run", "device", "variables", "training data", "parameters", "memory", "training step",
                     "evaluation step", "time", "end"],
                )  # fmt: skip
                self.assertEqual(items["memory"]["parameter_bytes"], 4 * items["parameters"]["num_parameters"])
                self.assertGreater(items["memory"]["intermediate_bytes"], 0)
                self.assertRegex(items["training step"]["message"], r"\Aloss \d+(\.\d+)?, on ")
                self.assertGreater(items["evaluation step"]["loss"], 0)
                self.assertEqual(items["variables"]["message"], "fresh")
                time = items["time"]
                self.assertEqual(time["steps"], int(items["run"]["message"].split()[0]))
                parts = time["steps"] * time["seconds_per_step"] + time["evaluations"] * time["seconds_per_evaluation"]
                self.assertAlmostEqual(time["seconds"], parts, delta=1e-6 * parts)
                self.assertGreater(min(time["seconds_per_step"], time["seconds_per_evaluation"], time["evaluations"]), 0)
                self.assertRegex(time["message"], r"\Aabout [\d:.]+( s)?: \d+ steps of about .*, \d+ evaluations? of about ")

                done = run(name, *flags, "--max_train_steps=2", f"--model_dir={model_dir}")
                self.assertEqual(done.returncode, 0, done.stderr)
                files = {path: path.stat().st_mtime_ns for path in Path(folder).rglob("*")}
                items = {item["item"]: item for item in self.rehearse(name, model_dir, *flags, "--dry_run", "--eval_only")}
                self.assertNotIn("training step", items)
                self.assertTrue(items["run"]["message"].startswith("one evaluation, batch "), items)
                self.assertEqual(items["variables"]["message"], f"resumed from {model_dir}/model.ckpt-2")
                items = {item["item"]: item for item in self.rehearse(name, model_dir, *flags, "--dry_run", "--clean")}
                self.assertEqual(items["variables"]["message"], "fresh")
                self.rehearse(name, model_dir, *flags, "--dry_run", "--resume=never", code=73)
                self.assertEqual(files, {path: path.stat().st_mtime_ns for path in Path(folder).rglob("*")})

    def test_clean_deletes_nothing_that_the_run_reads(self) -> None:
        flag_file = ("--flagfile={}/my.flags", "--use_synthetic_data")
        given = (
            ("mnist_main", ("--data_dir={}",)),
            ("mnist_main", flag_file),
            ("mnist_main", (*flag_file, "--dry_run")),
            ("resnet_main", ("--dataset_name=cifar10", "--fine_tune={}/model.ckpt-1", "--use_synthetic_data")),
            ("transformer_main", ("--param_set=tiny", "--use_synthetic_data", "--vocab_file={}/vocab")),
            ("ncf_main", ("--ratings_file={}/ratings.csv",)),
        )
        for name, flags in given:
            with self.subTest(f"{name} {flags}"), tempfile.TemporaryDirectory() as folder:
                for file in ("checkpoint", "model.ckpt-1.index", "vocab", "ratings.csv", "my.flags"):
                    (Path(folder) / file).touch()
                files = set(Path(folder).iterdir())
                done = run(name, *(flag.format(folder) for flag in flags), f"--model_dir={folder}", "--clean")
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertIn("which this run uses too, is there (to go on with the run, add --noclean); nothing", done.stderr)
                self.assertEqual(set(Path(folder).iterdir()) - {Path(folder) / "run.lock"}, files)

    def test_a_dry_run_evaluates_as_the_run_does(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            model_dir = Path(folder) / "model"
            flags = ("--batch_size=8", "--use_synthetic_data", "--num_gpus=0", "--learning_rate=0.01")
            trained = run("mnist_main", *flags, "--ema_decay=0.9", "--max_train_steps=5", f"--model_dir={model_dir}")
            self.assertEqual(trained.returncode, 0, trained.stderr)
            # Both use the moving averages. All batches of the synthetic data are the same: each has the loss of all.
            done = run("mnist_main", *flags, "--eval_only", "--output=json", f"--model_dir={model_dir}")
            loss = json.loads(done.stdout.splitlines()[0])["loss"]
            items = self.rehearse("mnist_main", model_dir, *flags, "--dry_run", "--eval_only")
            (step,) = [item for item in items if item["item"] == "evaluation step"]
            self.assertAlmostEqual(step["loss"], loss, delta=1e-4 * loss)

    def test_a_learning_rate_is_found(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            flags = ("--dataset=ml-100k", "--num_factors=8", "--layers=16,8", "--batch_size=512", "--num_gpus=0")
            told = self.rehearse("ncf_main", Path(folder) / "model", "--find_lr", "--use_synthetic_data", *flags)
            self.assertEqual(list(Path(folder).iterdir()), [])
        steps = [item for item in told if item["item"] == "step"]
        self.assertGreater(len(steps), 50)
        self.assertAlmostEqual(steps[0]["learning_rate"], 1e-7, places=12)
        for before, after in zip(steps, steps[1:], strict=False):
            self.assertAlmostEqual(after["learning_rate"] / before["learning_rate"], 1e7 ** (1 / 99), places=6)
        rate = told[-1]["learning_rate"]
        self.assertIn(rate, [step["learning_rate"] for step in steps])
        self.assertIn("--learning_rate changes it", told[-1]["message"])
        # The one constant batch is learned, the faster the higher the rate, but not at the lowest ones.
        self.assertGreater(rate, 1e-5)

    def test_a_dry_run_ends_with_the_error_of_the_run(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            model_dir = Path(folder) / "model"
            self.rehearse("resnet_main", model_dir, "--dry_run", f"--data_dir={folder}/none", code=66)
            self.rehearse("mnist_main", model_dir, "--dry_run", "--use_synthetic_data", "--eval_only", code=66)
            self.rehearse("mnist_main", model_dir, "--dry_run", "--use_synthetic_data", "--num_gpus=99", code=2)
            (Path(folder) / "file").touch()
            self.rehearse("mnist_main", Path(folder) / "file/model", "--dry_run", "--use_synthetic_data", code=73)
            flags = ("--dry_run", "--use_synthetic_data", "--num_gpus=0")
            self.rehearse("mnist_main", model_dir, *flags, "--keep_best=HR:max", code=2)
            mine, linked, logs = (Path(folder) / name for name in ("mine", "linked", "logs"))
            for directory, name in ((mine, "thesis.tex"), (linked, "checkpoint"), (logs, "metrics")):
                directory.mkdir()
                (directory / name).touch()
            self.rehearse("mnist_main", mine, *flags, "--clean", code=2)
            self.assertTrue((mine / "thesis.tex").exists())
            (linked / "flags.txt").symlink_to(mine / "thesis.tex")
            self.rehearse("mnist_main", linked, *flags, code=73)
            self.rehearse("mnist_main", linked, *flags, "--clean", "--max_train_steps=1")
            (logs / "metric.log").symlink_to(mine / "thesis.tex")
            self.rehearse("mnist_main", model_dir, *flags, f"--benchmark_log_dir={logs}", code=73)
            if os.geteuid() != 0:  # to whom nothing is forbidden
                logs.chmod(0o500)
                self.rehearse("mnist_main", logs, *flags, "--eval_only", code=77)
                logs.chmod(0o700)
            done = subprocess.run(
                [programs["mnist_main"], "--dry_run", "--use_synthetic_data", f"--model_dir={model_dir}"],
                capture_output=True, timeout=DEADLINE, text=True,
                env={**os.environ, "RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "a", "MASTER_PORT": "1"},
            )  # fmt: skip
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn("--dry_run is for one process, and torchrun describes 2 workers", done.stderr)
            self.assertFalse(model_dir.exists())

    def test_advice_names_a_flag_of_the_program(self) -> None:
        for name, flags in DIVERGING.items():
            with self.subTest(name), tempfile.TemporaryDirectory() as folder:
                done = run(name, "--use_synthetic_data", "--max_train_steps=20", f"--model_dir={folder}",
                           f"--data_dir={folder}", *flags)
                self.assertEqual(done.returncode, 1, done.stderr)
                advice = re.search(r"[Tt]ry a lower --(\w+)", done.stderr)
                self.assertIsNotNone(advice, done.stderr)
                self.assertIn(f"--{advice[1]}=", " ".join(flags))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
