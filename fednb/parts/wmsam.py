"""FedWMSAM (NeurIPS 2025) in three parts: personalised momentum, momentum-guided ascent, adaptive mixing.

The poster's formulas and the released code differ in many places; what converges on quadratics is the code's, with its
flat index repaired: papers/fedwmsam/reading.md.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fednb.record import Cohort, P, Server
from fednb.rounds import AT_LEAST_0, SHARE, Part, part
from fednb.vectors import cos, norm, unit


@part
class WmsamMomentum(Part):
    """Momentum that leans towards what each client lacks: m_k = m + α/(1−α) (c − c_k).

    alpha: weight of the client's own gradient in the first round; 0.1 in the code.
    personal: False leaves the control variates out (Table 5 without "Mom"), which is FedCM's momentum.
    reading: "printed" is the poster's m_k = m + α/(1−α) c_k with c ← c + Σ Δ_k/(K η |S|), which diverges.
    """

    alpha: float = 0.1
    personal: bool = True
    reading: str = "released"
    readings = ("released", "printed")
    ranges = {"alpha": ("at least 0 and below 1", lambda v: 0 <= v < 1)}
    per_client = {"c_k": P}
    this_round = {"m_k": P}
    on_server = {"m": P, "c": P, "alpha": 1}
    bundled = {"m": "m_k", "c": "m_k"}  # the server keeps every c_k and sends each client its own m_k

    def initial(self) -> dict[str, float | str]:
        return {"alpha": self.alpha}

    def start(self, k: Cohort, s: Server) -> None:
        """m_k ← m + α/(1−α) (c − c_k)
        printed: m_k ← m + α/(1−α) c_k
        """
        lean = s.alpha / (1 - s.alpha) * (k.c_k if self.reading == "printed" else s.c - k.c_k)
        k.m_k = s.m + lean if self.personal else s.m

    def correct(self, k: Cohort, s: Server, v: Tensor) -> Tensor:
        """v ← α v + (1 − α) m_k"""
        return s.alpha * v + (1 - s.alpha) * k.m_k

    def finish(self, k: Cohort, s: Server) -> None:
        """c_k ← c_k − c − Δ_k / (K η)"""
        if self.personal:
            k.c_k = k.c_k - s.c - k.delta / (k.steps * k.lr)

    def server(self, k: Cohort, s: Server) -> None:
        """c ← c + Σ (−c − Δ_k/(K η)) / N;  m ← −γ Σ p_k Δ_k / (K η)
        printed: c ← c + Σ Δ_k/(K η |S|);  m ← −γ Σ p_k Δ_k / (K η)
        """
        moved = k.delta / (k.steps * k.lr)
        if self.personal:
            s.c = s.c + moved.mean(0) if self.reading == "printed" else s.c - (s.c + moved).sum(0) / s.N
        s.m = -k.lr_decay * (k.p * moved).sum(0)  # the code's factor γ, copied from FedCM where the rate had decayed


@part
class WmsamAscent(Part):
    """Look where the momentum would lead by now: one gradient per step.

    rho: best at 0.01 in the poster's Table 6; 0.1 in the code. At the first step d = 0, so nothing is perturbed.
    reading: "released" looks the other way, −ρ unit(d); since m is gradient-signed, the poster's + is uphill.
    """

    rho: float = 0.01
    reading: str = "poster"
    ascends = True
    readings = ("poster", "released")
    ranges = {"rho": AT_LEAST_0}
    this_round = {"m_k": P}

    def perturb(self, k: Cohort, s: Server, delta: Tensor | None) -> Tensor:
        """δ ← ρ unit(w + b m_k − w_k), b the step
        released: δ ← −ρ unit(w + b m_k − w_k), b the step
        """
        ahead = unit(k.w0 + k.step * k.m_k - k.w)
        return self.rho * ahead if self.reading == "poster" else -self.rho * ahead


@part
class WmsamWeight(Part):
    """Trust momentum while clients agree with it: α follows 1 − cos(client's move, last global move).

    lam: 0.01 in the code. Stands before WmsamMomentum: it needs the momentum that the round started from.
    """

    lam: float = 0.01
    ranges = {"lam": SHARE}
    on_server = {"m": P, "alpha": 1}

    def server(self, k: Cohort, s: Server) -> None:
        """α ← (1 − λ) α + λ clip(mean (1 + cos(Δ_k, m)), 0.1, 0.9)"""
        agree = torch.where(norm(s.m) > 0, (1 + cos(k.delta, s.m)).mean(), 0.0)
        s.alpha = (1 - self.lam) * s.alpha + self.lam * agree.clamp(0.1, 0.9)
