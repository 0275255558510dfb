"""A machine that gives a program less than it needs: memory, threads, instructions, /proc."""

import re
import shutil
import unittest

from official.faults import harness
from official.faults.harness import of_every_program
from official.faults.programs import STEPS

EMULATOR = shutil.which("qemu-x86_64")  # tools/test installs it


class LimitsTest(harness.FaultTest):
    @of_every_program
    def test_little_memory(self) -> None:
        # From so little that the libraries cannot be loaded, to enough for two threads.
        whole, codes = self.folder / "whole", []
        self.train(whole)
        for megabytes in (20, *range(60, 100, 4), *range(100, 200, 35), *range(200, 1400, 200)):
            with self.subTest(f"{megabytes} MB"):
                model_dir = self.folder / f"{megabytes} MB"
                limited = ["prlimit", f"--as={megabytes << 20}", "--core=0"]
                outcome = self.execute([*limited, *self.command(model_dir, f"--max_train_steps={STEPS}", "--intra_op_parallelism_threads=2")])
                codes.append(outcome.code)
                # 127: the loader has no room for the libraries.
                self.assertIn(outcome.code, (0, 1, 127), outcome.told)
                if outcome.code == 1:
                    self.assertIn("memory", outcome.error, outcome.told)
                if outcome.code == 0:
                    self.assert_same_checkpoint(model_dir, whole)
                elif model_dir.exists():
                    # What it left does not harm the next run.
                    self.train(model_dir)
                    self.assert_same_checkpoint(model_dir, whole)
        self.assertEqual(codes[0], 127, "even 20 MB are no limit")
        self.assertEqual(codes[-1], 0, "1200 MB are not enough")
        self.assertIn(1, codes, "no limit was met")

    @of_every_program
    def test_no_threads(self) -> None:
        # A stack of 200 TB for each new thread is more than any machine has addresses.
        command = self.command(self.folder / "model", f"--max_train_steps={STEPS}")
        outcome = self.execute(["prlimit", f"--stack={200 << 40}", *command])
        self.assert_refused(outcome, 1, "cannot start a thread", "ulimit -u", "memory")

    @of_every_program
    @unittest.skipUnless(EMULATOR, "qemu-x86_64 is missing: apt-get install qemu-user")
    def test_an_old_processor(self) -> None:
        for model, missing in (("Nehalem", "AVX"), ("IvyBridge", "AVX2")):
            outcome = self.execute([EMULATOR, "-cpu", model, *self.command(self.folder / "model")])
            self.assert_refused(outcome, 1, f"{self.program.binary}: this machine has no {missing};", "x86-64-v3")
        self.assertFalse((self.folder / "model").exists())

    @of_every_program
    def test_an_unknown_limit_of_instructions(self) -> None:
        outcome = self.run_steps(self.folder / "model", STEPS, env={"OFFICIAL_MAX_ISA": "sse4"})
        self.assert_refused(outcome, 2, "OFFICIAL_MAX_ISA=sse4", "avx2")
        self.assertFalse((self.folder / "model").exists())

    @of_every_program
    def test_without_proc(self) -> None:
        without = ["unshare", "--map-root-user", "--mount", "bash", "-c", 'mount -t tmpfs tmpfs /proc && exec "$@"', "bash"]
        outcome = self.execute([*without, "true"])
        if outcome.code != 0:
            self.skipTest(f"nothing can be mounted here: {outcome.error}")
        outcome = self.execute([*without, *self.command(self.folder / "model", "--max_train_steps=2")])
        self.assertEqual(outcome.code, 0, outcome.told)
        first_step = re.search(r"first training step done (-?\d+) ms after process start", outcome.stderr)
        self.assertLessEqual(int(first_step[1]), 1000 * harness.DEADLINE, outcome.told)
        self.assertGreaterEqual(int(first_step[1]), 0, outcome.told)


if __name__ == "__main__":
    harness.main()
