"""Strangers at the ports of a run change nothing: not its bits, and little of its memory and its log."""

import os
import re
import signal
import threading
import time
from pathlib import Path

from official.faults import certificates, harness, strangers, workers

SLOW = 500  # connections
GARBAGE = 1 << 30  # bytes
SECONDS = 11  # for which they stay: longer than workers wait for a proof
MEMORY = 64 << 10  # KiB that a worker may need for them
QUIET, QUIET_RECORDS = 3, 5  # seconds and records in which no worker's memory grows much, once it has all it needs
SECRET = b"0123456789abcdef"


def peak_memory(pid: int) -> int:
    """The most memory that a process has had, in KiB."""
    return int(re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())[1])


class StrangersTest(workers.WorkersCase):
    # There is always another step to do, and something in the log now and then.
    FLAGS = (
        "--train_epochs=1000000",
        "--epochs_between_evals=1000000",
        "--log_every_n_steps=5",
    )

    def setUp(self) -> None:
        super().setUp()
        # Workers close the connections of strangers, who write on. The programs get the default back.
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        secret = self.folder / "secret"
        secret.write_bytes(SECRET)
        secret.chmod(0o600)
        self.secret = f"--run_secret_file={secret}"

    def own_peaks(self, processes: list, model_dir: Path) -> list[int]:
        """The peak memory of each worker once the training itself, whose frames vary in number, hardly needs more."""
        peaks = [0 for _ in processes]
        now = [peak_memory(process.pid) for process in processes]
        while sum(now) - sum(peaks) > MEMORY // 16:
            peaks, records = now, workers.count_records(model_dir)
            time.sleep(QUIET)
            self.wait_for_records(model_dir, records + QUIET_RECORDS)
            now = [peak_memory(process.pid) for process in processes]
        return now

    def train_among(self, visit, *flags: str) -> list[harness.Outcome]:
        """Trains for as long as visit(addresses) takes, and holds the checkpoint against that of one process."""
        model_dir, alone = self.folder / "model", self.folder / "alone"
        configs = workers.tf_configs(2)
        addresses = workers.addresses_of(configs)
        processes = self.start_workers(model_dir, 2, "--num_cpu_devices=2", *self.FLAGS, *flags, configs=configs)
        self.wait_for_records(model_dir, 3)
        before = self.own_peaks(processes, model_dir)
        visit(addresses)
        records = len((model_dir / "metric.log").read_text().splitlines())
        self.wait_for_records(model_dir, records + 2)
        after = [peak_memory(process.pid) for process in processes]
        processes[0].send_signal(signal.SIGTERM)
        outcomes = [self.finish(process) for process in processes]
        self.assertEqual([outcome.code for outcome in outcomes], [143, 138], "\n".join(o.told for o in outcomes))
        for i in (0, 1):
            self.assertLess(after[i], before[i] + MEMORY, f"memory of worker {i} in KiB")
        step = harness.latest_step(model_dir)
        self.train_alone(alone, *self.FLAGS, steps=step)
        self.assert_same_checkpoint(model_dir, alone, step=step)
        return outcomes

    def assert_counted(self, outcome: harness.Outcome, *reasons: str, seconds: float) -> None:
        """The log has a line about strangers at most every ten seconds, and one with the numbers of these reasons."""
        lines = [line for line in outcome.stderr.splitlines() if "strangers" in line]
        self.assertLessEqual(len(lines), 2 + seconds / 10, outcome.told)
        self.assertIn("in all, refused ", lines[-1], outcome.told)
        for reason in reasons:
            self.assertRegex(lines[-1], rf"\d+ \({re.escape(reason)}", outcome.told)

    def old_hello(self) -> bytes:
        """The hello of worker 1 to worker 0 in a run that is over."""
        trace = self.folder / "trace"
        tracer = ["strace", "-f", "-qq", "-xx", "-s", "1000", "-e", "trace=sendmsg,write,writev", "-o", str(trace)]
        processes = []
        for i, config in enumerate(workers.tf_configs(2)):
            command = self.command(self.folder / "traced", "--batch_size=8", "--max_train_steps=1", self.secret)
            prefix = tracer if i == 1 else []
            processes.append(self.start(prefix + command, env={**os.environ, "TF_CONFIG": config}))
        for process in processes:
            self.assertEqual(self.finish(process).code, 0, "strace must be installed and permitted here")
        hello, *_ = strangers.recorded_hellos(trace.read_text())
        return hello

    def test_strangers_of_all_kinds(self) -> None:
        old = strangers.call(strangers.FRAMES, self.old_hello())
        begin = time.monotonic()

        def visit(addresses: list[str]) -> None:
            until = time.monotonic() + SECONDS
            slow = strangers.Slow(addresses, SLOW)
            flooding = [
                threading.Thread(target=strangers.flood, args=(address, os.urandom(1 << 20), GARBAGE // 2))
                for address in addresses
            ]
            for thread in flooding:
                thread.start()
            while time.monotonic() < until:
                for address in addresses:
                    for _ in range(20):
                        strangers.scan(address)
                    strangers.send(address, b"GET / HTTP/1.1\r\nHost: worker\r\n\r\n")
                    strangers.shake_hands(address)
                    strangers.send(address, old)
                    strangers.send(address, strangers.call(b"/grpc.health.v1.Health/Check", b""))
                    strangers.send(address, strangers.unknown_frames(1 << 20))
                strangers.send(addresses[0], strangers.join())
                slow.drip()
                time.sleep(0.2)
            for thread in flooding:
                thread.join()
            self.wait_until(lambda: slow.count_open() == 0, "no connection without a proof")
            slow.close()

        outcomes = self.train_among(visit, self.secret)
        reasons = [
            "another key than that of this job",
            "a method that workers do not have",
            "too much before a proof",
            "too many others after it",
            "gone without a proof",
        ]
        seconds = time.monotonic() - begin
        self.assert_counted(outcomes[0], *reasons, "another secret than that of this run", seconds=seconds)
        self.assert_counted(outcomes[1], *reasons, seconds=seconds)

    def test_strangers_with_other_certificates(self) -> None:
        certs, other = self.folder / "certs", self.folder / "other"
        for folder in (certs, other):
            certificates.make(folder, "127.0.0.1")
        begin = time.monotonic()

        def visit(addresses: list[str]) -> None:
            for address in addresses:
                strangers.shake_hands(address, other / "127.0.0.1.crt", other / "127.0.0.1.key")
                strangers.shake_hands(address)
                strangers.send(address, strangers.call(strangers.FRAMES, b"hello"))
                strangers.flood(address, os.urandom(1 << 20), 1 << 27)

        for outcome in self.train_among(visit, *certificates.flags(certs)):
            self.assert_counted(outcome, "gone without a proof", seconds=time.monotonic() - begin)


if __name__ == "__main__":
    harness.main()
