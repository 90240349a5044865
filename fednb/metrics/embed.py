"""Many long vectors in two dimensions, with a number for how far they spread."""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from math import nan
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from fednb.base.progress import Bar, OnProgress, bar_of
from fednb.core.vectors import Layout
from fednb.engines.objective import one_thread
from fednb.metrics.tidy import Cloud, probed

if TYPE_CHECKING:
    import pandas as pd

    from fednb.runs.grid import Results


ITERATIONS = 1000  # of t-SNE at most, as scikit-learn has it


class TooFewPoints(ValueError):
    """Neighbourhoods need at least three points."""


def spread(x: Tensor) -> float:
    """The trace of the covariance of vectors `[C, P]` across clients, E_k ‖x_k − E x‖².

    >>> fn.embed.spread(torch.tensor([[1.0, 0.0], [-1.0, 0.0]]))
    1.0
    """
    return float((x.double() - x.double().mean(0)).square().sum(-1).mean())


def relative_spread(x: Tensor) -> float:
    """The spread as a share of the vectors' mean square, E_k ‖x_k − E x‖² / E_k ‖x_k‖²: 0 all alike, 1 no mean at all.

    Shorter vectors have a smaller spread without agreeing any better; scaling all of them leaves this number alone.
    nan where all are zero.

    >>> x = torch.tensor([[1.0, 1.0], [1.0, -1.0]])
    >>> fn.embed.relative_spread(x), fn.embed.relative_spread(10 * x)
    (0.5, 0.5)
    """
    whole = float(x.double().square().sum(-1).mean())
    return spread(x) / whole if whole else nan


def principal(x: Tensor, axes: int = 2) -> np.ndarray:
    """Vectors `[C, P]` in their own principal axes, `[C, axes]`, without moving the origin.

    The origin stays where it is (the global model, if x are moves from it), so the axes are the leading right singular
    vectors of x itself. The Gram matrix is enough: it is as small as the number of clients.

    >>> fn.embed.principal(torch.tensor([[3.0, 0.0, 0.0], [0.0, 2.0, 0.0]])).round(6)
    array([[3., 0.],
           [0., 2.]])
    """
    values, vectors = torch.linalg.eigh(x.double() @ x.double().T)
    order = values.argsort(descending=True)[:axes]
    points = vectors[:, order] * values[order].clamp_min(0).sqrt()
    points = points * torch.where(points.sum(0) < 0, -1.0, 1.0)  # most of them to the right and up
    return np.pad(points.numpy(), ((0, 0), (0, max(0, axes - len(x)))))


def shared(groups: dict[str, Tensor], axes: int = 2) -> dict[str, np.ndarray]:
    """Groups of vectors in common principal axes, `[n, axes]` by name: the PCA of all together, about their mean.

    >>> groups = {"before": torch.tensor([[2.0, 0.0]]), "after": torch.tensor([[0.0, 0.0]])}
    >>> {name: points.shape for name, points in fn.embed.shared(groups).items()}
    {'before': (1, 2), 'after': (1, 2)}
    """
    x = torch.cat([group.double() for group in groups.values()])
    points = _upright(principal(x - x.mean(0), axes))
    ends = np.cumsum([len(group) for group in groups.values()])[:-1]
    return dict(zip(groups, np.split(points, ends), strict=True))


def _upright(points: np.ndarray) -> np.ndarray:
    """A sign for each axis that does not hang on the solver: sums about a mean are zero, so the farthest decides."""
    far = np.take_along_axis(points, np.abs(points).argmax(0)[None], axis=0)[0]
    return points * np.where(far < 0, -1.0, 1.0)


@one_thread()
def tsne(x: Tensor, seed: int = 0, perplexity: float = 30.0, progress: bool | OnProgress = True) -> np.ndarray:
    """Vectors `[n, d]` by t-SNE (van der Maaten and Hinton 2008), `[n, 2]`: neighbours stay neighbours.

    The perplexity is at most (n − 1) / 3, so that few points work too. It starts from the principal axes and, up to
    1000 points, works without approximation: the same vectors and seed give the same picture.

    >>> fn.embed.tsne(torch.eye(4), progress=False).shape
    (4, 2)
    """
    from sklearn.manifold import TSNE

    n = len(x)
    if n < 3:
        raise TooFewPoints(f"t-SNE of {n} points: at least three are needed")
    points = principal(x.double() - x.double().mean(0), axes=n)  # all distances are kept, in n dimensions
    start = _upright(points[:, :2]) / max(float(points[:, 0].std()), 1e-300) * 1e-4
    how: dict[str, Any] = {"perplexity": max(1.0, min(perplexity, (n - 1) / 3)), "init": start.astype(np.float32)}
    how |= {"method": "exact" if n <= 1000 else "barnes_hut", "random_state": seed}
    with bar_of(ITERATIONS, f"t-SNE of {n} points", progress, unit="iteration") as bar, _heard_by(bar):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = TSNE(verbose=2, **how).fit_transform(points)
        bar.update(ITERATIONS - bar.n)  # it may end early
    return np.asarray(found, dtype=np.float64)


