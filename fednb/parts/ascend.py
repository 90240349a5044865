"""Where to take the gradient: sharpness-aware perturbations and what is done to them."""

from __future__ import annotations

from dataclasses import field

import torch
from torch import Tensor

from fednb.filters import Filter, HighPass
from fednb.record import Cohort, P, Server
from fednb.rounds import ABOVE_0, AT_LEAST_0, FIRST_MODEL, Part, part
from fednb.vectors import unit


@part
class Sam(Part):
    """Look uphill before stepping (Foret et al. 2021; FedSAM: Qu et al. 2022, Alg. 1; Caldarola et al. 2022).

    rho: radius of the neighbourhood; 0.1 in the FedFFT paper (§5.1), the norm taken over the whole model.
    """

    rho: float = 0.1
    ascends = True
    ranges = {"rho": AT_LEAST_0}

    def perturb(self, k: Cohort, s: Server, delta: Tensor | None) -> Tensor:
        """δ ← ρ ∇L(w_k) / ‖∇L(w_k)‖"""
        return self.rho * unit(k.grad(k.w))


@part
class FilterPerturbation(Part):
    """Filter the perturbation layer by layer, without scaling it up again (FedFFT, Alg. 1 line 10, Eq. 5-7).

    filter: HighPass(ratio=0.01) in the FedFFT paper (§5.1); its Table 3 puts other filters in the same place.
    """

    filter: Filter = field(default_factory=HighPass)
    shapes_ascent = True
    ranges = {"filter": ("a filter", lambda v: isinstance(v, Filter))}

    def perturb(self, k: Cohort, s: Server, delta: Tensor) -> Tensor:
        """δ ← Filter(δ), layer by layer"""
        return k.layout.map(self.filter, delta)


@part
class Lesam(Part):
    """Look back along the way the global model came (FedLESAM, Fan et al. 2024): one gradient per step.

    rho: 0.1 in the FedFFT paper's comparison. w_old is what this client received when it last took part; the
    perturbation is the same for all steps of a round.
    reading: "released" uses the last global update for everyone, w_{t-1} − w_t (the code's flat index repaired).
    first: at a client's first participation there is no w_old: "zero" perturbs nothing, "w0" takes the first model.
    """

    rho: float = 0.1
    reading: str = "paper"
    first: str = "zero"
    ascends = True
    ranges = {"rho": AT_LEAST_0, "first": ("zero or w0", lambda v: v in ("zero", "w0"))}
    readings = ("paper", "released")
    per_client = {"w_old": P, "seen": 1}
    this_round = {"uphill": P}
    on_server = {"w_last": P}

    def initial(self) -> dict[str, float | str]:
        return {"w_old": FIRST_MODEL, "w_last": FIRST_MODEL}

    def start(self, k: Cohort, s: Server) -> None:
        """δ_k ← ρ unit(w_old − w);  w_old ← w
        released: δ_k ← ρ unit(w_{t−1} − w)
        """
        old = s.w_last if self.reading == "released" else k.w_old
        if self.reading == "paper" and self.first == "zero":
            old = torch.where(k.seen > 0, old, k.w0)
        k.uphill = self.rho * unit(old - k.w0)
        k.w_old = k.w0  # what this client last received, not what the server last sent
        k.seen = 1.0

    def perturb(self, k: Cohort, s: Server, delta: Tensor | None) -> Tensor:
        """δ ← δ_k"""
        return k.uphill

    def server(self, k: Cohort, s: Server) -> None:
        """w_{t−1} ← w"""
        s.w_last = s.w


