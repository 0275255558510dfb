"""Trains mnist without dropout on the CPU and on the GPU from one checkpoint and compares the loss of every step."""

import argparse
import json
import shutil
import subprocess
import sys
from pathlib import Path

FIRST_STEP, NUM_STEPS = 10, 20
TOLERANCE = 1e-4  # relative


def train(binary: Path, model_dir: Path, num_gpus: int, last_step: int) -> None:
    # The layout is named because it is part of the checkpoint, and differs between CPU and GPU by default.
    command = [str(binary), f"--model_dir={model_dir}", f"--num_gpus={num_gpus}", f"--max_train_steps={last_step}"]
    command += ["--dropout_rate=0", "--data_format=channels_last", "--log_every_n_steps=1", "--log_format=simple"]
    if status := subprocess.run(command).returncode:
        sys.exit(f"parity.py: --num_gpus={num_gpus} failed (exit status {status}): see its message above")


def training_losses(model_dir: Path) -> dict[int, float]:
    """Of the steps after the checkpoint. The evaluation's loss comes last and under the same name."""
    losses: dict[int, float] = {}
    for line in (model_dir / "metric.log").read_text().splitlines():
        record = json.loads(line)
        if record["name"] == "loss" and record["global_step"] > FIRST_STEP:
            losses.setdefault(record["global_step"], record["value"])
    return losses


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("binary", type=Path, help="mnist_main")
    parser.add_argument("output", type=Path, help="folder for the runs and for parity.json")
    args = parser.parse_args()
    shutil.rmtree(args.output, ignore_errors=True)

    start = args.output / "start"
    train(args.binary, start, num_gpus=0, last_step=FIRST_STEP)
    losses = []
    for name, num_gpus in ("cpu", 0), ("gpu", 1):
        shutil.copytree(start, args.output / name)
        train(args.binary, args.output / name, num_gpus, FIRST_STEP + NUM_STEPS)
        losses.append(training_losses(args.output / name))

    steps = []
    for step in range(FIRST_STEP + 1, FIRST_STEP + NUM_STEPS + 1):
        cpu, gpu = (of_device[step] for of_device in losses)
        steps.append({"step": step, "cpu": cpu, "gpu": gpu, "relative_difference": abs(cpu - gpu) / abs(cpu)})
        print("step {step}: cpu {cpu:.7f}, gpu {gpu:.7f}, relative difference {relative_difference:.2e}".format(**steps[-1]))
    (args.output / "parity.json").write_text(json.dumps(steps, indent=1))
    for run in "start", "cpu", "gpu":
        shutil.rmtree(args.output / run)
    worst = max(steps, key=lambda s: s["relative_difference"])
    print(f"largest difference {worst['relative_difference']:.2e} at step {worst['step']}; allowed: {TOLERANCE}")
    # Written so that NaN fails.
    if not all(s["relative_difference"] <= TOLERANCE for s in steps):
        sys.exit("parity.py: CPU and GPU differ")


if __name__ == "__main__":
    main()
