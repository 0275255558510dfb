"""tools/cluster/slurm/train.sbatch starts again after a worker is lost, with the bits of one process. Usage:
MODULE MNIST_MAIN"""

import contextlib
import hashlib
import os
import re
import signal
import sys
import tempfile
import time
import unittest
from pathlib import Path

from official.workers import launchers

SCRIPT = Path("tools/cluster/slurm/train.sbatch").resolve()
STEPS = 200
FLAGS = (
    "--use_synthetic_data",
    "--batch_size=8",
    f"--max_train_steps={STEPS}",
    "--num_replicas=4",
    "--save_checkpoints_steps=20",
    "--intra_op_parallelism_threads=1",
    "--peer_timeout_secs=3",
)
DEADLINE = 300  # seconds; Slurm waits for about 20 before a job starts again


class SbatchTest(unittest.TestCase):
    program: str

    @classmethod
    def setUpClass(cls) -> None:
        launchers.check_installed()
        cls.slurm = cls.enterClassContext(launchers.Slurm())
        cls.folder = Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        launchers.execute([cls.program, *FLAGS, f"--model_dir={cls.folder / 'alone'}"])

    def setUp(self) -> None:
        self.model_dir = self.folder / self._testMethodName
        self.log = self.folder / f"{self._testMethodName}.log"

    def submit(self, *flags: str, env: dict[str, str] | None = None) -> str:
        """Starts a job with three workers, and returns its number."""
        options = ["--parsable", "--nodes=3", f"--chdir={self.folder}", f"--output={self.log}"]
        command = ["sbatch", *options, str(SCRIPT), self.program, f"--model_dir={self.model_dir}", *FLAGS, *flags]
        return self.slurm.execute(command, env=env).stdout.strip()

    def job(self, number: str) -> dict[str, str]:
        """What Slurm says of a job: {"JobState": "RUNNING", "Restarts": "1", ...}."""
        return dict(re.findall(r"(\w+)=(\S*)", self.slurm.execute(["scontrol", "show", "job", number]).stdout))

    def wait(self, number: str, what: str, ready) -> None:
        until = time.monotonic() + DEADLINE
        while not ready():
            self.assertLess(time.monotonic(), until, f"{what} does not come: {self.job(number)}\n{self.told()}")
            time.sleep(0.2)

    def wait_for_a_checkpoint(self, number: str) -> None:
        state = self.model_dir / "checkpoint"
        self.wait(number, "a checkpoint", lambda: state.exists() and "ckpt-0" not in state.read_text().splitlines()[0])

    def told(self) -> str:
        return self.log.read_text() if self.log.exists() else ""

    def digest(self, model_dir: Path) -> str:
        return hashlib.sha256((model_dir / f"model.ckpt-{STEPS}.data-00000-of-00001").read_bytes()).hexdigest()

    def assert_finished_after_a_restart(self, number: str) -> None:
        states = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL")
        self.wait(number, "the end", lambda: self.job(number)["JobState"] in states)
        job = self.job(number)
        self.assertEqual((job["JobState"], job["Restarts"]), ("COMPLETED", "1"), self.told())
        self.assertEqual(self.digest(self.model_dir), self.digest(self.folder / "alone"), self.told())
        self.assertEqual(list(self.folder.glob(".secret*")), [])

    def kill_worker(self, number: str, rank: int) -> None:
        found = []
        wanted = {**self.slurm.env, "SLURM_JOB_ID": number, "SLURM_PROCID": str(rank)}
        variables = {f"{name}={value}".encode() for name, value in wanted.items()}
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                is_worker = os.readlink(process / "exe") == self.program
                if is_worker and variables <= set((process / "environ").read_bytes().split(b"\0")):
                    found.append(int(process.name))
        (worker,) = found
        os.kill(worker, signal.SIGKILL)

    def test_a_worker_is_killed(self) -> None:
        number = self.submit()
        self.wait_for_a_checkpoint(number)
        self.kill_worker(number, 1)
        self.assert_finished_after_a_restart(number)
        self.assertIn("the job goes back into the queue", self.told())

    def test_the_time_limit_comes_near_without_pmix(self) -> None:
        number = self.submit(env={"SLURM_MPI_TYPE": "none"})
        self.wait_for_a_checkpoint(number)
        self.slurm.execute(["scancel", "--batch", "--signal=USR1", number])
        self.assert_finished_after_a_restart(number)
        self.assertRegex(self.told(), "stopped at step [0-9]+")

    def test_a_wrong_flag_ends_the_job(self) -> None:
        number = self.submit("--batch_size=0")
        self.wait(number, "the end", lambda: self.job(number)["JobState"] == "FAILED")
        job = self.job(number)
        self.assertEqual((job["ExitCode"], job["Restarts"]), ("2:0", "0"), self.told())

    def test_scancel_ends_the_job(self) -> None:
        number = self.submit("--max_train_steps=100000", "--train_epochs=100000")
        self.wait_for_a_checkpoint(number)
        self.slurm.execute(["scancel", number])
        self.wait(number, "the end", lambda: self.job(number)["JobState"] == "CANCELLED")
        self.assertEqual(self.job(number)["Restarts"], "0", self.told())


if __name__ == "__main__":
    SbatchTest.program = str(Path(sys.argv.pop(1)).resolve())
    unittest.main(verbosity=2)
