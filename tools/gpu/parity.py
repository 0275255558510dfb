"""Trains a model on the CPU and on the GPU from one checkpoint, in fp32, and compares the loss of every step.

Dropout is on: it depends on the seed and on an example's place in the batch, not on the device.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from shutil import copytree

FIRST_STEP, NUM_STEPS = 10, 20

# The flags of each model's run, on data that the program makes, and how far a loss may be off relative to the CPU's:
# some hundred times what five steps on emulated GPUs differ by, and more with batch normalization, which makes small
# differences grow.
MODELS = {
    "mnist": (["--batch_size=100"], 1e-4),
    "resnet": (["--dataset_name=cifar10", "--resnet_size=8", "--use_synthetic_data", "--batch_size=32"], 1e-3),
    "transformer": (["--param_set=tiny", "--use_synthetic_data", "--batch_size=1024"], 1e-4),
    "ncf": (["--dataset=ml-100k", "--nodownload_if_missing", "--batch_size=2048"], 1e-4),
}


def train(command: list[str], model_dir: Path, num_gpus: int, last_step: int) -> None:
    # The layout is named because it is part of the checkpoint, and differs between CPU and GPU by default.
    command = [*command, f"--model_dir={model_dir}", f"--num_gpus={num_gpus}", f"--max_train_steps={last_step}"]
    command += ["--data_format=channels_last", "--log_every_n_steps=1", "--log_format=simple"]
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
    parser.add_argument("programs", type=Path, help="folder of mnist_main, resnet_main, ...")
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("output", type=Path, help="file for the losses, as JSON")
    parser.add_argument("--num_gpus", type=int, default=1)
    parser.add_argument("--all_reduce_alg", help="how several GPUs sum gradients")
    args = parser.parse_args()
    flags, tolerance = MODELS[args.model]
    command = [str(args.programs / f"{args.model}_main"), *flags]

    losses = []
    with tempfile.TemporaryDirectory() as folder:
        start = Path(folder, "start")
        train(command, start, num_gpus=0, last_step=FIRST_STEP)
        for name, num_gpus in ("cpu", 0), ("gpu", args.num_gpus):
            copytree(start, Path(folder, name))
            alg = [f"--all_reduce_alg={args.all_reduce_alg}"] if num_gpus > 1 and args.all_reduce_alg else []
            train([*command, *alg], Path(folder, name), num_gpus, FIRST_STEP + NUM_STEPS)
            losses.append(training_losses(Path(folder, name)))

    steps = []
    for step in range(FIRST_STEP + 1, FIRST_STEP + NUM_STEPS + 1):
        cpu, gpu = (of_device[step] for of_device in losses)
        steps.append({"step": step, "cpu": cpu, "gpu": gpu, "relative_difference": abs(cpu - gpu) / abs(cpu)})
        print(f"step {step}: cpu {cpu:.7f}, gpu {gpu:.7f}, relative difference {steps[-1]['relative_difference']:.2e}")
    # Written so that NaN is the worst, and fails.
    worst = min(steps, key=lambda s: -s["relative_difference"] if s["relative_difference"] >= 0 else float("-inf"))
    result = {"model": args.model, "worst": worst["relative_difference"], "step": worst["step"], "allowed": tolerance}
    args.output.write_text(json.dumps({**result, "command": " ".join(command), "steps": steps}, indent=1))
    print(f"largest difference {worst['relative_difference']:.2e} at step {worst['step']}; allowed: {tolerance}")
    if not worst["relative_difference"] <= tolerance:
        sys.exit("parity.py: CPU and GPU differ")


if __name__ == "__main__":
    main()
