"""Measures a binary of ours and its peers, in turn, several times over, and prints the best of each. See tools/bench.

Every measurement is a process of its own, so that start-up and peak memory are measured alike for all.
"""

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

TOOLS = Path(__file__).resolve().parent.parent
DEFAULT_BATCH_SIZE = {"mnist": 100}


@dataclass
class Contestant:
    name: str
    dtype: str
    command: list[str]
    ours: bool = False


@dataclass
class Measurement:
    examples_per_sec: float
    first_step_ms: float  # from the start of the process until the first step's loss is known
    peak_mb: float


def our_command(args: argparse.Namespace) -> list[str]:
    binary = args.binary
    if not binary:
        package = f"official/{args.model}"
        subprocess.run([TOOLS / "build", f"//{package}:{args.model}_main"], check=True)
        binary = TOOLS.parent / "bazel-bin" / package / f"{args.model}_main"
    command = [str(binary), f"--num_gpus={1 if args.device == 'gpu' else 0}"]
    command += [f"--batch_size={args.batch_size}", f"--dtype={args.dtype}", "--use_synthetic_data", "--log_format=json"]
    # Steps end the run, not epochs.
    command += [f"--max_train_steps={args.warmup_steps + args.steps}"]
    return command + ["--train_epochs=1000000", "--epochs_between_evals=1000000"]


def peer_command(args: argparse.Namespace, script: str, environment: str) -> list[str]:
    """Makes the Python environment where it is missing."""
    python = args.python
    if not python:
        made = subprocess.run([TOOLS / "python_env", environment], check=True, stdout=subprocess.PIPE, text=True)
        python = f"{made.stdout.strip()}/bin/python"
    command = [python, str(TOOLS / "peers" / script), f"--model={args.model}"]
    command += [f"--batch_size={args.batch_size}", f"--threads={args.threads}"]
    return command + [f"--warmup_steps={args.warmup_steps}", f"--steps={args.steps}"]


def contestants(args: argparse.Namespace) -> list[Contestant]:
    """Ours, then each peer in each of its modes. With bf16 the peers run in fp32 too: both ratios are of interest."""
    field = [Contestant(f"official {args.model}_main", args.dtype, our_command(args), ours=True)]
    tensorflow = {
        "TensorFlow graph": [],
        f"TensorFlow graph, {args.threads} inter-op threads": [f"--inter_op_threads={args.threads}"],
        "TensorFlow XLA": ["--xla"],
    }
    pytorch = {
        "PyTorch eager": [],
        "PyTorch eager, channels last": ["--channels_last"],
        "PyTorch compiled": ["--compile"],
        "PyTorch compiled, channels last": ["--compile", "--channels_last"],
    }
    if args.device == "gpu":
        tensorflow = {}  # its environments are for the CPU
        pytorch["PyTorch compiled, CUDA graphs"] = ["--compile", "--cuda_graphs"]
    for script, environment, modes in [
        ("tensorflow_train.py", "tensorflow-bench", tensorflow),
        ("pytorch_train.py", "pytorch", {name: [*flags, f"--device={args.device}"] for name, flags in pytorch.items()}),
    ]:
        wanted = [
            (name, dtype, flags)
            for dtype in dict.fromkeys([args.dtype, "fp32"])
            for name, flags in modes.items()
            if re.search(args.peers, f"{name} ({dtype})", re.IGNORECASE)
        ]
        if wanted:
            command = peer_command(args, script, environment)
            for name, dtype, flags in wanted:
                field.append(Contestant(name, dtype, [*command, *flags, f"--dtype={dtype}"]))
    return field


def run(contestant: Contestant, threads: int) -> Measurement:
    """Runs one process. Exits with its output if it fails."""
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile("w+") as output:
        command = contestant.command + ([f"--model_dir={folder}/model"] if contestant.ours else [])
        environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "TF_CPP_MIN_LOG_LEVEL": "2"}
        environment["BENCH_STARTED_NS"] = str(time.monotonic_ns())
        process = subprocess.Popen(command, env=environment, stdout=output, stderr=subprocess.STDOUT, cwd=folder)
        # wait4 gives the peak memory of this one process.
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        text = output.read()
    if process.returncode:
        sys.exit(f"{' '.join(command)}\n{text}tools/bench: {contestant.name} failed (exit status {process.returncode})")
    return parse_output(text, usage.ru_maxrss / 1024)


