"""How much each client counts: by loss, by class balance, by learned logits. Without any of these, by size."""

from __future__ import annotations

import torch
from torch import Tensor

from fednb.record import Cohort, Server
from fednb.rounds import ABOVE_0, AT_LEAST_0, Part, part
from fednb.vectors import cos, norm


@part
class Uniform(Part):
    """All participants alike (FedSCAM Table 2)."""

    def weigh(self, k: Cohort, s: Server, p: Tensor) -> Tensor:
        """p_k ← 1/|S|"""
        return torch.full_like(p, 1 / len(p))


@part
class LossWeights(Part):
    """A lower training loss counts more (FedLW, Yao et al. 2025; its formula is not public, so both are assumed).

    form: "inverse" is p ∝ 1/L_k, whatever the scale of losses; "softmax" is softmax(−L_k / temperature).
    """

    form: str = "inverse"
    temperature: float = 1.0
    ranges = {"form": ("inverse or softmax", lambda v: v in ("inverse", "softmax")), "temperature": ABOVE_0}

    def weigh(self, k: Cohort, s: Server, p: Tensor) -> Tensor:
        """p_k ∝ 1/L_k
        softmax: p_k ← softmax(−L_k / T)
        """
        if self.form == "softmax":
            return torch.softmax(-k.loss / self.temperature, dim=0)
        inverse = 1 / (k.loss + 1e-8)
        return inverse / inverse.sum()


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

    a, b: 0.5, 0.1 in the released code. d_k = KL(class shares ‖ uniform), divided by its sum over the participants as
    in the code. Where all weights would vanish, sizes decide.
    """

    a: float = 0.5
    b: float = 0.1
    ranges = {"a": AT_LEAST_0, "b": AT_LEAST_0}

    def weigh(self, k: Cohort, s: Server, p: Tensor) -> Tensor:
        """p_k ∝ max(0, p_k − a d_k + b),  d_k = KL(D_k ‖ uniform) / Σ KL"""
        shares = k.labels.to(p) / k.labels.sum(-1, keepdim=True)
        apart = (torch.xlogy(shares, shares * shares.shape[-1])).sum(-1, keepdim=True)
        d = apart / apart.sum().clamp_min(torch.finfo(p.dtype).tiny)
        kept = (p - self.a * d + self.b).clamp_min(0)
        return kept / kept.sum() if kept.sum() > 0 else p


@part
class AdaptiveWeights(Part):
    """Learn a logit per client so that moves agree and models stay near (FedAWA, Shi et al. 2025).

    lr, beta1: 0.001, 0.5 of the released Adam, which starts anew each round and makes one step; so a logit moves by at
    most lr a round. A logit starts at the client's share of all samples (not its log) and stays with the client; the
    released code carries logits by position in the list. The model of a round uses the logits from before its step.
    """

    lr: float = 1e-3
    ranges = {"lr": AT_LEAST_0}
    per_client = {"logit": 1, "weighed": 1}

    def weigh(self, k: Cohort, s: Server, p: Tensor) -> Tensor:
        """p ← softmax(T);  T ← T − lr sign(∂J/∂T),  J = Σ p_k (‖Δ_k − Σ p_j Δ_j‖ + 1 − cos(w, w_k))"""
        before = torch.where(k.weighed > 0, k.logit, k.n / s.samples)
        k.logit = before - self.lr * self._slope(before, k.delta, cos(k.w0, k.w))
        k.weighed = 1.0
        return torch.softmax(before, dim=0)

    @staticmethod
    def _slope(logit: Tensor, move: Tensor, near: Tensor) -> Tensor:
        """The first step of Adam: g / (|g| + 1e-8)."""
        with torch.enable_grad():
            T = logit.detach().requires_grad_()
            p = torch.softmax(T, dim=0)
            J = (p * (norm(move - (p * move).sum(0)) + 1 - near)).sum()
            (g,) = torch.autograd.grad(J, T)
        return g / (g.abs() + 1e-8)
