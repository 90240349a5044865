"""What a client adds to its gradient to remember the others: proximal terms, duals, control variates."""

from __future__ import annotations

from torch import Tensor

from fednb.core.readings import Not, nothing, when
from fednb.core.record import Cohort, P, Server
from fednb.core.rounds import ABOVE_0, AT_LEAST_0, Part, part


@part
class Prox(Part):
    """Stay near the received model (FedProx, Li et al. 2020, Alg. 2).

    mu: 0.1 in FL-Simulator, which clips −μ w with the gradient but adds +μ w_k behind the clip, as weight decay.
    """

    mu: float = 0.1
    prox_in_clip: bool = False
    ranges = {"mu": AT_LEAST_0}

    def start(self, k: Cohort, s: Server) -> None:
        """wd ← wd + μ   (+ μ w_k, behind the clip)"""
        k.weight_decay = k.weight_decay + self.mu

    def correct(self, k: Cohort, s: Server, v: Tensor) -> Tensor:
        """v ← v − μ w"""
        return v - self.mu * k.w0


@when(prox_in_clip=True)
class ProxInClip(Prox):
    """The whole pull is clipped with the gradient, which is what the paper means."""

    start = nothing

    def correct(self, k: Cohort, s: Server, v: Tensor) -> Tensor:
        """v ← v + μ (w_k − w)"""
        return v + self.mu * (k.w - k.w0)


@part
class Dyn(Part):
    """A dual per client pulls local optima together (FedDyn, Acar et al. 2021, Alg. 1; primal form of FL-Simulator).

    beta: 1/λ of FedDyn; 10 in FL-Simulator. h_k = −∇L_k/λ at the fixed point, −β λ_k in the multipliers of FedFFT-D.
    dual: whose h the server adds to the mean move; "all" is the mean over all clients, kept without asking them.
    """

    beta: float = 10.0
    reading: str = "corrected"
    prox_in_clip: bool = False
    dual: str = "all"
    ranges = {"beta": ABOVE_0}
    per_client = {"h": P}
    on_server = {"h": P}

    def start(self, k: Cohort, s: Server) -> None:
        """wd ← wd + 1/β   (+ w_k/β, behind the clip)"""
        k.weight_decay = k.weight_decay + 1.0 / self.beta

    def correct(self, k: Cohort, s: Server, v: Tensor) -> Tensor:
        """v ← v + (h_k − w)/β"""
        return v + (k.h - k.w0) / self.beta

    def finish(self, k: Cohort, s: Server) -> None:
        """h_k ← h_k + Δ_k"""
        k.h = k.h + k.delta

    def server(self, k: Cohort, s: Server) -> None:
        """h ← h + Σ Δ_k / N;  step ← Σ p_k Δ_k + h"""
        s.h = s.h + k.delta.sum(0) / s.N
        s.step = s.delta + s.h  # whatever the server's rate


@when(reading="printed")
class DynPrinted(Dyn):
    """The sign of Alg. 2 line 9 in the FedFFT paper, + λ_k, which drives clients apart."""

    def correct(self, k: Cohort, s: Server, v: Tensor) -> Tensor:
        """v ← v + (−h_k − w)/β"""
        return v + (-k.h - k.w0) / self.beta


@when(prox_in_clip=True)
class DynInClip(Dyn):
    """The whole pull is clipped with the gradient, as for `Prox`."""

    start = nothing

    def correct(self, k: Cohort, s: Server, v: Tensor) -> Tensor:
        """v ← v + (h_k + w_k − w)/β"""
        return v + (k.h + (k.w - k.w0)) / self.beta


@when(reading="printed", prox_in_clip=True)
class DynPrintedInClip(DynInClip):
    """Both readings together."""

    def correct(self, k: Cohort, s: Server, v: Tensor) -> Tensor:
        """v ← v + (−h_k + w_k − w)/β"""
        return v + (-k.h + (k.w - k.w0)) / self.beta


