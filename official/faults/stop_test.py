"""Signals, and a second run on the same directory."""

import json
import os
import re
import resource
import signal
import socket
import struct
import subprocess
import time
from pathlib import Path

from official.faults import harness, workers
from official.faults.losses import ENDLESS

STEPS = 150
FLAGS = ("--train_epochs=25", "--epochs_between_evals=25", f"--max_train_steps={STEPS}")
MORE = 10  # steps of a run that goes on after a stop
SLOW = 2 * harness.DEADLINE  # seconds of a call that a run must not wait for


class StopTest(harness.FaultTest):
    def begin(self, model_dir: Path, *flags: str, **popen) -> subprocess.Popen:
        """Starts a run that goes on until something happens, and waits until it has done a few steps."""
        log = self.folder / f"log of {model_dir.name}"
        process = self.start(self.command(model_dir, *(flags or ENDLESS)), log=log, **popen)
        self.wait_until(lambda: workers.count_records(model_dir) >= 5, "a few steps", log.read_text)
        return process

    def check_resumes(self, model_dir: Path) -> None:
        """A run that goes on has the bits of one that was not stopped."""
        steps = harness.latest_step(model_dir) + MORE
        whole = self.folder / f"whole to {steps}"
        for each in (model_dir, whole):
            self.train(each, steps, *ENDLESS)
        self.assert_same_checkpoint(model_dir, whole, step=steps)
        self.assert_no_temporaries(model_dir)

    @harness.of_every_program
    def test_signals_save_and_stop(self) -> None:
        for name in ("SIGTERM", "SIGINT", "SIGUSR1"):
            with self.subTest(name):
                number = signal.Signals[name]
                model_dir = self.folder / name
                process = self.begin(model_dir)
                process.send_signal(number)
                outcome = self.finish(process)
                self.assertEqual(outcome.code, 128 + number, outcome.told)
                step = harness.latest_step(model_dir)
                self.assertGreaterEqual(step, 5, outcome.told)
                self.assertIn(f"stopped at step {step}", outcome.stderr)
                self.check_resumes(model_dir)

    @harness.of_every_program
    def test_a_wish_to_save_is_answered(self) -> None:
        model_dir = self.folder / "model"
        process = self.begin(model_dir, *ENDLESS, "--keep_checkpoint_max=0")
        process.send_signal(signal.SIGUSR2)
        self.wait_until(lambda: harness.latest_step(model_dir) > 0, "a checkpoint")
        process.send_signal(signal.SIGTERM)
        outcome = self.finish(process)
        saved = re.search(r"saved checkpoint of step (\d+) on SIGUSR2", outcome.stderr)
        self.assertIsNotNone(saved, outcome.told)
        self.assertTrue((model_dir / f"model.ckpt-{saved[1]}.index").exists(), outcome.told)

    def test_a_signal_at_any_moment(self) -> None:
        whole = self.folder / "whole"
        start = time.monotonic()
        self.execute(self.command(whole, *FLAGS))
        duration = time.monotonic() - start
        model_dir = self.folder / "model"
        for i in range(8):
            process = self.start(self.command(model_dir, *FLAGS))
            time.sleep(duration * i / 16)
            process.send_signal(signal.SIGTERM)
            outcome = self.finish(process)
            self.assertIn(outcome.code, (0, 143), outcome.told)
        self.execute(self.command(model_dir, *FLAGS))
        self.assert_same_checkpoint(model_dir, whole, step=STEPS)
        self.assert_no_temporaries(model_dir)

    def test_a_signal_in_a_slow_save_and_a_second_one(self) -> None:
        model_dir, first = self.folder / "model", 5
        self.train(model_dir, first)
        env = self.with_fault(model_dir, "slow", 1, call="fsync", path=f"ckpt-{first + 1}.data", seconds=SLOW)
        process = self.start(self.command(model_dir, f"--max_train_steps={first + 1}"), env={**os.environ, **env})
        held_up = f"model.ckpt-{first + 1}.index.incomplete-*"
        self.wait_until(lambda: any(model_dir.glob(held_up)), "a save")
        process.send_signal(signal.SIGINT)
        # Else the system takes both for one.
        self.wait_until(lambda: not harness.has_signal(process.pid, signal.SIGINT, "ShdPnd"), "the first one is taken")
        process.send_signal(signal.SIGINT)
        outcome = self.finish(process)  # which is before the save could end
        self.assertEqual(outcome.code, 130, outcome.told)
        self.assertEqual(harness.latest_step(model_dir), first)

    def test_a_signal_in_an_evaluation(self) -> None:
        # 30,000 images, 10 at a time, take a while.
        images = struct.pack(">4I", 2051, 30000, 28, 28) + bytes(30000 * 784)
        (self.data_dir / "t10k-images-idx3-ubyte").write_bytes(images)
        (self.data_dir / "t10k-labels-idx1-ubyte").write_bytes(struct.pack(">2I", 2049, 30000) + bytes(30000))
        model_dir, steps = self.folder / "model", 5
        command = self.command(model_dir, f"--max_train_steps={steps}")
        process = self.start(command)
        self.wait_until(lambda: harness.latest_step(model_dir) == steps, "the checkpoint before the evaluation")
        process.send_signal(signal.SIGTERM)
        outcome = self.finish(process)
        self.assertEqual(outcome.code, 143, outcome.told)
        self.assertIn(f"stopped in the evaluation at step {steps}", outcome.stderr)
        self.assertNotIn("accuracy", harness.metrics(model_dir)[1])
        self.assertEqual(self.execute(command).code, 0)
        self.assertIn("accuracy", harness.metrics(model_dir)[1])

    def check_signal_before_training(self, data_dir: Path, env: dict[str, str], begins) -> None:
        """A signal ends a run that cannot read its data; begins(process) waits until it tries to."""
        model_dir = self.folder / f"model of {data_dir.name}"
        process = self.start(self.command(model_dir, data_dir=data_dir), env={**os.environ, **env})
        begins(process)
        process.send_signal(signal.SIGTERM)
        outcome = self.finish(process)
        self.assertEqual(outcome.code, 143, outcome.told)
        self.assertEqual(harness.latest_step(model_dir), 0)
        self.train(model_dir, 2)

    def test_a_signal_in_a_slow_read(self) -> None:
        def begins(process: subprocess.Popen) -> None:
            self.wait_until(lambda: harness.has_open(process.pid, self.data_dir), "a file of the data is open")

        slow = self.with_fault(self.data_dir, "slow", 1, call="read", seconds=SLOW)
        self.check_signal_before_training(self.data_dir, slow, begins)

    def test_a_signal_in_a_download(self) -> None:
        # From a server that says nothing.
        with socket.create_server(("127.0.0.1", 0)) as server:
            server.settimeout(harness.DEADLINE)

            def begins(_) -> None:
                connection, _ = server.accept()
                self.addCleanup(connection.close)

            (self.folder / "empty").mkdir()
            proxy = {"https_proxy": f"http://127.0.0.1:{server.getsockname()[1]}"}
            self.check_signal_before_training(self.folder / "empty", proxy, begins)

    def test_hangup_under_nohup(self) -> None:
        process = self.begin(
            self.folder / "model", *FLAGS, preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN)
        )
        process.send_signal(signal.SIGHUP)
        outcome = self.finish(process)
        self.assertEqual(outcome.code, 0, outcome.told)

    def test_sigquit_ends_at_once(self) -> None:
        model_dir = self.folder / "model"
        process = self.begin(model_dir, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CORE, (0, 0)))
        process.send_signal(signal.SIGQUIT)
        outcome = self.finish(process)
        self.assertEqual(outcome.code, 128 + signal.SIGQUIT, outcome.told)
        self.assertEqual(harness.latest_step(model_dir), 0, outcome.told)
        self.check_resumes(model_dir)

    def test_crashes_keep_their_status_and_the_checkpoint(self) -> None:
        for number in (signal.SIGSEGV, signal.SIGABRT):
            with self.subTest(number.name):
                model_dir = self.folder / number.name
                process = self.begin(model_dir)
                process.send_signal(number)
                outcome = self.finish(process)
                self.assertEqual(outcome.code, 128 + number, outcome.told)
                self.assertIn(f"*** {number.name} received", outcome.stderr)
                self.assertIn("PC: @", outcome.stderr)
                self.check_resumes(model_dir)

    def test_a_crash_without_memory_to_tell_of_it(self) -> None:
        process = self.begin(self.folder / "model")
        used = int(Path(f"/proc/{process.pid}/statm").read_text().split()[0]) * resource.getpagesize()
        resource.prlimit(process.pid, resource.RLIMIT_AS, (used, used))
        process.send_signal(signal.SIGSEGV)
        self.assertEqual(self.finish(process).code, 128 + signal.SIGSEGV)

    @harness.of_every_program
    def test_two_runs_on_one_directory(self) -> None:
        model_dir = self.folder / "model"
        first = self.begin(model_dir)
        second = self.execute(self.command(model_dir, *FLAGS))
        self.assert_refused(second, 73, model_dir, f"process {first.pid} on {socket.gethostname()}")
        cleaning = self.execute(self.command(model_dir, *FLAGS, "--clean"))
        self.assertNotEqual(cleaning.code, 0, "--clean took the directory from under a run")
        self.assertTrue((model_dir / "metric.log").exists(), cleaning.told)
        first.kill()
        self.finish(first)
        # The lock went with the process; what it wrote into the file does not count.
        self.assertIn(f"process {first.pid}", (model_dir / "run.lock").read_text())
        self.assertEqual(self.execute(self.command(model_dir, *FLAGS)).code, 0)

    def test_a_refused_clean_leaves_the_directory_as_it_is(self) -> None:
        (self.folder / "thesis").mkdir()
        (self.folder / "thesis" / "thesis.tex").touch()
        outcome = self.run_steps(self.folder / "thesis", 5, "--clean")
        self.assert_refused(outcome, 2, "thesis.tex")
        self.assertEqual([p.name for p in (self.folder / "thesis").iterdir()], ["thesis.tex"])

    def test_a_stopped_run_tells_what_continues_it(self) -> None:
        for flag in "--clean", "--resume=never":
            process = self.begin(self.folder / flag, *ENDLESS, flag, "--log_format=json")
            process.send_signal(signal.SIGTERM)
            outcome = self.finish(process)
            end = json.loads(outcome.stderr.splitlines()[-1])
            self.assertEqual((end["event"], end["exit_code"], end["signal"]), ("stop", 143, 15), outcome.told)
            self.assertIn(f"the same command without {flag} continues from it", end["message"])

    def test_resume_flag(self) -> None:
        model_dir = self.folder / "model"
        self.assert_refused(self.run_steps(model_dir, 5, "--resume=must"), 66, "--resume=must", model_dir)
        self.train(model_dir, 5, "--resume=never")
        self.assert_refused(self.run_steps(model_dir, 6, "--resume=never"), 73, "--resume=never", "model.ckpt-5")
        outcome = self.train(model_dir, 6, "--resume=must")
        self.assertTrue(re.search(r"resumed from .*model\.ckpt-5", outcome.stderr), outcome.told)


class Process1Test(harness.FaultTest):
    def test_a_signal_before_the_training(self) -> None:
        # As in a container. Worker 0 waits for the other one.
        for number in (signal.SIGTERM, signal.SIGQUIT):
            with self.subTest(number.name):
                self.check_signal_before_the_training(number)

    def check_signal_before_the_training(self, number: signal.Signals) -> None:
        log = self.folder / f"log of {number.name}"
        process = self.start(
            ["unshare", "--map-root-user", "--pid", "--fork", *self.command(self.folder / number.name)],
            log=log,
            env={**os.environ, "TF_CONFIG": workers.tf_configs(2)[0]},
        )
        self.wait_until(lambda: "cluster of" in log.read_text() or process.poll() is not None, "worker 0", log.read_text)
        if process.poll() is not None:
            outcome = self.finish(process)
            self.assertTrue(outcome.error.startswith("unshare: "), outcome.told)
            self.skipTest(f"no namespace can be made here: {outcome.error}")
        child = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
        os.kill(int(child), number)
        self.assertEqual(self.finish(process).code, 128 + number)


if __name__ == "__main__":
    harness.main()
