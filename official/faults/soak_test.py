"""Many saves and many faults, one after the other: nothing that a run holds grows, and nothing is lost.

As a test this takes below a minute. For longer, and with other faults each time:
  bazel test //official/faults:soak_test --test_timeout=90000 --test_arg=--seconds=80000 --test_arg=--saves=2000 \
      --test_arg=--seed=2
"""

import argparse
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from official.faults import harness

STEPS = 60
FLAGS = ("--train_epochs=9", "--epochs_between_evals=9", "--save_checkpoints_steps=5", "--keep_checkpoint_max=3")
MEGABYTE = 1 << 20


class Held:
    """What a process holds of the machine."""

    def __init__(self, pid: int) -> None:
        status = Path(f"/proc/{pid}/status").read_text()
        self.bytes = int(re.search(r"VmRSS:\s*(\d+) kB", status)[1]) * 1024
        # Without those that join while other work keeps the cores busy.
        names = [(task / "comm").read_text().strip() for task in Path(f"/proc/{pid}/task").iterdir()]
        self.threads = len(names) - names.count("spare")
        self.descriptors = len(list(Path(f"/proc/{pid}/fd").iterdir()))


class SoakTest(harness.FaultTest):
    seconds: float  # of random faults
    saves: int
    seed: int

    # ---- One long run ----

    def test_many_saves(self) -> None:
        model_dir = self.folder / "model"
        process = self.start(
            self.command(
                model_dir,
                "--train_epochs=1000000",
                "--epochs_between_evals=10",
                "--save_checkpoints_steps=1",
                "--keep_checkpoint_max=2",
                "--log_every_n_steps=1000000",
                f"--max_train_steps={self.saves}",
            )
        )
        held: list[tuple[int, Held]] = []
        files = 0
        until = time.monotonic() + harness.DEADLINE + self.saves
        while process.poll() is None and time.monotonic() < until:
            try:
                held.append((harness.latest_step(model_dir), Held(process.pid)))
                files = max(files, len(list(model_dir.iterdir())))
            except (OSError, TypeError):
                pass  # it ends at this moment
            time.sleep(0.01)
        outcome = self.finish(process)
        self.assertEqual(outcome.code, 0, outcome.told)
        self.assertEqual(harness.latest_step(model_dir), self.saves)
        # Two checkpoints, one that is being written and one that is being removed; the state, metrics, flags, events.
        self.assertLess(files, 20, sorted(model_dir.iterdir()))
        early = [h for step, h in held if self.saves / 4 < step <= self.saves / 2]
        late = [h for step, h in held if self.saves * 3 / 4 < step]
        self.assertTrue(early and late, "the run was too fast to be looked at")
        # Threads that evaluate, files that are being written or read come and go, so what nine looks of ten see counts
        # (a thread may be gone for the moment of a look): what leaks at one save in five or more stands out of it.
        for what, slack in (("bytes", 24 * MEGABYTE), ("threads", 0), ("descriptors", 4)):
            before, after = (sorted(getattr(h, what) for h in part)[len(part) // 10] for part in (early, late))
            self.assertLessEqual(after, before + slack, f"{what} grow: {before} or more early on and {after} at the end")

    # ---- Many short ones ----

    def test_random_faults(self) -> None:
        self.rng = random.Random(self.seed)
        self.whole = self.folder / "whole"
        self.assertEqual(self.run_steps(self.whole, STEPS, *FLAGS).code, 0)
        self.model_dir = self.folder / "model"
        faults = [
            self.a_signal,
            self.a_failing_file,
            self.a_failing_read,
            self.a_pause,
            self.a_limit,
            self.a_clock_that_jumps,
            self.a_second_run,
            self.damage,
        ]
        until, done, ends = time.monotonic() + self.seconds, 0, 0
        while time.monotonic() < until or done < len(faults):
            # Each kind comes first once, then any.
            fault = faults[done] if done < len(faults) else self.rng.choice(faults)
            self.what = f"--seed={self.seed}, fault {done}: {fault.__name__}"
            before = harness.latest_step(self.model_dir)
            fault()
            after = harness.latest_step(self.model_dir)
            if fault != self.damage:
                self.assertGreaterEqual(after, before, f"{self.what}: the run went back to an earlier checkpoint")
            done += 1
            if after == STEPS:
                self.check_end()
                ends += 1
        self.check_end()
        print(f"{done} faults, {ends + 1} trainings", file=sys.stderr)

    def check_end(self) -> None:
        """Trains to the end without a fault, and starts again."""
        outcome = self.run_steps(self.model_dir, STEPS, *FLAGS)
        self.assertEqual(outcome.code, 0, f"{self.what}\n{outcome.told}")
        self.assert_same_checkpoint(self.model_dir, self.whole, self.what, step=STEPS)
        self.assert_same_metrics(self.model_dir, self.whole, self.what)
        self.assert_no_temporaries(self.model_dir, self.what)
        shutil.rmtree(self.model_dir)

    def check(self, outcome: harness.Outcome, *codes: int) -> None:
        """The run ended in one of these ways, with a line that says why if it failed."""
        self.assertIn(outcome.code, codes, f"{self.what}\n{outcome.told}")
        if 0 < outcome.code < 126:
            self.assertIn(f"{self.program.binary}: ", outcome.error, f"{self.what}\n{outcome.told}")

    def begin(self, env: dict[str, str] | None = None, **popen) -> subprocess.Popen:
        threads = self.rng.choice([1, 2, 3])
        flags = (*FLAGS, f"--max_train_steps={STEPS}", f"--intra_op_parallelism_threads={threads}")
        return self.start(self.command(self.model_dir, *flags), env={**os.environ, **(env or {})}, **popen)

    def wait(self) -> None:
        time.sleep(self.rng.uniform(0, 0.7))

    def a_signal(self) -> None:
        process = self.begin()
        for _ in range(self.rng.randrange(3)):
            self.wait()
            process.send_signal(signal.SIGUSR2)  # to save, once it trains
        self.wait()
        number = self.rng.choice([signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGUSR1])
        process.send_signal(number)
        self.check(self.finish(process), 0, 128 + number, 128 + signal.SIGUSR2)

    def a_failing_file(self) -> None:
        kind = self.rng.choice(["kill", "ENOSPC", "EIO", "slow"])
        env = self.with_fault(self.model_dir, kind, self.rng.randrange(1, 120))
        self.check(self.finish(self.begin(env=env)), 0, 137 if kind == "kill" else 74)

    def a_failing_read(self) -> None:
        place = self.rng.choice([self.model_dir, self.data_dir])
        env = self.with_fault(place, "EIO", self.rng.randrange(1, 30), call="read")
        self.check(self.finish(self.begin(env=env)), 0, 74)

    def a_pause(self) -> None:
        process = self.begin()
        self.wait()
        process.send_signal(signal.SIGSTOP)
        self.wait()
        process.send_signal(signal.SIGCONT)
        self.check(self.finish(process), 0)

    def a_limit(self) -> None:
        what, limit = self.rng.choice(
            [
                (resource.RLIMIT_AS, self.rng.randrange(150, 900) * MEGABYTE),
                (resource.RLIMIT_FSIZE, self.rng.randrange(50 * MEGABYTE)),
                (resource.RLIMIT_NOFILE, self.rng.randrange(4, 20)),
            ]
        )
        process = self.begin(preexec_fn=lambda: resource.setrlimit(what, (limit, limit)))
        self.what += f" {what} {limit}"
        # 127: the loader has no room for the libraries.
        self.check(self.finish(process), 0, 1, 74, 127)

    def a_clock_that_jumps(self) -> None:
        seconds = self.rng.randrange(-(10**9), 10**9)
        self.check(self.finish(self.begin(env={"LD_PRELOAD": str(self.library), "FAULTS_CLOCK": str(seconds)})), 0)

    def a_second_run(self) -> None:
        first, second = self.begin(), self.begin()
        outcomes = [self.finish(first), self.finish(second)]
        for outcome in outcomes:
            self.check(outcome, 0, 73)
        self.assertIn(0, [outcome.code for outcome in outcomes], self.what)

    def damage(self) -> None:
        steps = [int(p.name.split("-")[1].split(".")[0]) for p in self.model_dir.glob("model.ckpt-*.index")]
        if len(steps) < 2:
            self.check(self.finish(self.begin()), 0)
            return
        path = self.rng.choice([*self.model_dir.glob(f"model.ckpt-{max(steps)}.*"), self.model_dir / "checkpoint"])
        good = path.read_bytes()
        at = self.rng.randrange(len(good))
        path.unlink()
        damages: list[Callable[[], object]] = [
            lambda: None,
            lambda: path.write_bytes(good[:at]),
            lambda: path.write_bytes(good[:at] + bytes([good[at] ^ 1 << self.rng.randrange(8)]) + good[at + 1 :]),
            lambda: path.write_bytes(bytes(len(good))),
        ]
        self.rng.choice(damages)()
        self.check(self.finish(self.begin()), 0)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--saves", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    arguments, rest = parser.parse_known_args()
    SoakTest.seconds, SoakTest.saves, SoakTest.seed = arguments.seconds, arguments.saves, arguments.seed
    sys.argv[1:] = rest
    harness.main()


if __name__ == "__main__":
    main()
