"""How a peer is measured: one process, one configuration; its speed is on stdout."""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

DTYPES = ["fp32", "bf16", "fp16"]
LIBRARIES = {"tensorflow": "TensorFlow", "torch": "PyTorch", "ctranslate2": "CTranslate2"}


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser()
    p.add_argument("--model", required=True)
    p.add_argument("--batch_size", type=int, required=True)
    p.add_argument("--dtype", choices=DTYPES, default="fp32", help="of the computation; variables are float32")
    p.add_argument("--threads", type=int, required=True)
    p.add_argument("--warmup_steps", type=int, required=True)
    p.add_argument("--steps", type=int, required=True)
    return p


def print_library() -> None:
    """Prints which one is measured, that this process has imported, and its version."""
    for module, name in LIBRARIES.items():
        if module in sys.modules:
            print(f"library: {name} {sys.modules[module].__version__}")


def bytes_sent() -> int:
    """Of all network devices that this process sees, since they are there."""
    lines = Path("/proc/self/net/dev").read_text().splitlines()[2:]
    return sum(int(line.split(":")[1].split()[8]) for line in lines)


def measure(step: Callable[[], Any], args: argparse.Namespace) -> None:
    """Runs step(), which trains once and returns the loss as something float() reads, and prints what bench.py reads,
    in our own words."""
    print_library()
    loss = float(step())
    # bench.py tells when it started this process, on the clock that all processes share.
    first_step_ns = time.monotonic_ns() - int(os.environ["BENCH_STARTED_NS"])
    print(f"first training step done {first_step_ns // 1_000_000} ms after process start")
    for _ in range(args.warmup_steps - 1):
        loss = step()
    float(loss)
    start, cpu, sent = time.perf_counter(), time.process_time(), bytes_sent()
    for _ in range(args.steps):
        loss = step()
    float(loss)
    seconds = time.perf_counter() - start
    record = {"examples_per_sec": args.steps * args.batch_size / seconds}
    record["cpu_ms_per_step"] = 1e3 * (time.process_time() - cpu) / args.steps
    record["network_bytes_per_step"] = (bytes_sent() - sent) / args.steps
    print(json.dumps(record))
