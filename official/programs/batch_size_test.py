"""--batch_size=auto of the training programs: a number is chosen once, and a run that resumes has the same.

Usage: MODULE MNIST_MAIN NCF_MAIN RESNET_MAIN TRANSFORMER_MAIN
"""

import json
import os
import re
import subprocess
import unittest
from pathlib import Path

from official.programs.program_test_case import ProgramTestCase, programs_of_arguments

mnist, ncf, resnet, transformer = programs_of_arguments(4)

# Small networks; of the transformer, a batch has tokens, at least 32 for each of two replicas.
FLAGS = {
    mnist: (),
    ncf: ("--dataset=ml-100k", "--num_factors=2", "--layers=4,2"),
    resnet: ("--dataset_name=cifar10", "--resnet_size=8"),
    transformer: ("--param_set=tiny", "--params_override=max_length=31"),
}
TAKES = re.compile(
    r"--batch_size=auto takes (\d+): [\d.e+]+ (?:examples|tokens)/s[^\n]*; --batch_size=(\d+) gives the same in another run"
)


def flags_txt(model_dir: Path) -> list[str]:
    return (model_dir / "flags.txt").read_text().splitlines()


class BatchSizeTest(ProgramTestCase):
    deadline = 900  # a choice takes about a minute on a busy machine

    def train(self, program: Path, model_dir: Path, steps: int, *flags: str) -> str:
        done = self.execute(program, *FLAGS[program], "--use_synthetic_data", "--num_gpus=0", f"--data_dir={self.folder}",
                            f"--model_dir={model_dir}", f"--max_train_steps={steps}", *flags)  # fmt: skip
        self.assert_succeeded(done)
        return done.stderr

    def test_a_number_is_chosen_once(self) -> None:
        for program in FLAGS:
            with self.subTest(program.name):
                model_dir = self.folder / program.name
                dump = self.execute(program, *FLAGS[program], f"--model_dir={model_dir}", "--batch_size=auto", "--dump_config")
                self.assertIn("\n--batch_size=auto\n", dump.stdout)
                told = TAKES.search(self.train(program, model_dir, 1, "--batch_size=auto"))
                self.assertIsNotNone(told)
                self.assertEqual(told[1], told[2])
                self.assertIn(f"--batch_size={told[1]}", flags_txt(model_dir))
                log = self.train(program, model_dir, 2, "--batch_size=auto")
                self.assertNotRegex(log, TAKES)
                self.assertIn(f"as {model_dir} was trained: --batch_size={told[1]}\n", log)
                self.assertIn(f", batch {told[1]} ({told[1]} per replica)", log)
                self.assertIn(f"--batch_size={told[1]}", flags_txt(model_dir))
                dump = self.execute(program, *FLAGS[program], f"--model_dir={model_dir}", "--batch_size=auto", "--dump_config")
                self.assertIn(f"\n--batch_size={told[1]}\n", dump.stdout)

    def test_each_device_gets_the_same(self) -> None:
        for program, unit in ((mnist, 3 * 2), (transformer, 3 * 2 * 32)):
            model_dir = self.folder / f"{program.name}_on_3"
            log = self.train(program, model_dir, 1, "--batch_size=auto", "--num_cpu_devices=3", "--grad_accum_steps=2",
                             "--log_format=json")  # fmt: skip
            events = {event["event"]: event for event in map(json.loads, log.splitlines())}
            self.assertEqual(events["batch_size"]["batch_size"] % unit, 0)
            self.assertEqual(events["start"]["batch_size"], events["batch_size"]["batch_size"])

    def test_a_rehearsal_chooses_too(self) -> None:
        model_dir = self.folder / "rehearsed"
        done = self.execute(mnist, "--use_synthetic_data", "--num_gpus=0", f"--model_dir={model_dir}", "--dry_run",
                            "--batch_size=auto")  # fmt: skip
        self.assert_succeeded(done)
        self.assertIn(f"steps in all, batch {TAKES.search(done.stderr)[1]}\n", done.stdout)
        self.assertFalse(model_dir.exists())

    def test_one_worker_of_several_is_refused(self) -> None:
        launched = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": "1"}
        model_dir = self.folder / "worker"
        done = subprocess.run([mnist, "--use_synthetic_data", f"--model_dir={model_dir}", "--batch_size=auto"],
                              capture_output=True, text=True, timeout=self.deadline, env={**os.environ, **launched})  # fmt: skip
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("--batch_size=auto is for one process, and torchrun describes 2 workers", done.stderr)
        self.assertIn("give all of them the same --batch_size=N", done.stderr)
        self.assertFalse(model_dir.exists())


if __name__ == "__main__":
    unittest.main(verbosity=2)
