"""Many faults of many kinds in runs of several workers, one after the other: each run ends with the bits of one process.

As a test this takes about a minute. For more faults, and others:
  bazel test //official/faults:cluster_soak_test --test_timeout=3600 --test_arg=--faults=200 --test_arg=--seed=2
That workers with a bug (hasty_workers.cc) do not pass is tested, too.
"""

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from official.faults import harness, strangers, workers
from official.faults.programs import PROGRAMS
from official.faults.workers import AS_MANY_REPLICAS, REPLICAS, configs_of, free_addresses
from official.workers import networks

WORKERS = 3
STEPS = 1000
FLAGS = (
    "--train_epochs=10000",
    "--epochs_between_evals=100",
    "--save_checkpoints_steps=50",
    "--keep_checkpoint_max=3",
    f"--max_train_steps={STEPS}",
)
PEER_TIMEOUT = 2
GRACE = 10  # seconds in which the others end after the chief
SETTLE = harness.DEADLINE  # seconds within which a run goes on after a fault


class ClusterSoakTest(workers.WorkersCase):
    faults: int
    seed: int
    hasty: Path  # the libofficial_cluster.so with the bug
    has_networks: bool  # each worker has a host of its own

    def setUp(self) -> None:
        super().setUp()
        self.program = PROGRAMS["ncf"]  # its steps are the shortest
        self.write_data(self.data_dir)
        self.rng = random.Random(self.seed)
        self.runs, self.history = 0, []
        self.addCleanup(self.kill_all)
        self.processes: list[subprocess.Popen] = []
        self.whole = self.folder / "whole"
        outcome = self.execute(self.command(self.whole, *FLAGS, f"--num_cpu_devices={REPLICAS}"))
        self.assertEqual(outcome.code, 0, outcome.told)

    # ---- A run, and what starts its workers again ----

    def begin(self) -> None:
        """Starts a run in a new directory, of which the workers restart themselves or do not."""
        self.runs += 1
        self.model_dir = self.folder / f"model{self.runs}"
        self.restart = self.rng.random() < 0.5
        if self.has_networks:
            self.network = self.enterContext(networks.Network(WORKERS))
        self.addresses = self.network.addresses() if self.has_networks else free_addresses(WORKERS)
        self.configs = configs_of(self.addresses)
        self.done = [False] * WORKERS
        self.processes = [self.start_again(worker) for worker in range(WORKERS)]

    def start_again(self, worker: int) -> subprocess.Popen:
        flags = [
            *FLAGS,
            AS_MANY_REPLICAS,
            "--insecure_cluster",
            f"--peer_timeout_secs={PEER_TIMEOUT}",
            "--start_timeout_secs=60",
        ]
        if self.restart:
            flags.append("--on_peer_loss=restart")
        with (self.folder / f"run{self.runs}-worker{worker}").open("a") as log:
            host = networks.inside(self.network.hosts[worker]) if self.has_networks else []
            return subprocess.Popen(
                [*host, *self.command(self.model_dir if worker == 0 else "/dev/null/none", *flags)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "TF_CONFIG": self.configs[worker], "OMP_NUM_THREADS": "1"},
            )

    def supervise(self) -> None:
        """Starts workers again that ended as one should that is to be started again."""
        for worker, process in enumerate(self.processes):
            code = process.poll()
            if code is None or self.done[worker]:
                continue
            if code == 0:
                self.done[worker] = True
            else:
                self.assertIn(code, (138, -signal.SIGKILL, -signal.SIGTERM), self.told())
                self.processes[worker] = self.start_again(worker)

    def step(self) -> int:
        return harness.latest_step(self.model_dir)

    def watch(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.supervise()
            time.sleep(0.02)

    def told(self) -> str:
        logs = sorted(self.folder.glob(f"run{self.runs}-worker*"))
        lines = [f"--seed={self.seed}, run {self.runs}: {', '.join(self.history)}"]
        for log in logs:
            told = [line for line in log.read_text().splitlines() if " loss = " not in line]
            lines += [f"--- {log.name}", *told[-25:]]
        return "\n".join(lines)

    def end(self) -> None:
        """Waits for the end of the run, and compares it with one of one process."""
        step, until = self.step(), time.monotonic() + SETTLE
        while not all(self.done):
            self.supervise()
            # Who was lost shortly before the end finds no chief any more. What starts the workers ends the job then.
            if self.done[0] and time.monotonic() > until - SETTLE + GRACE:
                self.kill_all()
                break
            if self.step() > step:
                step, until = self.step(), time.monotonic() + SETTLE
            self.assertLess(time.monotonic(), until, f"the run does not go on after step {step}\n{self.told()}")
            time.sleep(0.02)
        self.assert_same_checkpoint(self.model_dir, self.whole, self.told(), step=STEPS)
        self.assert_no_temporaries(self.model_dir, self.told())
        shutil.rmtree(self.model_dir)
        for log in self.folder.glob(f"run{self.runs}-worker*"):
            log.unlink()
        self.history = []

    def kill_all(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()

    # ---- The faults ----

    def some_worker(self) -> subprocess.Popen:
        return self.processes[self.rng.randrange(WORKERS)]

    def a_kill(self) -> None:
        self.some_worker().kill()

    def two_kills(self) -> None:
        for process in self.rng.sample(self.processes, 2):
            process.kill()

    def a_stop(self) -> None:
        self.some_worker().terminate()


    def frozen(self, seconds: float) -> None:
        process = self.some_worker()
        process.send_signal(signal.SIGSTOP)
        self.watch(seconds)
        process.send_signal(signal.SIGCONT)

    def a_pause(self) -> None:
        self.frozen(self.rng.uniform(0.05, PEER_TIMEOUT / 3))

    def a_long_pause(self) -> None:
        self.frozen(PEER_TIMEOUT + self.rng.uniform(0.5, 1.5))

    def strangers_call(self) -> None:
        address = self.rng.choice(self.addresses)
        for data in (self.rng.randbytes(self.rng.randrange(5000)), strangers.join(self.rng.randrange(WORKERS)), b""):
            strangers.send(address, data, wait=0.05)

    def a_cut(self) -> None:
        host = self.rng.randrange(WORKERS)
        self.network.cut(host)
        self.watch(self.rng.choice([0.5, PEER_TIMEOUT + 1]))
        self.network.mend(host)

    def a_lossy_link(self) -> None:
        host = self.rng.randrange(WORKERS)
        self.network.lose(host, percent=20)
        self.watch(1)
        self.network.mend(host)

    def a_slow_link(self) -> None:
        host = self.rng.randrange(WORKERS)
        self.network.slow_down(host, "1mbit")
        self.watch(1)
        self.network.end_slowness(host)

    # ---- The tests ----

    def run_with(self, faults: list[Callable[[], None]], count: int) -> None:
        """Runs with so many faults, each kind once and then any."""
        self.begin()
        counts: dict[str, int] = {}
        for number in range(count):
            fault = faults[number] if number < len(faults) else self.rng.choice(faults)
            self.watch(self.rng.uniform(0, 1.5))
            if all(self.done) or self.step() > STEPS * 0.8:
                self.end()
                self.begin()
            self.history.append(f"{fault.__name__} after step {self.step()}")
            counts[fault.__name__] = counts.get(fault.__name__, 0) + 1
            fault()
        self.end()
        print(f"--seed={self.seed}: {count} faults in {self.runs} trainings: {counts}", file=sys.stderr)

    def test_random_faults(self) -> None:
        kinds = [
            self.a_kill,
            self.a_pause,
            self.strangers_call,
            self.a_stop,
            self.a_long_pause,
            self.two_kills,
        ]
        if self.has_networks:
            kinds += [self.a_cut, self.a_lossy_link, self.a_slow_link]
        self.run_with(kinds, self.faults)

    def test_a_planted_bug_is_found(self) -> None:
        # The shared object is looked for beside the program.
        programs = self.folder / "programs"
        programs.mkdir()
        for file in (self.binaries["ncf"], self.hasty):
            shutil.copy(file, programs / file.name)
        self.binaries = {**self.binaries, "ncf": programs / self.binaries["ncf"].name}
        with self.assertRaisesRegex(AssertionError, "ckpt.* differs|is no longer the same on replica"):
            self.run_with([self.a_pause, self.a_kill], 40)  # which ends at the first that shows it


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--faults", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--hasty", type=Path, required=True)
    options, rest = parser.parse_known_args()
    ClusterSoakTest.faults, ClusterSoakTest.seed = options.faults, options.seed
    ClusterSoakTest.hasty = options.hasty.resolve()
    why_not = networks.why_not("--map-root-user")
    ClusterSoakTest.has_networks = not why_not
    if why_not:
        print(f"without faults of the network: {why_not}", file=sys.stderr)
    else:
        networks.enter_namespaces("--map-root-user")
        # From where strangers call.
        networks.run("ip address add 10.1.255.254/16 dev br0")
    sys.argv[1:] = rest
    harness.main()


if __name__ == "__main__":
    main()
