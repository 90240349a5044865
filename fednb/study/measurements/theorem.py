"""SpecGradFilter's Theorem IV.1 on quadratics: the squared gradient, the drift term, and the gradient that is left.

The runs are made by the library's own rounds (`fednb.core.rounds`): every client in every round, exact gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import sqrt
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from fednb.algorithms.catalogue import method
from fednb.base.progress import bar_of
from fednb.base.streams import stream
from fednb.core.rounds import Method
from fednb.engines.federation import Federation
from fednb.engines.objective import one_thread
from fednb.filters import HighPass, bins
from fednb.study.measurements.registry import measurement

if TYPE_CHECKING:
    import pandas as pd

SIZE, CLIENTS, STEPS = 256, 8, 5  # n, K and E: HighPass(0.05) takes 6 of 129 frequencies, 11 of 256 dimensions
FLATTEST, L = 0.25, 1.0  # the range of curvatures; L is the theorem's smoothness
LOW, HIGH = "low", "high"
METHODS = ("FedAvg", "SpecGradFilter")
FIRST_TERM = "2 (F(w⁰) − F*) / √T"
ROUNDS = {"smoke": (4, 9, 25), "laptop": (16, 64, 256, 1024), "paper": (16, 64, 256, 1024, 4096)}
SEEDS = {"smoke": (0,), "laptop": (0, 1, 2), "paper": (0, 1, 2)}
FIXED = 32  # rounds with the fixed rate
SHOWN = 64  # rounds of a curve that are kept


@dataclass(frozen=True, eq=False)
class Quadratics:
    """Clients with f_k(w) = ½⟨w, H_k w⟩ + ⟨b_k, w⟩, where the b_k add up to zero: F is least at 0, and F* = 0.

    H_k multiplies every frequency by a number of its own, the `curvature` `[K, ⌊n/2⌋ + 1]`, so that low and high
    frequencies do not mix. Client k has its minimum at −H_k⁻¹ b_k, whose frequencies are those of b_k, `pull` `[K, n]`.
    """

    curvature: Tensor
    pull: Tensor

    def gradients(self, w: Tensor) -> Tensor:
        """∇f_k(w_k) = H_k w_k + b_k, one row per client."""
        return torch.fft.irfft(self.curvature * torch.fft.rfft(w), n=w.shape[-1]) + self.pull

    def gradient(self, w: Tensor) -> Tensor:
        """∇F(w), the mean over clients."""
        return self.gradients(w.expand_as(self.pull)).mean(0)

    def loss(self, w: Tensor) -> float:
        """F(w) = ½⟨w, ∇F(w)⟩"""
        return float(0.5 * (w * self.gradient(w)).sum())

    def start(self, g: Tensor) -> Tensor:
        """The point where ∇F is g."""
        return torch.fft.irfft(torch.fft.rfft(g) / self.curvature.mean(0), n=g.shape[-1])


def of_band(x: Tensor, band: str) -> Tensor:
    """The low frequencies of x, those that SpecGradFilter removes, or the high ones, which it keeps."""
    high = HighPass(0.05)(x)
    return high if band == HIGH else x - high


def made(seed: int, clients: str, gradient: str) -> tuple[Quadratics, Tensor]:
    """Clients that differ in a band by δ² = mean ‖b_k‖² = 1, and a start whose ∇F lies in a band and has length 1."""
    rng = stream(seed, "theorem")
    draw = torch.from_numpy(rng.standard_normal((CLIENTS + 1, SIZE)))
    curvature = torch.from_numpy(rng.uniform(FLATTEST, L, (CLIENTS, bins(SIZE))))
    pull = of_band(draw[1:] - draw[1:].mean(0), clients)
    problem = Quadratics(curvature, pull * sqrt(CLIENTS) / pull.norm())
    g = of_band(draw[0], gradient)
    return problem, problem.start(g / g.norm())


@dataclass(frozen=True, eq=False)
class Path:
    """A run: ‖∇F(w)‖² before each round and after the last, and how far clients were apart in each round.

    apart: mean ‖w_k − mean w_k‖² / (η E)², which is the dissimilarity δ² of the gradients that clients follow, to first
    order in η.
    """

    squared: list[float] = field(default_factory=list)
    apart: list[float] = field(default_factory=list)

    @property
    def mean(self) -> float:
        """The left side of Eq. 10: the mean of ‖∇F(w^t)‖² over t < T."""
        return sum(self.squared[:-1]) / len(self.apart)


@one_thread()
def path(
    method: Method, problem: Quadratics, w: Tensor, rounds: int, lr: float, tick: Callable[[], object] = lambda: None
) -> Path:
    """Rounds of a method, all clients taking STEPS steps in each."""
    going = Federation(problem.gradients, w, clients=len(problem.pull)).start(method, steps=STEPS, lr=lr)
    out = Path([_squared(problem, w)])
    for _ in range(rounds):
        seen = going.next()
        out.squared.append(_squared(problem, seen.w))
        spread = (seen.moves - seen.moves.mean(0)).square().sum(-1).mean()
        out.apart.append(float(spread) / (lr * STEPS) ** 2)
        tick()
    return out


def _squared(problem: Quadratics, w: Tensor) -> float:
    return float(problem.gradient(w).square().sum())


@measurement("theorem")  # SpecGradFilter Theorem IV.1
def theorem(scale: str) -> pd.DataFrame:
    """SpecGradFilter's Theorem IV.1 in numbers: two bands in which clients differ, two in which ∇F starts.

    With the theorem's rate η = 1 / (√T E L): "squared gradient" by round at the largest T; "mean squared gradient", the
    left side of Eq. 10, for every T, beside the first term of its right side; "growth", how much √T times that mean
    grows from the smallest T to the largest (a rate of O(1/√T) keeps it bounded); "gradient left", ‖∇F(w^T)‖² over
    ‖∇F(w⁰)‖² at the largest T; "drift", how far clients are apart in the last round, in units of (η E)².
    With the fixed rate η = 1 / (E L): "residual", ‖∇F(w^T)‖² after the last of 32 rounds.
    """
    import pandas as pd

    cases = list(product(SEEDS[scale], (LOW, HIGH), (HIGH, LOW)))
    rows = []
    with bar_of(len(cases) * len(METHODS) * (sum(ROUNDS[scale]) + FIXED), "theorem") as bar:
        for seed, clients, gradient in cases:
            head = {"clients": f"differ {clients}", "gradient": f"starts {gradient}", "seed": seed}
            rows += [{**head, **row} for row in _case(*made(seed, clients, gradient), ROUNDS[scale], bar.update)]
    return pd.DataFrame(rows)


def _case(
    problem: Quadratics, w: Tensor, counts: Sequence[int], tick: Callable[[], object]
) -> Iterator[dict[str, Any]]:
    """The rows of one problem."""
    for name in METHODS:
        paths = {T: path(method(name), problem, w, T, 1 / (sqrt(T) * STEPS * L), tick) for T in counts}
        fixed = path(method(name), problem, w, FIXED, 1 / (STEPS * L), tick)
        yield from ({"method": name, **row} for row in _rows(paths, fixed))
    for T in counts:
        first = 2 * problem.loss(w) / sqrt(T)
        yield {"method": FIRST_TERM, "measure": "mean squared gradient", "T": T, "value": first}


def _rows(paths: dict[int, Path], fixed: Path) -> Iterator[dict[str, Any]]:
    """What is kept of one method's runs."""
    few, most = min(paths), max(paths)
    last, scaled = paths[most], {T: sqrt(T) * one.mean for T, one in paths.items()}
    every = max(1, most // SHOWN)
    for t in range(every, most + 1, every):
        yield {"measure": "squared gradient", "round": t - 1, "value": last.squared[t]}
    for T, one in paths.items():
        yield {"measure": "mean squared gradient", "T": T, "value": one.mean}
    yield {"measure": "growth", "value": scaled[most] / scaled[few]}
    yield {"measure": "gradient left", "value": last.squared[-1] / last.squared[0]}
    yield {"measure": "drift", "value": last.apart[-1]}
    yield {"measure": "residual", "value": fixed.squared[-1]}
