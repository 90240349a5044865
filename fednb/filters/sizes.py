"""Filters that change how large numbers are and not what they are made of: rescaling, matching a norm, clipping."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf, prod
from typing import Any

import torch
from torch import Tensor

from fednb.base.checks import passes
from fednb.base.inputs import shown
from fednb.core.vectors import TINY, norm
from fednb.filters.bands import HighPass
from fednb.filters.filter import Filter, Shape


@dataclass(frozen=True)
class Rescale(Filter):
    """Scale the whole vector down to norm `radius` where it is longer (FedFFT Table 3, "L2-norm rescaling").

    On a SAM perturbation of radius rho this changes nothing: its norm is rho already.

    >>> fn.filters.Rescale(radius=1.0)(torch.tensor([3.0, 4.0]))
    tensor([0.6000, 0.8000])
    """

    radius: float = 0.1
    whole = True

    def __post_init__(self) -> None:
        if not passes(lambda v: 0 <= v < inf, self.radius):
            raise ValueError(f"radius = {shown(self.radius)}: must be at least 0 and finite")
        super().__post_init__()

    def __call__(self, x: Tensor, shape: Shape = None) -> Tensor:
        """x · min(1, radius / ‖x‖)"""
        return x * (self.radius / norm(x).clamp_min(TINY)).clamp_max(1.0)


@dataclass(frozen=True)
class NormMatched(Filter):
    """Make a vector as short as a filter would, and leave its direction: x ‖Φ(x)‖ / ‖x‖.

    A control that the spectral papers lack: what is gained by it is gained by smaller steps, not by what was removed.
    per: "model" has one factor for all chosen layers together, so that the gradient as a whole keeps its direction;
    "layer" has a factor for each, so that every layer steps as far as it would behind the filter.

    >>> x = torch.tensor([1.0, 1.0, 1.0, 3.0])
    >>> y = fn.filters.NormMatched(fn.filters.MeanOnly(1.0))(x)
    >>> bool(y.norm() < x.norm()), torch.allclose(y / y.norm(), x / x.norm())
    (True, True)
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
        """x · ‖Φ(x)‖ / ‖x‖, Φ the filter, layer by layer"""
        shapes: Any = shape if shape and isinstance(shape[0], tuple) else (shape,)  # of all layers, or of the only one
        sizes = [x.shape[-1] if s is None else prod(s) for s in shapes]
        layers = [self.filter(p, s) for p, s in zip(x.split(sizes, dim=-1), shapes, strict=True)]
        return _as_long_as(torch.cat(layers, dim=-1), x)

    def at_once(self, x: Tensor, sizes: tuple[int, ...], picked: Sequence[int]) -> Tensor | None:
        """The same with one factor for all layers, where the filter inside does all of them in one operation."""
        if self.per == "layer" or len(picked) < len(sizes):
            return None
        kept = self.filter.at_once(x, sizes, picked)
        return None if kept is None else _as_long_as(kept, x)


def _as_long_as(y: Tensor, x: Tensor) -> Tensor:
    """x, made as long as y: x ‖y‖ / ‖x‖"""
    return x * (norm(y) / norm(x).clamp_min(torch.finfo(x.dtype).tiny))


@dataclass(frozen=True)
class ClipToMedian(Filter):
    """Clip each coordinate at `factor` medians of the layer's magnitudes (FedFFT Table 3, "coordinate clipping").

    The paper's factor is not known; 3 medians are 2 standard deviations of a Gaussian, so about 4% are clipped.
    A layer of which half or more is zero has no scale of its own and passes unchanged.

    >>> fn.filters.ClipToMedian(factor=3.0)(torch.tensor([1.0, -1.0, 2.0, 50.0, 1.0]))
    tensor([ 1., -1.,  2.,  3.,  1.])
    """

    factor: float = 3.0

    def __post_init__(self) -> None:
        if not passes(lambda v: 0 < v < inf, self.factor):
            raise ValueError(f"factor = {shown(self.factor)}: must be above 0 and finite")
        super().__post_init__()

    def __call__(self, x: Tensor, shape: Shape = None) -> Tensor:
        """min(max(x_i, −t), t), t = factor · median |x|"""
        most = self.factor * x.abs().median(-1, keepdim=True).values
        return torch.where(most > 0, x.clamp(-most, most), x)
