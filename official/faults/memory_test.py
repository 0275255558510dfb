"""Batches that need more memory than is free: refused before the first step, with the largest batch that fits.

And the memory of a run, in its log.
"""

import json
import re
import sys
from pathlib import Path

from official.faults import harness

# Runs a command, and ends with a line that has the largest memory that it had, in kB.
MEASURED = """import resource, subprocess, sys
code = subprocess.call(sys.argv[1:])
print("peak", resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, file=sys.stderr)
sys.exit(code)"""

# Becomes a command when it has had 600 MB.
LARGE = """import os, sys
held = b"a" * 600_000_000
os.execv(sys.argv[1], sys.argv[1:])"""


class MemoryTest(harness.FaultTest):
    def run_with(self, megabytes: int, command: list[str], wrapper: tuple[str, ...] = ()) -> harness.Outcome:
        """Runs a command where the system says that so much memory is free."""
        meminfo = self.folder / "meminfo"
        meminfo.write_text(f"MemTotal: {2000 * megabytes} kB\nMemAvailable: {1000 * megabytes} kB\n")
        mount = 'mount --bind "$0" /proc/meminfo && exec "$@"'
        with_mount = ["unshare", "--map-root-user", "--mount", "bash", "-c", mount, str(meminfo)]
        outcome = self.execute([*with_mount, "true"])
        if outcome.code != 0:
            self.skipTest(f"nothing can be mounted here: {outcome.error}")
        return self.execute([*with_mount, *wrapper, *command])

    def synthetic(self, program: str, *flags: str) -> list[str]:
        return [str(self.binaries[program]), "--use_synthetic_data", "--num_gpus=0", "--max_train_steps=1",
                f"--data_dir={self.folder}", f"--model_dir={self.folder / 'model'}", *flags]  # fmt: skip

    def largest(self, outcome: harness.Outcome, batch_size: int) -> int:
        self.assert_refused(outcome, 2, f"--batch_size={batch_size} needs about ", " GB are free; at most --batch_size=")
        self.assertFalse(list(Path(self.folder / "model").glob("model.ckpt*")))
        self.assertNotIn("first training step", outcome.stderr)
        return int(re.search(r"at most --batch_size=(\d+) would fit", outcome.error)[1])

    def check_the_largest_fits(self, program: str, megabytes: int, batch_size: int, *flags: str) -> None:
        """The batch that the error names is trained, in most of the memory but not in more."""
        outcome = self.run_with(megabytes, self.synthetic(program, *flags, f"--batch_size={batch_size}"))
        largest = self.largest(outcome, batch_size)
        command = self.synthetic(program, *flags, f"--batch_size={largest}")
        outcome = self.run_with(megabytes, command, (sys.executable, "-c", MEASURED))
        self.assertEqual(outcome.code, 0, outcome.told)
        peak = int(outcome.error.split()[1]) / 1000
        self.assertTrue(0.5 * megabytes < peak < megabytes, f"{peak} MB\n{outcome.told}")

    def test_a_large_network(self) -> None:
        flags = ("--dataset_name=imagenet", "--resnet_size=50", "--batch_size=2048")
        self.assertLess(self.largest(self.run_with(8000, self.synthetic("resnet", *flags)), 2048), 256)

    def test_a_convolutional_network(self) -> None:
        self.check_the_largest_fits("resnet", 1000, 4000, "--dataset_name=cifar10", "--resnet_size=8")

    def test_a_batch_of_tokens(self) -> None:
        self.check_the_largest_fits("transformer", 2000, 60000, "--param_set=tiny")

    @harness.of("transformer")
    def test_sentences(self) -> None:
        command = self.command(self.folder / "model", "--max_train_steps=1", "--batch_size=1000000000")
        largest = self.largest(self.run_with(1000, command), 1000000000)
        outcome = self.run_with(1000, [*command, f"--batch_size={largest}"])
        self.assertEqual(outcome.code, 0, outcome.told)

    def test_nothing_fits(self) -> None:
        flags = ("--dataset_name=imagenet", "--resnet_size=50", "--batch_size=32")
        self.assert_refused(self.run_with(100, self.synthetic("resnet", *flags)), 2, "no --batch_size would fit")

    def test_the_log_tells_the_peak(self) -> None:
        command = self.synthetic("mnist", "--batch_size=50", "--log_format=json")
        outcome = self.execute([sys.executable, "-c", LARGE, *command])
        records = [json.loads(line) for line in outcome.stderr.splitlines()]
        peaks = {record["event"]: record["peak_memory_bytes"] for record in records if "peak_memory_bytes" in record}
        self.assertEqual(list(peaks), ["save", "end"], outcome.told)
        self.assertLessEqual(peaks["save"], peaks["end"])
        # That of this program alone, whatever the process had before.
        self.assertTrue(20e6 < peaks["end"] < 400e6, outcome.told)


if __name__ == "__main__":
    harness.main()
