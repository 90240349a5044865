"""Filters: maps from a layer's flat vector to a vector, along the last axis, batched over clients.

Every filter is called as `filter(x, shape)`: `x` is `[..., n]`, `shape` the layer's own shape where the filter needs
it (kernels, flattening orders). `where` chooses layers by name: "fc.*", "!fc.*", "conv1.weight, layer4.*".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from math import ceil, inf, prod
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from fednb.base.checks import check_fields, is_number, passes
from fednb.base.inputs import shown
from fednb.base.streams import joint_seed, stream
from fednb.core.vectors import TINY, norm
from fednb.filters.fast import each_without_lowest, fits, without_lowest

Shape = tuple[int, ...] | None
FARTHEST = 10_000  # weights that a bell may reach: its product is held in memory
PIECES = 32, 1024  # numbers that a bell slides over in one product: convolutions of one channel are slow


def bins(n: int) -> int:
    """The number of frequencies in the real transform of n numbers."""
    return n // 2 + 1


def cut(ratio: float, n: int) -> int:
    """How many of a layer's frequencies a ratio takes: ⌊ratio · (⌊n/2⌋ + 1)⌋, the product in double precision."""
    return int(ratio * bins(n))


def _share(name: str, value: float) -> None:
    if not passes(lambda v: 0.0 <= v <= 1.0, value):
        raise ValueError(f"{name} = {shown(value)}: must lie between 0 and 1")


@dataclass(frozen=True)
class Filter:
    """What all filters share: which layers they touch. `whole` filters see all chosen layers as one vector."""

    where: str = field(default="*", kw_only=True)
    whole = False
    flat = True  # looks at the flat vector alone, not at the layer's shape

    def __post_init__(self) -> None:
        check_fields(self, ValueError)

    def __call__(self, x: Tensor, shape: Shape = None) -> Tensor:
        raise NotImplementedError

    def of_run(self, seed: int) -> Filter:
        """The filter in a run with this seed: what it and filters inside it draw from `seed` is the run's own."""
        known = {f.name for f in fields(self)}
        new: dict[str, Any] = {}
        if "filter" in known:
            new["filter"] = self.filter.of_run(seed)  # type: ignore[attr-defined]
        if "seed" in known:
            new["seed"] = joint_seed(seed, self.seed)  # type: ignore[attr-defined]
        return replace(self, **new) if new else self

    def idle(self, n: int) -> bool:
        """Whether every layer of n numbers passes unchanged, so that nobody need ask."""
        return False

    def at_once(self, x: Tensor, sizes: tuple[int, ...], picked: Sequence[int]) -> Tensor | None:
        """All layers of x `[..., P]`, of which those picked are touched; None where layer by layer is as good."""
        return None

    @property
    def short(self) -> str:
        """A name for tables: the class and its first number."""
        first = next((v for k, v in vars(self).items() if k != "where"), "")
        return f"{type(self).__name__}({first})"


@dataclass(frozen=True)
class _Band(Filter):
    """Set some frequencies of the real transform of one flattened layer to zero."""

    ratio: float = 0.01

    def __post_init__(self) -> None:
        _share("ratio", self.ratio)
        super().__post_init__()

    def idle(self, n: int) -> bool:
        return cut(self.ratio, n) == 0

    def removed(self, n: int) -> slice | Tensor:
        raise NotImplementedError

    def __call__(self, x: Tensor, shape: Shape = None) -> Tensor:
        n = x.shape[-1]
        if self.idle(n):
            return x
        return torch.fft.irfft(torch.fft.rfft(x) * _kept_bins(self, n, x.device), n=n)


@dataclass(frozen=True)
class HighPass(_Band):
    """Remove the lowest `ratio` of the spectrum of one flattened layer (FedFFT Eq. 5-7; SpecGradFilter §IV).

    The cut is ⌊ratio · (⌊n/2⌋ + 1)⌋ coefficients, so layers shorter than about 2/ratio pass unchanged.
    ratio: 0.01 in FedFFT (§5.1), 0.05 in SpecGradFilter (§V-A).

    >>> HighPass(ratio=0.5)(torch.ones(4))                      # a constant is all lowest frequency
    tensor([0., 0., 0., 0.])
    """

    def __call__(self, x: Tensor, shape: Shape = None) -> Tensor:
        return without_lowest(x, cut(self.ratio, x.shape[-1]))

    def at_once(self, x: Tensor, sizes: tuple[int, ...], picked: Sequence[int]) -> Tensor | None:
        if not fits(x):
            return None
        counts = (cut(self.ratio, n) if i in picked else 0 for i, n in enumerate(sizes))
        return each_without_lowest(x, sizes, tuple(counts))


