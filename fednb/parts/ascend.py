"""Where to take the gradient: sharpness-aware perturbations and what is done to them."""

from __future__ import annotations

from dataclasses import field

from torch import Tensor

from fednb.filters import Filter, HighPass
from fednb.record import Cohort, Server
from fednb.rounds import AT_LEAST_0, Part, part
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

    def perturb(self, k: Cohort, s: Server, delta: Tensor) -> Tensor:
        """δ ← Filter(δ), layer by layer"""
        return k.layout.map(self.filter, delta)
