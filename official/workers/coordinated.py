"""The tasks of a coordinated job on this machine: how tests start, kill and end them."""

import json
import os
import subprocess
import tempfile
import time
import unittest
from collections.abc import Callable
from pathlib import Path

from official.workers import launchers

RESUME_ME = 138  # misc::kExitResumeMe
CHIEF = ("chief", 0)


class Task:
    """A process of the job, which writes to files, so that it never waits for this one."""

    def __init__(self, command: list[str], config: str, folder: Path) -> None:
        files = [tempfile.mkstemp(dir=folder) for _ in range(2)]
        self.paths = [Path(path) for _, path in files]
        self.process = subprocess.Popen(
            command,
            env={**os.environ, "TF_CONFIG": config, "OMP_NUM_THREADS": "1"},
            stdin=subprocess.DEVNULL,
            stdout=files[0][0],
            stderr=files[1][0],
        )
        for file, _ in files:
            os.close(file)

    def stdout(self) -> str:
        return self.paths[0].read_text()

    def stderr(self) -> str:
        return self.paths[1].read_text()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


class CoordinatedCase(unittest.TestCase):
    program: str

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def start(self, jobs: dict[str, int], *flags: str) -> None:
        """Starts the tasks of a cluster with so many tasks of each job."""
        self.flags = flags
        ports = iter(launchers.free_ports(sum(jobs.values())))
        cluster = {job: [f"127.0.0.1:{next(ports)}" for _ in range(count)] for job, count in jobs.items()}
        self.tasks: dict[tuple[str, int], Task] = {}
        self.addresses = {(job, i): address for job, addresses in cluster.items() for i, address in enumerate(addresses)}
        self.cluster = cluster
        for job, index in self.addresses:
            self.start_task(job, index)

    def start_task(self, job: str, index: int) -> None:
        task = json.dumps({"cluster": self.cluster, "task": {"type": job, "index": index}})
        self.tasks[job, index] = Task([self.program, *self.flags], task, self.folder)
        self.addCleanup(self.tasks[job, index].kill)

    def start_cluster(self, *flags: str) -> None:
        self.start({"chief": 1, "worker": 2, "ps": 2}, *flags)

    def wait_for(self, text: str, written: Callable[[], str]) -> None:
        until = time.monotonic() + launchers.DEADLINE
        while text not in written():
            self.assertLess(time.monotonic(), until, f"{text}: {self.tasks[CHIEF].stderr()}")
            time.sleep(0.01)

    def wait_for_epoch(self, number: int) -> None:
        self.wait_for(f"epoch {number} ", self.tasks[CHIEF].stdout)

    def finish(self, code: int, *without: tuple[str, int]) -> dict[tuple[str, int], launchers.Ended]:
        """Waits for all tasks but some, which must end with this status."""
        ended = {}
        for name, task in self.tasks.items():
            if name in without:
                continue
            returncode = task.process.wait(timeout=launchers.DEADLINE)
            ended[name] = launchers.Ended(returncode, task.stdout(), task.stderr())
        self.assertEqual({task.code for task in ended.values()}, {code}, ended)
        return ended

    def alone(self, *flags: str) -> str:
        ended = launchers.execute([self.program, *flags])
        self.assertEqual(ended.code, 0, ended.stderr)
        return ended.stdout
