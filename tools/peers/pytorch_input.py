"""Prints how many images a second PyTorch's DataLoader makes of folders of JPEG files or CIFAR-10's binary files. The
transforms are those of torchvision's examples on Pillow images, whose decoding and resizing is the cost."""

import math
import random
from pathlib import Path

import numpy as np
import resnet_input
import torch
from PIL import Image, ImageOps

SIZE = resnet_input.IMAGENET_SIZE
MEANS = torch.tensor(resnet_input.IMAGENET_MEANS).view(3, 1, 1)
# Of CIFAR-10's channels, whose values are from 0 to 1.
CIFAR10_MEANS = torch.tensor([0.4914, 0.4822, 0.4465]).view(3, 1, 1)
CIFAR10_DEVIATIONS = torch.tensor([0.2470, 0.2435, 0.2616]).view(3, 1, 1)
NUM_EXAMPLES = 1_000_000  # of an epoch, which does not end while it is measured


class Photographs(torch.utils.data.Dataset):
    def __init__(self, folder: str, train: bool):
        self.paths = sorted(path for path in Path(folder).rglob("*") if path.suffix.lower() in (".jpg", ".jpeg"))
        self.train = train

    def __len__(self) -> int:
        return NUM_EXAMPLES

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        image = Image.open(self.paths[index % len(self.paths)]).convert("RGB")
        image = distort(image) if self.train else middle(image)
        return to_tensor(image) - MEANS, 0


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
    return mirror_half_of(image)


def middle(image: Image.Image) -> Image.Image:
    scale = resnet_input.IMAGENET_SHORT_SIDE / min(image.size)
    image = image.resize((int(image.width * scale), int(image.height * scale)), Image.Resampling.BILINEAR)
    left, top = (image.width - SIZE) // 2, (image.height - SIZE) // 2
    return image.crop((left, top, left + SIZE, top + SIZE))


def mirror_half_of(image: Image.Image) -> Image.Image:
    return image.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if random.random() < 0.5 else image


def to_tensor(image: Image.Image) -> torch.Tensor:
    return torch.from_numpy(np.array(image)).permute(2, 0, 1).float()


class Cifar10(torch.utils.data.Dataset):
    def __init__(self, folder: str, train: bool):
        size, self.train = resnet_input.CIFAR10_SIZE, train
        files = sorted(Path(folder, "cifar-10-batches-bin").glob("data_batch*.bin" if train else "test_batch.bin"))
        records = np.concatenate([np.fromfile(file, np.uint8) for file in files]).reshape(-1, 1 + 3 * size * size)
        self.labels = records[:, 0].astype(int).tolist()
        self.images = np.ascontiguousarray(records[:, 1:].reshape(-1, 3, size, size).transpose(0, 2, 3, 1))

    def __len__(self) -> int:
        return NUM_EXAMPLES

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        index %= len(self.labels)
        image = Image.fromarray(self.images[index])
        if self.train:
            size, border = resnet_input.CIFAR10_SIZE, resnet_input.CIFAR10_BORDER
            left, top = random.randint(0, 2 * border), random.randint(0, 2 * border)
            image = ImageOps.expand(image, border)
            image = mirror_half_of(image.crop((left, top, left + size, top + size)))
        return (to_tensor(image) / 255 - CIFAR10_MEANS) / CIFAR10_DEVIATIONS, self.labels[index]


def main() -> None:
    args = resnet_input.parse_args(__doc__)
    torch.set_num_threads(1)
    train = args.split == "train"
    loader = torch.utils.data.DataLoader(
        (Photographs if args.dataset == "imagenet" else Cifar10)(args.data_dir, train),
        batch_size=args.batch_size,
        shuffle=train,
        num_workers=args.threads if args.threads > 1 else 0,  # beside the main process
    )
    resnet_input.measure(loader, args.seconds)


if __name__ == "__main__":
    main()