class _Ear:
    """Takes the place of the standard output: what t-SNE says moves a bar, all else goes through."""

    def __init__(self, bar: Bar, out: Any) -> None:
        self.bar, self.out, self.line = bar, out, ""

    def write(self, text: str) -> int:
        *whole, self.line = (self.line + text).split("\n")
        for line in whole:
            self._hear(line)
        return len(text)

    def _hear(self, line: str) -> None:
        if not line.startswith("[t-SNE]"):
            self.out.write(line + "\n")
        elif count := re.match(r"\[t-SNE\] Iteration (\d+):", line):
            self.bar.update(max(0, min(int(count[1]), ITERATIONS) - self.bar.n))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.out, name)


@contextmanager
def _heard_by(bar: Bar) -> Iterator[None]:
    """scikit-learn's t-SNE has no callback: every 50 iterations it prints how far it is."""
    before = sys.stdout
    ear = _Ear(bar, before)
    sys.stdout = ear  # type: ignore[assignment]
    try:
        yield
    finally:
        sys.stdout = before
        before.write(ear.line)


def clouds(results: Results, what: str, where: str = "*") -> list[Cloud]:
    """The kept vectors of each run and round, cut down to the layers that `where` chooses (FedFFT Fig. 4).

    >>> cloud = fn.embed.clouds(results, "move", where="*.weight")[0]
    >>> cloud.about["method"], len(cloud.vectors)
    ('FedAvg', 4)
    """
    return [
        Cloud(head, [{"client": i} for i in kept.clients], chosen_layers(kept.vectors[what], kept.layout, where))
        for head, kept in probed(results, what)
    ]


def chosen_layers(x: Tensor, layout: Layout, where: str) -> Tensor:
    """The part of vectors `[C, P]` that lies in some layers, one behind another: `[C, d]`.

    >>> from fednb.core.vectors import Layout
    >>> layout = Layout(("conv.weight", "fc.weight"), ((2,), (1,)))
    >>> fn.embed.chosen_layers(torch.tensor([[1.0, 2.0, 3.0]]), layout, "fc.*")
    tensor([[3.]])
    """
    pieces = zip(layout.layers(x).values(), layout.select(where), strict=True)
    return torch.cat([piece for piece, yes in pieces if yes], dim=-1)


def points(groups: Iterable[Cloud], how: str = "pca", seed: int = 0) -> pd.DataFrame:
    """Clouds in two dimensions, those of one setting, seed and round in the same axes (FedFFT Fig. 4).

    how: "pca" or "tsne". One row per vector: what it is, and where it lies, x and y.

    >>> table = fn.embed.points(fn.embed.clouds(results, "move"))
    >>> len(table), list(table.columns[-3:])
    (8, ['client', 'x', 'y'])
    """
    import pandas as pd

    if how not in ("pca", "tsne"):
        raise ValueError(f"how = {how!r}: must be pca or tsne")
    rows = []
    together = _in_same_axes(groups)
    with bar_of(len(together), f"{how} of vectors", unit="group") as bar:
        for group in together:
            x = torch.cat([cloud.vectors.double() for cloud in group])
            found = shared({"": x})[""] if how == "pca" else tsne(x, seed)
            each = ({**cloud.about, **row} for cloud in group for row in cloud.rows)
            rows += [{**what, "x": a, "y": b} for what, (a, b) in zip(each, found, strict=True)]
            bar.update()
    return pd.DataFrame(rows)


def spreads(groups: Iterable[Cloud]) -> pd.DataFrame:
    """The spread of each cloud over all its dimensions, and relative to the vectors' length, as a tidy table.

    Where vectors belong to classes it is the spread of the clients within a class, averaged over classes: that classes
    lie apart is what a model is for.

    >>> table = fn.embed.spreads(fn.embed.clouds(results, "move"))
    >>> table[["method", "measure"]]
       method          measure
    0  FedAvg           spread
    1  FedAvg  relative spread
    2  FedSAM           spread
    3  FedSAM  relative spread
    """
    import pandas as pd

    rows = []
    for cloud in groups:
        for measure, of in (("spread", spread), ("relative spread", relative_spread)):
            value = float(np.mean([of(x) for x in _classes(cloud)]))
            rows.append({**cloud.about, "measure": measure, "value": value})
    return pd.DataFrame(rows)


def _classes(cloud: Cloud) -> list[Tensor]:
    labels = torch.tensor([row.get("class", 0) for row in cloud.rows])
    return [cloud.vectors[labels == c] for c in labels.unique()]


def _in_same_axes(groups: Iterable[Cloud]) -> list[list[Cloud]]:
    """Clouds that differ in method alone, together."""
    together: dict[tuple, list[Cloud]] = {}
    for cloud in groups:
        common = tuple((k, v) for k, v in cloud.about.items() if k not in ("method", "key"))
        together.setdefault(common, []).append(cloud)
    return list(together.values())
