"""FedWMSAM (NeurIPS 2025) in three parts: personalised momentum, momentum-guided ascent, adaptive mixing.

The poster's formulas and the released code differ in many places; what converges on quadratics is the code's, with its
flat index repaired: papers/fedwmsam/reading.md.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fednb.core.record import Cohort, P, Server
from fednb.core.rounds import AT_LEAST_0, SHARE, Part, part
from fednb.core.vectors import cos, norm, unit


@part
class WmsamMomentum(Part):
    """Momentum that leans towards what each client lacks: m_k = m + α/(1−α) (c − c_k).

    alpha: weight of the client's own gradient in the first round; 0.1 in the code.
    personal: False leaves the control variates out (Table 5 without "Mom"), which is FedCM's momentum.
    reading: "printed" is the poster's m_k = m + α/(1−α) c_k with c ← c + Σ Δ_k/(K η |S|), which diverges.
    steps: K is each client's "own", or FL-Simulator's "nominal" epochs · n_0 / batch, as in the code.
    momentum_decay: the code's factor γ on m, copied from FedCM, where the rate had decayed by then.
    server_step: "poster" moves against the clients, m ← Σ p_k Δ_k / η and step ← −η_g m, which diverges.
    variates_at: who keeps c_k. At the "server", as in the code, m_k goes down; at the "client" both m and c.
    """

    alpha: float = 0.1
    personal: bool = True
    reading: str = "released"
    steps: str = "own"
    momentum_decay: bool = True
    server_step: str = "released"
    variates_at: str = "server"
    readings = ("released", "printed")
    ranges = {"alpha": ("at least 0 and below 1", lambda v: 0 <= v < 1),
              "steps": ("own or nominal", lambda v: v in ("own", "nominal")),
              "server_step": ("released or poster", lambda v: v in ("released", "poster")),
              "variates_at": ("server or client", lambda v: v in ("server", "client"))}  # fmt: skip
    per_client = {"c_k": P}
    this_round = {"m_k": P}
    on_server = {"m": P, "c": P, "alpha": 1}

    @property
    def bundled(self) -> dict[str, str]:  # type: ignore[override]
        return {"m": "m_k", "c": "m_k"} if self.variates_at == "server" else {}

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

    def _moved(self, k: Cohort) -> Tensor:
        """Δ_k / (K η): minus the mean direction of a client's steps."""
        return k.delta / ((k.nominal_steps if self.steps == "nominal" else k.steps) * k.lr)

    def finish(self, k: Cohort, s: Server) -> None:
        """c_k ← c_k − c − Δ_k / (K η)"""
        if self.personal:
            k.c_k = k.c_k - s.c - self._moved(k)

    def server(self, k: Cohort, s: Server) -> None:
        """c ← c + Σ (−c − Δ_k/(K η)) / N;  m ← −Σ p_k Δ_k / (K η)
        poster printed: c ← c + Σ Δ_k/(K η |S|);  m ← Σ p_k Δ_k / η;  step ← −η_g m
        poster: c ← c + Σ (−c − Δ_k/(K η)) / N;  m ← Σ p_k Δ_k / η;  step ← −η_g m
        printed momentum_decay: c ← c + Σ Δ_k/(K η |S|);  m ← −γ Σ p_k Δ_k / (K η)
        printed: c ← c + Σ Δ_k/(K η |S|);  m ← −Σ p_k Δ_k / (K η)
        momentum_decay: c ← c + Σ (−c − Δ_k/(K η)) / N;  m ← −γ Σ p_k Δ_k / (K η)
        """
        moved = self._moved(k)
        if self.personal:
            s.c = s.c + moved.mean(0) if self.reading == "printed" else s.c - (s.c + moved).sum(0) / s.N
        s.m = (-k.lr_decay if self.momentum_decay else -1.0) * (k.p * moved).sum(0)
        if self.server_step == "poster":
            s.m = (k.p * k.delta / k.lr).sum(0)
            s.step = -s.lr * s.m


@part
class WmsamAscent(Part):
    """Look where the momentum would lead by now: one gradient per step.

    rho: best at 0.01 in the poster's Table 6; 0.1 in the code. At the first step d = 0, so nothing is perturbed.
    reading: "released" looks the other way, −ρ unit(d); since m is gradient-signed, the poster's + is uphill.
    ahead: b "steps" of m_k in poster and code; the "rate" makes them as long as a step is, b η m_k.
    """

    rho: float = 0.01
    reading: str = "poster"
    ahead: str = "steps"
    ascends = True
    readings = ("poster", "released")
    ranges = {"rho": AT_LEAST_0, "ahead": ("steps or rate", lambda v: v in ("steps", "rate"))}
    this_round = {"m_k": P}

    def perturb(self, k: Cohort, s: Server, delta: Tensor | None) -> Tensor:
        """δ ← ρ unit(w + b m_k − w_k), b the step
        released rate: δ ← −ρ unit(w + b η m_k − w_k), b the step
        released: δ ← −ρ unit(w + b m_k − w_k), b the step
        rate: δ ← ρ unit(w + b η m_k − w_k), b the step
        """
        far = k.step * k.lr if self.ahead == "rate" else k.step
        ahead = unit(k.w0 + far * k.m_k - k.w)
        return self.rho * ahead if self.reading == "poster" else -self.rho * ahead


@part
class WmsamWeight(Part):
    """Trust momentum while clients agree with it: α follows 1 − cos(client's move, last global move).

    lam: 0.01 in the code. Stands before WmsamMomentum: it needs the momentum that the round started from.
    similarity: "poster" follows the cosine itself, so that agreement raises the gradient's share; for an m that points
    uphill.
    """

    lam: float = 0.01
    similarity: str = "released"
    ranges = {"lam": SHARE, "similarity": ("released or poster", lambda v: v in ("released", "poster"))}
    on_server = {"m": P, "alpha": 1}

    def server(self, k: Cohort, s: Server) -> None:
        """α ← (1 − λ) α + λ clip(mean (1 + cos(Δ_k, m)), 0.1, 0.9)
        poster: α ← (1 − λ) α + λ clip(mean cos(−Δ_k, m), 0.1, 0.9)
        """
        against = cos(k.delta, s.m)  # m points uphill: −1 for who goes on with it
        wanted = torch.where(norm(s.m) > 0, (-against if self.similarity == "poster" else 1 + against).mean(), 0.0)
        s.alpha = (1 - self.lam) * s.alpha + self.lam * wanted.clamp(0.1, 0.9)
