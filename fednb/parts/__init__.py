"""Parts: one idea of one paper each, readable beside it. A part never imports another."""

from fednb.parts.ascend import FilterPerturbation, Lesam, QuasiGradient, Sam, SmooDual
from fednb.parts.clean import FilterGradient
from fednb.parts.correct import ClientMomentum, Dyn, FsaMomentum, LocalMomentum, Prox, Scaffold
from fednb.parts.cr import ClassGaussians
from fednb.parts.fsa import ClientRate, FlexibleRadius
from fednb.parts.gloss import Gloss
from fednb.parts.personal import LocalAggregation, OnlyHead, PrivateHead
from fednb.parts.scam import ScamConflict, ScamPilot, ScamRadius, ScamWeights
from fednb.parts.server import Fairness, LayerShrink, ServerMomentum, SummedMoves
from fednb.parts.slips import LesamFlat, SmooSlices, WmsamFlat
from fednb.parts.weigh import AdaptiveWeights, Discrepancy, LossWeights, NormalisedLoss, Uniform
from fednb.parts.wmsam import WmsamAscent, WmsamMomentum, WmsamWeight

__all__ = [
    "AdaptiveWeights", "ClassGaussians", "ClientMomentum", "ClientRate", "Discrepancy", "Dyn", "Fairness",
    "FilterGradient", "FilterPerturbation", "FlexibleRadius", "FsaMomentum", "Gloss", "LayerShrink", "Lesam",
    "LesamFlat", "LocalAggregation", "LocalMomentum", "LossWeights", "NormalisedLoss", "OnlyHead", "PrivateHead",
    "Prox", "QuasiGradient", "Sam", "Scaffold", "ScamConflict", "ScamPilot", "ScamRadius", "ScamWeights",
    "ServerMomentum", "SmooDual", "SmooSlices", "SummedMoves", "Uniform", "WmsamAscent", "WmsamFlat", "WmsamMomentum",
    "WmsamWeight",
]  # fmt: skip