def parse_output(text: str, peak_mb: float) -> Measurement:
    """Reads what ours (--log_format=json) and the peers print alike; of several rates the last is over all steps."""
    first_step_ms = re.search(r"first training step done (\d+) ms after process start", text)
    records = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    rates = [record["examples_per_sec"] for record in records if record.get("examples_per_sec")]
    if not first_step_ms or not rates:
        sys.exit(f"{text}tools/bench: no speed in this output")
    return Measurement(rates[-1], float(first_step_ms[1]), peak_mb)


def best(runs: list[Measurement]) -> Measurement:
    return Measurement(
        max(r.examples_per_sec for r in runs), min(r.first_step_ms for r in runs), min(r.peak_mb for r in runs)
    )


def print_table(results: dict[str, list[Measurement]], ours: str) -> None:
    speed = best(results[ours]).examples_per_sec
    print(f"{'':<48}{'examples/s':>11}{'median':>9}{'ours is':>9}{'first step':>13}{'peak memory':>13}")
    for name, runs in results.items():
        b = best(runs)
        middle = median(r.examples_per_sec for r in runs)
        print(
            f"{name:<48}{b.examples_per_sec:>11.0f}{middle:>9.0f}{speed / b.examples_per_sec:>8.2f}x"
            f"{b.first_step_ms / 1000:>11.2f} s{b.peak_mb:>10.0f} MB"
        )


def processor(device: str) -> str:
    if device == "gpu":
        query = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
        return subprocess.run(query, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()[0]
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(": ", 1)[1]
    return platform.machine()


def main() -> None:
    parser = argparse.ArgumentParser(prog="tools/bench", description="Measures our training against its peers'.")
    parser.add_argument("model", choices=DEFAULT_BATCH_SIZE)
    parser.add_argument("--batch_size", type=int, help="examples per step; default: the model's")
    parser.add_argument("--dtype", choices=["fp32", "bf16"], default="fp32", help="of the computation")
    parser.add_argument("--device", choices=["cpu", "gpu"], default="cpu")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="default: one per core")
    parser.add_argument("--repetitions", type=int, default=3, help="rounds over all; the best of each counts")
    parser.add_argument("--warmup_steps", type=int, default=20, help="steps that are not timed")
    parser.add_argument("--steps", type=int, default=100, help="timed steps of one measurement")
    parser.add_argument("--peers", default="", help="only peers whose name matches this, as in --peers='eager.*bf16'")
    parser.add_argument("--binary", type=Path, help="our program; default: built now")
    parser.add_argument("--python", help="runs the peers; default: an environment made for each")
    parser.add_argument("--json", type=Path, help="also write all measurements to this file")
    args = parser.parse_args()
    args.batch_size = args.batch_size or DEFAULT_BATCH_SIZE[args.model]

    field = contestants(args)
    names = [f"{c.name} ({c.dtype})" for c in field]
    results: dict[str, list[Measurement]] = {name: [] for name in names}
    for repetition in range(args.repetitions):
        for name, contestant in zip(names, field):
            print(f"round {repetition + 1} of {args.repetitions}: {name}", file=sys.stderr)
            results[name].append(run(contestant, args.threads))

    print(f"{args.model}, batch {args.batch_size}, {args.threads} threads, {processor(args.device)}")
    print(f"best of {args.repetitions} interleaved runs of {args.steps} steps after {args.warmup_steps}")
    print_table(results, names[0])
    for dtype in dict.fromkeys(c.dtype for c in field):
        rivals = [name for name, c in zip(names, field) if c.dtype == dtype and not c.ours]
        if rivals:
            rival = max(rivals, key=lambda name: best(results[name]).examples_per_sec)
            ratio = best(results[names[0]]).examples_per_sec / best(results[rival]).examples_per_sec
            print(f"against the best {dtype} peer, {rival}: {ratio:.2f}x")
    if args.json:
        args.json.write_text(json.dumps({name: [asdict(r) for r in runs] for name, runs in results.items()}, indent=1))


if __name__ == "__main__":
    main()
