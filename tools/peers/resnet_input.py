"""What the peers' inputs of ResNet share: their flags, the numbers of the preprocessing, and how they are measured."""

import argparse
import time
from collections.abc import Iterable
from typing import Any

import timing

IMAGENET_SIZE = 224
IMAGENET_SHORT_SIDE = 256  # in validation, before the middle is taken
IMAGENET_MEANS = [123.68, 116.78, 103.94]
CIFAR10_SIZE = 32
CIFAR10_BORDER = 4  # of zeros, by which training shifts an image at most
# A batch makes memory and threads that later ones use again.
WARMUP_BATCHES = 3


def parse_args(description: str) -> argparse.Namespace:
    p = argparse.ArgumentParser(description=description)
    p.add_argument("--dataset", choices=["cifar10", "imagenet"], default="imagenet")
    p.add_argument("--data_dir", required=True)
    p.add_argument("--split", choices=["train", "validation"], default="train")
    p.add_argument("--threads", type=int, default=1, help="that make images")
    p.add_argument("--batch_size", type=int, default=32)
    p.add_argument("--seconds", type=float, default=10)
    return p.parse_args()


def measure(dataset: Iterable[tuple[Any, Any]], seconds: float) -> None:
    """Takes batches (images, labels) of an endless data set, and prints what bench.py reads, in our own words."""
    timing.print_library()
    batches = iter(dataset)
    for _ in range(WARMUP_BATCHES):
        next(batches)
    start, processor_start, count = time.perf_counter(), time.process_time(), 0
    while time.perf_counter() - start < seconds:
        count += len(next(batches)[1])
    elapsed, processor_seconds = time.perf_counter() - start, time.process_time() - processor_start
    print(f"{count / elapsed:.1f} images/s, {count / processor_seconds:.1f} per second of processor time")
