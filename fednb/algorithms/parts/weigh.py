"""How much each client counts: by loss, by class balance. Without any of these, by size."""

from __future__ import annotations

import torch
from torch import Tensor

from fednb.core.readings import when
from fednb.core.record import Cohort, Server
from fednb.core.rounds import ABOVE_0, AT_LEAST_0, Part, part
from fednb.core.vectors import cos, norm


@part
class Uniform(Part):
    """All participants alike (FedSCAM Table 2)."""

    def weigh(self, k: Cohort, s: Server, p: Tensor) -> Tensor:
        """p_k ← 1/|S|"""
        return torch.full_like(p, 1 / len(p))


@part
class LossWeights(Part):
    """A lower training loss counts more (FedLW, Yao et al. 2025; its formula is not public, so both are assumed).

    form: "inverse" is the same whatever the scale of losses. temperature: of the softmax.
    """

    form: str = "inverse"
    temperature: float = 1.0
    ranges = {"temperature": ABOVE_0}

    def weigh(self, k: Cohort, s: Server, p: Tensor) -> Tensor:
        """p_k ∝ 1/L_k"""
        inverse = 1 / (k.loss + 1e-8)
        return inverse / inverse.sum()


@when(form="softmax")
class LossWeightsSoftmax(LossWeights):
    """The other assumed formula."""

    def weigh(self, k: Cohort, s: Server, p: Tensor) -> Tensor:
        """p_k ← softmax(−L_k / T)"""
        return torch.softmax(-k.loss / self.temperature, dim=0)


@part
class NormalisedLoss(Part):
    """One minus the share of the loss (FedNoLoWe, Le et al. 2025): nearly uniform where many take part."""

    def weigh(self, k: Cohort, s: Server, p: Tensor) -> Tensor:
        """p_k ∝ 1 − L_k / Σ L_j"""
        total = k.loss.sum()
        if len(p) == 1 or total == 0:
            return torch.full_like(p, 1 / len(p))
        rest = 1 - k.loss / total
        return rest / rest.sum()


@part
class Discrepancy(Part):
    """Clients with skewed classes count less (FedDisco, Ye et al. 2023).

    a, b: 0.5, 0.1 in the released code. Where all weights would vanish, sizes decide.
    distance: of the class shares D_k from uniform ones; "kl" is divided by its sum over the participants, as released.
    """

    a: float = 0.5
    b: float = 0.1
    distance: str = "kl"
    ranges = {"a": AT_LEAST_0, "b": AT_LEAST_0}

    def weigh(self, k: Cohort, s: Server, p: Tensor) -> Tensor:
        """p_k ∝ max(0, p_k − a d_k + b),  d_k = KL(D_k ‖ uniform) / Σ KL"""
        d = _kl(_shares(k, p))
        return self.less(p, d / d.sum().clamp_min(torch.finfo(p.dtype).tiny))

    def less(self, p: Tensor, d: Tensor) -> Tensor:
        """max(0, p − a d + b), made to sum to 1."""
        kept = (p - self.a * d + self.b).clamp_min(0)
        return kept / kept.sum() if kept.sum() > 0 else p


def _shares(k: Cohort, like: Tensor) -> Tensor:
    """D_k: what part of a client's samples each class is, `[C, classes]`."""
    labels = k.labels.to(like)
    return labels / labels.sum(-1, keepdim=True)


def _kl(shares: Tensor) -> Tensor:
    """KL(shares ‖ uniform), with 0 log 0 = 0."""
    return torch.xlogy(shares, shares * shares.shape[-1]).sum(-1, keepdim=True)


@when(distance="raw-kl")
class DiscrepancyRawKl(Discrepancy):
    """The divergence itself, not divided."""

    def weigh(self, k: Cohort, s: Server, p: Tensor) -> Tensor:
        """p_k ∝ max(0, p_k − a d_k + b),  d_k = KL(D_k ‖ uniform)"""
        return self.less(p, _kl(_shares(k, p)))


@when(distance="l1")
class DiscrepancyL1(Discrepancy):
    """Another distance of the code: the sum of the differences."""

    def weigh(self, k: Cohort, s: Server, p: Tensor) -> Tensor:
        """p_k ∝ max(0, p_k − a d_k + b),  d_k = ‖D_k − uniform‖₁"""
        shares = _shares(k, p)
        return self.less(p, (shares - 1 / shares.shape[-1]).abs().sum(-1, keepdim=True))


@when(distance="l2")
class DiscrepancyL2(Discrepancy):
    """Another distance of the code: the Euclidean one."""

    def weigh(self, k: Cohort, s: Server, p: Tensor) -> Tensor:
        """p_k ∝ max(0, p_k − a d_k + b),  d_k = ‖D_k − uniform‖₂"""
        shares = _shares(k, p)
        return self.less(p, norm(shares - 1 / shares.shape[-1]))


@when(distance="cosine")
class DiscrepancyCosine(Discrepancy):
    """Another distance of the code: one minus the cosine."""

    def weigh(self, k: Cohort, s: Server, p: Tensor) -> Tensor:
        """p_k ∝ max(0, p_k − a d_k + b),  d_k = 1 − cos(D_k, uniform)"""
        shares = _shares(k, p)
        return self.less(p, 1 - cos(shares, torch.ones_like(shares)))