@when(dual="present")
class DynPresent(Dyn):
    """The sum of the participants' moves is divided by |S| in place of N (FedFFT, Alg. 2 line 15)."""

    def server(self, k: Cohort, s: Server) -> None:
        """h ← h + Σ Δ_k / |S|;  step ← Σ p_k Δ_k + h"""
        s.h = s.h + k.delta.sum(0) / len(k.ids)
        s.step = s.delta + s.h


@when(dual="none")
class DynNone(Dyn):
    """The server adds nothing (FedFFT, Alg. 2 line 14)."""

    def server(self, k: Cohort, s: Server) -> None:
        """step ← Σ p_k Δ_k"""
        s.step = s.delta


@when(dual="sent")
class DynSent(DynNone):
    """Participants add h_k to the model that they send, so that no one else counts (FedSpeed as printed)."""

    def finish(self, k: Cohort, s: Server) -> None:
        """h_k ← h_k + Δ_k;  Δ_k ← Δ_k + h_k"""
        k.h = k.h + k.delta
        k.delta = k.delta + k.h


@part
class Scaffold(Part):
    """Control variates (SCAFFOLD, Karimireddy et al. 2020, Alg. 1, option II): c_k tracks the client's mean gradient.

    reading: "corrected" divides by each client's own number of steps.
    strength: λ before the correction; 1 in the paper.
    """

    reading: str = "corrected"
    strength: float = 1.0
    ranges = {"strength": AT_LEAST_0}
    per_client = {"c_k": P}
    this_round = {"dc_k": P}
    on_server = {"c": P}

    def correct(self, k: Cohort, s: Server, v: Tensor) -> Tensor:
        """v ← v − c_k + c"""
        return v - k.c_k + s.c

    def finish(self, k: Cohort, s: Server) -> None:
        """Δc_k ← −c − Δ_k / (K_k η);  c_k ← c_k + Δc_k"""
        k.dc_k = -s.c - k.delta / (k.steps * k.lr)
        k.c_k = k.c_k + k.dc_k

    def server(self, k: Cohort, s: Server) -> None:
        """c ← c + Σ Δc_k / N"""
        s.c = s.c + k.dc_k.sum(0) / s.N


@when(reading="released")
class ScaffoldReleased(Scaffold):
    """FL-Simulator divides by epochs · n_0 / batch, a real number taken from client 0."""

    def finish(self, k: Cohort, s: Server) -> None:
        """Δc_k ← −c − Δ_k / (E n_0/b · η);  c_k ← c_k + Δc_k"""
        k.dc_k = -s.c - k.delta / (k.nominal_steps * k.lr)
        k.c_k = k.c_k + k.dc_k


@when(reading="printed")
class ScaffoldPrinted(Scaffold):
    """The signs and the server sum of Alg. 3 in the FedFFT paper, which diverge."""

    def correct(self, k: Cohort, s: Server, v: Tensor) -> Tensor:
        """v ← v + c_k − c"""
        return v + k.c_k - s.c

    def server(self, k: Cohort, s: Server) -> None:
        """c ← c + Σ c_k / N"""
        s.c = s.c + k.c_k.sum(0) / s.N


@when(strength=Not(1.0))
class ScaffoldStrength(Scaffold):
    """A weaker or stronger correction; 0.1 in FedLESAM's code for FedLESAM-S."""

    def correct(self, k: Cohort, s: Server, v: Tensor) -> Tensor:
        """v ← v − λ c_k + λ c"""
        return v - self.strength * k.c_k + self.strength * s.c


@when(reading="printed", strength=Not(1.0))
class ScaffoldPrintedStrength(ScaffoldPrinted):
    """Both readings together."""

    def correct(self, k: Cohort, s: Server, v: Tensor) -> Tensor:
        """v ← v + λ c_k − λ c"""
        return v + self.strength * k.c_k - self.strength * s.c
