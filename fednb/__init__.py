"""fednb: federated learning papers, reproduced notebook by notebook."""

from fednb import filters
from fednb.methods import card, method, methods, spec_grad_filter

__version__ = "0.1.0"
__all__ = ["card", "filters", "method", "methods", "spec_grad_filter"]
