"""Where to take the gradient: sharpness-aware perturbations and what is done to them."""

from __future__ import annotations

from dataclasses import field

import torch
from torch import Tensor

from fednb.core.record import Cohort, Declared, P, Server
from fednb.core.rounds import AT_LEAST_0, FIRST_MODEL, SHARE, Part, part
from fednb.core.vectors import TINY, Layout, norm, unit
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
        return k.layout.map(self.filter.of_run(s.seed), delta)


@part
class Lesam(Part):
    """Look back along the way the global model came (FedLESAM, Fan et al. 2024): one gradient per step.

    rho: 0.1 in the FedFFT paper's comparison. w_old is what this client received when it last took part; the
    perturbation is the same for all steps of a round.
    reading: "released" uses the last global update for everyone, w_{t-1} − w_t (the code's flat index repaired).
    first: at a client's first participation there is no w_old: "zero" perturbs nothing, "w0" takes the first model.
    norm_of: the code divides by the sum of the layers' norms, which is longer than that of the model; "layers" does so.
    """

    rho: float = 0.1
    reading: str = "paper"
    first: str = "zero"
    norm_of: str = "model"
    ascends = True
    ranges = {"rho": AT_LEAST_0, "first": ("zero or w0", lambda v: v in ("zero", "w0")),
              "norm_of": ("model or layers", lambda v: v in ("model", "layers"))}  # fmt: skip
    readings = ("paper", "released")
    per_client = {"w_old": P, "seen": 1}
    this_round = {"uphill": P}
    on_server = {"w_last": P}

    def initial(self) -> dict[str, float | str]:
        return {"w_old": FIRST_MODEL, "w_last": FIRST_MODEL}

    def start(self, k: Cohort, s: Server) -> None:
        """δ_k ← ρ unit(w_old − w);  w_old ← w
        released: δ_k ← ρ unit(w_{t−1} − w)
        layers: δ_k ← ρ (w_old − w) / Σ_l ‖(w_old − w)_l‖;  w_old ← w
        released layers: δ_k ← ρ (w_{t−1} − w) / Σ_l ‖(w_{t−1} − w)_l‖
        """
        old = s.w_last if self.reading == "released" else k.w_old
        if self.reading == "paper" and self.first == "zero":
            old = torch.where(k.seen > 0, old, k.w0)
        k.uphill = self.rho * self._unit(k.layout, old - k.w0)
        k.w_old = k.w0  # what this client last received, not what the server last sent
        k.seen = 1.0

    def _unit(self, layout: Layout, x: Tensor) -> Tensor:
        if self.norm_of == "model":
            return unit(x)
        return x / (torch.stack([norm(layer) for layer in layout.layers(x).values()]).sum(0) + TINY)

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
    s_average, s_sign: s is made of the mean over the "participants", with a "plus"; a copy of older code has the mean
    over "all" clients (kept by the server, who is sent what a μ_k has grown by) and a "minus".
    """

    rho: float = 0.1
    s_average: str = "participants"
    s_sign: str = "plus"
    ascends = True
    ranges = {"rho": AT_LEAST_0, "s_average": ("participants or all", lambda v: v in ("participants", "all")),
              "s_sign": ("plus or minus", lambda v: v in ("plus", "minus"))}  # fmt: skip
    per_client = {"mu": P}

    @property
    def this_round(self) -> Declared:  # type: ignore[override]
        return {"mu_grown": P} if self.s_average == "all" else {}

    @property
    def on_server(self) -> Declared:  # type: ignore[override]
        return {"s": P, "mu_mean": P} if self.s_average == "all" else {"s": P}

    def perturb(self, k: Cohort, s: Server, delta: Tensor | None) -> Tensor:
        """δ ← ρ unit(∇L(w_k) − μ_k − s);  μ_k ← μ_k + δ − s"""
        delta = self.rho * unit(k.grad(k.w) - k.mu - s.s)
        k.mu = k.mu + delta - s.s
        if self.s_average == "all":
            k.mu_grown = k.mu_grown + delta - s.s
        return delta

    def server(self, k: Cohort, s: Server) -> None:
        """s ← ρ unit(mean μ_k)
        minus: s ← −ρ unit(mean μ_k)
        all: s ← ρ unit(Σ μ_k / N), over all clients
        all minus: s ← −ρ unit(Σ μ_k / N), over all clients
        """
        if self.s_average == "all":
            s.mu_mean = s.mu_mean + k.mu_grown.sum(0) / s.N
        mean = s.mu_mean if self.s_average == "all" else k.mu.mean(0)
        s.s = (self.rho if self.s_sign == "plus" else -self.rho) * unit(mean)
