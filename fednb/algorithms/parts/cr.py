"""FedCR: a bottleneck held close to Gaussians that all clients share, one per class."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from fednb.base.streams import stream
from fednb.core.record import Cohort, Server
from fednb.core.rounds import AT_LEAST_0, SHARE, BadParameter, Part, part
from fednb.core.vectors import Layout

BANK = 4096  # standard normal vectors that all draws are taken from
STRIDE = 977  # steps begin that far apart in the bank
KL = ("prior_first", "encoder_first")


def shape(layout: Layout) -> tuple[int, int]:
    """(classes, numbers of z): the shape of the last weight matrix, which decodes z; (0, 0) where there is none."""
    matrices = [s for s in layout.shapes if len(s) == 2]
    return (matrices[-1][0], matrices[-1][1]) if matrices else (0, 0)


def per_class(layout: Layout) -> int:
    """One number for each class and each number of z."""
    classes, z = shape(layout)
    return classes * z


@lru_cache(maxsize=4)
def bank(z: int, dtype: torch.dtype, device: torch.device, seed: int = 0) -> Tensor:
    """Standard normal vectors `[BANK, z]`, the same on every machine."""
    return torch.from_numpy(stream(seed, "draws", z).standard_normal((BANK, z))).to(device, dtype)


def divergence(mean: Tensor, std: Tensor, other_mean: Tensor, other_std: Tensor) -> Tensor:
    """KL(N(mean, std²) ‖ N(other_mean, other_std²)) of diagonal Gaussians, summed over the last axis."""
    ratio = (std / other_std).square()
    return 0.5 * (ratio - 1 - ratio.log() + ((mean - other_mean) / other_std).square()).sum(-1)


@dataclass(frozen=True)
class ClassLoss:
    """FedCR's loss of each sample: its cross entropy, mean over draws of z, and β times its divergence.

    Called, it also returns each sample's share in the Gaussian of its class: 1/σ² and μ/σ² in the row of that class.
    samples, beta, kl: as `ClassGaussians` has them; classes and z: the shape of the matrix that decodes z.
    """

    classes: int
    z: int
    samples: int
    beta: float
    kl: str

    def __call__(
        self, answer: Callable[..., Any], y: Tensor, row: Tensor, step: int | Tensor, common: Tensor
    ) -> tuple[Tensor, Tensor]:
        """row: the means and deviations of all classes, and where in the bank the first draw is; common: the bank."""
        *known, first = row.split([self.classes * self.z, self.classes * self.z, 1])
        at = first.long() + STRIDE * step + torch.arange(self.samples * len(y), device=y.device)
        draws = common.view(BANK, self.z)[at % BANK].view(len(y), self.samples, self.z).transpose(0, 1)
        answered = answer(draws)
        if isinstance(answered, Tensor):  # no bottleneck
            return functional.cross_entropy(answered, y, reduction="none")[:, None], row.new_zeros(len(y), 1)
        logits, mean, std = answered
        u, r = (x.view(self.classes, self.z)[y] for x in known)
        fit = functional.cross_entropy(logits.flatten(0, 1), y.repeat(self.samples), reduction="none")
        apart = divergence(u, r, mean, std) if self.kl == "prior_first" else divergence(mean, std, u, r)
        mine = (y[:, None] == torch.arange(self.classes, device=y.device))[:, None, :, None]
        own = mine * torch.stack([std**-2, mean * std**-2], dim=1)[:, :, None]
        return (fit.view(self.samples, -1).mean(0) + self.beta * apart)[:, None], own.flatten(1)


@part
class ClassGaussians(Part):
    """Keep the Gaussian of every sample near the one that all clients share for its class (FedCR, Zhang et al. 2023).

    beta: weight of the divergence, 1e-3 in FedFSA's comparison and by default in the released code (README: 1e-4).
    samples: draws of z for each sample, 15 by default in the released code (README: 18).
    beta2: how far the server goes to the new Gaussian, 1 in the README; the code's default of 0 would disable it.
    kl: "prior_first" is the released KL(r_y ‖ q), "encoder_first" the bound as it is written, KL(q ‖ r_y).
    Needs a model with a bottleneck, such as cnn5-cr; any other is trained on the cross entropy alone.
    """

    beta: float = 1e-3
    samples: int = 15
    beta2: float = 1.0
    kl: str = "prior_first"
    network = "-cr"
    ranges = {"beta": AT_LEAST_0, "beta2": SHARE,
              "samples": ("a whole number from 1 to 1000", lambda v: v == int(v) and 1 <= v <= 1000)}  # fmt: skip
    this_round = {"precision": per_class, "pull": per_class}
    on_server = {"class_mean": per_class, "class_std": per_class}

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.kl not in KL:
            raise BadParameter(f"ClassGaussians.kl = {self.kl!r}: must be one of {', '.join(KL)}")

    def initial(self) -> dict[str, float | str]:
        return {"class_std": 1.0}

    def start(self, k: Cohort, s: Server) -> None:
        """L ← mean over draws of L(z), z = μ(x) + σ(x) ε, + β KL(N(u_y, s_y²) ‖ N(μ(x), σ(x)²))"""
        first = [int(stream(s.seed, "first draw", s.t, i).integers(BANK)) for i in k.ids]
        known = torch.cat([s.class_mean, s.class_std]).expand(len(k.ids), -1)
        classes, z = shape(k.layout)
        draws = bank(z, known.dtype, known.device, s.seed).view(-1)
        loss = ClassLoss(classes, z, self.samples, self.beta, self.kl)
        k.tell(loss, torch.cat([known, known.new_tensor(first).view(-1, 1)], dim=-1), draws)

    def correct(self, k: Cohort, s: Server, v: Tensor) -> Tensor:
        """in the last epoch, per class: 1/s_k² ← 1/s_k² + Σ 1/σ(x)²;  u_k/s_k² ← u_k/s_k² + Σ μ(x)/σ(x)²"""
        if k.noticed.shape[-1] == 2 * per_class(k.layout):  # a model with a bottleneck
            precision, pull = k.noticed.split(per_class(k.layout), dim=-1)
            last = k.step >= k.steps - k.steps / k.epochs
            k.precision = torch.where(last, k.precision + precision, k.precision)
            k.pull = torch.where(last, k.pull + pull, k.pull)
        return v

    def server(self, k: Cohort, s: Server) -> None:
        """for classes that were seen: 1/s² ← 1 + Σ 1/s_k²;  u ← s² Σ u_k/s_k²;  (u, s) ← (1 − β_2) old + β_2 new"""
        precision, pull = k.precision.sum(0), k.pull.sum(0)
        seen = precision > 0
        mean, std = pull / (1 + precision), (1 + precision).rsqrt()
        s.class_mean = torch.where(seen, torch.lerp(s.class_mean, mean, self.beta2), s.class_mean)
        s.class_std = torch.where(seen, torch.lerp(s.class_std, std, self.beta2), s.class_std)
