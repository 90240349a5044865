"""The loss around a model: along random directions or given ones, on a line or a plane."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import nan
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from fednb.base.progress import OnProgress, bar_of
from fednb.base.streams import stream
from fednb.core.vectors import Layout
from fednb.engines.objective import one_thread
from fednb.metrics.cache import Measured, Question
from fednb.metrics.hessian import Eigen
from fednb.metrics.sample import Loss, Sample, sample_of
from fednb.metrics.tidy import about

if TYPE_CHECKING:
    import pandas as pd

    from fednb.runs.experiment import Run
    from fednb.runs.grid import Results

VERSION = 1  # of what is stored; see `fednb.metrics.cache`
Tick = Callable[[], object]
Look = Callable[[Sample, Tensor, Sequence[Tensor], Tick], Tensor]  # the loss around w along some directions


def filter_normalised(d: Tensor, w: Tensor, layout: Layout) -> Tensor:
    """A direction `[P]` whose filters have the norms of the model's own (Li et al. 2018, §4): d_ij ‖w_ij‖ / ‖d_ij‖.

    A filter is what makes one output: a slice of a weight along its first axis. Biases and norm parameters, tensors
    with a single axis, are set to zero, as in the code that is commonly used for such pictures (`ignore='biasbn'`).

    >>> from fednb.core.vectors import Layout
    >>> layout = Layout(("fc.weight", "fc.bias"), ((1, 2), (1,)))
    >>> fn.landscape.filter_normalised(torch.ones(3), torch.tensor([3.0, 4.0, 9.0]), layout)
    tensor([3.5355, 3.5355, 0.0000])
    """
    pieces = {}
    for name, piece in layout.tensors(d).items():
        weight = layout.tensors(w)[name]
        if weight.ndim < 2:
            pieces[name] = torch.zeros_like(piece)
            continue
        rows, like = piece.flatten(1), weight.flatten(1)
        pieces[name] = rows * (like.norm(dim=1) / rows.norm(dim=1).clamp_min(1e-10))[:, None]
    return layout.flat(pieces)


def random_direction(w: Tensor, layout: Layout, seed: int = 0) -> Tensor:
    """A Gaussian direction `[P]`, filter-normalised: the same draw for every model with as many weights.

    >>> from fednb.core.vectors import Layout
    >>> layout = Layout(("fc.weight",), ((1, 2),))
    >>> fn.landscape.random_direction(torch.tensor([3.0, 4.0]), layout).norm().round(decimals=4)
    tensor(5.)
    """
    drawn = torch.from_numpy(stream(seed, "direction").standard_normal(w.numel()))
    return filter_normalised(drawn.to(w), w, layout)


def steps(radius: float = 1.0, points: int = 21) -> Tensor:
    """Where to look: an odd number of points from −radius to radius, so that the model itself is one of them.

    >>> fn.landscape.steps(radius=1.0, points=5)
    tensor([-1.0000, -0.5000,  0.0000,  0.5000,  1.0000], dtype=torch.float64)
    """
    if points < 3 or points % 2 == 0 or not radius > 0:
        raise ValueError(f"radius = {radius}, points = {points}: a radius above 0 and an odd number of points from 3")
    half = torch.linspace(0, radius, points // 2 + 1, dtype=torch.float64)
    return torch.cat([-half.flip(0)[:-1], half])


@torch.no_grad()
def line(loss: Loss, w: Tensor, d: Tensor, a: Tensor, tick: Tick = lambda: None) -> Tensor:
    """L(w + a d) for every number in a: `[len(a)]`.

    >>> fn.landscape.line(lambda w: (w**2).sum(), torch.zeros(2), torch.ones(2), a=torch.tensor([-1.0, 0.0, 2.0]))
    tensor([2., 0., 8.], dtype=torch.float64)
    """
    out = []
    for each in a.tolist():
        out.append(float(loss(w + each * d.to(w))))
        tick()
    return torch.tensor(out, dtype=torch.float64)


def plane(loss: Loss, w: Tensor, d: Tensor, e: Tensor, a: Tensor, b: Tensor, tick: Tick = lambda: None) -> Tensor:
    """L(w + a d + b e) for all pairs: `[len(a), len(b)]`.

    >>> a, right, up = torch.tensor([0.0, 1.0]), torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0])
    >>> fn.landscape.plane(lambda w: (w**2).sum(), torch.zeros(2), right, up, a, a)
    tensor([[0., 1.],
            [1., 2.]], dtype=torch.float64)
    """
    return torch.stack([line(loss, w + each * d.to(w), e, b, tick) for each in a.tolist()])


@one_thread()
def lines(
    results: Results, directions: dict[str, Eigen] | None = None, radius: float = 1.0, points: int = 21,
    samples: int = 500, seed: int = 0, device: str = "auto", progress: bool | OnProgress = True,
) -> pd.DataFrame:  # fmt: skip
    """The loss of every run's last global model along one direction, as a tidy table with the column a.

    directions: eigenpairs by run key, of which the first is taken (see `hessian.of_runs`); random and filter-normalised
    if none are given, from the same draw for all runs. Eigenvectors have length 1, so `radius` is a distance then.

    >>> table = fn.landscape.lines(results, points=3, samples=10, progress=False)
    >>> sorted(set(table["a"].tolist())), table["method"].unique().tolist()
    ([-1.0, 0.0, 1.0], ['FedAvg', 'FedSAM'])
    """
    a = steps(radius, points)

    def look(sample: Sample, w: Tensor, ds: Sequence[Tensor], tick: Tick) -> Tensor:
        return line(sample, w, ds[0], a, tick)

    places = [{"a": x} for x in a.tolist()]
    return _tidy(results, look, places, directions, samples, seed, device, progress)


@one_thread()
def surfaces(
    results: Results, directions: dict[str, Eigen] | None = None, radius: float = 1.0, points: int = 21,
    samples: int = 500, seed: int = 0, device: str = "auto", progress: bool | OnProgress = True,
) -> pd.DataFrame:  # fmt: skip
    """The loss of every run on a plane through its model, columns a and b (FedFFT Fig. 7, 8: top two eigenvectors).

    Two random directions are not made orthogonal: among many weights they nearly are.

    >>> table = fn.landscape.surfaces(results, points=3, samples=10, progress=False)
    >>> len(table), list(table.columns[-4:])
    (18, ['measure', 'a', 'b', 'value'])
    """
    a = steps(radius, points)

    def look(sample: Sample, w: Tensor, ds: Sequence[Tensor], tick: Tick) -> Tensor:
        return plane(sample, w, ds[0], ds[1], a, a, tick)

    places = [{"a": x, "b": y} for x in a.tolist() for y in a.tolist()]
    return _tidy(results, look, places, directions, samples, seed, device, progress)


def rise(table: pd.DataFrame) -> pd.DataFrame:
    """How much the loss rises from the model itself: each run's values less its value in the centre.

    >>> table = pd.DataFrame({"key": "k", "a": [-1.0, 0.0, 1.0], "measure": "loss", "value": [3.0, 2.0, 4.0]})
    >>> fn.landscape.rise(table)["value"].tolist()
    [1.0, 0.0, 2.0]
    """
    axes = [name for name in ("a", "b") if name in table]
    centre = table[(table[axes] == 0).all(axis=1)].set_index("key")["value"]
    return table.assign(measure="rise", value=table["value"] - table["key"].map(centre))


def roughness(surface: Tensor, a: Tensor, b: Tensor) -> float:
    """How far a surface `[len(a), len(b)]` is from a bowl: the share of its spread that no quadratic explains.

    √(Σ r² / Σ (L − mean L)²), r what the best c₀ + c₁ a + c₂ b + c₃ a² + c₄ ab + c₅ b² leaves over: 0 for any bowl,
    saddle or plane, 1 where the best quadratic is a constant. A surface that does not vary has none.

    >>> a = fn.landscape.steps(points=5)
    >>> bowl = a[:, None] ** 2 + a[None, :] ** 2
    >>> round(fn.landscape.roughness(bowl, a, a), 6), fn.landscape.roughness(torch.sin(9 * bowl), a, a) > 0.1
    (0.0, True)
    """
    x, y = (z.flatten() for z in torch.meshgrid(a.double(), b.double(), indexing="ij"))
    terms = torch.stack([torch.ones_like(x), x, y, x**2, x * y, y**2], dim=1)
    seen = surface.double().flatten()
    if not seen.isfinite().all():
        return nan
    left = seen - terms @ torch.linalg.lstsq(terms, seen[:, None]).solution[:, 0]
    spread = (seen - seen.mean()).norm()
    return float(left.norm() / spread) if spread > 0 else 0.0


def extremes(surface: Tensor) -> int:
    """How many peaks and pits a surface has: points inside that are above all eight neighbours, or below all.

    A bowl has one pit at most, a saddle neither.

    >>> a = fn.landscape.steps(points=5)
    >>> fn.landscape.extremes(a[:, None] ** 2 + a[None, :] ** 2)    # one pit
    1
    """
    rows, columns = surface.shape
    around = torch.stack([
        surface[i : rows - 2 + i, j : columns - 2 + j] for i in range(3) for j in range(3) if (i, j) != (1, 1)
    ])  # fmt: skip
    inside = surface[1:-1, 1:-1]
    return int(((inside > around).all(0) | (inside < around).all(0)).sum())


def shapes(table: pd.DataFrame) -> pd.DataFrame:
    """Every run's surface in two numbers, "roughness" and "extremes": from the table of `surfaces`.

    >>> a, b = np.meshgrid([-1.0, 0.0, 1.0], [-1.0, 0.0, 1.0])
    >>> bowl = pd.DataFrame({"a": a.ravel(), "b": b.ravel(), "value": (a**2 + b**2).ravel()})
    >>> fn.landscape.shapes(bowl.assign(key="k", measure="loss")).round(6)
      key    measure  value
    0   k  roughness    0.0
    1   k   extremes    1.0
    """
    import pandas as pd

    rows = []
    heads = [c for c in table if c not in ("a", "b", "measure", "value")]
    for values, part in table.groupby(heads, sort=False, dropna=False):
        square = part.pivot(index="a", columns="b", values="value")
        surface, a, b = (torch.from_numpy(x.to_numpy(float).copy()) for x in (square, square.index, square.columns))
        found = {"roughness": roughness(surface, a, b), "extremes": float(extremes(surface))}
        head = dict(zip(heads, values, strict=True))
        rows += [{**head, "measure": name, "value": value} for name, value in found.items()]
    return pd.DataFrame(rows)


def _tidy(
    results: Results, look: Look, places: list[dict[str, float]], directions: dict[str, Eigen] | None, samples: int,
    seed: int, device: str, progress: bool | OnProgress,
) -> pd.DataFrame:  # fmt: skip
    """The loss of every run at some places, as a table; what was seen is kept beside the run."""
    import pandas as pd

    rows = []
    with bar_of(len(places) * len(results.runs), "landscape", progress, unit="point") as bar:
        for end, (cell, run) in enumerate(results, 1):
            given = None if directions is None else directions[run.key].vectors
            asked = Question(run, "landscape", VERSION, {
                "places": tuple(tuple(place.items()) for place in places), "samples": samples, "seed": seed,
                "directions": given, "device": device,
            })  # fmt: skip
            there, seen = asked.answered, partial(_around, run, look, given, samples, seed, device, bar.update)
            values = asked.answer(seen)["loss"].flatten().tolist()
            head = {**about(cell, run, run.rounds_done - 1), "measure": "loss"}
            rows += [{**head, **place, "value": value} for place, value in zip(places, values, strict=True)]
            bar.update(end * len(places) - bar.n, before=there)
    return pd.DataFrame(rows)


def _around(
    run: Run, look: Look, directions: Tensor | None, samples: int, seed: int, device: str, tick: Tick
) -> Measured:
    """What one run's loss is around its model."""
    sample = sample_of(run, samples, seed, device)
    w, layout = sample.place(run.w), sample.objective.layout
    if directions is None:
        ds = [random_direction(w, layout, seed=2 * seed + i) for i in range(2)]
    else:
        ds = [v.to(w) for v in directions]
    return {"loss": look(sample, w, ds, tick)}
