"""FedWMSAM (NeurIPS 2025) in three parts: personalised momentum, momentum-guided ascent, adaptive mixing.

The poster's formulas and the released code differ in many places; what converges on quadratics is the code's, with its
flat index repaired: papers/fedwmsam/reading.md.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fednb.core.readings import in_turn, nothing, when
from fednb.core.record import Cohort, P, Server
from fednb.core.rounds import AT_LEAST_0, SHARE, Part, part
from fednb.core.vectors import cos, norm, unit


@part
class WmsamMomentum(Part):
    """Momentum that leans towards what each client lacks: m_k = m + α/(1−α) (c − c_k).

    alpha: weight of the client's own gradient in the first round; 0.1 in the code.
    steps: K is each client's "own" number of steps.
    momentum_decay: the code's factor γ on m, copied from FedCM, where the rate had decayed by then.
    variates_at: who keeps c_k; at the "server", as in the code, m_k goes down in place of m and c.
    """

    alpha: float = 0.1
    personal: bool = True
    reading: str = "released"
    steps: str = "own"
    momentum_decay: bool = True
    server_step: str = "released"
    variates_at: str = "server"
    ranges = {"alpha": ("at least 0 and below 1", lambda v: 0 <= v < 1)}
    per_client = {"c_k": P}
    this_round = {"m_k": P}
    on_server = {"m": P, "c": P, "alpha": 1}
    bundled = {"m": "m_k", "c": "m_k"}

    def initial(self) -> dict[str, float | str]:
        return {"alpha": self.alpha}

    def start(self, k: Cohort, s: Server) -> None:
        """m_k ← m + α/(1−α) (c − c_k)"""
        k.m_k = s.m + s.alpha / (1 - s.alpha) * (s.c - k.c_k)

    def correct(self, k: Cohort, s: Server, v: Tensor) -> Tensor:
        """v ← α v + (1 − α) m_k"""
        return s.alpha * v + (1 - s.alpha) * k.m_k

    def moved(self, k: Cohort) -> Tensor:
        """Δ_k / (K η)"""
        return k.delta / (k.steps * k.lr)

    def finish(self, k: Cohort, s: Server) -> None:
        """c_k ← c_k − c − Δ_k / (K η)"""
        k.c_k = k.c_k - s.c - self.moved(k)

    server = in_turn("server_variate", "server_momentum")

    def server_variate(self, k: Cohort, s: Server) -> None:
        """c ← c + Σ (−c − Δ_k/(K η)) / N"""
        s.c = s.c - (s.c + self.moved(k)).sum(0) / s.N

    def server_momentum(self, k: Cohort, s: Server) -> None:
        """m ← −γ Σ p_k Δ_k / (K η)"""
        s.m = -k.lr_decay * (k.p * self.moved(k)).sum(0)


@when(reading="printed")
class WmsamMomentumPrinted(WmsamMomentum):
    """The poster's formulas, which diverge."""

    def start(self, k: Cohort, s: Server) -> None:
        """m_k ← m + α/(1−α) c_k"""
        k.m_k = s.m + s.alpha / (1 - s.alpha) * k.c_k

    def server_variate(self, k: Cohort, s: Server) -> None:
        """c ← c + Σ Δ_k/(K η |S|)"""
        s.c = s.c + self.moved(k).mean(0)


@when(personal=False)
class WmsamMomentumShared(WmsamMomentum):
    """Without control variates (Table 5 without "Mom"), which is FedCM's momentum."""

    finish = nothing
    server_variate = nothing

    def start(self, k: Cohort, s: Server) -> None:
        """m_k ← m"""
        k.m_k = s.m


@when(steps="nominal")
class WmsamMomentumNominal(WmsamMomentum):
    """K is FL-Simulator's epochs · n_0 / batch, as in the code."""

    def moved(self, k: Cohort) -> Tensor:
        """Δ_k / (K η)"""
        return k.delta / (k.nominal_steps * k.lr)


@when(momentum_decay=False)
class WmsamMomentumWhole(WmsamMomentum):
    """Without the factor γ."""

    def server_momentum(self, k: Cohort, s: Server) -> None:
        """m ← −Σ p_k Δ_k / (K η)"""
        s.m = -(k.p * self.moved(k)).sum(0)