@dataclass(frozen=True)
class MeanOnly(_Band):
    """Remove the mean of a layer, frequency 0 alone, wherever HighPass(ratio) removes anything.

    A control that the spectral papers lack: the part of the high-pass filter that no order of the weights can change.
    """

    def __call__(self, x: Tensor, shape: Shape = None) -> Tensor:
        return x if self.idle(x.shape[-1]) else without_lowest(x, 1)


@dataclass(frozen=True)
class LowPass(_Band):
    """Remove the highest `ratio` of the spectrum: the papers' "high-frequency filtering" ablation."""

    def removed(self, n: int) -> slice | Tensor:
        return slice(bins(n) - cut(self.ratio, n), bins(n))


@dataclass(frozen=True)
class RandomBand(_Band):
    """Remove as many frequencies as HighPass, drawn at random: the papers' "random filtering" ablation.

    The papers do not say whether the draw changes from step to step; here it is fixed by the run's seed, `seed` and
    the layer's length.
    """

    seed: int = 0

    def removed(self, n: int) -> slice | Tensor:
        drawn = stream(self.seed, "random-band", n).permutation(bins(n))[: cut(self.ratio, n)]
        return torch.from_numpy(drawn)


@dataclass(frozen=True)
class LocalAverage(Filter):
    """Subtract the moving average over `kernel` neighbours (SpecGradFilter's LAP-D, §IV).

    The paper's kernel is not known. 17 puts the half-power point of the average, 0.443 / kernel, at the edge of
    HighPass(0.05), 0.025 cycles per weight. Ends are repeated, so a constant becomes zero; a layer no longer than
    the kernel loses its mean, as with one frequency cut.
    """

    kernel: int = 17

    def __post_init__(self) -> None:
        if not isinstance(self.kernel, int) or self.kernel < 3 or self.kernel % 2 == 0:
            raise ValueError(f"kernel = {shown(self.kernel)}: must be an odd number, whole and at least 3")
        super().__post_init__()

    def __call__(self, x: Tensor, shape: Shape = None) -> Tensor:
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
    HighPass(0.05). The kernel reaches `truncate` sigmas; ends are repeated, so a constant becomes zero.
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

    def __call__(self, x: Tensor, shape: Shape = None) -> Tensor:
        n = x.shape[-1]
        if n == 1:
            return x
        reach = ceil(self.truncate * self.sigma)
        piece = min(max(reach, PIECES[0]), PIECES[1])
        padded = F.pad(x.reshape(-1, 1, n), (reach, reach + -n % piece), mode="replicate")
        around = padded.squeeze(1).unfold(-1, piece + 2 * reach, piece)  # pieces, and what lies within reach of each
        smooth = around @ _bells(self.sigma, reach, piece, x.dtype, x.device)
        return x - smooth.flatten(-2)[:, :n].reshape(x.shape)


@dataclass(frozen=True)
class Plane(Filter):
    """Remove the lowest frequencies of each kernel's own 2-D transform (SpecGradFilter Table IV, "2D FFT").

    At least the kernel's mean goes: ⌊0.05 · 6⌋ = 0 of a 3x3 kernel would make the comparison empty. Frequencies of
    equal length go together, which keeps the result real. Layers without a kernel are filtered as by HighPass.
    """

    ratio: float = 0.05
    flat = False

    def __post_init__(self) -> None:
        _share("ratio", self.ratio)
        super().__post_init__()

    def __call__(self, x: Tensor, shape: Shape = None) -> Tensor:
        if shape is None or len(shape) != 4 or shape[2] * shape[3] == 1:
            return HighPass(self.ratio)(x)
        if self.ratio == 0:
            return x
        kernels = x.reshape(*x.shape[:-1], *shape)
        z = torch.fft.rfft2(kernels) * _kept_plane(self, shape[2], shape[3], x.device)
        return torch.fft.irfft2(z, s=shape[2:]).reshape(x.shape)

    def _kept(self, height: int, width: int) -> Tensor:
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
    def short(self) -> str:
        return f"{self.filter.short} in order {self.order}"

    def idle(self, n: int) -> bool:
        return self.filter.idle(n)

    def __call__(self, x: Tensor, shape: Shape = None) -> Tensor:
        if self.order != "random" and (shape is None or len(shape) != 4):
            return self.filter(x, shape)
        there, back = _orders(self, x.shape[-1], shape, x.device)
        return self.filter(x[..., there])[..., back]

    def _index(self, n: int, shape: Shape) -> Tensor:
        if self.order == "random" or shape is None:
            return torch.from_numpy(stream(self.seed, "flatten", n).permutation(n))
        return torch.arange(prod(shape)).reshape(shape).permute(*map(int, self.order)).reshape(-1)


# What filters look up is made once and kept on the device, so that nobody waits for a copy at every step.


@lru_cache(maxsize=64)
def _kept_bins(filter: _Band, n: int, device: torch.device) -> Tensor:
    """One for each frequency that stays, zero for those that go."""
    kept = torch.ones(bins(n))
    kept[filter.removed(n)] = 0
    return kept.to(device)


