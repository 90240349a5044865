"""One probed round, prepared so that the cut of a high-pass filter can be moved through it at once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from fednb.core.vectors import Layout
from fednb.engines.objective import one_thread
from fednb.filters import HighPass, bins, cut
from fednb.metrics.drift import WHOLE, agreement
from fednb.metrics.sample import Sample, sample_of
from fednb.metrics.spectra import edges
from fednb.show.explore.cutline import LEAST
from fednb.show.explore.stored import Stored

BANDS = 10
STEPS = 90  # points of a spectrum's curve, evenly spaced on a logarithmic axis
SAMPLES = {100_000: 200, 10**12: 40}  # test samples of the loss, for models of up to so many weights
QUICK = 10**7  # samples times weights: losses of more than this come later than the picture

Curve = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True, eq=False)
class Cut:
    """What a ratio leaves of the perturbations of all clients, in the chosen layers."""

    vectors: Tensor  # [C, n]
    norms: list[float]
    cosine: float  # of the pair
    agreement: float  # of all clients
    bands: list[float]
    taken: int
    frequencies: int


class Look:
    """A round's perturbations and gradients in one layer, or in all of them.

    Frequency j of a layer has its place at (j + 1) / (⌊n/2⌋ + 1): what lies at or below r is what HighPass(r) removes.
    """

    def __init__(self, stored: Stored, t: int, layer: str) -> None:
        kept = stored.probed(t)
        names = kept.layout.names if layer == WHOLE else (layer,)
        shapes = dict(zip(kept.layout.names, kept.layout.shapes, strict=True))
        self.clients = kept.clients
        self.layout = Layout(tuple(names), tuple(shapes[name] for name in names))
        self.delta, g = (_chosen(kept.vectors[what], kept.layout, names) for what in ("perturbation", "gradient"))
        with one_thread():
            self.curves = {"perturbation": spectrum(self.delta, self.layout), "gradient": spectrum(g, self.layout)}
            layers = [x for x in self.layout.layers(self.delta).values() if bins(x.shape[-1]) >= self.bands]
            self._differ = [(x.shape[-1], _disagreement(x)) for x in layers]
        self._cuts: dict[tuple[float, int, int], Cut] = {}

    @property
    def bands(self) -> int:
        """Ten, or as many as the only layer has frequencies."""
        return min(BANDS, max(bins(n) for n in self.layout.sizes))

    def at(self, ratio: float, first: int, second: int) -> Cut:
        """Everything that follows from a cut, for a pair of clients (rows)."""
        key = (ratio, first, second)
        if key not in self._cuts:
            self._cuts = dict(list(self._cuts.items())[-20:]) | {key: self._at(*key)}
        return self._cuts[key]

    @one_thread()
    def _at(self, ratio: float, first: int, second: int) -> Cut:
        x = self.layout.map(HighPass(ratio), self.delta)
        taken = sum(cut(ratio, n) for n in self.layout.sizes)
        return Cut(x, x.double().norm(dim=-1).tolist(), agreement(x[[first, second]]), agreement(x),
                   self._variance(ratio), taken, sum(map(bins, self.layout.sizes)))  # fmt: skip

    def _variance(self, ratio: float) -> list[float]:
        """`metrics.spectra.variance` of what is left, a mean over layers; without a transform of what is left."""
        per_layer = []
        for n, each in self._differ:
            left = np.where(np.arange(len(each)) < cut(ratio, n), 0.0, each)
            per_layer.append([left[low:high].mean() for low, high in pairwise(edges(n, self.bands))])
        return np.mean(per_layer, axis=0).tolist()


def _chosen(x: Tensor, layout: Layout, names: tuple[str, ...]) -> Tensor:
    layers = layout.layers(x)
    return x if len(names) == len(layout) else torch.cat([layers[name] for name in names], dim=-1)


def _disagreement(x: Tensor) -> np.ndarray:
    """E_k |ẑ_k − E ẑ|² of each frequency of a layer `[C, n]`, the transform unitary."""
    z = torch.fft.rfft(x.double(), norm="ortho")
    return (z - z.mean(0)).abs().square().mean(0).numpy()


def spectrum(x: Tensor, layout: Layout) -> list[Curve]:
    """Each client's amplitude by frequency: the root mean square over the coefficients of all layers near a place."""
    energy = np.zeros((len(x), STEPS))
    count, place = np.zeros(STEPS), np.zeros(STEPS)
    for layer in layout.layers(x).values():
        z = torch.fft.rfft(layer.double(), norm="ortho").abs().square().numpy()
        step, where = _steps(z.shape[-1])
        count += np.bincount(step, minlength=STEPS)
        place += np.bincount(step, weights=np.log(where), minlength=STEPS)
        for row, each in zip(energy, z, strict=True):
            row += np.bincount(step, weights=each, minlength=STEPS)
    some = count > 0
    return [(np.exp(place[some] / count[some]), np.sqrt(row[some] / count[some])) for row in energy]


@lru_cache(maxsize=128)
def _steps(frequencies: int) -> tuple[np.ndarray, np.ndarray]:
    """Each frequency's place, and the number of its step on a logarithmic axis from LEAST to 1."""
    where = np.arange(1, frequencies + 1) / frequencies
    step = np.floor(STEPS * np.log(where / LEAST) / np.log(1 / LEAST))
    return np.clip(step, 0, STEPS - 1).astype(int), where


class Losses:
    """The loss at w + δ on a small fixed sample of the test set, the same for all clients; each is computed once."""

    def __init__(self, stored: Stored, t: int, device: str = "auto") -> None:
        self.kept = stored.probed(t)
        count = next(count for most, count in SAMPLES.items() if self.kept.layout.total <= most)
        self.sample = _sample(stored, count, device)
        self._known: dict[tuple[int | None, float], float] = {}

    @property
    def samples(self) -> int:
        return len(self.sample.y)

    @property
    def quick(self) -> bool:
        """Whether a picture can wait for it."""
        return self.samples * self.kept.layout.total <= QUICK

    def known(self, client: int | None, ratio: float) -> float | None:
        return self._known.get((client, ratio))

    def at(self, client: int | None, ratio: float) -> float:
        """L(w + Φ(δ_k)) of a client (row) with Φ = HighPass(ratio) in all layers; L(w) of nobody."""
        if (client, ratio) not in self._known:
            self._known[client, ratio] = self._at(client, ratio)
        return self._known[client, ratio]

    @torch.no_grad()
    @one_thread()
    def _at(self, client: int | None, ratio: float) -> float:
        w = self.kept.vectors["global"][0]
        if client is not None:
            w = w + self.kept.layout.map(HighPass(ratio), self.kept.vectors["perturbation"][client])
        return float(self.sample(self.sample.place(w)))


@lru_cache(maxsize=4)
def _sample(stored: Stored, count: int, device: str) -> Sample:
    return sample_of(stored, count, device=device)  # type: ignore[arg-type]  # all that it asks of a run