@when(server_step="poster")
class WmsamMomentumPoster(WmsamMomentum):
    """The poster's server moves against the clients, which diverges."""

    def server_momentum(self, k: Cohort, s: Server) -> None:
        """m ← Σ p_k Δ_k / η;  step ← −η_g m"""
        s.m = (k.p * k.delta / k.lr).sum(0)
        s.step = -s.lr * s.m


@when(variates_at="client")
class WmsamMomentumAtClient(WmsamMomentum):
    """Each client keeps its c_k, so both m and c go down."""

    bundled = {}


@part
class WmsamAscent(Part):
    """Look where the momentum would lead by now: one gradient per step.

    rho: best at 0.01 in the poster's Table 6; 0.1 in the code. At the first step d = 0, so nothing is perturbed.
    reading: since m is gradient-signed, the "poster" with its plus looks uphill.
    ahead: b "steps" of m_k in poster and code.
    """

    rho: float = 0.01
    reading: str = "poster"
    ahead: str = "steps"
    ascends = True
    ranges = {"rho": AT_LEAST_0}
    this_round = {"m_k": P}

    def perturb(self, k: Cohort, s: Server, delta: Tensor | None) -> Tensor:
        """δ ← ρ unit(w + b m_k − w_k), b the step"""
        return self.rho * unit(k.w0 + k.step * k.m_k - k.w)


@when(reading="released")
class WmsamAscentReleased(WmsamAscent):
    """The code looks the other way."""

    def perturb(self, k: Cohort, s: Server, delta: Tensor | None) -> Tensor:
        """δ ← −ρ unit(w + b m_k − w_k), b the step"""
        return -self.rho * unit(k.w0 + k.step * k.m_k - k.w)


@when(ahead="rate")
class WmsamAscentRate(WmsamAscent):
    """Steps of m_k that are as long as a local step is, b η m_k."""

    def perturb(self, k: Cohort, s: Server, delta: Tensor | None) -> Tensor:
        """δ ← ρ unit(w + b η m_k − w_k), b the step"""
        return self.rho * unit(k.w0 + k.step * k.lr * k.m_k - k.w)


@when(reading="released", ahead="rate")
class WmsamAscentReleasedRate(WmsamAscent):
    """Both readings together."""

    def perturb(self, k: Cohort, s: Server, delta: Tensor | None) -> Tensor:
        """δ ← −ρ unit(w + b η m_k − w_k), b the step"""
        return -self.rho * unit(k.w0 + k.step * k.lr * k.m_k - k.w)


@part
class WmsamWeight(Part):
    """Trust momentum while clients agree with it: α follows 1 − cos(client's move, last global move).

    lam: 0.01 in the code. Stands before WmsamMomentum: it needs the momentum that the round started from.
    """

    lam: float = 0.01
    similarity: str = "released"
    ranges = {"lam": SHARE}
    on_server = {"m": P, "alpha": 1}

    def server(self, k: Cohort, s: Server) -> None:
        """α ← (1 − λ) α + λ clip(mean (1 + cos(Δ_k, m)), 0.1, 0.9)"""
        against = cos(k.delta, s.m)  # m points uphill: −1 for who goes on with it
        wanted = torch.where(norm(s.m) > 0, (1 + against).mean(), 0.0)
        s.alpha = (1 - self.lam) * s.alpha + self.lam * wanted.clamp(0.1, 0.9)


@when(similarity="poster")
class WmsamWeightPoster(WmsamWeight):
    """Follows the cosine itself, so that agreement raises the gradient's share; for an m that points uphill."""

    def server(self, k: Cohort, s: Server) -> None:
        """α ← (1 − λ) α + λ clip(mean cos(−Δ_k, m), 0.1, 0.9)"""
        along = -cos(k.delta, s.m)
        wanted = torch.where(norm(s.m) > 0, along.mean(), 0.0)
        s.alpha = (1 - self.lam) * s.alpha + self.lam * wanted.clamp(0.1, 0.9)
