"""What the server does with the mean move: momentum, fairness, shrinking layers."""

from __future__ import annotations

import torch
from torch import Tensor

from fednb.core.readings import when
from fednb.core.record import Cohort, P, Server
from fednb.core.rounds import AT_LEAST_0, Part, part
from fednb.core.vectors import Layout


@part
class ServerMomentum(Part):
    """The server keeps moving (FedAvgM, Hsu et al. 2019).

    beta: 0.9; FedSCAM, which compares with it, prints none. The classic form has a gain of 1/(1 − beta).
    """

    beta: float = 0.9
    damped: bool = False
    nesterov: bool = False
    ranges = {"beta": ("at least 0 and below 1", lambda v: 0 <= v < 1)}
    on_server = {"v": P}

    def server(self, k: Cohort, s: Server) -> None:
        """v ← β v + Σ p_k Δ_k;  step ← η_g v"""
        s.v = self.beta * s.v + s.delta
        s.step = s.lr * s.v


@when(damped=True)
class ServerMomentumDamped(ServerMomentum):
    """No gain, as in FedDisco's code."""

    def server(self, k: Cohort, s: Server) -> None:
        """v ← β v + (1 − β) Σ p_k Δ_k;  step ← η_g v"""
        s.v = self.beta * s.v + (1 - self.beta) * s.delta
        s.step = s.lr * s.v


@when(nesterov=True)
class ServerMomentumNesterov(ServerMomentum):
    """A step ahead of v, as in FL-bench."""

    def server(self, k: Cohort, s: Server) -> None:
        """v ← β v + Σ p_k Δ_k;  step ← η_g (Σ p_k Δ_k + β v)"""
        s.v = self.beta * s.v + s.delta
        s.step = s.lr * (s.delta + self.beta * s.v)


@when(damped=True, nesterov=True)
class ServerMomentumDampedNesterov(ServerMomentum):
    """Both readings together."""

    def server(self, k: Cohort, s: Server) -> None:
        """v ← β v + (1 − β) Σ p_k Δ_k;  step ← η_g ((1 − β) Σ p_k Δ_k + β v)"""
        push = (1 - self.beta) * s.delta
        s.v = self.beta * s.v + push
        s.step = s.lr * (push + self.beta * s.v)


@part
class SummedMoves(Part):
    """Add the clients' moves up without 1/|S|: line 14 of Alg. 2 and of Alg. 3 as FedFFT prints them.

    It stands behind the parts whose step it replaces; with two clients the step is twice as long, and so on.
    """

    def server(self, k: Cohort, s: Server) -> None:
        """step ← η_g Σ Δ_k"""
        s.step = s.lr * k.delta.sum(0)


@part
class Fairness(Part):
    """Clients with a large loss move the model more (q-FedAvg, Li et al. 2020, Alg. 2).

    q: 0.1, assumed (the paper searches 0.001 to 15); q = 0 is the uniform mean. F_k is the loss of the received model
    over all of the client's data, before training.
    """

    q: float = 0.1
    ranges = {"q": AT_LEAST_0}
    this_round = {"F": 1}

    def start(self, k: Cohort, s: Server) -> None:
        """F_k ← L_k(w) over all local data"""
        total = seen = torch.zeros_like(k.F)
        for step in range(k.max_steps // k.epochs):
            mine = step < k.steps / k.epochs  # an epoch of this client's
            _, loss, count = k.look(k.w0, step, who=mine)
            total, seen = total + loss * count * mine, seen + count * mine
        k.F = total / seen + 1e-10

    def server(self, k: Cohort, s: Server) -> None:
        """g_k = −Δ_k/η;  step ← −Σ F_k^q g_k / Σ (q F_k^{q−1} ‖g_k‖² + F_k^q/η)"""
        g = -k.delta / k.lr
        pull, brake = k.F**self.q * g, self.q * k.F ** (self.q - 1) * g.square().sum(-1, keepdim=True)
        s.step = -s.lr * pull.sum(0) / (brake + k.F**self.q / k.lr).sum(0)


def groups(layout: Layout) -> list[int]:
    """Which group each layer belongs to: a group ends with a bias, so a convolution and its norm are one."""
    out, group = [], 0
    for name in layout.names:
        out.append(group)
        group += "bias" in name
    return out


@part
class LayerShrink(Part):
    """Shrink each group of layers a little, more where clients disagree (FedLWS, Shi et al. 2025).

    beta, least, most: 0.03, 0.01, 0.2 in the released code; with least > 0 it is never exactly FedAvg. Buffers are
    left alone (the code shrinks BatchNorm statistics too).
    factor_per: "group" as in the code (see `groups`); "tensor" has a factor for each, so that one of zeros stays zero.
    """

    beta: float = 0.03
    least: float = 0.01
    most: float = 0.2
    factor_per: str = "group"
    ranges = {"beta": AT_LEAST_0, "least": AT_LEAST_0, "most": AT_LEAST_0,
              "factor_per": ("group or tensor", lambda v: v in ("group", "tensor"))}  # fmt: skip

    def server(self, k: Cohort, s: Server) -> None:
        """w ← γ (w + step),  γ_l = ‖w_l‖ / (‖w_l‖ + τ_l ‖step_l‖),  τ_l = clip(β E_k ‖Δ_k − E Δ‖_l, least, most)"""
        mine = groups(k.layout) if self.factor_per == "group" else list(range(len(k.layout)))
        apart = self._norms(k.layout, mine, k.delta - k.delta.mean(0)).mean(0)
        tau = (self.beta * apart).clamp(self.least, self.most)
        size, move = self._norms(k.layout, mine, s.w), self._norms(k.layout, mine, s.step)
        gamma = size / (size + tau * move).clamp_min(torch.finfo(size.dtype).tiny)
        s.step = k.layout.spread(gamma[mine]) * (s.w + s.step) - s.w

    @staticmethod
    def _norms(layout: Layout, group_of: list[int], x: Tensor) -> Tensor:
        """‖x‖ over each group of layers, `[..., groups]`."""
        squares = torch.stack([piece.square().sum(-1) for piece in layout.layers(x).values()], dim=-1)
        group = torch.tensor(group_of, device=x.device)
        out = squares.new_zeros(*squares.shape[:-1], int(group.max()) + 1)
        return out.index_add(-1, group, squares).sqrt()
