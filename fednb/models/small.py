"""Small convolutional networks: two or three convolutions, then linear layers."""

from collections.abc import Callable
from functools import partial

from torch import Tensor, nn
from torch.nn import functional

from fednb.models.pooling import halved
from fednb.models.resnet import norm

Input = tuple[int, int, int]


class WrongInput(ValueError):
    """A shape or a number of classes that a model cannot have."""


class InputTooSmall(WrongInput):
    """Nothing is left of the image, or of the text, where the linear layers begin."""


class Cnn(nn.Module):
    """Convolutions, each with ReLU and 2x2 max-pooling, then linear layers with ReLU between them.

    widths: channels of the convolutions. hidden: widths of the linear layers before the last. kind: "gn" or "bn" puts
    a normalisation behind each convolution, "" nothing. Layers are named conv1, bn1, conv2, ..., fc1, fc2, ... (bn1
    also where it is a GroupNorm) and start as PyTorch starts them.
    """

    def __init__(
        self,
        name: str,
        classes: int,
        input: Input,
        widths: tuple[int, ...],
        hidden: tuple[int, ...],
        kernel: int,
        padding: int,
        kind: str = "",
    ):
        super().__init__()
        channels, *sides = input
        rows, columns = (left(side, kernel, padding, len(widths)) for side in sides)
        if min(rows, columns) < 1:
            least = next(side for side in range(1, 99) if left(side, kernel, padding, len(widths)) >= 1)
            raise InputTooSmall(
                f"{name!r} needs images of at least {least}x{least}, not {sides[0]}x{sides[1]}. "
                "Use 'cnn-small' (from 4x4) or a ResNet."
            )
        self.depth, self.normalised = len(widths), bool(kind)
        for i, (narrow, wide) in enumerate(zip((channels, *widths), widths, strict=False), start=1):
            self.add_module(f"conv{i}", nn.Conv2d(narrow, wide, kernel, padding=padding))
            if kind:
                self.add_module(f"bn{i}", norm(kind, wide))
        sizes = (widths[-1] * rows * columns, *hidden, classes)
        self.linear = [f"fc{i}" for i in range(1, len(sizes))]
        for layer, wide, narrow in zip(self.linear, sizes, sizes[1:], strict=False):
            self.add_module(layer, nn.Linear(wide, narrow))

    def forward(self, x: Tensor) -> Tensor:
        for i in range(1, self.depth + 1):
            x = getattr(self, f"conv{i}")(x)
            x = getattr(self, f"bn{i}")(x) if self.normalised else x
            x = functional.relu(halved(x))  # the same numbers as the other way round, and a quarter of them
        x = x.flatten(1)
        for layer in self.linear[:-1]:
            x = functional.relu(getattr(self, layer)(x))
        return getattr(self, self.linear[-1])(x)


def left(side: int, kernel: int, padding: int, times: int) -> int:
    """What is left of an image's side after so many convolutions, each with its 2x2 pooling."""
    for _ in range(times):
        side = max(0, side + 2 * padding - kernel + 1) // 2
    return side


def cnn_small(classes: int, input: Input) -> Cnn:
    """The network of the smoke and laptop scales: 3x3 convolutions of 16 and 32 channels, one hidden layer of 128."""
    return Cnn("cnn-small", classes, input, widths=(16, 32), hidden=(128,), kernel=3, padding=1)


def lenet(classes: int, input: Input) -> Cnn:
    """FL-Simulator's LeNet, which FedDyn had first: 5x5 convolutions of 64 and 64 channels, hidden 384 and 192.

    797,962 parameters for CIFAR-10; other inputs change only the first linear layer.
    """
    return Cnn("lenet", classes, input, widths=(64, 64), hidden=(384, 192), kernel=5, padding=0)


def cnn5(classes: int, input: Input) -> Cnn:
    """The five-layer network of FedCR and FedFSA, whose widths go with the data set.

    Fashion-MNIST (one channel) 4 and 12 channels, Tiny-ImageNet (64x64) 32 and 32 with hidden 512 and 1024, else 64
    and 64 (CIFAR). FedFSA's appendix prints three input channels for Fashion-MNIST; its code has one.
    """
    hidden = (512, 1024) if min(input[1:]) >= 64 else (1024, 1024)
    widths = (4, 12) if input[0] == 1 else (32, 32) if min(input[1:]) >= 64 else (64, 64)
    return Cnn("cnn5", classes, input, widths, hidden, kernel=5, padding=0)


def small_cnn(classes: int, input: Input, kind: str) -> Cnn:
    """FedSCAM's SmallCNN: 3x3 convolutions of 32, 64 and 128 channels with normalisation, one hidden layer of 256.

    The paper prints convolutions with normalisation, ReLU and max-pooling before one or two linear layers, and no
    widths: those here, the second linear layer and the convolutions' biases are assumed. 620,810 parameters for
    CIFAR-10. Not to be confused with 'cnn-small', the network of the smoke scale.
    """
    name = f"small-cnn-{kind}"
    return Cnn(name, classes, input, widths=(32, 64, 128), hidden=(256,), kernel=3, padding=1, kind=kind)


SMALL: dict[str, Callable[..., Cnn]] = {
    "cnn-small": cnn_small,
    "lenet": lenet,
    "cnn5": cnn5,
    "small-cnn-gn": partial(small_cnn, kind="gn"),
    "small-cnn-bn": partial(small_cnn, kind="bn"),
}
