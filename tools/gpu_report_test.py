"""The goals of GPUs name what tools/bench knows, and their report says what was measured, and of the rest why not.

run.sh keeps all that its tests print, of which the names of those that failed are the last.
"""

import contextlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

GPU = Path("tools/gpu").absolute()
DEADLINE = 120
sys.path[:0] = [str(GPU), str(GPU.parent / "peers")]

import bench  # noqa: E402
import goals  # noqa: E402


def measured(rate: float, first_step_ms: float = 0) -> list[dict[str, float]]:
    return [{"examples_per_sec": rate, "first_step_ms": first_step_ms, "peak_mb": 1, "other_cores": 0}]


class GpuReportTest(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR"))
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def report(self, *steps: tuple[str, int, int, str]) -> str:
        (self.folder / "summary.tsv").write_text("".join("\t".join(map(str, step)) + "\n" for step in steps))
        command = [sys.executable, GPU / "report.py", self.folder]
        done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_goals(self) -> None:
        for name, goal in goals.GOALS.items():
            with self.subTest(name):
                self.assertIn(goal.workload, bench.WORKLOADS)
                if goal.per_example > 1:
                    batch_size = next(flag for flag in goal.flags if flag.startswith("--batch_size="))
                    self.assertEqual(goal.per_example**2, int(batch_size.split("=")[1]))

    def test_peers_of_goals(self) -> None:
        for pattern, last in ((goals.IMAGES, ", channels last"), (goals.NO_IMAGES, "")):
            for mode in ("eager", "compiled", "compiled, CUDA graphs"):
                self.assertTrue(re.search(f"{pattern} .bf16", f"PyTorch {mode}{last} (bf16)"), mode)
                self.assertFalse(re.search(f"{pattern} .bf16", f"PyTorch {mode}{last} (fp32)"), mode)

    def test_measured(self) -> None:
        ours = {"mnist": {"mnist_main (bf16)": measured(2.1e6, 900)}}
        peers = {
            "PyTorch eager (bf16)": measured(2e5, 4000),
            "PyTorch compiled (bf16)": measured(7e5, 9000),
            "PyTorch compiled, CUDA graphs (bf16)": [],
        }
        (self.folder / "peers_mnist_bf16.json").write_text(json.dumps({"mnist": {**ours["mnist"], **peers}}))
        ncf = {"ncf_main ml-20m (bf16)": measured(1e8, 2500)}
        (self.folder / "ours_ncf_bf16.json").write_text(json.dumps({"ncf": ncf}))
        (self.folder / "peers_resnet50_bf16.json").write_text(json.dumps({"r": {"resnet_main (bf16)": measured(8000)}}))
        (self.folder / "jpeg.json").write_text(json.dumps({"examples_per_sec": 7800, "bytes_per_image": 92000}))
        parity = {"worst": 2e-6, "allowed": 1e-4}
        (self.folder / "parity_ncf.json").write_text(json.dumps(parity))
        text = self.report(
            ("parity_ncf", 0, 3, "done"), ("peers_ncf_bf16", 77, 0, "no PyTorch in python3"), ("ncu_ncf", 1, 2, "a|b")
        )
        self.assertIn("| 2.10 M images/s | PyTorch compiled (bf16): 700,000 | 3.00x, 10.50x eager |", text)
        self.assertIn("| 100.00 M samples/s | not run: no PyTorch in python3 |", text)
        self.assertIn("| 0.90 to 2.50 s (NCF ml-20m b1M bf16) |", text)
        self.assertIn("| 7,800 images/s, files of 92 kB |  | 98 % of synthetic |", text)
        words = "largest difference 2.0e-06 of the CPU's loss, 0.0001 allowed"
        self.assertIn(f"| parity_ncf | passed | 3 s | {words} |", text)
        self.assertIn("| ncu_ncf | failed (1) | 2 s | a/b |", text)
        self.assertIn("not run: not asked for", text)
        summary = json.loads((self.folder / "summary.json").read_text())
        self.assertEqual([step["exit_status"] for step in summary], [0, 77, 1])

    def test_nothing_measured(self) -> None:
        text = self.report(*((f"ours_{goal}", 77, 0, "no GPU: no driver") for goal in goals.GOALS))
        self.assertEqual(text.count("not run: no GPU: no driver"), len(goals.GOALS) + 1)
        for line in text.splitlines():
            if line.startswith("| "):
                self.assertIn(line.count(" | "), (3, 5), line)

    def archive(self) -> Path:
        """An archive as tools/pack_gpu makes it, with scripts for its programs and two tests, of which one fails."""
        root = self.folder.resolve() / "gpu_pack"
        shutil.copytree(GPU, root / "tools/gpu")
        shutil.copy(GPU / "run.sh", root)
        (root / "bin").mkdir()
        lines = "for i in 1 2 3; do echo $0 prints $i; echo $0 warns of $i >&2; done; "
        record = "echo Add cuda float32 forward 0 >>$OP_TEST_RECORD; "
        scripts = {"add_test": lines + record, "sub_test": lines + record + "exit 1", "mnist_main": "", "op_table": ""}
        files = {root / "find_cuda_libraries": "", **{root / "bin" / name: text for name, text in scripts.items()}}
        for file, script in files.items():
            file.write_text(f"#!/usr/bin/env bash\n{script}\n")
            file.chmod(0o755)
        (root / "op_tests.txt").write_text("add_test\nsub_test\n")
        return root

    def test_failed_op_test(self) -> None:
        root, out = self.archive(), self.folder / "out"
        done = subprocess.run([root / "run.sh", out, "op_tests"], capture_output=True, text=True, timeout=DEADLINE)
        self.assertEqual(done.returncode, 1, done.stderr)
        text = (out / "op_tests.txt").read_text()
        for test in "add_test", "sub_test":
            for i in 1, 2, 3:
                for what in "prints", "warns of":
                    self.assertEqual(text.count(f"{root}/bin/{test} {what} {i}\n"), 1, text)
        self.assertEqual(text.count("failed: sub_test\n"), 2, text)

    def test_list(self) -> None:
        output = io.StringIO()
        argv, sys.argv = sys.argv, ["goals.py"]
        self.addCleanup(setattr, sys, "argv", argv)
        with contextlib.redirect_stdout(output):
            goals.main()
        self.assertEqual(output.getvalue().split(), list(goals.GOALS))


if __name__ == "__main__":
    unittest.main(verbosity=2)
