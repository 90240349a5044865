"""Filters that set a band of a layer's spectrum to zero: the lowest frequencies, the highest, the mean, or any."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fednb.base.checks import passes
from fednb.base.inputs import shown
from fednb.base.streams import stream
from fednb.filters.fast import high_passed, layers_high_passed, suits_kernels
from fednb.filters.fast.constants import constants
from fednb.filters.filter import Filter, Shape


def bins(n: int) -> int:
    """The number of frequencies in the real transform of n numbers.

    >>> fn.filters.bins(10)
    6
    """
    return n // 2 + 1


def cut(ratio: float, n: int) -> int:
    """How many of a layer's frequencies a ratio takes: ⌊ratio · (⌊n/2⌋ + 1)⌋, the product in double precision.

    >>> fn.filters.cut(0.05, n=1000), fn.filters.cut(0.05, n=10)
    (25, 0)
    """
    return int(ratio * bins(n))


def check_ratio(ratio: float) -> None:
    """Raise ValueError unless the ratio lies between 0 and 1."""
    if not passes(lambda v: 0.0 <= v <= 1.0, ratio):
        raise ValueError(f"ratio = {shown(ratio)}: must lie between 0 and 1")


@dataclass(frozen=True)
class _Band(Filter):
    """Set `cut(ratio, n)` of the frequencies of one flattened layer to zero: those in `removed`."""

    ratio: float = 0.01

    def __post_init__(self) -> None:
        check_ratio(self.ratio)
        super().__post_init__()

    def idle(self, n: int) -> bool:
        return cut(self.ratio, n) == 0

    def removed(self, n: int) -> slice | Tensor:
        """The frequencies that are set to zero in a layer of n numbers."""
        raise NotImplementedError

    def __call__(self, x: Tensor, shape: Shape = None) -> Tensor:
        """F⁻¹(m ⊙ F(x)), m_f = 0 for the removed frequencies f, 1 for the others."""
        n = x.shape[-1]
        if self.idle(n):
            return x
        return torch.fft.irfft(torch.fft.rfft(x) * _mask(self, n, x.device), n=n)


@dataclass(frozen=True)
class HighPass(_Band):
    """Remove the lowest `ratio` of the spectrum of one flattened layer (FedFFT Eq. 5-7; SpecGradFilter §IV).

    The cut is ⌊ratio · (⌊n/2⌋ + 1)⌋ coefficients, so layers shorter than about 2/ratio pass unchanged.
    ratio: 0.01 in FedFFT (§5.1), 0.05 in SpecGradFilter (§V-A).

    >>> fn.filters.HighPass(ratio=0.5)(torch.ones(4))           # a constant is all lowest frequency
    tensor([0., 0., 0., 0.])
    """

    def definition(self, x: Tensor) -> Tensor:
        """F⁻¹(m ⊙ F(x)), m_f = 0 for f < ⌊ratio · (⌊n/2⌋ + 1)⌋, 1 for the other frequencies (FedFFT Eq. 5-7)."""
        z = torch.fft.rfft(x)
        z[..., : int(self.ratio * z.shape[-1])] = 0
        return torch.fft.irfft(z, n=x.shape[-1])

    def __call__(self, x: Tensor, shape: Shape = None) -> Tensor:
        """`definition(x)` up to rounding, in the form that is fastest for this length on this device."""
        return high_passed(x, cut(self.ratio, x.shape[-1]))

    def at_once(self, x: Tensor, sizes: tuple[int, ...], picked: Sequence[int]) -> Tensor | None:
        """`definition` of each picked layer up to rounding, in a few kernels for all; None where kernels cannot run."""
        if not suits_kernels(x):
            return None
        counts = (cut(self.ratio, n) if i in picked else 0 for i, n in enumerate(sizes))
        return layers_high_passed(x, sizes, tuple(counts))


@dataclass(frozen=True)
class MeanOnly(_Band):
    """Remove the mean of a layer, frequency 0 alone, wherever HighPass(ratio) removes anything.

    A control that the spectral papers lack: the part of the high-pass filter that no order of the weights can change.

    >>> fn.filters.MeanOnly(ratio=0.5)(torch.tensor([1.0, 2.0, 3.0]))
    tensor([-1.,  0.,  1.])
    """

    def __call__(self, x: Tensor, shape: Shape = None) -> Tensor:
        """x − mean(x)"""
        return x if self.idle(x.shape[-1]) else x - x.mean(-1, keepdim=True)


@dataclass(frozen=True)
class LowPass(_Band):
    """Remove the highest `ratio` of the spectrum: the papers' "high-frequency filtering" ablation.

    >>> fn.filters.LowPass(ratio=0.5)(torch.tensor([1.0, -1.0, 1.0, -1.0]))    # all highest frequency
    tensor([0., 0., 0., 0.])
    """

    def removed(self, n: int) -> slice | Tensor:
        return slice(bins(n) - cut(self.ratio, n), bins(n))


@dataclass(frozen=True)
class RandomBand(_Band):
    """Remove as many frequencies as HighPass, drawn at random: the papers' "random filtering" ablation.

    The papers do not say whether the draw changes from step to step; here it is fixed by the run's seed, `seed` and
    the layer's length.

    >>> x = fn.filters.RandomBand(ratio=1.0)(torch.tensor([1.0, 2.0, 3.0, 4.0]))    # every frequency
    >>> x.abs().max().item()
    0.0
    """

    seed: int = 0

    def removed(self, n: int) -> slice | Tensor:
        drawn = stream(self.seed, "random-band", n).permutation(bins(n))[: cut(self.ratio, n)]
        return torch.from_numpy(drawn)


@constants(64)
def _mask(filter: _Band, n: int, device: torch.device) -> Tensor:
    """Zero for each frequency that the filter removes from n numbers, one for the others."""
    mask = torch.ones(bins(n))
    mask[filter.removed(n)] = 0
    return mask.to(device)
