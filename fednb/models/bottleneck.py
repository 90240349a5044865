"""Any classifier with a Gaussian bottleneck before its last layer: what FedCR trains."""

from functools import partial

from torch import Tensor, nn
from torch.nn import functional

from fednb.models.small import SMALL, Input


class Bottleneck(nn.Module):
    """An encoder gives each input a Gaussian N(μ, σ²) over z, a linear decoder turns z into classes (FedCR).

    body: a model with 2 · latent outputs, the halves being μ and, through softplus, σ. Without draws the answer is the
    decoder's at μ: the decoder is linear, so that is where the mean over ever more draws goes.
    """

    def __init__(self, body: nn.Module, latent: int, classes: int):
        super().__init__()
        self.latent = latent
        self.body = body
        self.decoder = nn.Linear(latent, classes)

    def forward(self, x: Tensor, draws: Tensor | None = None) -> Tensor | tuple[Tensor, Tensor, Tensor]:
        """Classes `[n, classes]`; or, with standard normal draws `[M, n, latent]`, classes `[M, n, classes]`, μ, σ."""
        mean, raw = self.body(x).chunk(2, dim=-1)
        if draws is None:
            return self.decoder(mean)
        std = functional.softplus(raw)
        return self.decoder(mean + std * draws), mean, std


def bottleneck(classes: int, input: Input, base: str) -> Bottleneck:
    """A small network whose last layer gives μ and σ instead of classes, and a decoder behind it.

    latent: 256, FedCR's released default (its README has 512 for CIFAR-100); 16 for the network of the smoke scale.
    """
    latent = 16 if base == "cnn-small" else 256
    return Bottleneck(SMALL[base](2 * latent, input), latent, classes)


BOTTLENECKS = {f"{base}-cr": partial(bottleneck, base=base) for base in ("cnn-small", "lenet", "cnn5")}
