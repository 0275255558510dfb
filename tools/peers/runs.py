"""Runs of a program of ours or of a peer, of one process or of several that train together, and what they print."""

import contextlib
import json
import os
import re
import resource
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import cluster


@dataclass
class Contestant:
    name: str
    dtype: str
    command: list[str]
    ours: bool = False
    rate: str = r"([\d.]+) (?:images|tokens|users)/s"  # in its output; else that of training
    workers: int = 1  # processes, of the batch and the threads together
    environment: Callable[[list[str], int], dict[str, str]] | None = None  # of a worker, by all addresses

    @property
    def title(self) -> str:
        return f"{self.name} ({self.dtype})"


@dataclass
class Measurement:
    examples_per_sec: float
    first_step_ms: float  # from the start of the process until the first step's loss is known; of input 0
    peak_mb: float
    other_cores: float  # that other processes were busy on meanwhile
    cpu_ms: float = 0  # of all processes, a training step
    sent_mb: float = 0  # by a worker, a training step
    sum_ms: float = 0  # of ours: the sums with other workers, a step
    sum_waited_ms: float = 0  # those of them in which the worker had nothing else to do
    library: str = ""  # of a peer: its name and version, as "PyTorch 2.15.0"


@contextlib.contextmanager
def busy_loops(number: int, threads: int) -> Iterator[None]:
    """So many processes that do nothing but compute, on the cores that runs of so many threads have."""
    command = ["sh", "-c", "while :; do :; done"]
    loops = [subprocess.Popen(command, preexec_fn=lambda: stay_on_cores(threads)) for _ in range(number)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def cores_busy() -> float:
    """Seconds of all cores together since the start of the machine."""
    user, nice, system, _, _, irq, softirq = map(int, Path("/proc/stat").read_text().split(maxsplit=8)[1:8])
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


class RunFailed(Exception):
    """The output of a process that failed, and in the last line which it was."""


def run(contestant: Contestant, threads: int, deadline: float | None, network: cluster.Network) -> Measurement:
    """Runs the processes of a contestant, which are ended after so many seconds."""
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        saves = any(flag.startswith("--max_train_steps") for flag in contestant.command)
        saves = saves and "--eval_only" not in contestant.command
        command = contestant.command + ([f"--model_dir={folder}/model"] if saves else [])
        outputs = [stack.enter_context(tempfile.TemporaryFile("w+")) for _ in range(contestant.workers)]
        start, busy = time.monotonic_ns(), cores_busy()
        processes = start_all(contestant, command, threads, network, folder, outputs)
        usages, failure = wait_for_all(processes, deadline)
        nanoseconds = time.monotonic_ns() - start
        cpu_seconds = sum(usage.ru_utime + usage.ru_stime for usage in usages)
        other_cores = max(0, (cores_busy() - busy - cpu_seconds) * 1e9 / nanoseconds)
        texts = []
        for output in outputs:
            output.seek(0)
            texts.append(output.read())
    if failure:
        worker, returncode = failure
        why = f"exit status {returncode}" if returncode > 0 else f"ended by signal {-returncode}"
        if returncode == -signal.SIGKILL:
            late = deadline and nanoseconds >= 1e9 * deadline
            why = f"ended after {deadline:g} seconds" if late else "killed, as the kernel does when memory runs out"
        raise RunFailed(f"{' '.join(command)}\n{texts[worker]}tools/bench: {contestant.name} failed ({why})")
    peak_mb = sum(usage.ru_maxrss for usage in usages) / 1024
    measurement = parse_output(texts[0], contestant.rate, peak_mb, other_cores)
    if contestant.ours:
        measurement.cpu_ms = 1e3 * cpu_seconds / steps_of(contestant.command)
    elif measurement.cpu_ms:  # what each saw of the one network, or of its own
        measurement.cpu_ms *= contestant.workers
        if not network.spaces:
            measurement.sent_mb /= contestant.workers
    return measurement


def start_all(
    contestant: Contestant,
    command: list[str],
    threads: int,
    network: cluster.Network,
    folder: str,
    outputs: list[IO[str]],
) -> list[subprocess.Popen]:
    """Starts the process of each worker; they share so many threads."""
    own_threads = max(1, threads // contestant.workers)
    environment = {**os.environ, "OMP_NUM_THREADS": str(own_threads), "TF_CPP_MIN_LOG_LEVEL": "2"}
    environment["BENCH_STARTED_NS"] = str(time.monotonic_ns())
    addresses = network.addresses(contestant.workers)
    processes = []
    for worker, output in enumerate(outputs):
        of_worker = contestant.environment(addresses, worker) if contestant.environment else {}
        prefix = network.prefix(worker) if contestant.workers > 1 else []
        processes.append(
            subprocess.Popen(
                [*prefix, *command],
                env={**environment, **of_worker},
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=folder,
                preexec_fn=lambda: stay_on_cores(threads),
            )
        )
    return processes


def stay_on_cores(threads: int) -> None:
    """A process of so many threads has others too, which must not find cores of their own."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])


def wait_for_all(
    processes: list[subprocess.Popen], deadline: float | None
) -> tuple[list[resource.struct_rusage], tuple[int, int] | None]:
    """Returns what each has used, and the number and exit code of the first that failed, which ends the others."""

    def kill() -> None:
        for process in processes:
            process.kill()

    ending = threading.Timer(deadline or threading.TIMEOUT_MAX, kill)
    ending.daemon = True
    ending.start()
    number_of = {process.pid: i for i, process in enumerate(processes)}
    usages, failure = {}, None
    while len(usages) < len(processes):
        # wait4 gives the peak memory of this one process.
        pid, status, usage = os.wait4(-1, 0)
        if pid not in number_of:
            continue
        number = number_of[pid]
        usages[number] = usage
        processes[number].returncode = code = os.waitstatus_to_exitcode(status)
        if code and failure is None:
            failure = (number, code)
            kill()
    ending.cancel()
    return [usages[i] for i in range(len(processes))], failure


def steps_of(command: list[str]) -> int:
    """That one of ours trains."""
    given = [flag.partition("=")[2] for flag in command if flag.startswith("--max_train_steps=")]
    return int(given[0]) if given else 1


def parse_output(text: str, rate_pattern: str, peak_mb: float, other_cores: float) -> Measurement:
    """Reads what ours (--log_format=json) and the peers print alike; of several rates the last is over all steps."""
    libraries = ", ".join(re.findall(r"^library: (.+)$", text, re.MULTILINE))
    if rate := re.search(rate_pattern, text):
        return Measurement(float(rate[1]), 0, peak_mb, other_cores, library=libraries)
    first_step_ms = re.search(r"first training step done (\d+) ms after process start", text)
    records = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    rates = [record["examples_per_sec"] for record in records if record.get("examples_per_sec")]
    if not first_step_ms or not rates:
        raise RunFailed(f"{text}tools/bench: no speed in this output")
    measurement = Measurement(rates[-1], float(first_step_ms[1]), peak_mb, other_cores, library=libraries)
    for record in records:
        measurement.cpu_ms = record.get("cpu_ms_per_step", measurement.cpu_ms)
        measurement.sent_mb = 1e-6 * record.get("network_bytes_per_step", 1e6 * measurement.sent_mb)
        if record.get("event") == "sums":
            measurement.sent_mb = 1e-6 * record["bytes_sent_per_step"]
            measurement.sum_ms, measurement.sum_waited_ms = record["ms_per_step"], record["waited_ms_per_step"]
    return measurement
