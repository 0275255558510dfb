"""The flags by which the tasks of the examples find each other, keep strangers out and notice losses.
Usage: MODULE COORDINATOR_MAIN CUSTOM_LOOP_MAIN KERAS_MAIN"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from official.workers import launchers

WORKERS = ("worker", "worker")
COORDINATED = ("chief", "worker", "ps")
TIMEOUT = 5  # seconds that tasks wait for each other
RESUME_ME = 138  # misc::kExitResumeMe


class ConnectionFlagsTest(unittest.TestCase):
    coordinator: str
    custom_loop: str
    keras: str

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.secret = self.secret_file("secret", b"0123456789abcdef")

    def secret_file(self, name: str, secret: bytes) -> str:
        file = self.folder / name
        file.write_bytes(secret)
        file.chmod(0o600)
        return f"--run_secret_file={file}"

    def certificates(self, name: str) -> tuple[str, ...]:
        folder = self.folder / name
        subprocess.run(["tools/make_certs", folder, "127.0.0.1"], capture_output=True, check=True)
        return (f"--tls_cert={folder}/127.0.0.1.crt", f"--tls_key={folder}/127.0.0.1.key", f"--tls_ca={folder}/ca.crt")

    def programs(self) -> list[tuple[str, tuple[str, ...]]]:
        return [(self.coordinator, COORDINATED), (self.custom_loop, WORKERS), (self.keras, WORKERS)]

    def start(self, program: str, jobs: tuple[str, ...], *flags_of: tuple[str, ...], host: str = "127.0.0.1") -> list:
        """Starts a task for each job, with flags of its own or the last ones."""
        cluster: dict[str, list[str]] = {}
        tasks = []
        for job, port in zip(jobs, launchers.free_ports(len(jobs))):
            addresses = cluster.setdefault(job, [])
            tasks.append({"type": job, "index": len(addresses)})
            addresses.append(f"{host}:{port}")
        processes = []
        for i, task in enumerate(tasks):
            process = subprocess.Popen(
                [program, *flags_of[min(i, len(flags_of) - 1)]],
                env={**os.environ, "TF_CONFIG": json.dumps({"cluster": cluster, "task": task}), "OMP_NUM_THREADS": "1"},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            self.addCleanup(lambda p=process: (p.kill(), p.communicate()))
            processes.append(process)
        return processes

    def finish(self, process: subprocess.Popen) -> launchers.Ended:
        stdout, stderr = process.communicate(timeout=launchers.DEADLINE)
        return launchers.Ended(process.returncode, stdout, stderr)

    def alone(self, program: str, *flags: str) -> str:
        ended = launchers.execute([program, *flags])
        self.assertEqual(ended.code, 0, ended.stderr)
        return ended.stdout

    def expected(self, program: str) -> str:
        """What a job prints: as many devices in one process have its numbers."""
        return self.alone(program) if program == self.coordinator else self.alone(program, "--num_cpu_devices=2")

    def test_a_secret_or_certificates_change_no_number(self) -> None:
        certificates = self.certificates("certs")
        for program, jobs in self.programs():
            for flags in ((self.secret,), certificates):
                with self.subTest(program=program, flags=flags):
                    ended = [self.finish(process) for process in self.start(program, jobs, flags)]
                    self.assertEqual([task.code for task in ended], [0] * len(jobs), ended)
                    self.assertEqual(ended[0].stdout, self.expected(program))
                    for task in ended:  # an empty --model_dir has no former default
                        self.assertNotIn("former default", task.stderr)

    def test_who_has_another_secret_is_refused(self) -> None:
        other = self.secret_file("other", b"another secret of a stranger")
        wait = f"--start_timeout_secs={TIMEOUT}"
        for program, jobs in self.programs():
            with self.subTest(program):
                # A worker, or the ps: a coordinator begins without a worker.
                own = [(self.secret, wait)] * (len(jobs) - 1)
                ended = [self.finish(task) for task in self.start(program, jobs, *own, (other, wait))]
                self.assertEqual(ended[-1].code, 2, ended[-1].stderr)
                self.assertIn("has another secret; give all the same --run_secret_file", ended[-1].stderr)
                self.assertEqual(ended[0].code, 1, ended[0].stderr)
                self.assertIn(f"after {TIMEOUT} s there is no ", ended[0].stderr)
                self.assertIn("refused", ended[0].stderr)

    def test_who_has_another_certificate_is_refused(self) -> None:
        good, other = self.certificates("certs"), self.certificates("other")
        wait = f"--start_timeout_secs={TIMEOUT}"
        first, second = (self.finish(task) for task in self.start(self.custom_loop, WORKERS, (*good, wait), (*other, wait)))
        self.assertEqual(second.code, 2, second.stderr)
        self.assertIn("is not accepted by", second.stderr)
        self.assertEqual(first.code, 1, first.stderr)

    def test_where_strangers_may_come_a_secret_is_needed(self) -> None:
        for program, jobs in self.programs():
            with self.subTest(program):
                for task in [self.finish(process) for process in self.start(program, jobs, (), host="192.0.2.1")]:
                    self.assertEqual(task.code, 2, task.stderr)
                    self.assertIn("where strangers may take part in this run", task.stderr)
                    self.assertIn("--run_secret_file=FILE", task.stderr)

    def test_a_task_that_does_not_answer_is_lost(self) -> None:
        flags = ("--train_epochs=1000000", "--peer_timeout_secs=3")
        for program, jobs in ((self.custom_loop, WORKERS), (self.coordinator, COORDINATED)):
            with self.subTest(program):
                processes = self.start(program, jobs, flags)
                self.assertIn("epoch 1 ", processes[0].stdout.readline())
                frozen = processes[-1]  # a worker, or the ps
                frozen.send_signal(signal.SIGSTOP)
                ended = self.finish(processes[0])
                self.assertEqual(ended.code, RESUME_ME, ended.stderr)
                self.assertIn(" was lost (", ended.stderr.splitlines()[-1])

    def test_tasks_differ_in_no_flag_that_changes_numbers(self) -> None:
        first, second = (
            self.finish(task) for task in self.start(self.custom_loop, WORKERS, ("--train_epochs=1",), ("--train_epochs=2",))
        )
        for ended in (first, second):
            self.assertEqual(ended.code, 2, ended.stderr)
            self.assertIn("flag --train_epochs", ended.stderr)

    def test_workers_of_a_coordinator_have_as_many_devices(self) -> None:
        flags_of = [(f"--num_cpu_devices={devices}",) for devices in (1, 2, 1)]
        for task in [self.finish(process) for process in self.start(self.coordinator, COORDINATED, *flags_of)]:
            self.assertEqual(task.code, 2, task.stderr)
            self.assertIn("has number of replicas 2, but worker 0 has 1; start all", task.stderr)

    def test_servers_that_wait_for_a_client_run_the_tasks(self) -> None:
        for program, jobs in self.programs():
            with self.subTest(program):
                cluster: dict[str, list[str]] = {}
                servers = []
                for job, port in zip(jobs, launchers.free_ports(len(jobs))):
                    cluster.setdefault(job, []).append(f"127.0.0.1:{port}")
                    servers.append(
                        subprocess.Popen(
                            [program, f"--serve=127.0.0.1:{port}", self.secret],
                            env={**os.environ, "OMP_NUM_THREADS": "1"},
                            stdin=subprocess.DEVNULL,
                            stdout=subprocess.DEVNULL,
                            stderr=subprocess.DEVNULL,
                        )
                    )
                    self.addCleanup(lambda p=servers[-1]: (p.kill(), p.wait()))
                client = launchers.execute([program, f"--remote_cluster={json.dumps(cluster)}", self.secret])
                self.assertEqual(client.code, 0, client.stderr)
                # Every worker of a loop prints its results.
                results = self.expected(program).splitlines() * (1 if program == self.coordinator else len(jobs))
                self.assertEqual(sorted(client.stdout.splitlines()), sorted(results))

    def test_workers_by_a_flag(self) -> None:
        addresses = ",".join(f"127.0.0.1:{port}" for port in launchers.free_ports(2))
        for ended in launchers.indexed_job([self.keras, f"--workers={addresses}"], 2):
            self.assertEqual(ended.code, 0, ended.stderr)
            self.assertEqual(ended.stdout, self.expected(self.keras))

    def test_help_has_them_in_a_group_of_its_own(self) -> None:
        for program, _ in self.programs():
            short, full = (launchers.execute([program, flag]).stdout for flag in ("--help", "--helpfull"))
            self.assertNotIn("--run_secret_file", short)
            self.assertIn("Try --helpfull for all flags.", short)
            self.assertIn("\ncluster:\n", full)
            self.assertIn("  --run_secret_file\n", full)


def main() -> None:
    for name in ("coordinator", "custom_loop", "keras"):
        setattr(ConnectionFlagsTest, name, str(Path(sys.argv.pop(1)).resolve()))
    unittest.main(module="__main__", verbosity=2)


if __name__ == "__main__":
    main()
