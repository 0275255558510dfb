"""Prints how many images a second PyTorch's DataLoader makes of folders of JPEG files. The transforms are those of
torchvision's ImageNet example on Pillow images, whose decoding and resizing is the cost."""

import argparse
import math
import random
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image

SIZE = 224
MEAN = torch.tensor([123.68, 116.78, 103.94]).view(3, 1, 1)


class Photographs(torch.utils.data.Dataset):
    def __init__(self, folder: str, train: bool):
        self.paths = sorted(path for path in Path(folder).rglob("*") if path.suffix.lower() in (".jpg", ".jpeg"))
        self.train = train

    def __len__(self) -> int:
        return len(self.paths) * 1000  # so that an epoch does not end while it is measured

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        image = Image.open(self.paths[index % len(self.paths)]).convert("RGB")
        image = distort(image) if self.train else middle(image)
        return torch.from_numpy(np.array(image)).permute(2, 0, 1).float() - MEAN, 0


def distort(image: Image.Image) -> Image.Image:
    for _ in range(10):
        area = image.width * image.height * random.uniform(0.05, 1)
        aspect = math.exp(random.uniform(math.log(0.75), math.log(1.33)))
        width, height = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 0 < width <= image.width and 0 < height <= image.height:
            break
    else:
        width, height = image.size
    left, top = random.randint(0, image.width - width), random.randint(0, image.height - height)
    image = image.crop((left, top, left + width, top + height)).resize((SIZE, SIZE), Image.Resampling.BILINEAR)
    return image.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if random.random() < 0.5 else image


def middle(image: Image.Image) -> Image.Image:
    scale = 256 / min(image.size)
    image = image.resize((int(image.width * scale), int(image.height * scale)), Image.Resampling.BILINEAR)
    left, top = (image.width - SIZE) // 2, (image.height - SIZE) // 2
    return image.crop((left, top, left + SIZE, top + SIZE))


def main() -> None:
    p = argparse.ArgumentParser()
    p.add_argument("--images_dir", required=True)
    p.add_argument("--split", choices=["train", "validation"], default="train")
    p.add_argument("--threads", type=int, default=1, help="worker processes; 1: none beside the main one")
    p.add_argument("--batch_size", type=int, default=32)
    p.add_argument("--seconds", type=float, default=10)
    args = p.parse_args()
    torch.set_num_threads(1)
    loader = torch.utils.data.DataLoader(
        Photographs(args.images_dir, args.split == "train"),
        batch_size=args.batch_size,
        shuffle=args.split == "train",
        num_workers=args.threads if args.threads > 1 else 0,
    )
    batches = iter(loader)
    for _ in range(3):
        next(batches)
    start, processor_start, count = time.perf_counter(), time.process_time(), 0
    while time.perf_counter() - start < args.seconds:
        count += len(next(batches)[1])
    seconds, processor_seconds = time.perf_counter() - start, time.process_time() - processor_start
    print(f"{count / seconds:.1f} images/s, {count / processor_seconds:.1f} per second of processor time")


if __name__ == "__main__":
    main()