@lru_cache(maxsize=16)
def _bells(sigma: float, reach: int, piece: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """What each number of a piece takes from those around it, `[piece + 2 reach, piece]`: a bell for each, in steps."""
    at = torch.arange(-reach, reach + 1, dtype=dtype)
    bell = torch.softmax(-0.5 * (at / sigma) ** 2, dim=0)
    return torch.stack([F.pad(bell, (i, piece - 1 - i)) for i in range(piece)], dim=1).to(device)


@lru_cache(maxsize=16)
def _kept_plane(filter: Plane, height: int, width: int, device: torch.device) -> Tensor:
    return filter._kept(height, width).to(device)


@lru_cache(maxsize=64)
def _orders(filter: Permuted, n: int, shape: Shape, device: torch.device) -> tuple[Tensor, Tensor]:
    """Another order of a layer's weights, and the way back."""
    there = filter._index(n, shape)
    return there.to(device), there.argsort().to(device)


@dataclass(frozen=True)
class Rescale(Filter):
    """Scale the whole vector down to norm `radius` where it is longer (FedFFT Table 3, "L2-norm rescaling").

    On a SAM perturbation of radius rho this changes nothing: its norm is rho already.
    """

    radius: float = 0.1
    whole = True

    def __post_init__(self) -> None:
        if not passes(lambda v: 0 <= v < inf, self.radius):
            raise ValueError(f"radius = {shown(self.radius)}: must be at least 0 and finite")
        super().__post_init__()

    def __call__(self, x: Tensor, shape: Shape = None) -> Tensor:
        return x * (self.radius / norm(x).clamp_min(TINY)).clamp_max(1.0)


@dataclass(frozen=True)
class NormMatched(Filter):
    """Make a vector as short as a filter would, and leave its direction: x ‖Φ(x)‖ / ‖x‖.

    A control that the spectral papers lack: what is gained by it is gained by smaller steps, not by what was removed.
    per: "model" has one factor for all chosen layers together, so that the gradient as a whole keeps its direction;
    "layer" has a factor for each, so that every layer steps as far as it would behind the filter.
    """

    filter: Filter = field(default_factory=lambda: HighPass(0.05))
    per: str = "model"
    flat = False

    def __post_init__(self) -> None:
        if not isinstance(self.filter, Filter) or self.filter.whole or self.filter.where != "*":
            given = shown(self.filter)
            raise ValueError(f"filter = {given}: must be a filter of single layers; `where` belongs outside")
        if self.per not in ("model", "layer"):
            raise ValueError(f"per = {shown(self.per)}: must be 'model' or 'layer'")
        super().__post_init__()

    @property
    def whole(self) -> bool:  # type: ignore[override]
        return self.per == "model"

    @property
    def short(self) -> str:
        return f"norm of {self.filter.short} per {self.per}"

    def __call__(self, x: Tensor, shape: Shape | tuple[tuple[int, ...], ...] = None) -> Tensor:
        shapes: Any = shape if shape and isinstance(shape[0], tuple) else (shape,)  # of all layers, or of the only one
        sizes = [x.shape[-1] if s is None else prod(s) for s in shapes]
        layers = [self.filter(p, s) for p, s in zip(x.split(sizes, dim=-1), shapes, strict=True)]
        return x * (norm(torch.cat(layers, dim=-1)) / norm(x).clamp_min(torch.finfo(x.dtype).tiny))


@dataclass(frozen=True)
class ClipToMedian(Filter):
    """Clip each coordinate at `factor` medians of the layer's magnitudes (FedFFT Table 3, "coordinate clipping").

    The paper's factor is not known; 3 medians are 2 standard deviations of a Gaussian, so about 4% are clipped.
    A layer of which half or more is zero has no scale of its own and passes unchanged.
    """

    factor: float = 3.0

    def __post_init__(self) -> None:
        if not passes(lambda v: 0 < v < inf, self.factor):
            raise ValueError(f"factor = {shown(self.factor)}: must be above 0 and finite")
        super().__post_init__()

    def __call__(self, x: Tensor, shape: Shape = None) -> Tensor:
        most = self.factor * x.abs().median(-1, keepdim=True).values
        return torch.where(most > 0, x.clamp(-most, most), x)


@dataclass(frozen=True)
class Centralize(Filter):
    """Remove the mean over everything but the output axis (gradient centralisation, Yong et al. 2020).

    A control that the spectral papers lack: it takes away one number per output, without any transform. Vectors
    (biases, norm scales) have only an output axis and pass unchanged.
    """

    flat = False

    def __call__(self, x: Tensor, shape: Shape = None) -> Tensor:
        if shape is None or len(shape) < 2:
            return x
        rows = x.reshape(*x.shape[:-1], shape[0], -1)
        return (rows - rows.mean(-1, keepdim=True)).reshape(x.shape)
