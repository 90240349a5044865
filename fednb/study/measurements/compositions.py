"""Every ascent with every filter and every correction on one small problem: what makes a method, costs and gains.

The problem is a network with one hidden layer on digits, small enough that two hundred methods run in seconds: every
client takes part in every round, each step sees all of its samples, and the rounds are the library's own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import nan
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from fednb.algorithms.catalogue import Axes, sums
from fednb.base.progress import bar_of
from fednb.base.streams import stream
from fednb.core.cost import cost
from fednb.core.rounds import Method
from fednb.core.vectors import Layout
from fednb.engines.federation import Federation
from fednb.engines.objective import one_thread
from fednb.engines.problem import problem_of
from fednb.engines.setting import Setting
from fednb.study.measurements.registry import measurement

if TYPE_CHECKING:
    import pandas as pd

    from fednb.runs.grid import Results

HIDDEN = 32
AXES = ("ascent", "filter", "correction")
NOTHING = {axis: f"no {axis}" for axis in AXES}  # the names of what is left out
ACCURACY, PASSES, TRAFFIC, NO_METHOD = "accuracy", "gradients per step", "traffic", "no method"
BY = (
    (ACCURACY, ("filter",)),
    (ACCURACY, ("filter", "correction")),
    (PASSES, ("filter",)),
    (TRAFFIC, ("filter",)),
    (TRAFFIC, ("ascent", "correction")),
)


@dataclass(frozen=True, eq=False)
class Network:
    """A hidden layer of ReLUs and cross-entropy; K clients with n images each, x `[K, n, D]` of classes y `[K, n]`."""

    x: Tensor
    y: Tensor
    test: tuple[Tensor, Tensor]
    classes: int = 10

    @cached_property
    def layout(self) -> Layout:
        D, C = self.x.shape[-1], self.classes
        return Layout(("fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"), ((HIDDEN, D), (HIDDEN,), (C, HIDDEN), (C,)))

    @cached_property
    def wanted(self) -> Tensor:
        """The classes as answers `[K, n, C]`."""
        return F.one_hot(self.y, self.classes)

    def start(self, seed: int) -> Tensor:
        """Weights of variance 2 / D, biases zero."""
        rng = stream(seed, "network")
        drawn = [rng.standard_normal(shape) * (2 / shape[-1]) ** 0.5 * (len(shape) > 1) for shape in self.layout.shapes]
        return torch.cat([torch.from_numpy(x).flatten() for x in drawn]).to(self.x)

    def answers(self, w: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        """The hidden layer and the answers of models `[..., P]` to images `[..., n, D]`."""
        first, shift, second, last = self._layers(w)
        hidden = (x @ first.mT + shift).relu()
        return hidden, hidden @ second.mT + last

    def gradients(self, w: Tensor) -> Tensor:
        """∇L_k(w_k), one row per client, by the chain rule."""
        hidden, out = self.answers(w, self.x)
        wrong = (out.softmax(-1) - self.wanted) / self.y.shape[-1]
        back = (wrong @ self._layers(w)[2]) * (hidden > 0)
        pieces = (back.mT @ self.x, back.sum(-2), wrong.mT @ hidden, wrong.sum(-2))
        return torch.cat([piece.flatten(1) for piece in pieces], dim=-1)

    def accuracy(self, w: Tensor) -> float:
        """On the test images, in percent; nan where the model is no longer finite."""
        x, y = self.test
        return 100 * float((self.answers(w, x)[1].argmax(-1) == y).double().mean()) if w.isfinite().all() else nan

    def _layers(self, w: Tensor) -> list[Tensor]:
        """Weights `[..., out, in]`, and biases `[..., 1, out]` that add to every image."""
        layers = zip(self.layout.layers(w).values(), self.layout.shapes, strict=True)
        return [x.unflatten(-1, shape if len(shape) > 1 else (1, *shape)) for x, shape in layers]


class UnequalClients(ValueError):
    """A partition that gives clients different numbers of samples."""


def network(setting: Setting, seed: int) -> Network:
    """The clients of a setting whose partition makes them equally large, each with all of its samples as one batch."""
    assert setting.samples is not None
    problem = problem_of(setting.but(batch=setting.samples // setting.clients, precision="fp64"), seed)
    assert problem.test is not None
    x, y, there = problem.plan(0, range(setting.clients)).at(0)
    if not there.all():
        raise UnequalClients(f"partition = {setting.partition}: clients differ in size; use dirichlet-client or iid")
    return Network(x.flatten(2), y, (problem.inputs(problem.test[0]).flatten(1), problem.test[1]))


@dataclass(frozen=True)
class Seen:
    """What a run shows: the accuracy after it, in percent, and what its last round took."""

    accuracy: float
    passes: float  # gradients per step
    traffic: float  # numbers sent both ways, FedAvg = 1


@one_thread()
def trained(method: Method, problem: Network, w: Tensor, setting: Setting) -> Seen:
    """The rounds of a setting: all clients come, every epoch is one step, and the rate stays as it is."""
    federation = Federation(problem.gradients, w, clients=len(problem.x), layout=problem.layout)
    numbers = {name: getattr(setting, name) for name in ("lr", "server_lr", "weight_decay", "clip_norm")}
    last = federation.run(method, setting.rounds, steps=setting.epochs, **numbers).rounds[-1]
    passes = float((last.gradients - last.looks).sum()) / (federation.clients * setting.epochs)
    return Seen(problem.accuracy(last.w), passes, (last.down + last.up) / (2 * problem.layout.total))


def called(names: dict[str, str]) -> str:
    """A sum by the names of its ideas: "SAM + SCAFFOLD"; FedAvg where there are none."""
    return " + ".join(names[axis] for axis in AXES if names[axis] != NOTHING[axis]) or "FedAvg"


@measurement("composed")  # our own study, on a small problem (notebooks/across/04)
def composed(scale: str, axes: Axes, seeds: Sequence[int] | None = None, **problems: dict[str, Any]) -> pd.DataFrame:
    """Every sum of an ascent, a filter and a correction on a small problem (notebooks/across/04).

    One row per sum, seed and measure.

    problems: for each scale the settings of the small problem, its seeds, and ideas that it goes without. Measures:
    "accuracy" after the last round; "gradients per step" and "traffic", counted in it (they depend on no seed); what
    `contributions` makes of them; and "no method" where ideas do not go together, with the reason as a note.
    """
    import pandas as pd

    about = dict(problems[scale])
    own, without = about.pop("seeds", [0]), about.pop("without", [])
    setting, seeds = Setting(**about), own if seeds is None else seeds
    axes = {axis: {name: x for name, x in ideas.items() if name not in without} for axis, ideas in axes.items()}
    every = list(sums(axes))
    with bar_of(len(every) * len(seeds), "compositions", unit="method") as bar:
        rows = [row for seed in seeds for row in _composed(every, setting, seed, seed == seeds[0], bar.update)]
    table = pd.DataFrame(rows)
    return pd.concat([table, contributions(table)], ignore_index=True)


def _composed(
    every: Sequence[tuple[dict[str, str], Any]], setting: Setting, seed: int, costs: bool, tick: Callable[[], object]
) -> Iterator[dict[str, Any]]:
    """The rows of one seed, from the sums and what came of adding them up: a method, or an error that says why not."""
    problem = network(setting, seed)
    w = problem.start(seed)
    for names, made in every:
        tick()
        head = {**names, "method": called(names), "seed": seed}
        if not isinstance(made, Method):
            yield from [{**head, "measure": NO_METHOD, "note": str(made).partition(": ")[2]}] * costs
            continue
        seen = trained(made, problem, w, setting)
        yield {**head, "measure": ACCURACY, "value": seen.accuracy}
        if costs:
            yield {**head, "measure": PASSES, "value": seen.passes}
            yield {**head, "measure": TRAFFIC, "value": seen.traffic}


def contributions(table: pd.DataFrame) -> pd.DataFrame:
    """What ideas add to a measure where all else is the same, seed by seed.

    "accuracy by filter": with the filter minus without it. "accuracy by filter and correction": what the two add
    together beyond what each adds alone, (both − neither) − (one − neither) − (other − neither): 0 where gains add up.
    """
    import pandas as pd

    parts = [_added(table[table["measure"] == measure], measure, by) for measure, by in BY]
    found = [part for part in parts if len(part)]
    return pd.concat(found, ignore_index=True) if found else table.iloc[:0]


def _added(mine: pd.DataFrame, measure: str, by: tuple[str, ...]) -> pd.DataFrame:
    """With and without each of some ideas: a signed sum over all their corners."""
    told = mine[(mine[list(by)] != [NOTHING[axis] for axis in by]).all(axis=1)]
    left_out = [(axis,) for axis in by] if len(by) == 1 else [(by[0],), (by[1],), by]
    for away in left_out:
        same = [c for c in (*AXES, "seed") if c not in away]
        base = mine[(mine[list(away)] == [NOTHING[axis] for axis in away]).all(axis=1)]
        told = told.merge(base[[*same, "value"]], on=same, suffixes=("", "_base"))
        sign = -1 if len(away) == 1 else 1
        told = told.assign(value=told["value"] + sign * told["value_base"]).drop(columns="value_base")
    return told.assign(measure=f"{measure} by {' and '.join(by)}")


def costs(axes: Axes, axis: str) -> dict[str, str]:
    """What each idea of an axis takes by itself, in words for the margin of a figure.

    >>> costs({"ascent": {"no ascent": "", "SAM": "sam(0.1)"}}, "ascent")
    {'no ascent': '1 gradient, traffic 1', 'SAM': '2 gradients, traffic 1'}
    """
    seen = {names[axis]: cost(made) for names, made in sums({axis: axes[axis]}) if isinstance(made, Method)}
    return {
        name: f"{c.passes:g} gradient{'s' * (c.passes != 1)}{f' + {c.extra:g} a round' * (c.extra > 0)}, "
        f"traffic {c.traffic:.2g}"
        for name, c in seen.items()
    }


@measurement("compositions")  # our own study, on runs of a grid (notebooks/across/04)
def of_runs(results: Results) -> pd.DataFrame:
    """Accuracies and contributions from the runs of a grid whose tags are an ascent, a filter and a correction.

    Accuracy is as each run reports it. Our own study (notebooks/across/04).
    """
    import pandas as pd

    rows = [
        {**c.tags, "method": called(c.tags), "seed": r.seed, "key": r.key, "measure": ACCURACY, "value": r.accuracy}
        for c, r in results
    ]  # fmt: skip
    table = pd.DataFrame(rows).astype({"value": float})
    return pd.concat([table, contributions(table)], ignore_index=True)
