"""Filters that subtract a smoothed copy of a layer from it: moving averages, flat or Gaussian."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

import torch.nn.functional as F
from torch import Tensor

from fednb.base.checks import is_number
from fednb.base.inputs import shown
from fednb.filters.fast import bell, gaussian_smoothed
from fednb.filters.filter import Filter, Shape

FARTHEST = 10_000  # weights that a bell may reach: the matrix of its product is held in memory


@dataclass(frozen=True)
class LocalAverage(Filter):
    """Subtract the moving average over `kernel` neighbours (SpecGradFilter's LAP-D, §IV).

    The paper's kernel is not known. 17 puts the half-power point of the average, 0.443 / kernel, at the edge of
    HighPass(0.05), 0.025 cycles per weight. Ends are repeated, so a constant becomes zero; a layer no longer than
    the kernel loses its mean, as with one frequency cut. A single number passes unchanged.

    >>> fn.filters.LocalAverage(kernel=3)(torch.tensor([0.0, 0.0, 3.0, 0.0, 0.0]))
    tensor([ 0., -1.,  2., -1.,  0.])
    """

    kernel: int = 17

    def __post_init__(self) -> None:
        if not isinstance(self.kernel, int) or self.kernel < 3 or self.kernel % 2 == 0:
            raise ValueError(f"kernel = {shown(self.kernel)}: must be an odd number, whole and at least 3")
        super().__post_init__()

    def __call__(self, x: Tensor, shape: Shape = None) -> Tensor:
        """x_i − mean(x_j : |j − i| ≤ kernel / 2), the ends of x repeated."""
        n = x.shape[-1]
        if n == 1:
            return x
        if n <= self.kernel:
            return x - x.mean(-1, keepdim=True)
        padded = F.pad(x.reshape(-1, 1, n), (self.kernel // 2,) * 2, mode="replicate")
        return x - F.avg_pool1d(padded, self.kernel, stride=1).reshape(x.shape)


@dataclass(frozen=True)
class GaussianDetrend(Filter):
    """Subtract a Gaussian-smoothed copy (SpecGradFilter's GD, §IV).

    The paper's sigma is not known. 5.3 weights puts the half-power point, 0.1325 / sigma, at the edge of
    HighPass(0.05). The kernel reaches `truncate` sigmas; ends are repeated, so a constant becomes zero. A single
    number passes unchanged.

    >>> fn.filters.GaussianDetrend(sigma=1.0)(torch.ones(4)).abs().max().item() < 1e-6
    True
    """

    sigma: float = 5.3
    truncate: float = 4.0

    def __post_init__(self) -> None:
        if not all(is_number(each) and each > 0 for each in (self.sigma, self.truncate)):
            given = f"sigma = {shown(self.sigma)}, truncate = {shown(self.truncate)}"
            raise ValueError(f"{given}: both must be above 0 and finite")
        if not self.sigma * self.truncate <= FARTHEST:
            raise ValueError(f"sigma = {shown(self.sigma)}: the kernel must reach at most {FARTHEST} weights")
        super().__post_init__()

    @property
    def reach(self) -> int:
        """How many neighbours on either side the kernel has weights for."""
        return ceil(self.truncate * self.sigma)

    def definition(self, x: Tensor) -> Tensor:
        """x − g ∗ x with g_j ∝ exp(−j² / 2σ²) for |j| ≤ truncate · σ, the ends of x repeated."""
        if x.shape[-1] == 1:
            return x
        g = bell(self.sigma, self.reach, x.dtype).to(x.device)
        padded = F.pad(x.reshape(-1, 1, x.shape[-1]), (self.reach, self.reach), mode="replicate")
        return x - F.conv1d(padded, g.view(1, 1, -1)).reshape(x.shape)

    def __call__(self, x: Tensor, shape: Shape = None) -> Tensor:
        """`definition(x)` up to rounding, by products of matrices instead of a convolution."""
        return x if x.shape[-1] == 1 else x - gaussian_smoothed(x, self.sigma, self.reach)
