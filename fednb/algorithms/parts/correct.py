"""What a client adds to its gradient to remember the others: proximal terms, variates, duals, momentum."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from fednb.core.record import Cohort, P, Server
from fednb.core.rounds import ABOVE_0, AT_LEAST_0, SHARE, Part, part


@part
class Prox(Part):
    """Stay near the received model (FedProx, Li et al. 2020, Alg. 2).

    mu: 0.1 in FL-Simulator. prox_in_clip: the released code clips −μ w with the gradient but adds +μ w_k behind the
    clip, as weight decay; True clips the whole pull, which is what the paper means.
    """

    mu: float = 0.1
    prox_in_clip: bool = False
    ranges = {"mu": AT_LEAST_0}

    def start(self, k: Cohort, s: Server) -> None:
        """wd ← wd + μ   (+ μ w_k, behind the clip)
        prox_in_clip:
        """
        if not self.prox_in_clip:
            k.weight_decay = k.weight_decay + self.mu

    def correct(self, k: Cohort, s: Server, v: Tensor) -> Tensor:
        """v ← v − μ w
        prox_in_clip: v ← v + μ (w_k − w)
        """
        return v + self.mu * (k.w - k.w0) if self.prox_in_clip else v - self.mu * k.w0


@part
class Dyn(Part):
    """A dual per client pulls local optima together (FedDyn, Acar et al. 2021, Alg. 1; primal form of FL-Simulator).

    beta: 1/λ of FedDyn; 10 in FL-Simulator. h_k = −∇L_k/λ at the fixed point, −β λ_k in the multipliers of FedFFT-D.
    reading: "printed" has the sign of Alg. 2 line 9 in the FedFFT paper, + λ_k, which drives clients apart.
    prox_in_clip: as for `Prox`.
    dual: what the server adds to the mean move: "all" the mean of all clients' h; "present" their sum over |S| in
    place of N (FedFFT, Alg. 2 line 15); "none" nothing (line 14); "sent" what participants add to the model that they
    send, w_k + h_k, so that no one else counts (FedSpeed as printed).
    """

    beta: float = 10.0
    reading: str = "corrected"
    prox_in_clip: bool = False
    dual: str = "all"
    readings = ("corrected", "printed")
    ranges = {"beta": ABOVE_0,
              "dual": ("all, present, none or sent", lambda v: v in ("all", "present", "none", "sent"))}  # fmt: skip
    per_client = {"h": P}
    on_server = {"h": P}  # the mean of all clients' h, kept without asking them

    def start(self, k: Cohort, s: Server) -> None:
        """wd ← wd + 1/β   (+ w_k/β, behind the clip)
        prox_in_clip:
        """
        if not self.prox_in_clip:
            k.weight_decay = k.weight_decay + 1.0 / self.beta

    def correct(self, k: Cohort, s: Server, v: Tensor) -> Tensor:
        """v ← v + (h_k − w)/β
        prox_in_clip: v ← v + (h_k + w_k − w)/β
        printed: v ← v + (−h_k − w)/β
        prox_in_clip printed: v ← v + (−h_k + w_k − w)/β
        """
        dual = -k.h if self.reading == "printed" else k.h
        anchor = k.w - k.w0 if self.prox_in_clip else -k.w0
        return v + (dual + anchor) / self.beta

    def finish(self, k: Cohort, s: Server) -> None:
        """h_k ← h_k + Δ_k
        sent: h_k ← h_k + Δ_k;  Δ_k ← Δ_k + h_k
        """
        k.h = k.h + k.delta
        if self.dual == "sent":
            k.delta = k.delta + k.h

    def server(self, k: Cohort, s: Server) -> None:
        """h ← h + Σ Δ_k / N;  step ← Σ p_k Δ_k + h
        present: h ← h + Σ Δ_k / |S|;  step ← Σ p_k Δ_k + h
        none: step ← Σ p_k Δ_k
        sent: step ← Σ p_k Δ_k
        """
        if self.dual in ("all", "present"):
            s.h = s.h + k.delta.sum(0) / (s.N if self.dual == "all" else len(k.ids))
        s.step = s.delta + s.h  # whatever the server's rate


@part
class Scaffold(Part):
    """Control variates (SCAFFOLD, Karimireddy et al. 2020, Alg. 1, option II): c_k tracks the client's mean gradient.

    reading: "corrected" divides by each client's own number of steps; "released" by FL-Simulator's
    epochs · n_0 / batch, a real number taken from client 0; "printed" has the signs and the server sum of Alg. 3 in
    the FedFFT paper (+ c_k − c, c + Σ c_k / N), which diverge.
    strength: λ before the correction; 1 in the paper, 0.1 in FedLESAM's code for FedLESAM-S.
    """

    reading: str = "corrected"
    strength: float = 1.0
    readings = ("corrected", "released", "printed")
    ranges = {"strength": AT_LEAST_0}
    per_client = {"c_k": P}
    this_round = {"dc_k": P}
    on_server = {"c": P}

    def correct(self, k: Cohort, s: Server, v: Tensor) -> Tensor:
        """v ← v − λ c_k + λ c
        printed 1.0: v ← v + c_k − c
        printed: v ← v + λ c_k − λ c
        1.0: v ← v − c_k + c
        """
        own, others = self.strength * k.c_k, self.strength * s.c
        return v + own - others if self.reading == "printed" else v - own + others

    def finish(self, k: Cohort, s: Server) -> None:
        """Δc_k ← −c − Δ_k / (K_k η);  c_k ← c_k + Δc_k
        released: Δc_k ← −c − Δ_k / (E n_0/b · η);  c_k ← c_k + Δc_k
        """
        steps = k.nominal_steps if self.reading == "released" else k.steps
        k.dc_k = -s.c - k.delta / (steps * k.lr)
        k.c_k = k.c_k + k.dc_k

    def server(self, k: Cohort, s: Server) -> None:
        """c ← c + Σ Δc_k / N
        printed: c ← c + Σ c_k / N
        """
        s.c = s.c + (k.c_k if self.reading == "printed" else k.dc_k).sum(0) / s.N


@part
class ClientMomentum(Part):
    """Every local step follows the last global one (FedCM, Xu et al. 2021, Alg. 1).

    alpha: weight of the client's own gradient; 0.1 in FL-Simulator. Weight decay is not scaled by it.
    reading: "released" divides by epochs · n_0 / batch, as for `Scaffold`; "corrected" by each client's own steps.
    lost_alpha: True leaves the gradient whole, as FedLESAM's copy of MoFedSAM does; its steps are much longer.
    """

    alpha: float = 0.1
    reading: str = "corrected"
    lost_alpha: bool = False
    readings: ClassVar[tuple[str, ...]] = ("corrected", "released")
    ranges = {"alpha": SHARE}
    on_server = {"m": P}

    def correct(self, k: Cohort, s: Server, v: Tensor) -> Tensor:
        """v ← α v + (1 − α) m
        lost_alpha: v ← v + (1 − α) m
        """
        return (1.0 if self.lost_alpha else self.alpha) * v + (1 - self.alpha) * s.m

    def server(self, k: Cohort, s: Server) -> None:
        """m ← −Σ p_k Δ_k / (K_k η)
        released: m ← −Σ p_k Δ_k / (E n_0/b · η)
        """
        steps = k.nominal_steps if self.reading == "released" else k.steps
        s.m = -(k.p * k.delta / (steps * k.lr)).sum(0)


@part
class FsaMomentum(ClientMomentum):
    """FedFSA's momentum (Alg. 1), in FedCM's form.

    alpha: 0.1 in the paper.
    reading: "released" divides by the first rate over the decay, whatever the client's rate is by now; "printed" has
    the + Σ Δ_k of Alg. 1, which with v subtracted walks back.
    """

    reading: str = "paper"
    readings = ("paper", "released", "printed")

    def server(self, k: Cohort, s: Server) -> None:
        """m ← −Σ p_k Δ_k / (K_k η)
        released: m ← −γ Σ p_k Δ_k / (K_k η_0)
        printed: m ← +Σ p_k Δ_k / (K_k η)
        """
        rate = k.first_lr / k.lr_decay if self.reading == "released" else k.lr
        moved = (k.p * k.delta / (k.steps * rate)).sum(0)
        s.m = moved if self.reading == "printed" else -moved


@part
class LocalMomentum(Part):
    """The clients' own SGD has momentum, from rest in every round (FedAWA's code; as PyTorch has it).

    momentum: 0.9 there. It carries along what the parts before it add, and weight decay too, so it stands last.
    """

    momentum: float = 0.9
    ranges = {"momentum": ("at least 0 and below 1", lambda v: 0 <= v < 1)}
    this_round = {"u": P}

    def correct(self, k: Cohort, s: Server, v: Tensor) -> Tensor:
        """u ← μ u + v + wd w_k;  v ← u − wd w_k   (wd is added behind the clip)"""
        decay = k.weight_decay * k.w
        k.u = self.momentum * k.u + v + decay
        return k.u - decay
