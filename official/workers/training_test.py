"""A training that mpirun, Slurm, torchrun, Kubernetes or TF_CONFIG starts has the bits of one process. Usage:
MODULE MNIST_MAIN"""

import hashlib
import sys
import tempfile
import unittest
from pathlib import Path

from official.workers import launchers

REPLICAS = 4
STEPS = 5


class TrainingTest(unittest.TestCase):
    program: str

    @classmethod
    def setUpClass(cls) -> None:
        launchers.check_installed()
        cls.slurm = cls.enterClassContext(launchers.Slurm())
        cls.folder = Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        launchers.execute(cls.command("alone"))
        cls.alone = cls.digest("alone")

    @classmethod
    def command(cls, name: str, *flags: str) -> list[str]:
        shared = ("--use_synthetic_data", "--batch_size=8", f"--max_train_steps={STEPS}", f"--num_replicas={REPLICAS}")
        return [cls.program, f"--model_dir={cls.folder / name}", "--intra_op_parallelism_threads=1", *shared, *flags]

    @classmethod
    def digest(cls, name: str) -> str:
        content = (cls.folder / name / f"model.ckpt-{STEPS}.data-00000-of-00001").read_bytes()
        return hashlib.sha256(content).hexdigest()

    def assert_trained(self, name: str, ended: launchers.Ended | list[launchers.Ended], launcher: str) -> None:
        processes = ended if isinstance(ended, list) else [ended]
        told = "\n".join(f"exit status {process.code}\n{process.stdout}{process.stderr}" for process in processes)
        self.assertEqual({process.code for process in processes}, {0}, told)
        self.assertIn(f"cluster of {launcher}: ", told)
        self.assertEqual(self.digest(name), self.alone, told)

    def test_mpirun(self) -> None:
        self.assert_trained("mpirun", launchers.mpirun(self.command("mpirun"), 3), "mpirun")

    def test_srun_with_pmix(self) -> None:
        ended = self.slurm.srun(self.command("pmix"), "--mpi=pmix", "-N3", "-n3")
        self.assert_trained("pmix", ended, "Slurm")

    def test_srun(self) -> None:
        ended = self.slurm.srun(self.command("srun"), "-N3", "-n3")
        self.assert_trained("srun", ended, "Slurm")

    def test_torchrun(self) -> None:
        self.assert_trained("torchrun", launchers.torchrun(self.command("torchrun"), 2), "torchrun")

    def test_indexed_job(self) -> None:
        addresses = ",".join(f"127.0.0.1:{port}" for port in launchers.free_ports(2))
        ended = launchers.indexed_job(self.command("job", f"--workers={addresses}"), 2)
        self.assert_trained("job", ended, "--workers")

    def test_tf_config(self) -> None:
        addresses = [f"127.0.0.1:{port}" for port in launchers.free_ports(4)]
        self.assert_trained("tf_config", launchers.tf_config(self.command("tf_config"), addresses), "TF_CONFIG")


def main() -> None:
    TrainingTest.program = str(Path(sys.argv.pop(1)).resolve())
    unittest.main(module="__main__", verbosity=2)


if __name__ == "__main__":
    main()
