"""Mistakes of published code, kept so that published runs can be replayed and the cost of a mistake measured.

Each part is one method's part with one mistake of a public repository in it; the correct part stands in ascend.py or
wmsam.py. No method of the catalogue has one of these; notebooks/across/03 compares them with the correct ones.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fednb.core.record import Cohort, P, Server
from fednb.core.rounds import AT_LEAST_0, FIRST_MODEL, Part, part
from fednb.core.vectors import TINY, Layout, unit


def by_tensor_number(layout: Layout, d: Tensor) -> Tensor:
    """Every number of tensor j becomes element j of the flat vector, over the sum of the first |elements|.

    The mistake: an index counts tensors in a list that has been flattened, so of P numbers only the first L are used.
    """
    first = d[..., : len(layout)]
    return layout.spread(first / (first.abs().sum(-1, keepdim=True) + TINY))


def first_numbers(layout: Layout, x: Tensor) -> Tensor:
    """Every tensor gets the first numbers of the flat vector, as many as it has: an offset that is never moved on."""
    return torch.cat([x[..., :n] for n in layout.sizes], dim=-1)


@part
class LesamFlat(Part):
    """FedLESAM with its code's flat index: tensor j is shifted by one number, made of element j of the last update.

    rho: 0.1 in the FedFFT paper's comparison; the shift is many times as long (evidence "flat_index"). Right is
    `Lesam(reading="released", norm_of="layers")`, and the same where every tensor has one number.
    """

    rho: float = 0.1
    ascends = True
    ranges = {"rho": AT_LEAST_0}
    this_round = {"uphill": P}
    on_server = {"w_last": P}

    def initial(self) -> dict[str, float | str]:
        return {"w_last": FIRST_MODEL}

    def start(self, k: Cohort, s: Server) -> None:
        """d ← w_{t−1} − w;  δ_k ← ρ d[j] / Σ_l |d[l]| in all of tensor j"""
        k.uphill = self.rho * by_tensor_number(k.layout, s.w_last - k.w0)

    def perturb(self, k: Cohort, s: Server, delta: Tensor | None) -> Tensor:
        """δ ← δ_k"""
        return k.uphill

    def server(self, k: Cohort, s: Server) -> None:
        """w_{t−1} ← w"""
        s.w_last = s.w


@part
class WmsamFlat(Part):
    """FedWMSAM's ascent with the flat index of FedLESAM's code, which its own has taken over, and its own sign.

    rho: 0.01 is best in the poster's Table 6. Right is `WmsamAscent(reading="released")`, and the same where the model
    is one number. Stands before WmsamMomentum, as the right one does.
    """

    rho: float = 0.01
    ascends = True
    ranges = {"rho": AT_LEAST_0}
    this_round = {"m_k": P}

    def perturb(self, k: Cohort, s: Server, delta: Tensor | None) -> Tensor:
        """d ← w + b m_k − w_k, b the step;  δ ← −ρ d[j] / Σ_l |d[l]| in all of tensor j"""
        return -self.rho * by_tensor_number(k.layout, k.w0 + k.step * k.m_k - k.w)


@part
class SmooSlices(Part):
    """FedSMOO with the slices of FL-Simulator before October 2024 (FedFSA's code still has them).

    rho: 0.1 in FL-Simulator. What a client is sent is cut wrongly: every tensor gets the first numbers of μ_k and of s;
    what it does with them, and how it puts μ_k together again, is right. Right is `SmooDual`, and the same where the
    model is one tensor.
    """

    rho: float = 0.1
    ascends = True
    ranges = {"rho": AT_LEAST_0}
    per_client = {"mu": P}
    this_round = {"s_k": P}
    on_server = {"s": P}

    def start(self, k: Cohort, s: Server) -> None:
        """μ_k, s_k ← the first numbers of μ_k and of s, in every tensor"""
        k.mu, k.s_k = first_numbers(k.layout, k.mu), first_numbers(k.layout, s.s)

    def perturb(self, k: Cohort, s: Server, delta: Tensor | None) -> Tensor:
        """δ ← ρ unit(∇L(w_k) − μ_k − s_k);  μ_k ← μ_k + δ − s_k"""
        delta = self.rho * unit(k.grad(k.w) - k.mu - k.s_k)
        k.mu = k.mu + delta - k.s_k
        return delta

    def server(self, k: Cohort, s: Server) -> None:
        """s ← ρ unit(mean μ_k)"""
        s.s = self.rho * unit(k.mu.mean(0))