@part
class SmooDual(Part):
    """A dual per client makes perturbations agree (FedSMOO, Sun et al. 2023, Alg. 1, as FL-Simulator has it).

    rho: 0.1 in FL-Simulator. μ_k grows at every local step; s is renormalised to the radius.
    """

    rho: float = 0.1
    ascends = True
    ranges = {"rho": AT_LEAST_0}
    per_client = {"mu": P}
    on_server = {"s": P}

    def perturb(self, k: Cohort, s: Server, delta: Tensor | None) -> Tensor:
        """δ ← ρ unit(∇L(w_k) − μ_k − s);  μ_k ← μ_k + δ − s"""
        delta = self.rho * unit(k.grad(k.w) - k.mu - s.s)
        k.mu = k.mu + delta - s.s
        return delta

    def server(self, k: Cohort, s: Server) -> None:
        """s ← ρ unit(mean μ_k)"""
        s.s = self.rho * unit(k.mu.mean(0))


@part
class Gloss(Part):
    """The server looks uphill and clients follow duals (FedGloSS, Caldarola et al. 2025, Alg. 1).

    rho, rho_l: radii of server and clients; beta: 1/λ of the duals; rho0, warmup: both radii rise linearly from rho0
    over the first `warmup` rounds. CIFAR-10 in the paper: 0.15, 0.15, 10, 0.001, 2000.
    Parts that set the server's step stand before it: w̃ is made from the step that it finds.
    reading: "released" divides the server's dual by |S| once more, and its server's radius stands at rho_l + one rise
    during the warm-up.
    """

    rho: float = 0.15
    rho_l: float = 0.15
    beta: float = 10.0
    rho0: float = 0.001
    warmup: int = 0
    reading: str = "paper"
    ascends = True
    ranges = {"rho": AT_LEAST_0, "rho_l": AT_LEAST_0, "beta": ABOVE_0, "rho0": AT_LEAST_0, "warmup": AT_LEAST_0}
    readings = ("paper", "released")
    per_client = {"sigma": P}
    on_server = {"sigma": P, "w_sent": P}
    bundled = {"w_sent": "w"}  # it goes down in place of w

    def initial(self) -> dict[str, float | str]:
        return {"w_sent": FIRST_MODEL}

    def ramp(self, t: int, top: float) -> float:
        """A radius in round t of the warm-up (a warm-up of one round is none)."""
        warm = self.warmup <= 1 or t >= self.warmup
        return top if warm else self.rho0 + (top - self.rho0) * t / self.warmup

    def server_radius(self, t: int) -> float:
        if self.reading == "released" and self.warmup > 1 and 1 <= t <= self.warmup:
            return self.rho_l + (self.rho - self.rho0) / self.warmup
        return self.ramp(t, self.rho)

    def start(self, k: Cohort, s: Server) -> None:
        """w_k ← w̃"""
        k.w0 = k.w = s.w_sent

    def perturb(self, k: Cohort, s: Server, delta: Tensor | None) -> Tensor:
        """δ ← ρ_l unit(∇L(w_k))"""
        return self.ramp(s.t, self.rho_l) * unit(k.grad(k.w))

    def correct(self, k: Cohort, s: Server, v: Tensor) -> Tensor:
        """v ← v − σ_k + (w_k − w̃)/β"""
        return v - k.sigma + (k.w - k.w0) / self.beta

    def finish(self, k: Cohort, s: Server) -> None:
        """σ_k ← σ_k − Δ_k/β"""
        k.sigma = k.sigma - k.delta / self.beta

    def server(self, k: Cohort, s: Server) -> None:
        """σ ← σ − Σ Δ_k / (β N);  step ← η_g Σ p_k Δ_k − β σ;  w̃ ← w + step − ρ_t unit(Σ p_k Δ_k)
        released: σ ← σ − Σ Δ_k / (β N |S|);  step ← η_g Σ p_k Δ_k − β σ;  w̃ ← w + step − ρ_t unit(Σ p_k Δ_k)
        """
        many = s.N * (len(k.ids) if self.reading == "released" else 1)
        s.sigma = s.sigma - k.delta.sum(0) / (self.beta * many)
        s.step = s.lr * s.delta - self.beta * s.sigma
        s.w_sent = s.w + s.step - self.server_radius(s.t + 1) * unit(s.delta)
