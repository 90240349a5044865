"""Parts: one idea of one paper each, readable beside it. A part never imports another."""

from fednb.algorithms.parts.ascend import FilterPerturbation, Lesam, QuasiGradient, Sam, SmooDual
from fednb.algorithms.parts.clean import FilterGradient
from fednb.algorithms.parts.correct import ClientMomentum, Dyn, FsaMomentum, LocalMomentum, Prox, Scaffold
from fednb.algorithms.parts.cr import ClassGaussians
from fednb.algorithms.parts.fsa import ClientRate, FlexibleRadius
from fednb.algorithms.parts.gloss import Gloss
from fednb.algorithms.parts.personal import LocalAggregation, OnlyHead, PrivateHead
from fednb.algorithms.parts.released_bugs import LesamFlat, SmooSlices, WmsamFlat
from fednb.algorithms.parts.scam import ScamConflict, ScamPilot, ScamRadius, ScamWeights
from fednb.algorithms.parts.server import Fairness, LayerShrink, ServerMomentum, SummedMoves
from fednb.algorithms.parts.weigh import AdaptiveWeights, Discrepancy, LossWeights, NormalisedLoss, Uniform
from fednb.algorithms.parts.wmsam import WmsamAscent, WmsamMomentum, WmsamWeight

__all__ = [
    "AdaptiveWeights", "ClassGaussians", "ClientMomentum", "ClientRate", "Discrepancy", "Dyn", "Fairness",
    "FilterGradient", "FilterPerturbation", "FlexibleRadius", "FsaMomentum", "Gloss", "LayerShrink", "Lesam",
    "LesamFlat", "LocalAggregation", "LocalMomentum", "LossWeights", "NormalisedLoss", "OnlyHead", "PrivateHead",
    "Prox", "QuasiGradient", "Sam", "Scaffold", "ScamConflict", "ScamPilot", "ScamRadius", "ScamWeights",
    "ServerMomentum", "SmooDual", "SmooSlices", "SummedMoves", "Uniform", "WmsamAscent", "WmsamFlat", "WmsamMomentum",
    "WmsamWeight",
]  # fmt: skip
