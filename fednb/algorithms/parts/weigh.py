"""How much each client counts: by loss, by class balance, by learned logits. Without any of these, by size."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

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


def _kl(shares: Tensor) -> Tensor:
    """KL(shares ‖ uniform), with 0 log 0 = 0."""
    return torch.xlogy(shares, shares * shares.shape[-1]).sum(-1, keepdim=True)


_DISTANCES: dict[str, Callable[[Tensor], Tensor]] = {  # of class shares `[C, classes]` from uniform ones
    "kl": _kl,
    "raw-kl": _kl,
    "l1": lambda shares: (shares - 1 / shares.shape[-1]).abs().sum(-1, keepdim=True),
    "l2": lambda shares: norm(shares - 1 / shares.shape[-1]),
    "cosine": lambda shares: 1 - cos(shares, torch.ones_like(shares)),
}


@part
class Discrepancy(Part):
    """Clients with skewed classes count less (FedDisco, Ye et al. 2023).

    a, b: 0.5, 0.1 in the released code. Where all weights would vanish, sizes decide.
    distance: of the class shares from uniform ones: "kl" is divided by its sum over the participants as in the code,
    "raw-kl" is not; the code's other ones are "l1", "l2" and "cosine", not divided.
    """

    a: float = 0.5
    b: float = 0.1
    distance: str = "kl"
    ranges = {"a": AT_LEAST_0, "b": AT_LEAST_0, "distance": ("kl, raw-kl, l1, l2 or cosine", lambda v: v in _DISTANCES)}

    def weigh(self, k: Cohort, s: Server, p: Tensor) -> Tensor:
        """p_k ∝ max(0, p_k − a d_k + b),  d_k = KL(D_k ‖ uniform) / Σ KL
        raw-kl: p_k ∝ max(0, p_k − a d_k + b),  d_k = KL(D_k ‖ uniform)
        l1: p_k ∝ max(0, p_k − a d_k + b),  d_k = ‖D_k − uniform‖₁
        l2: p_k ∝ max(0, p_k − a d_k + b),  d_k = ‖D_k − uniform‖₂
        cosine: p_k ∝ max(0, p_k − a d_k + b),  d_k = 1 − cos(D_k, uniform)
        """
        labels = k.labels.to(p)
        d = _DISTANCES[self.distance](labels / labels.sum(-1, keepdim=True))
        if self.distance == "kl":
            d = d / d.sum().clamp_min(torch.finfo(p.dtype).tiny)
        kept = (p - self.a * d + self.b).clamp_min(0)
        return kept / kept.sum() if kept.sum() > 0 else p


@part
class AdaptiveWeights(Part):
    """Learn a logit per client so that moves agree and models stay near (FedAWA, Shi et al. 2025).

    lr: 0.001 for the released Adam (β₁ 0.5), which starts anew each round and makes one step, so that a logit moves by
    at most lr a round. A logit stays with its client; the released code carries logits by position in the list.
    learning_steps, optimiser: how the logits of a round are learned, "adam" or the code's "sgd" (lr 0.01 there).
    use: the model of a round is made with the logits from "before" its step, as released, or from "after" it.
    model_distance: d, "cosine" 1 − cos(w, w_k), or the code's other one, "euclidean", the mean squared difference.
    first_logit: a client's "share" of all samples as released, nearly uniform weights; its "log" is FedAvg's weights.
    """

    lr: float = 1e-3
    learning_steps: int = 1
    optimiser: str = "adam"
    use: str = "before"
    model_distance: str = "cosine"
    first_logit: str = "share"
    ranges = {"lr": AT_LEAST_0,
              "learning_steps": ("a whole number from 1 to 10000", lambda v: v == int(v) and 1 <= v <= 10_000),
              "optimiser": ("adam or sgd", lambda v: v in ("adam", "sgd")),
              "use": ("before or after", lambda v: v in ("before", "after")),
              "model_distance": ("cosine or euclidean", lambda v: v in ("cosine", "euclidean")),
              "first_logit": ("share or log", lambda v: v in ("share", "log"))}  # fmt: skip
    per_client = {"logit": 1, "weighed": 1}

    def weigh(self, k: Cohort, s: Server, p: Tensor) -> Tensor:
        """p ← softmax(T);  T ← T − lr sign(∂J/∂T),  J = Σ p_k (‖Δ_k − Σ p_j Δ_j‖ + d(w, w_k))
        after sgd: T ← T − lr ∂J/∂T,  J = Σ p_k (‖Δ_k − Σ p_j Δ_j‖ + d(w, w_k));  p ← softmax(T)
        after: T ← T − lr sign(∂J/∂T),  J = Σ p_k (‖Δ_k − Σ p_j Δ_j‖ + d(w, w_k));  p ← softmax(T)
        sgd: p ← softmax(T);  T ← T − lr ∂J/∂T,  J = Σ p_k (‖Δ_k − Σ p_j Δ_j‖ + d(w, w_k))
        """
        share = k.n / s.samples
        before = torch.where(k.weighed > 0, k.logit, share.log() if self.first_logit == "log" else share)
        near = cos(k.w0, k.w) if self.model_distance == "cosine" else 1 - (k.w0 - k.w).square().mean(-1, keepdim=True)
        k.logit = self._learned(before, k.delta, near)
        k.weighed = 1.0
        return torch.softmax(before if self.use == "before" else k.logit, dim=0)

    def _learned(self, T: Tensor, move: Tensor, near: Tensor) -> Tensor:
        """The logits after this round's steps of a new optimiser."""
        kept = square = torch.zeros_like(T)
        for step in range(1, int(self.learning_steps) + 1):
            g = self._slope(T, move, near)
            if self.optimiser == "sgd":
                kept = 0.9 * kept + g + 5e-4 * T
                T = T - self.lr * kept
            else:  # Adam's averages, each divided by the sum of its weights so far
                kept = kept + (g - kept) * ((1 - 0.5) / (1 - 0.5**step))
                square = square + (g.square() - square) * ((1 - 0.999) / (1 - 0.999**step))
                T = T - self.lr * (kept / (square.sqrt() + 1e-8))
        return T

    @staticmethod
    def _slope(logit: Tensor, move: Tensor, near: Tensor) -> Tensor:
        """∂J/∂T."""
        with torch.enable_grad():
            T = logit.detach().requires_grad_()
            p = torch.softmax(T, dim=0)
            J = (p * (norm(move - (p * move).sum(0)) + 1 - near)).sum()
            (g,) = torch.autograd.grad(J, T)
        return g
