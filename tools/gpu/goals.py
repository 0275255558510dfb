"""Measures one goal of speed on a GPU: ours alone, or ours and its peers in one run. goals.py lists the goals."""

import argparse
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

TOOLS = Path(__file__).resolve().parent.parent
IMAGES = r"^PyTorch (eager|compiled|compiled, CUDA graphs), channels last"
NO_IMAGES = r"^PyTorch (eager|compiled|compiled, CUDA graphs)"


@dataclass(frozen=True)
class Goal:
    work: str
    aim: str  # in words
    workload: str  # of tools/bench
    dtype: str
    peers: str  # a pattern in their names
    flags: tuple[str, ...] = ()  # of tools/bench
    per_example: int = 1  # of what is counted
    unit: str = "images/s"

    def bench(self) -> list[str]:
        """What tools/bench is called with to measure ours and the peers."""
        flags = [self.workload, "--device=gpu", f"--dtype={self.dtype}", *self.flags]
        return [*flags, f"--peers={self.peers} .{self.dtype}"]


def timed(steps: int, warmup_steps: int, batch_size: int | None = None) -> tuple[str, ...]:
    flags = [f"--steps={steps}", f"--warmup_steps={warmup_steps}"]
    return (*flags, *([f"--batch_size={batch_size}"] if batch_size else []))


MNIST, RESNET_32, RESNET_50 = timed(30000, 1000), timed(2000, 50), timed(200, 20, batch_size=256)
TRANSFORMER, NCF = timed(150, 20, batch_size=16384), timed(200, 20)
# The most informative ones come first.
GOALS = {
    "mnist_bf16": Goal("mnist b100 bf16", "2 M, 10x eager, 2x compiled", "mnist", "bf16", NO_IMAGES, MNIST),
    "resnet50_bf16": Goal(
        "ResNet-50 b256 bf16", "8,000, 1.5x compiled", "resnet-imagenet-50", "bf16", IMAGES, RESNET_50
    ),
    "transformer_base_bf16": Goal(
        *("Transformer base bf16", "1.0 M, 1.8x compiled", "transformer-base", "bf16"),
        *(NO_IMAGES, TRANSFORMER, 128, "tokens/s"),
    ),
    "ncf_bf16": Goal(
        "NCF ml-20m b1M bf16", "300 M, 4x", "ncf-ml-20m-1048576", "bf16", NO_IMAGES, NCF, unit="samples/s"
    ),
    "resnet32_bf16": Goal(
        "ResNet-32 CIFAR b128 bf16", "200 k, 8x eager, 2x compiled", "resnet-cifar10-32", "bf16", IMAGES, RESNET_32
    ),
    "translate_bf16": Goal(
        *("beam-4 translate, base, bf16", "1x CTranslate2", "transformer-decode", "bf16"),
        *("", ("--seconds=5",)),
        unit="tokens/s",
    ),
    "transformer_big_bf16": Goal(
        *("Transformer big bf16", "350 k, 1.8x compiled", "gpu-transformer-big", "bf16"),
        *(NO_IMAGES, TRANSFORMER, 128, "tokens/s"),
    ),
    "resnet50_fp16": Goal(
        "ResNet-50 b256 fp16", "9,000, 1.5x compiled", "resnet-imagenet-50", "fp16", IMAGES, RESNET_50
    ),
    "mnist_fp32": Goal("mnist b100 fp32", "10x eager, 2x compiled", "mnist", "fp32", NO_IMAGES, MNIST),
    "resnet32_fp32": Goal(
        "ResNet-32 CIFAR b128 fp32", "8x eager, 2x compiled", "resnet-cifar10-32", "fp32", IMAGES, RESNET_32
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("goal", nargs="?", choices=GOALS)
    parser.add_argument("--programs", type=Path, help="folder of our programs")
    parser.add_argument("--json", type=Path, help="file for the measurements")
    parser.add_argument("--alone", action="store_true", help="measure no peers")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--run_seconds", type=int, default=120, help="a process that takes longer has failed")
    args = parser.parse_args()
    if not args.goal:
        print("\n".join(GOALS))
        return
    if not args.programs or not args.json:
        parser.error("a goal needs --programs and --json")
    command = [sys.executable, str(TOOLS / "peers/bench.py"), *GOALS[args.goal].bench(), "--keep_going"]
    command += [f"--rounds={args.rounds}", f"--run_seconds={args.run_seconds}", f"--json={args.json}"]
    command += [f"--programs={args.programs}", f"--python={sys.executable}"]
    if args.alone:
        command.append("--peers=ours alone")  # the last --peers counts
    sys.exit(subprocess.run(command).returncode)


if __name__ == "__main__":
    main()
