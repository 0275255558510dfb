"""Measures ResNet-50 on a GPU, fed with JPEG files of about the size and detail of ImageNet's photographs."""

import argparse
import json
import os
import random
import re
import subprocess
import sys
import tempfile
from pathlib import Path

SIZE, GRID, QUALITY = (500, 375), (63, 47), 92
DISTINCT_IMAGES, CLASSES = 256, 4


def write_images(folder: Path, copies: int) -> int:
    """Smooth colours with noise in them, some times over. Returns the bytes of the distinct ones."""
    from PIL import Image, ImageChops  # the archive's machine may have none

    chance = random.Random(1)
    total = 0
    for i in range(DISTINCT_IMAGES):
        smooth = Image.frombytes("RGB", GRID, chance.randbytes(3 * GRID[0] * GRID[1]))
        smooth = smooth.resize(SIZE, Image.Resampling.BICUBIC)
        noise = Image.frombytes("RGB", SIZE, chance.randbytes(3 * SIZE[0] * SIZE[1]))
        noise = noise.point(lambda value: value // 10)
        place = folder / f"n{i % CLASSES:08d}"
        place.mkdir(parents=True, exist_ok=True)
        first = place / f"{i}_0.JPEG"
        ImageChops.add(smooth, noise).save(first, quality=QUALITY)
        total += first.stat().st_size
        for copy in range(1, copies):
            os.link(first, place / f"{i}_{copy}.JPEG")
    return total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--programs", type=Path, required=True, help="folder of resnet_main and its converter")
    parser.add_argument("--json", type=Path, required=True, help="file for the speed")
    parser.add_argument("--num_gpus", type=int, default=1)
    parser.add_argument("--resnet_size", type=int, default=50)
    parser.add_argument("--batch_size", type=int, default=256)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--copies", type=int, default=16, help="of each of the files")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        size = write_images(folder / "images", args.copies) / DISTINCT_IMAGES
        for split in "train", "validation":
            converter = [args.programs / "imagenet_to_tfrecords_main", f"--images_dir={folder}/images"]
            converter += [f"--output_dir={folder}/data", f"--split={split}", "--num_shards=16"]
            subprocess.run(converter, check=True)
        command = [args.programs / "resnet_main", f"--data_dir={folder}/data", f"--model_dir={folder}/model"]
        command += [f"--num_gpus={args.num_gpus}", f"--resnet_size={args.resnet_size}", "--dtype=bf16"]
        command += [f"--batch_size={args.batch_size}", f"--max_train_steps={args.steps}", "--log_format=json"]
        command += ["--train_epochs=1000000", "--epochs_between_evals=1000000"]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        print(done.stdout)
        if done.returncode:
            sys.exit(f"jpeg_input.py: resnet_main failed (exit status {done.returncode})")
    rates = [float(rate) for rate in re.findall(r'"examples_per_sec": ?([\d.]+)', done.stdout)]
    if not rates:
        sys.exit("jpeg_input.py: no speed in this output")
    args.json.write_text(json.dumps({"examples_per_sec": rates[-1], "bytes_per_image": size, "steps": args.steps}))
    print(f"{rates[-1]:.0f} images/s, files of {size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
