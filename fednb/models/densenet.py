"""DenseNet-121 for small images, with GroupNorm or BatchNorm."""

from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional

from fednb.models.resnet import conv, norm
from fednb.models.small import Input, InputTooSmall

GROWTH = 32  # channels that every layer adds
DEPTHS = (6, 12, 24, 16)  # layers of the four dense blocks


class Layer(nn.Module):
    """Two convolutions, 1x1 and 3x3, each behind a normalisation and ReLU (Huang et al. 2017, DenseNet-B).

    What they find is put in front of the input's channels, as in FedLAW's code. The order matters to GroupNorm.
    """

    def __init__(self, channels: int, kind: str):
        super().__init__()
        self.bn1, self.conv1 = norm(kind, channels), conv(channels, 4 * GROWTH, 1)
        self.bn2, self.conv2 = norm(kind, 4 * GROWTH), conv(4 * GROWTH, GROWTH, 3)

    def forward(self, x: Tensor) -> Tensor:
        new = self.conv1(functional.relu(self.bn1(x)))
        new = self.conv2(functional.relu(self.bn2(new)))
        return torch.cat([new, x], 1)


class Transition(nn.Module):
    """Between two dense blocks: half the channels, half the side of the image (DenseNet-C, compression 0.5)."""

    def __init__(self, channels: int, kind: str):
        super().__init__()
        self.bn, self.conv = norm(kind, channels), conv(channels, channels // 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        return functional.avg_pool2d(self.conv(functional.relu(self.bn(x))), 2)


class DenseNet(nn.Module):
    """A 3x3 stem, dense blocks with transitions between them, the mean over the image, a linear layer.

    Parameters are named conv1, dense1.0.bn1, ..., trans1.bn, ..., bn, fc (bn also where it is a GroupNorm) and start as
    PyTorch starts them.
    """

    def __init__(self, classes: int, channels: int, kind: str):
        super().__init__()
        wide = 2 * GROWTH
        self.conv1 = conv(channels, wide, 3)
        self.stages: list[str] = []
        for i, depth in enumerate(DEPTHS, start=1):
            self.add_stage(f"dense{i}", nn.Sequential(*(Layer(wide + GROWTH * j, kind) for j in range(depth))))
            wide += GROWTH * depth
            if i < len(DEPTHS):
                self.add_stage(f"trans{i}", Transition(wide, kind))
                wide //= 2
        self.bn = norm(kind, wide)
        self.fc = nn.Linear(wide, classes)

    def add_stage(self, name: str, stage: nn.Module) -> None:
        """Put a block or a transition behind those that are there."""
        self.add_module(name, stage)
        self.stages.append(name)

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv1(x)
        for stage in self.stages:
            x = getattr(self, stage)(x)
        return self.fc(functional.relu(self.bn(x)).mean((2, 3)))  # adaptive pooling: any image from 8x8 fits


def densenet121(classes: int, input: Input, kind: str) -> DenseNet:
    """FedLAW's CIFAR form of DenseNet-121 (FedFFT, SpecGradFilter): growth 32, blocks of 6, 12, 24 and 16 layers.

    6,956,298 parameters for 10 classes. The released code pools over a fixed 4x4, which fits 32x32 images only. FedFFT
    says "GN after the final dense block"; we read that as GroupNorm everywhere, as SpecGradFilter has it.
    """
    least = 2 ** (len(DEPTHS) - 1)
    if min(input[1:]) < least:
        raise InputTooSmall(
            f"'densenet121-{kind}' halves the image {len(DEPTHS) - 1} times and needs at least {least}x{least}, "
            f"not {input[1]}x{input[2]}. Use 'cnn-small' (from 4x4) or a ResNet."
        )
    return DenseNet(classes, input[0], kind)


DENSENETS = {
    "densenet121-gn": partial(densenet121, kind="gn"),
    "densenet121-bn": partial(densenet121, kind="bn"),
}
