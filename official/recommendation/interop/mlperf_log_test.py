"""MLPerf's compliance checker accepts the log of a training, whatever became of it."""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from official.recommendation.interop import ratings
from tools.interop import harness

# The first of those that read these lines, and the last that do not ask for the settings of large language models.
RULESETS = ["0.7.0", "6.0.0"]
PREFIX = ":::MLLOG "


def copy_checker(folder: Path) -> None:
    """With our rules for NCF, which it does not have."""
    package = Path(importlib.util.find_spec("mlperf_logging").origin).parent
    shutil.copytree(package, folder / package.name)
    for ruleset in RULESETS:
        rules = folder / package.name / "compliance_checker" / f"training_{ruleset}"
        shutil.copy(Path(__file__).with_name("mlperf_ncf.yaml"), rules / "open_ncf.yaml")


class MlperfLogTest(harness.InteropTest):
    def setUp(self) -> None:
        super().setUp()
        copy_checker(self.folder)
        self.log = self.folder / "model" / "mlperf.log"
        data = self.folder / "ratings.csv"
        ratings.write_ratings(data)
        self.flags = [f"--ratings_file={data}", f"--model_dir={self.folder / 'model'}", f"--mlperf_log={self.log}"]

    def complaints(self, ruleset: str) -> str:
        """What the checker says of the log; nothing if it accepts it."""
        checker = [sys.executable, "-m", "mlperf_logging.compliance_checker", "--werror", f"--ruleset={ruleset}"]
        environment = {**os.environ, "PYTHONPATH": str(self.folder)}
        output = f"--log_output={self.folder / 'checker.log'}"
        done = subprocess.run([*checker, output, self.log], env=environment, capture_output=True, text=True)
        if done.returncode == 0:
            self.assertIn("SUCCESS", done.stderr)
            return ""
        self.assertIn("FAILED", done.stderr)
        return done.stderr

    def check(self) -> None:
        for ruleset in RULESETS:
            with self.subTest(ruleset):
                complaints = self.complaints(ruleset)
                self.assertFalse(complaints, complaints)

    def values(self, key: str) -> list:
        lines = [json.loads(line.removeprefix(PREFIX)) for line in self.log.read_text().splitlines()]
        return [line["metadata"] if line["value"] is None else line["value"] for line in lines if line["key"] == key]

    def status(self) -> str:
        (stop,) = self.values("run_stop")
        return stop["status"]

    def test_training(self) -> None:
        output = self.run_binary(*self.flags, "--train_epochs=3", "--seed=5", "--batch_size=512", "--output=json")
        self.check()
        self.assertEqual(self.values("eval_accuracy"), [line["HR"] for line in map(json.loads, output.splitlines()) if "HR" in line])
        self.assertEqual([block["first_epoch_num"] for block in self.values("block_start")], [1, 2, 3])
        self.assertEqual(self.values("seed"), [5])
        self.assertEqual(self.values("global_batch_size"), [512])
        self.assertEqual(self.values("train_samples"), [ratings.EXAMPLES_PER_EPOCH])
        self.assertEqual(self.values("eval_samples"), [ratings.NUM_USERS * 1000])
        self.assertEqual(self.status(), "success")
        # What the checker would say if it were not so.
        lines = self.log.read_text().splitlines(keepends=True)
        for key in ("run_stop", "block_stop", "opt_name"):
            self.log.write_text("".join(line for line in lines if f'"{key}"' not in line))
            self.assertIn(key, self.complaints(RULESETS[0]))

    def test_other_than_999_negatives(self) -> None:
        self.run_binary(*self.flags, "--train_epochs=1", "--num_eval_negatives=98")
        self.assertEqual(self.values("eval_samples"), [ratings.NUM_USERS * 99])
        self.assertIn("eval_samples", self.complaints(RULESETS[0]))

    def test_threshold(self) -> None:
        self.run_binary(*self.flags, "--train_epochs=3", "--hr_threshold=0")
        self.check()
        self.assertEqual(len(self.values("eval_accuracy")), 1)
        self.assertEqual(self.status(), "success")
        self.run_binary(*self.flags, "--clean", "--train_epochs=2", "--hr_threshold=1")
        self.check()
        self.assertEqual([epoch["epoch_num"] for epoch in self.values("eval_start")], [1, 2])
        self.assertEqual(self.status(), "aborted")

    def test_killed_and_resumed(self) -> None:
        training = [*self.flags, "--train_epochs=1000", "--save_checkpoints_steps=20"]
        process = subprocess.Popen([self.binary, *training], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(process.kill)
        while not (self.log.exists() and self.values("eval_accuracy")):
            self.assertIsNone(process.poll())
            time.sleep(0.01)
        process.kill()
        process.wait()
        before = self.log.read_text()
        done = len(self.values("eval_accuracy"))
        self.assertEqual(self.values("run_stop"), [])
        self.run_binary(*self.flags, f"--train_epochs={done + 2}")
        self.assertTrue(self.log.read_text().startswith(before[: before.rindex("\n") + 1]))
        self.check()
        self.assertEqual(self.values("eval_start")[-1], {**self.values("eval_start")[-1], "epoch_num": done + 2})
        self.assertEqual(self.status(), "success")


if __name__ == "__main__":
    harness.main()
