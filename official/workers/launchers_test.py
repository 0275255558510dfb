"""What processes know that mpirun, Slurm, torchrun, an Indexed Job or TF_CONFIG has started. Usage: MODULE LAUNCH_PROBE

Each process says which worker it is, and where worker 0 can listen; all must agree.
"""

import re
import socket
import sys
import unittest
from pathlib import Path

from official.workers import launchers

LINE = re.compile(r"(\S+) worker (\d+) of (\d+) (\S+) (\S+)")


class LaunchersTest(unittest.TestCase):
    probe: str

    @classmethod
    def setUpClass(cls) -> None:
        launchers.check_installed()
        cls.slurm = cls.enterClassContext(launchers.Slurm())

    def assert_met(self, ended: launchers.Ended | list[launchers.Ended], launcher: str, workers: int) -> tuple[str, str]:
        """All are there, and have the same address of worker 0 and the same secret, which are returned."""
        processes = ended if isinstance(ended, list) else [ended]
        told = "\n".join(f"exit status {process.code}\n{process.stdout}{process.stderr}" for process in processes)
        self.assertEqual({process.code for process in processes}, {0}, told)
        found = LINE.findall("".join(process.stdout for process in processes))
        self.assertEqual(sorted(int(index) for _, index, *_ in found), list(range(workers)), told)
        self.assertEqual({(name, number) for name, _, number, *_ in found}, {(launcher, str(workers))}, told)
        ((address, secret),) = {(address, secret) for *_, address, secret in found}
        return address, secret

    def assert_can_listen(self, address: str) -> None:
        host, port = address.split(":")
        socket.create_server((host, int(port))).close()

    # ---- By PMIx ----

    def test_mpirun(self) -> None:
        secrets = set()
        for workers in (2, 3, 2):
            address, secret = self.assert_met(launchers.mpirun([self.probe], workers), "mpirun", workers)
            self.assert_can_listen(address)
            self.assertRegex(secret, "^[0-9a-f]{64}$")
            secrets.add(secret)
        self.assertEqual(len(secrets), 3, "runs have the same secret")

    def test_srun_with_pmix(self) -> None:
        for options, workers in ((("-N3", "-n3"), 3), (("-N3", "-n6", "--overcommit", "--distribution=cyclic"), 6)):
            ended = self.slurm.srun([self.probe], "--mpi=pmix", *options)
            address, secret = self.assert_met(ended, "Slurm", workers)
            self.assert_can_listen(address)
            self.assertRegex(secret, "^[0-9a-f]{64}$")

    def test_a_worker_that_does_not_come(self) -> None:
        late = [self.probe, "", "2", "1"]
        waits = "launch_probe: the other processes have not all met this one by PMIx within 2 s (PMIx_Fence waits)"
        for name, ended in (
            ("mpirun", launchers.mpirun(late, 3)),
            ("srun", self.slurm.srun(late, "--mpi=pmix", "-N3", "-n3")),
        ):
            with self.subTest(name):
                self.assertEqual(ended.code, 1, ended)
                self.assertIn(waits, ended.stderr)
                self.assertEqual(ended.stdout, "")

    def test_a_process_that_cannot_reach_mpirun(self) -> None:
        env = {"PMIX_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2", "PMIX_NAMESPACE": "1"}
        ended = launchers.execute([self.probe], env=env)
        self.assertEqual(ended.code, 69, ended)
        self.assertIn("launch_probe: PMIx_Init failed: ", ended.stderr)

    # ---- Without ----

    def test_srun(self) -> None:
        addresses = set()
        for options, workers in ((("-N3", "-n3"), 3), (("-N3", "-n6", "--overcommit", "--distribution=cyclic"), 6)):
            address, secret = self.assert_met(self.slurm.srun([self.probe], *options), "Slurm", workers)
            self.assertRegex(address, r"^127\.0\.0\.11:[23]\d{4}$")
            self.assert_can_listen(address)
            self.assertEqual(secret, "-")
            addresses.add(address)
        self.assertEqual(len(addresses), 2, "two jobs have the same port")

    def test_srun_within_a_step_with_pmix(self) -> None:
        inner = ["srun", "--quiet", "--overlap", "--mpi=none", "-n2", "--overcommit", self.probe]
        address, secret = self.assert_met(self.slurm.srun(inner, "--mpi=pmix", "-n1"), "Slurm", 2)
        self.assertTrue(address.startswith("127.0.0.1"), address)
        self.assertEqual(secret, "-")

    def test_srun_with_the_first_task_elsewhere(self) -> None:
        hosts = self.slurm.folder / "hosts"
        hosts.write_text("".join(f"{node}\n" for node in reversed(launchers.NODES)))
        ended = self.slurm.srun([self.probe], "-n3", "--distribution=arbitrary", env={"SLURM_HOSTFILE": str(hosts)})
        self.assertEqual(ended.code, 2, ended)
        self.assertIn("SLURM_NODEID is '2', but task 0 must be on the first node, 0", ended.stderr)

    def test_torchrun(self) -> None:
        address, secret = self.assert_met(launchers.torchrun([self.probe], 3), "torchrun", 3)
        self.assertRegex(address, r"^localhost:\d+$")
        self.assertEqual(secret, "-")

    def test_torchrun_listens_beside_worker_0(self) -> None:
        # Whatever torchrun listens at, its processes are given another port.
        script = ["sh", "-c", f'echo "$MASTER_PORT"; exec {self.probe}']
        for process in launchers.torchrun(script, 2):
            agent, line = process.stdout.splitlines()
            self.assertEqual(int(LINE.match(line)[4].split(":")[1]), 65534 if agent == "65535" else int(agent) + 1)

    def test_indexed_job_and_tf_config(self) -> None:
        addresses = [f"127.0.0.1:{port}" for port in launchers.free_ports(3)]
        for launcher, ended in (
            ("--workers", launchers.indexed_job([self.probe, ",".join(addresses)], 3)),
            ("TF_CONFIG", launchers.tf_config([self.probe], addresses)),
        ):
            with self.subTest(launcher):
                self.assertEqual(self.assert_met(ended, launcher, 3), (addresses[0], "-"))


if __name__ == "__main__":
    LaunchersTest.probe = str(Path(sys.argv.pop(1)).resolve())
    unittest.main(verbosity=2)
