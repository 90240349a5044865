"""Filters: what each one is, its equation in code; fast forms behind them in `fast`. Imports core and base."""

from fednb.filters.kinds import (
    Centralize,
    ClipToMedian,
    Filter,
    GaussianDetrend,
    HighPass,
    LocalAverage,
    LowPass,
    MeanOnly,
    NormMatched,
    Permuted,
    Plane,
    RandomBand,
    Rescale,
    Shape,
    bins,
    cut,
)  # fmt: skip

__all__ = [
    "Centralize", "ClipToMedian", "Filter", "GaussianDetrend", "HighPass", "LocalAverage", "LowPass", "MeanOnly",
    "NormMatched", "Permuted", "Plane", "RandomBand", "Rescale", "Shape", "bins", "cut",
]  # fmt: skip
