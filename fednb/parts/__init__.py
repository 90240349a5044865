"""Parts: one idea of one paper each, readable beside it. A part never imports another."""

from fednb.parts.ascend import FilterPerturbation, Sam
from fednb.parts.clean import FilterGradient
from fednb.parts.correct import ClientMomentum, Dyn, Prox, Scaffold

__all__ = ["ClientMomentum", "Dyn", "FilterGradient", "FilterPerturbation", "Prox", "Sam", "Scaffold"]
