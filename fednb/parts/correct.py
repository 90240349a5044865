"""What a client adds to its gradient to remember the others: proximal terms, variates, duals, momentum."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from fednb.record import Cohort, P, Server
from fednb.rounds import ABOVE_0, AT_LEAST_0, SHARE, Part, part


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
    """

    beta: float = 10.0
    reading: str = "corrected"
    prox_in_clip: bool = False
    readings = ("corrected", "printed")
    ranges = {"beta": ABOVE_0}
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
        """h_k ← h_k + Δ_k"""
        k.h = k.h + k.delta

    def server(self, k: Cohort, s: Server) -> None:
        """h ← h + Σ Δ_k / N;  step ← Σ p_k Δ_k + h"""
        s.h = s.h + k.delta.sum(0) / s.N
        s.step = s.delta + s.h  # whatever the server's rate


@part
class Scaffold(Part):
    """Control variates (SCAFFOLD, Karimireddy et al. 2020, Alg. 1, option II): c_k tracks the client's mean gradient.

    reading: "corrected" divides by each client's own number of steps; "released" by FL-Simulator's
    epochs · n_0 / batch, a real number taken from client 0; "printed" has the signs and the server sum of Alg. 3 in
    the FedFFT paper (+ c_k − c, c + Σ c_k / N), which diverge.
    """

    reading: str = "corrected"
    readings = ("corrected", "released", "printed")
    per_client = {"c_k": P}
    this_round = {"dc_k": P}
    on_server = {"c": P}

    def correct(self, k: Cohort, s: Server, v: Tensor) -> Tensor:
        """v ← v − c_k + c
        printed: v ← v + c_k − c
        """
        return v + k.c_k - s.c if self.reading == "printed" else v - k.c_k + s.c

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
    """

    alpha: float = 0.1
    reading: str = "corrected"
    readings: ClassVar[tuple[str, ...]] = ("corrected", "released")
    ranges = {"alpha": SHARE}
    on_server = {"m": P}

    def correct(self, k: Cohort, s: Server, v: Tensor) -> Tensor:
        """v ← α v + (1 − α) m"""
        return self.alpha * v + (1 - self.alpha) * s.m

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
