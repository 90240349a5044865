"""Filters: what each one is, its equation in code; fast forms behind them in `fast`. Imports core and base."""

from fednb.filters.bands import HighPass, LowPass, MeanOnly, RandomBand, bins, cut
from fednb.filters.detrending import GaussianDetrend, LocalAverage
from fednb.filters.filter import Filter, Shape
from fednb.filters.shapes import Centralize, Permuted, Plane
from fednb.filters.sizes import ClipToMedian, NormMatched, Rescale

__all__ = [
    "Centralize", "ClipToMedian", "Filter", "GaussianDetrend", "HighPass", "LocalAverage", "LowPass", "MeanOnly",
    "NormMatched", "Permuted", "Plane", "RandomBand", "Rescale", "Shape", "bins", "cut",
]  # fmt: skip
