"""Residual networks with basic blocks, with GroupNorm or BatchNorm: ResNet-20, WRN-56-2, two kinds of ResNet-18."""

from functools import partial

from torch import Tensor, nn
from torch.nn import functional

GROUPS = 2  # FL-Simulator's number of groups in every GroupNorm; FedFFT and SpecGradFilter do not print theirs


def norm(kind: str, channels: int) -> nn.Module:
    """The normalisation layer: "gn" or "bn"."""
    return nn.GroupNorm(GROUPS, channels) if kind == "gn" else nn.BatchNorm2d(channels)


def conv(narrow: int, wide: int, kernel: int, stride: int = 1) -> nn.Conv2d:
    """A convolution without bias that keeps the image's size up to the stride."""
    return nn.Conv2d(narrow, wide, kernel, stride, padding=kernel // 2, bias=False)


class Block(nn.Module):
    """Two 3x3 convolutions and a shortcut, added before the last ReLU (He et al. 2016, the basic block).

    Where the shape changes the shortcut is a 1x1 convolution with its own normalisation.
    """

    def __init__(self, narrow: int, wide: int, stride: int, kind: str):
        super().__init__()
        self.conv1, self.bn1 = conv(narrow, wide, 3, stride), norm(kind, wide)
        self.conv2, self.bn2 = conv(wide, wide, 3), norm(kind, wide)
        self.downsample = None
        if stride != 1 or narrow != wide:
            self.downsample = nn.Sequential(conv(narrow, wide, 1, stride), norm(kind, wide))

    def forward(self, x: Tensor) -> Tensor:
        kept = x if self.downsample is None else self.downsample(x)
        x = functional.relu(self.bn1(self.conv1(x)))
        return functional.relu(self.bn2(self.conv2(x)) + kept)


class ResNet(nn.Module):
    """A stem, stages of basic blocks that halve the image (but the first), the mean over the image, a linear layer.

    Parameters are named as in torchvision (conv1, bn1, layer1.0.conv1, ..., fc), also where bn1 is a GroupNorm.
    imagenet: the 7x7 stem of stride 2 with max-pooling and Kaiming's normal start, as in torchvision; otherwise the
    3x3 stem of the CIFAR networks and PyTorch's own start, as in FedLAW's and FedFSA's code.
    """

    def __init__(self, classes: int, channels: int, widths: tuple[int, ...], depth: int, kind: str, imagenet: bool):
        super().__init__()
        self.imagenet = imagenet
        self.conv1 = conv(channels, widths[0], 7, 2) if imagenet else conv(channels, widths[0], 3)
        self.bn1 = norm(kind, widths[0])
        self.stages = [f"layer{i + 1}" for i in range(len(widths))]
        for i, stage in enumerate(self.stages):
            first = Block(widths[max(i - 1, 0)], widths[i], 2 if i else 1, kind)
            rest = (Block(widths[i], widths[i], 1, kind) for _ in range(depth - 1))
            self.add_module(stage, nn.Sequential(first, *rest))
        self.fc = nn.Linear(widths[-1], classes)
        if imagenet:
            self.apply(kaiming)

    def forward(self, x: Tensor) -> Tensor:
        x = functional.relu(self.bn1(self.conv1(x)))
        if self.imagenet:
            x = functional.max_pool2d(x, 3, stride=2, padding=1)
        for stage in self.stages:
            x = getattr(self, stage)(x)
        return self.fc(x.mean((2, 3)))  # adaptive pooling: any image size fits


def kaiming(layer: nn.Module) -> None:
    """Start a convolution as torchvision does: normal, variance 2 / fan-out."""
    if isinstance(layer, nn.Conv2d):
        nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")


def resnet20(classes: int, input: tuple[int, int, int], kind: str) -> ResNet:
    """The CIFAR ResNet-20 of FedLAW (SpecGradFilter, with GroupNorm): 16/32/64, three blocks a stage, projections.

    272,474 parameters for 10 classes. The released code pools over a fixed 8x8, which fits 32x32 images only.
    """
    return ResNet(classes, input[0], (16, 32, 64), depth=3, kind=kind, imagenet=False)


def wrn56_2(classes: int, input: tuple[int, int, int], kind: str) -> ResNet:
    """The WRN-56-2 of FedLAW (SpecGradFilter, with GroupNorm): ResNet-20's form, 32/64/128, nine blocks a stage.

    3,412,394 parameters for 10 classes. In spite of its name it is not the WideResNet of Zagoruyko and Komodakis 2016:
    the blocks normalise after the convolutions, and there is no dropout.
    """
    return ResNet(classes, input[0], (32, 64, 128), depth=9, kind=kind, imagenet=False)


def resnet18(classes: int, input: tuple[int, int, int], kind: str, imagenet: bool) -> ResNet:
    """ResNet-18, torchvision's or with the 3x3 stem and no max-pooling.

    The first is FL-Simulator's, FedFFT's and FedWMSAM's (GroupNorm; 11,181,642 parameters for 10 classes), the second
    FedFSA's and FedSCAM's (11,173,962).
    """
    return ResNet(classes, input[0], (64, 128, 256, 512), depth=2, kind=kind, imagenet=imagenet)


RESNETS = {
    "resnet20-gn": partial(resnet20, kind="gn"),
    "resnet20-bn": partial(resnet20, kind="bn"),
    "wrn56-2-gn": partial(wrn56_2, kind="gn"),
    "wrn56-2-bn": partial(wrn56_2, kind="bn"),
    "resnet18-gn": partial(resnet18, kind="gn", imagenet=True),
    "resnet18-bn": partial(resnet18, kind="bn", imagenet=True),
    "resnet18-gn-s3": partial(resnet18, kind="gn", imagenet=False),
    "resnet18-bn-s3": partial(resnet18, kind="bn", imagenet=False),
}
