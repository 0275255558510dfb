"""The official residual networks in PyTorch."""

from collections.abc import Iterator

import torch
from resnet_architecture import Architecture
from torch import nn


def conv(inputs: int, filters: int, kernel: int, stride: int) -> nn.Conv2d:
    return nn.Conv2d(inputs, filters, kernel, stride, padding=(kernel - 1) // 2, bias=False)


def norm(channels: int) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(channels, eps=1e-5, momentum=1 - 0.997)


def norm_relu(channels: int) -> list[nn.Module]:
    return [norm(channels), nn.ReLU(inplace=True)]


class BlockV1(nn.Module):
    def __init__(self, inputs: int, convolutions: list[tuple[int, int, int]], stride: int, project: bool):
        super().__init__()
        outputs, layers, channels = convolutions[-1][0], [], inputs
        for filters, kernel, step in convolutions:
            layers += [conv(channels, filters, kernel, step), *norm_relu(filters)]
            channels = filters
        self.main = nn.Sequential(*layers[:-1])  # the sum comes before the last ReLU
        self.shortcut = nn.Sequential(conv(inputs, outputs, 1, stride), norm(outputs)) if project else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.relu(self.main(x) + self.shortcut(x), inplace=True)


class BlockV2(nn.Module):
    def __init__(self, inputs: int, convolutions: list[tuple[int, int, int]], stride: int, project: bool):
        super().__init__()
        outputs, layers, channels = convolutions[-1][0], [], inputs
        self.before = nn.Sequential(*norm_relu(inputs))
        for filters, kernel, step in convolutions:
            layers += [conv(channels, filters, kernel, step), *norm_relu(filters)]
            channels = filters
        self.main = nn.Sequential(*layers[:-2])
        self.projection = conv(inputs, outputs, 1, stride) if project else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.before(x)
        return self.main(y) + (x if self.projection is None else self.projection(y))


def layers(a: Architecture) -> Iterator[nn.Module]:
    filters, kernel, stride = a.first
    yield conv(3, filters, kernel, stride)
    if a.version == 1:
        yield from norm_relu(filters)
    if a.pool:
        yield nn.MaxPool2d(3, 2, padding=1)
    channels, block = filters, BlockV1 if a.version == 1 else BlockV2
    for filters, stride, project in a.each_block():
        yield block(channels, a.block_convolutions(filters, stride), stride, project)
        channels = filters * a.expansion
    if a.version == 2:
        yield from norm_relu(channels)
    yield from (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, a.num_classes))


def build(a: Architecture, batch_size: int) -> tuple[nn.Module, list[torch.Tensor], torch.optim.Optimizer]:
    """The module, its batch (images NCHW, labels) and SGD with momentum and weight decay."""
    model = nn.Sequential(*layers(a))
    batch = [torch.randn(batch_size, 3, a.image_size, a.image_size), torch.randint(a.num_classes, (batch_size,))]
    norms = [p for m in model.modules() if isinstance(m, nn.BatchNorm2d) for p in m.parameters(recurse=False)]
    if a.image_size == 32:
        norms = []  # CIFAR-10's are decayed as all else
    others = [p for p in model.parameters() if all(p is not n for n in norms)]
    groups = [{"params": others, "weight_decay": a.weight_decay}, {"params": norms, "weight_decay": 0}]
    groups = [group for group in groups if group["params"]]
    return model, batch, torch.optim.SGD(groups, lr=0.01, momentum=0.9, fused=True)
