"""Small convolutional networks: two convolutions, then linear layers."""

from torch import Tensor, nn
from torch.nn import functional

Input = tuple[int, int, int]


class InputTooSmall(ValueError):
    """Nothing is left of the image where the linear layers begin."""


class Cnn(nn.Module):
    """Two convolutions, each with ReLU and 2x2 max-pooling, then linear layers with ReLU between them.

    widths: channels of the convolutions. hidden: widths of the linear layers before the last. Layers are named
    conv1, conv2, fc1, fc2, ... and start as PyTorch starts them.
    """

    def __init__(
        self,
        name: str,
        classes: int,
        input: Input,
        widths: tuple[int, int],
        hidden: tuple[int, ...],
        kernel: int,
        padding: int,
    ):
        super().__init__()
        channels, *sides = input
        rows, columns = (after(after(side, kernel, padding), kernel, padding) for side in sides)
        if min(rows, columns) < 1:
            least = next(side for side in range(1, 99) if after(after(side, kernel, padding), kernel, padding) >= 1)
            raise InputTooSmall(
                f"{name!r} needs images of at least {least}x{least}, not {sides[0]}x{sides[1]}. "
                "Use 'cnn-small' (from 4x4) or a ResNet."
            )
        self.conv1 = nn.Conv2d(channels, widths[0], kernel, padding=padding)
        self.conv2 = nn.Conv2d(widths[0], widths[1], kernel, padding=padding)
        sizes = (widths[1] * rows * columns, *hidden, classes)
        self.linear = [f"fc{i}" for i in range(1, len(sizes))]
        for layer, wide, narrow in zip(self.linear, sizes, sizes[1:], strict=False):
            self.add_module(layer, nn.Linear(wide, narrow))

    def forward(self, x: Tensor) -> Tensor:
        for conv in (self.conv1, self.conv2):
            x = functional.max_pool2d(functional.relu(conv(x)), 2)
        x = x.flatten(1)
        for layer in self.linear[:-1]:
            x = functional.relu(getattr(self, layer)(x))
        return getattr(self, self.linear[-1])(x)


def after(side: int, kernel: int, padding: int) -> int:
    """The side of an image after one convolution and one 2x2 pooling."""
    return max(0, side + 2 * padding - kernel + 1) // 2


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


SMALL = {"cnn-small": cnn_small, "lenet": lenet, "cnn5": cnn5}
