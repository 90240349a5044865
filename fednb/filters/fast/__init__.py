"""Fast forms of filters: the high-pass of one vector, and of all layers of a model in a few kernels; smoothing."""

from fednb.filters.fast.layers import layers_high_passed, suits_kernels
from fednb.filters.fast.smoothing import bell, gaussian_smoothed
from fednb.filters.fast.vector import high_passed

__all__ = ["bell", "gaussian_smoothed", "high_passed", "layers_high_passed", "suits_kernels"]
