"""tools/bench measures the program that it is given, or says in a line why not."""

import json
import os
import re
import subprocess
import tempfile
import unittest
from pathlib import Path

TOOLS = Path("tools").absolute()
DEADLINE = 120
# Says what our programs say with --log_format=json.
OUTPUT = """#!/bin/sh
echo 'first training step done 5 ms after process start'
echo '{"examples_per_sec": 1250}'
"""
# Starts in 2 s, then 1 s, then 0.5 s.
FASTER_STARTS = """#!/bin/sh
read -r last 2>/dev/null <"$0.start" || last=4000
echo $((last / 2)) >"$0.start"
echo "first training step done $((last / 2)) ms after process start"
echo '{"examples_per_sec": 1250}'
"""
# A peer that says so in its first run only, and is slower when compiled.
BEST_PEER_FAILS = """#!/bin/sh
echo 'first training step done 5 ms after process start'
case "$*" in
  *--compile*) echo '{"examples_per_sec": 500}'; exit ;;
esac
mkdir "$(dirname "$0")/has_run" || exit 3
echo '{"examples_per_sec": 1000}'
"""


class BenchTest(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR"))
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.program = self.folder / "trains"
        self.program.write_text(OUTPUT)
        self.program.chmod(0o755)

    def bench(
        self, *flags: str, peers: str = "none of them", workloads: tuple[str, ...] = ("mnist",)
    ) -> subprocess.CompletedProcess:
        command = [TOOLS / "bench", *workloads, f"--peers={peers}", "--rounds=1", *flags]
        return subprocess.run(command, cwd=self.folder, capture_output=True, text=True, timeout=DEADLINE)

    def test_programs(self) -> None:
        (self.folder / "below").mkdir()
        for binary in ("trains", "./trains", "below/../trains", str(self.program)):
            with self.subTest(binary):
                done = self.bench(f"--binary={binary}", "--json=measured.json")
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertIn("1250", done.stdout)
                self.assertIn("1250", (self.folder / "measured.json").read_text())

    def test_least_first_step(self) -> None:
        self.program.write_text(FASTER_STARTS)
        done = self.bench("--binary=trains", "--rounds=3")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("\nmedians of interleaved runs of 100 steps, of first step and memory the least; ", done.stdout)
        self.assertRegex(done.stdout, r"\nmnist_main \(fp32\) +1250 +3 +1250 +1\.00x +0\.50 s ")

    def test_beside_busy_loops(self) -> None:
        done = self.bench("--binary=trains", "--busy=2")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(", beside 2 busy loops\n", done.stdout)

    def test_folder_of_programs(self) -> None:
        (self.folder / "programs").mkdir()
        self.program.rename(self.folder / "programs" / "mnist_main")
        done = self.bench("--programs=programs")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("1250", done.stdout)

    def test_xla_computes_our_graphs(self) -> None:
        arguments, plugin = self.folder / "arguments", self.folder / "xla.so"
        plugin.touch()
        self.program.write_text(OUTPUT.replace("#!/bin/sh", f"#!/bin/sh\necho \"$@\" >>{arguments}"))
        done = self.bench("--binary=trains", "--pjrt_plugin=xla.so", peers="^XLA")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("\nXLA for CPUs, our graphs (fp32) ", done.stdout)
        ours, on_plugin = (re.sub(" --model_dir=.*", "", line) for line in arguments.read_text().splitlines())
        self.assertEqual(on_plugin, f"{ours} --distribution_strategy=tpu --pjrt_plugin={plugin}")

    def test_a_peer_that_fails(self) -> None:
        python = self.folder / "python"
        python.write_text("#!/bin/sh\necho there is no torch; exit 3\n")
        python.chmod(0o755)
        flags = ["--binary=trains", "--python=python", "--json=measured.json"]
        done = self.bench(*flags, peers="PyTorch eager .fp32")
        self.assertEqual(done.returncode, 1)
        self.assertIn("there is no torch", done.stderr)
        self.assertIn("PyTorch eager failed (exit status 3)", done.stderr)
        done = self.bench(*flags, "--keep_going", peers="PyTorch eager .fp32")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("1250", done.stdout)
        measured = json.loads((self.folder / "measured.json").read_text())["mnist"]
        self.assertEqual(measured["PyTorch eager (fp32)"], [])

    def test_versions_of_peers(self) -> None:
        python = self.folder / "python"
        python.write_text(OUTPUT.replace("#!/bin/sh\n", "#!/bin/sh\necho 'library: PyTorch 2.15.0'\n"))
        python.chmod(0o755)
        done = self.bench("--binary=trains", "--python=python", "--json=measured.json", peers="PyTorch eager .fp32")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("\nagainst PyTorch 2.15.0\nmedians of ", done.stdout)
        measured = json.loads((self.folder / "measured.json").read_text())["mnist"]
        libraries = {title: [run["library"] for run in runs] for title, runs in measured.items()}
        self.assertEqual(libraries, {"mnist_main (fp32)": [""], "PyTorch eager (fp32)": ["PyTorch 2.15.0"]})

    def test_the_best_peer_fails_in_a_later_round(self) -> None:
        python = self.folder / "python"
        python.write_text(BEST_PEER_FAILS)
        python.chmod(0o755)
        flags = ["--binary=trains", "--python=python", "--keep_going", "--rounds=3"]
        done = self.bench(*flags, peers="PyTorch (eager|compiled) .fp32")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("PyTorch eager failed (exit status 3)", done.stderr)
        # 500 of 1000 examples/s are far behind: one run.
        self.assertRegex(done.stdout, r"\nPyTorch compiled \(fp32\) +500 +1 ")
        self.assertNotIn("PyTorch eager", done.stdout)

    def test_a_run_that_takes_too_long(self) -> None:
        self.program.write_text("#!/bin/sh\nexec sleep 600\n")
        done = self.bench("--binary=trains", "--run_seconds=0.5", "--keep_going")
        self.assertEqual(done.returncode, 1)
        self.assertIn("mnist_main failed (ended after 0.5 seconds)", done.stderr)

    def test_a_run_that_is_killed(self) -> None:
        for signal, why in ("KILL", "killed, as the kernel does when memory runs out"), ("SEGV", "ended by signal 11"):
            with self.subTest(signal):
                self.program.write_text(f"#!/bin/sh\nkill -{signal} $$\n")
                done = self.bench("--binary=trains", "--run_seconds=100")
                self.assertEqual(done.returncode, 1)
                self.assertIn(f"mnist_main failed ({why})", done.stderr)

    def test_unknown_workloads(self) -> None:
        for workloads, told in (
            (("mnits",), "'mnits'"),
            (("mnist", "resnett"), "'resnett'"),
            (("resnett", "mnist", "ncf-", ""), "'resnett' or 'ncf-' or ''"),
        ):
            with self.subTest(workloads):
                done = self.bench("--binary=trains", workloads=workloads)
                self.assertEqual((done.returncode, done.stdout), (2, ""), done.stderr)
                line = done.stderr.splitlines()[-1]
                self.assertIn(f"there is no workload {told}; there are mnist, resnet-cifar10-20, ", line)

    def test_what_is_not_there(self) -> None:
        (self.folder / "text").write_text("no program")
        for flag, words in (
            ("--binary=missing", "there is no program missing"),
            ("--binary=text", "there is no program text"),
            ("--binary=.", "there is no program ."),
            ("--programs=missing", "there is no directory missing"),
            ("--python=missing/python", "there is no program missing/python"),
            ("--pjrt_plugin=missing.so", "there is no file missing.so"),
            ("--images_dir=missing", "there is no directory missing"),
            ("--multi30k_dir=text", "there is no directory text"),
            ("--json=missing/measured.json", "there is no directory missing"),
            ("--json=.", ". is a directory"),
            ("--workers=1", "1 is not a number of at least 2"),
            ("--busy=-1", "-1 is not a number of at least 0"),
            ("--mbit=fast", "fast is not a number of at least 1"),
            ("--rounds=0", "0 is not a number of at least 1"),
            ("--threads=0", "0 is not a number of at least 1"),
            ("--steps=-5", "-5 is not a number of at least 1"),
            ("--warmup_steps=0", "0 is not a number of at least 1"),
            ("--batch_size=0", "0 is not a number of at least 1"),
            ("--cpu_devices=0", "0 is not a number of at least 1"),
            ("--seconds=0", "0 is not a number of at least 1"),
            ("--run_seconds=0", "0 is not a number of seconds above 0"),
            ("--run_seconds=nan", "nan is not a number of seconds above 0"),
            ("--peers=[", "[ is not a regular expression: unterminated character set"),
        ):
            with self.subTest(flag):
                done = self.bench("--binary=trains", flag)
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertEqual(done.stdout, "")
                line = done.stderr.splitlines()[-1]
                self.assertIn(f"argument {flag.split('=')[0]}: {words}", line)
                self.assertNotIn("Traceback", done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
