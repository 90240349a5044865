"""Filters that look at a layer's shape: kernels of a convolution, orders of flattening, rows of outputs."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from math import prod

import torch
from torch import Tensor

from fednb.base.checks import passes
from fednb.base.inputs import shown
from fednb.base.streams import stream
from fednb.core.vectors import TINY
from fednb.filters.bands import HighPass, check_ratio
from fednb.filters.filter import Filter, Shape


@dataclass(frozen=True)
class Plane(Filter):
    """Remove the lowest frequencies of each kernel's own 2-D transform (SpecGradFilter Table IV, "2D FFT").

    At least the kernel's mean goes: ⌊0.05 · 6⌋ = 0 of a 3x3 kernel would make the comparison empty. Frequencies of
    equal length go together, which keeps the result real. Layers without a kernel are filtered as by HighPass.

    >>> kernel = torch.ones(1 * 1 * 3 * 3)
    >>> fn.filters.Plane()(kernel, shape=(1, 1, 3, 3)).abs().max().item() < 1e-6
    True
    """

    ratio: float = 0.05
    flat = False

    def __post_init__(self) -> None:
        check_ratio(self.ratio)
        super().__post_init__()

    def __call__(self, x: Tensor, shape: Shape = None) -> Tensor:
        """F⁻¹(m ⊙ F(x)) for every kernel of x, F the transform in two dimensions, m from `mask`."""
        if shape is None or len(shape) != 4 or shape[2] * shape[3] == 1:
            return HighPass(self.ratio)(x)
        if self.ratio == 0:
            return x
        kernels = x.reshape(*x.shape[:-1], *shape)
        z = torch.fft.rfft2(kernels) * _mask(self, shape[2], shape[3], x.device)
        return torch.fft.irfft2(z, s=shape[2:]).reshape(x.shape)

    def mask(self, height: int, width: int) -> Tensor:
        """True for each frequency of a kernel that passes, `[height, width // 2 + 1]`."""
        fy, fx = torch.fft.fftfreq(height), torch.fft.rfftfreq(width)
        length = (fy[:, None] ** 2 + fx[None, :] ** 2).sqrt()
        count = max(1, int(self.ratio * length.numel()))
        return length > length.flatten().sort().values[count - 1] + TINY


@dataclass(frozen=True)
class Permuted(Filter):
    """Flatten in another order, filter, put back (SpecGradFilter Table IV).

    order: axes of a convolution's weight [out, in, height, width] from slowest to fastest ("0123" is memory order,
    "3210" its reverse), or "random": one fixed permutation of every layer's flat index, from `seed` and the run's.
    Layers that are not convolutions keep memory order, except for "random".

    >>> reverse = fn.filters.Permuted(fn.filters.HighPass(0.5), order="3210")
    >>> reverse(torch.ones(4), shape=(2, 2, 1, 1)).abs().max().item() < 1e-6
    True
    """

    filter: Filter = field(default_factory=lambda: HighPass(0.05))
    order: str = "3210"
    seed: int = 0
    flat = False

    def __post_init__(self) -> None:
        if not isinstance(self.filter, Filter) or self.filter.whole or not self.filter.flat or self.filter.where != "*":
            raise ValueError(
                f"filter = {shown(self.filter)}: only a filter of one flat layer can be given another order, such as "
                f"HighPass or LocalAverage; `where` belongs to Permuted itself"
            )
        if self.order != "random" and not passes(lambda v: sorted(v) == list("0123"), self.order):
            raise ValueError(f"order = {shown(self.order)}: must be an arrangement of 0123, or 'random'")
        super().__post_init__()

    @property
    def draws(self) -> bool:
        return self.order == "random" or self.filter.draws

    @property
    def short(self) -> str:
        return f"{self.filter.short} in order {self.order}"

    def idle(self, n: int) -> bool:
        return self.filter.idle(n)

    def __call__(self, x: Tensor, shape: Shape = None) -> Tensor:
        """Πᵀ Φ(Π x), Π the permutation, Φ the filter."""
        if self.order != "random" and (shape is None or len(shape) != 4):
            return self.filter(x, shape)
        there, back = _permutation(self, x.shape[-1], shape, x.device)
        return self.filter(x[..., there])[..., back]

    def permutation(self, n: int, shape: Shape) -> Tensor:
        """Where in memory each number of a layer of n numbers, flattened in this order, lies: `[n]`."""
        if self.order == "random" or shape is None:
            return torch.from_numpy(stream(self.seed, "flatten", n).permutation(n))
        return torch.arange(prod(shape)).reshape(shape).permute(*map(int, self.order)).reshape(-1)


@dataclass(frozen=True)
class Centralize(Filter):
    """Remove the mean over everything but the output axis (gradient centralisation, Yong et al. 2020).

    A control that the spectral papers lack: it takes away one number per output, without any transform. Vectors
    (biases, norm scales) have only an output axis and pass unchanged.

    >>> fn.filters.Centralize()(torch.tensor([1.0, 3.0, 10.0, 20.0]), shape=(2, 2))    # two outputs of two weights
    tensor([-1.,  1., -5.,  5.])
    """

    flat = False

    def __call__(self, x: Tensor, shape: Shape = None) -> Tensor:
        """x_o − mean(x_o) for every output o"""
        if shape is None or len(shape) < 2:
            return x
        rows = x.reshape(*x.shape[:-1], shape[0], -1)
        return (rows - rows.mean(-1, keepdim=True)).reshape(x.shape)


# Constants are cached on the device: a copy from the host at every step would cost more than the filter.


@lru_cache(maxsize=16)
def _mask(filter: Plane, height: int, width: int, device: torch.device) -> Tensor:
    """`filter.mask` on the device."""
    return filter.mask(height, width).to(device)


@lru_cache(maxsize=64)
def _permutation(filter: Permuted, n: int, shape: Shape, device: torch.device) -> tuple[Tensor, Tensor]:
    """`filter.permutation` and its inverse, on the device."""
    there = filter.permutation(n, shape)
    return there.to(device), there.argsort().to(device)
