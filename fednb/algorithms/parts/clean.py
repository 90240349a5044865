"""Cleaning the data's gradient before anything is added to it."""

from __future__ import annotations

from dataclasses import field

from torch import Tensor

from fednb.core.readings import when
from fednb.core.record import Cohort, Server
from fednb.core.rounds import Part, part
from fednb.filters import Filter, HighPass


@part
class FilterGradient(Part):
    """Filter the data's gradient layer by layer; corrections and weight decay stay as they are (SpecGradFilter §IV).

    filter: HighPass(ratio=0.05) in the paper (§V-A); LocalAverage and GaussianDetrend are its LAP-D and GD forms.
    """

    filter: Filter = field(default_factory=lambda: HighPass(ratio=0.05))
    with_decay: bool = False
    ranges = {"filter": ("a filter", lambda v: isinstance(v, Filter))}

    def gradient(self, k: Cohort, s: Server, g: Tensor) -> Tensor:
        """g ← Φ(g), layer by layer"""
        return k.layout.map(self.filter.in_run(s), g)


@when(with_decay=True)
class FilterGradientAndDecay(FilterGradient):
    """Filters the weight decay with the gradient.

    Where a proximal pull is split, its half in the weight decay is filtered too, so give that part prox_in_clip=True.
    """

    def gradient(self, k: Cohort, s: Server, g: Tensor) -> Tensor:
        """g ← Φ(g + wd w_k) − wd w_k, layer by layer   (wd is added behind the clip)"""
        decay = k.weight_decay * k.w
        return k.layout.map(self.filter.in_run(s), g + decay) - decay
