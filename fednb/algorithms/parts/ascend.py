"""Where to take the gradient: sharpness-aware perturbations and what is done to them."""

from __future__ import annotations

from dataclasses import field

import torch
from torch import Tensor

from fednb.core.readings import in_turn, when
from fednb.core.record import Cohort, P, Server
from fednb.core.rounds import AT_LEAST_0, FIRST_MODEL, SHARE, Part, part
from fednb.core.vectors import TINY, norm, unit
from fednb.filters import Filter, HighPass


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
class QuasiGradient(Part):
    """A mixture of the gradients here and uphill (FedSpeed, Sun et al. 2023, as printed; its code has `Sam`).

    rho: 0.1; the way up is as long as the gradient makes it. mix: weight of the gradient up there; 1, assumed, is that
    alone. Stands before filters of the gradient.
    """

    rho: float = 0.1
    mix: float = 1.0
    ascends = True
    ranges = {"rho": AT_LEAST_0, "mix": SHARE}
    this_round = {"g_here": P}

    def perturb(self, k: Cohort, s: Server, delta: Tensor | None) -> Tensor:
        """δ ← ρ ∇L(w_k)"""
        k.g_here = k.grad(k.w)
        return self.rho * k.g_here

    def gradient(self, k: Cohort, s: Server, g: Tensor) -> Tensor:
        """g ← (1 − α) ∇L(w_k) + α g"""
        return (1 - self.mix) * k.g_here + self.mix * g


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
        return k.layout.map(self.filter.in_run(s), delta)


@part
class Lesam(Part):
    """Look back along the way the global model came (FedLESAM, Fan et al. 2024): one gradient per step.

    rho: 0.1 in the FedFFT paper's comparison. w_old is what this client received when it last took part; the
    perturbation is the same for all steps of a round.
    first: at a client's first participation there is no w_old: "zero" perturbs nothing.
    norm_of: d_k is divided by the norm of the whole "model".
    """

    rho: float = 0.1
    reading: str = "paper"
    first: str = "zero"
    norm_of: str = "model"
    ascends = True
    ranges = {"rho": AT_LEAST_0}
    per_client = {"w_old": P, "seen": 1}
    this_round = {"uphill": P}
    on_server = {"w_last": P}

    def initial(self) -> dict[str, float | str]:
        return {"w_old": FIRST_MODEL, "w_last": FIRST_MODEL}

    start = in_turn("look_back", "shorten", "remember")

    def look_back(self, k: Cohort, s: Server) -> None:
        """d_k ← w_old − w"""
        k.uphill = torch.where(k.seen > 0, k.w_old, k.w0) - k.w0

    def shorten(self, k: Cohort, s: Server) -> None:
        """δ_k ← ρ d_k / ‖d_k‖"""
        k.uphill = self.rho * unit(k.uphill)

    def remember(self, k: Cohort, s: Server) -> None:
        """w_old ← w"""
        k.w_old = k.w0  # what this client last received, not what the server last sent
        k.seen = 1.0

    def perturb(self, k: Cohort, s: Server, delta: Tensor | None) -> Tensor:
        """δ ← δ_k"""
        return k.uphill

    def server(self, k: Cohort, s: Server) -> None:
        """w_{t−1} ← w"""
        s.w_last = s.w


@when(first="w0")
class LesamFirstModel(Lesam):
    """A newcomer's w_old is the first model."""

    def look_back(self, k: Cohort, s: Server) -> None:
        """d_k ← w_old − w"""
        k.uphill = k.w_old - k.w0


@when(reading="released")
class LesamReleased(Lesam):
    """The last global update for everyone (the code's flat index repaired)."""

    def look_back(self, k: Cohort, s: Server) -> None:
        """d_k ← w_{t−1} − w"""
        k.uphill = s.w_last - k.w0


@when(norm_of="layers")
class LesamLayers(Lesam):
    """The code divides by the sum of the layers' norms, which is longer than that of the model."""

    def shorten(self, k: Cohort, s: Server) -> None:
        """δ_k ← ρ d_k / Σ_l ‖(d_k)_l‖"""
        norms = [norm(layer) for layer in k.layout.layers(k.uphill).values()]
        k.uphill = self.rho * (k.uphill / (torch.stack(norms).sum(0) + TINY))


@part
class SmooDual(Part):
    """A dual per client makes perturbations agree (FedSMOO, Sun et al. 2023, Alg. 1, as FL-Simulator has it).

    rho: 0.1 in FL-Simulator. μ_k grows at every local step; s is renormalised to the radius.
    s_average, s_sign: s is made of the mean over the "participants", with a "plus"; a copy of older code has neither.
    """

    rho: float = 0.1
    s_average: str = "participants"
    s_sign: str = "plus"
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


@when(s_sign="minus")
class SmooDualMinus(SmooDual):
    """The server's vector has the opposite sign."""

    def server(self, k: Cohort, s: Server) -> None:
        """s ← −ρ unit(mean μ_k)"""
        s.s = -self.rho * unit(k.mu.mean(0))


@when(s_average="all")
class SmooDualAll(SmooDual):
    """The mean over all clients, kept by the server, who is sent what a μ_k has grown by."""

    this_round = {"mu_grown": P}
    on_server = {"s": P, "mu_mean": P}

    def perturb(self, k: Cohort, s: Server, delta: Tensor | None) -> Tensor:
        """δ ← ρ unit(∇L(w_k) − μ_k − s);  μ_k ← μ_k + δ − s"""
        delta = self.rho * unit(k.grad(k.w) - k.mu - s.s)
        k.mu = k.mu + delta - s.s
        k.mu_grown = k.mu_grown + delta - s.s
        return delta

    def server(self, k: Cohort, s: Server) -> None:
        """s ← ρ unit(Σ μ_k / N), over all clients"""
        s.mu_mean = s.mu_mean + k.mu_grown.sum(0) / s.N
        s.s = self.rho * unit(s.mu_mean)


@when(s_average="all", s_sign="minus")
class SmooDualAllMinus(SmooDualAll):
    """Both readings together."""

    def server(self, k: Cohort, s: Server) -> None:
        """s ← −ρ unit(Σ μ_k / N), over all clients"""
        s.mu_mean = s.mu_mean + k.mu_grown.sum(0) / s.N
        s.s = -self.rho * unit(s.mu_mean)
