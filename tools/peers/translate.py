"""How a peer's translation is measured: as decode_benchmark_main's, by searches of one length."""

import argparse
import time
from collections.abc import Callable

import timing
import transformer_architecture

BEAM_SIZE = 4


def parse() -> tuple[argparse.Namespace, transformer_architecture.Architecture]:
    p = argparse.ArgumentParser()
    transformer_architecture.add_flags(p)
    p.add_argument("--lengths", required=True, help="ids of each sentence, separated by commas")
    p.add_argument("--steps", type=int, required=True, help="tokens of each translation")
    p.add_argument("--dtype", choices=timing.DTYPES, default="fp32")
    p.add_argument("--device", choices=["cpu", "gpu"], default="cpu")
    p.add_argument("--threads", type=int, required=True)
    p.add_argument("--seconds", type=int, required=True)
    args = p.parse_args()
    args.lengths = [int(length) for length in args.lengths.split(",")]
    return args, transformer_architecture.architecture(args)


def measure(run: Callable[[], int], args: argparse.Namespace) -> None:
    """run() translates once and returns the number of tokens."""
    timing.print_library()
    run()
    tokens, start = 0, time.perf_counter()
    while time.perf_counter() - start < args.seconds:
        tokens += run()
    print(f"{tokens / (time.perf_counter() - start):.1f} tokens/s")
