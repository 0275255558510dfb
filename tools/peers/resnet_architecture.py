"""The official residual networks, as far as they do not depend on the framework."""

import argparse
from dataclasses import dataclass


@dataclass(frozen=True)
class Architecture:
    version: int
    image_size: int
    num_classes: int
    weight_decay: float
    first: tuple[int, int, int]  # filters, kernel, stride
    pool: bool  # after the first convolution
    bottleneck: bool
    blocks: list[int]  # of each group; the filters double from group to group

    @property
    def expansion(self) -> int:
        return 4 if self.bottleneck else 1

    def block_convolutions(self, filters: int, stride: int) -> list[tuple[int, int, int]]:
        """Filters, kernel and stride."""
        if self.bottleneck:
            return [(filters, 1, 1), (filters, 3, stride), (4 * filters, 1, 1)]
        return [(filters, 3, stride), (filters, 3, 1)]

    def each_block(self) -> list[tuple[int, int, bool]]:
        """Filters, stride, and whether the shortcut is a convolution."""
        return [
            (self.first[0] << group, 2 if group > 0 and i == 0 else 1, i == 0)
            for group, count in enumerate(self.blocks)
            for i in range(count)
        ]


def add_flags(p: argparse.ArgumentParser) -> None:
    """Named as resnet_main names them."""
    p.add_argument("--dataset_name", choices=["cifar10", "imagenet"], default="imagenet")
    p.add_argument("--resnet_size", type=int, default=50)
    p.add_argument("--resnet_version", type=int, choices=[1, 2], default=2)


def architecture(args: argparse.Namespace) -> Architecture:
    if args.dataset_name == "cifar10":
        blocks = [(args.resnet_size - 2) // 6] * 3
        return Architecture(args.resnet_version, 32, 10, 2e-4, (16, 3, 1), False, False, blocks)
    blocks = {18: [2, 2, 2, 2], 34: [3, 4, 6, 3], 50: [3, 4, 6, 3], 101: [3, 4, 23, 3], 152: [3, 8, 36, 3]}
    bottleneck = args.resnet_size >= 50
    return Architecture(args.resnet_version, 224, 1001, 1e-4, (64, 7, 2), True, bottleneck, blocks[args.resnet_size])
