"""How a peer's evaluation of neural collaborative filtering is measured: as ncf_main's, by the held-out item's place
among 1000 candidates of each user."""

import argparse
import time
from collections.abc import Callable

import ncf_architecture
import timing

CANDIDATES = 1000
TOP_K = 10


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser()
    ncf_architecture.add_flags(p)
    p.add_argument("--batch_size", type=int, required=True, help="users")
    p.add_argument("--dtype", choices=["fp32", "bf16"], default="fp32")
    p.add_argument("--threads", type=int, required=True)
    p.add_argument("--seconds", type=int, required=True)
    return p


def measure(evaluate: Callable[[], float], args: argparse.Namespace) -> None:
    """evaluate() returns the HR of a batch."""
    timing.print_library()
    for _ in range(3):
        evaluate()
    users, start = 0, time.perf_counter()
    while time.perf_counter() - start < args.seconds:
        evaluate()
        users += args.batch_size
    print(f"{users / (time.perf_counter() - start):.1f} users/s")
