"""Vectors without their lowest frequencies: one by one, and on a GPU all layers of a model at once."""

from fednb.filters.fast.layers import each_without_lowest, fits
from fednb.filters.fast.vector import without_lowest

__all__ = ["each_without_lowest", "fits", "without_lowest"]
