"""FedAWA (Shi et al. 2025): how much each client counts is learned, a logit per client."""

from __future__ import annotations

import torch
from torch import Tensor

from fednb.core.readings import in_turn, when
from fednb.core.record import Cohort, Server
from fednb.core.rounds import AT_LEAST_0, Part, part
from fednb.core.vectors import cos, norm


@part
class AdaptiveWeights(Part):
    """Learn a logit per client so that moves agree and models stay near (FedAWA, Shi et al. 2025).

    lr: 0.001 for the released Adam (β₁ 0.5), which starts anew each round and makes one step, so that a logit moves by
    at most lr a round. A logit stays with its client; the released code carries logits by position in the list.
    learning_steps, optimiser: how the logits of a round are learned; "adam" as released.
    use: the model of a round is made with the logits from "before" its step, as released.
    model_distance: d, "cosine" 1 − cos(w, w_k), or the code's other one, "euclidean", the mean squared difference.
    first_logit: a client's "share" of all samples as released, nearly uniform weights.
    """

    lr: float = 1e-3
    learning_steps: int = 1
    optimiser: str = "adam"
    use: str = "before"
    model_distance: str = "cosine"
    first_logit: str = "share"
    ranges = {"lr": AT_LEAST_0,
              "learning_steps": ("a whole number from 1 to 10000", lambda v: v == int(v) and 1 <= v <= 10_000),
              "model_distance": ("cosine or euclidean", lambda v: v in ("cosine", "euclidean"))}  # fmt: skip
    per_client = {"logit": 1, "weighed": 1}

    weigh = in_turn("begin", "mix", "learn")

    def begin(self, k: Cohort, s: Server, p: Tensor) -> Tensor:
        """T_k ← n_k / n the first time"""
        k.logit = torch.where(k.weighed > 0, k.logit, k.n / s.samples)
        k.weighed = 1.0
        return p

    def mix(self, k: Cohort, s: Server, p: Tensor) -> Tensor:
        """p ← softmax(T)"""
        return torch.softmax(k.logit, dim=0)

    def learn(self, k: Cohort, s: Server, p: Tensor) -> Tensor:
        """T ← T − lr sign(∂J/∂T),  J = Σ p_k (‖Δ_k − Σ p_j Δ_j‖ + d(w, w_k))"""
        T, near = k.logit, self.nearness(k)
        mean = square = torch.zeros_like(T)
        for step in range(1, int(self.learning_steps) + 1):  # Adam's averages, each over the sum of its weights so far
            g = slope(T, k.delta, near)
            mean = mean + (g - mean) * ((1 - 0.5) / (1 - 0.5**step))
            square = square + (g.square() - square) * ((1 - 0.999) / (1 - 0.999**step))
            T = T - self.lr * (mean / (square.sqrt() + 1e-8))
        k.logit = T
        return p

    def nearness(self, k: Cohort) -> Tensor:
        """1 − d(w, w_k)"""
        return cos(k.w0, k.w) if self.model_distance == "cosine" else 1 - (k.w0 - k.w).square().mean(-1, keepdim=True)


def slope(logit: Tensor, move: Tensor, near: Tensor) -> Tensor:
    """∂J/∂T, where near is 1 − d(w, w_k)."""
    with torch.enable_grad():
        T = logit.detach().requires_grad_()
        p = torch.softmax(T, dim=0)
        J = (p * (norm(move - (p * move).sum(0)) + 1 - near)).sum()
        (g,) = torch.autograd.grad(J, T)
    return g


@when(optimiser="sgd")
class AdaptiveWeightsSgd(AdaptiveWeights):
    """The code's other optimiser, with momentum 0.9 and weight decay; lr is 0.01 there."""

    def learn(self, k: Cohort, s: Server, p: Tensor) -> Tensor:
        """T ← T − lr ∂J/∂T,  J = Σ p_k (‖Δ_k − Σ p_j Δ_j‖ + d(w, w_k))"""
        T, near = k.logit, self.nearness(k)
        momentum = torch.zeros_like(T)
        for _ in range(int(self.learning_steps)):
            momentum = 0.9 * momentum + slope(T, k.delta, near) + 5e-4 * T
            T = T - self.lr * momentum
        k.logit = T
        return p


@when(use="after")
class AdaptiveWeightsAfter(AdaptiveWeights):
    """The model of a round is made with the logits from after its step."""

    weigh = in_turn("begin", "learn", "mix")


@when(first_logit="log")
class AdaptiveWeightsLog(AdaptiveWeights):
    """The logarithm of a client's share, so that the first weights are FedAvg's."""

    def begin(self, k: Cohort, s: Server, p: Tensor) -> Tensor:
        """T_k ← log(n_k / n) the first time"""
        k.logit = torch.where(k.weighed > 0, k.logit, (k.n / s.samples).log())
        k.weighed = 1.0
        return p
