"""FedFSA's perturbation sensitivity step by step (Eq. 7 to 11), beside the sharpness of layers that it stands for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from fednb.algorithms.parts.fsa import layer_moves, weights_only
from fednb.base.progress import bar_of
from fednb.core.vectors import Layout, unit
from fednb.engines import device_of
from fednb.engines.objective import one_thread
from fednb.engines.problem import dealt, own_split, problem_of
from fednb.metrics.cache import Measured, Question
from fednb.metrics.sample import Loss, Sample, arithmetic_of, drawn
from fednb.metrics.tidy import finished, probed
from fednb.runs.result import refuse_others
from fednb.study.measurements.registry import measurement

if TYPE_CHECKING:
    import pandas as pd

    from fednb.runs.experiment import Run
    from fednb.runs.grid import Results
    from fednb.runs.probes import Probed

VERSION = 1  # of what is stored; see `metrics.cache`
SHARPNESS, CHANCE = "layer alone", "chance"
EQ7, EQ8, EQ9, EQ10 = "Eq. 7", "Eq. 8", "Eq. 9", "Eq. 10"
SUM, MEAN, RELEASED = "Eq. 11, sum", "Eq. 11, mean", "Eq. 11, released"
STEPS = (SHARPNESS, EQ7, EQ8, EQ9, EQ10, SUM, MEAN, RELEASED)  # the paper's steps from sharpness to its score
READINGS = {SUM: ("paper", "sum"), MEAN: ("paper", "mean"), RELEASED: ("released", "mean")}


def scores(loss: Loss, w: Tensor, w0: Tensor, layout: Layout, rho: float) -> dict[str, Tensor]:
    """One number for each layer, `[L]`, at every step from the sharpness of a layer to the score that selects it.

    w, w0: the client's model and the one it received. ε = ρ ∇L(w)/‖∇L(w)‖ is SAM's perturbation, ε_k its part in a
    layer. "layer alone": what the loss rises by where all of ρ goes into the layer, along its own gradient. Eq. 7: what
    taking ε_k away from w + ε changes (the paper prints ε_k on both sides). Eq. 8: its first order, |∇_k L(w + ε)·ε_k|.
    Eq. 9 and 10: Eq. 7 and 8 with ε = w0 − w, back to w0. Eq. 11: the squares of that, as `FlexibleRadius` has them.
    """
    g = gradient(loss, w)
    here, uphill, back = float(loss(w)), rho * unit(g), w0 - w
    alone = [float(loss(w + rho * unit(part))) - here for part in apart(g, layout)]
    moves = {name: layer_moves(layout, w, w0, *how).cpu() for name, how in READINGS.items()}
    return {
        SHARPNESS: torch.tensor(alone, dtype=torch.float64),
        EQ7: removed(loss, w, uphill, layout),
        EQ8: first_order(loss, w, uphill, layout),
        EQ9: removed(loss, w, back, layout),
        EQ10: first_order(loss, w, back, layout),
        **moves,
    }


def removed(loss: Loss, w: Tensor, eps: Tensor, layout: Layout) -> Tensor:
    """|L(w + ε) − L(w + ε without its part in the layer)|, `[L]`."""
    all_of_it = float(loss(w + eps))
    changes = [abs(all_of_it - float(loss(w + eps - part))) for part in apart(eps, layout)]
    return torch.tensor(changes, dtype=torch.float64)


def first_order(loss: Loss, w: Tensor, eps: Tensor, layout: Layout) -> Tensor:
    """|∇_k L(w + ε) · ε_k|, `[L]`."""
    products = layout.layers(gradient(loss, w + eps) * eps)
    return torch.stack([x.sum() for x in products.values()]).abs().double().cpu()


def gradient(loss: Loss, w: Tensor) -> Tensor:
    """∇L(w), piece by piece where the loss has pieces."""
    out = torch.zeros_like(w)
    with arithmetic_of(loss):
        for piece in getattr(loss, "pieces", [loss]):
            leaf = w.detach().requires_grad_()
            out += torch.autograd.grad(piece(leaf), leaf)[0]
    return out


def apart(x: Tensor, layout: Layout) -> Iterator[Tensor]:
    """A vector layer by layer: each time as long as before, with zeros elsewhere."""
    at = 0
    for size in layout.sizes:
        part = torch.zeros_like(x)
        part[at : at + size] = x[at : at + size]
        at += size
        yield part


def rank_correlation(x: Tensor, y: Tensor) -> float:
    """Spearman's: the correlation of the ranks, equal numbers sharing theirs; nan where all are equal.

    >>> round(rank_correlation(torch.tensor([1.0, 2.0, 3.0, 4.0]), torch.tensor([10.0, 20.0, 40.0, 30.0])), 6)
    0.8
    """
    return float(torch.corrcoef(torch.stack([_ranks(x), _ranks(y)]))[0, 1])


def _ranks(x: Tensor) -> Tensor:
    above, same = (x[:, None] > x).double().sum(1), (x[:, None] == x).double().sum(1)
    return above + same / 2


def shared(x: Tensor, y: Tensor, top: int) -> float:
    """The share of the `top` largest of x that are among the `top` largest of y."""
    first, second = (set(v.argsort(descending=True, stable=True)[:top].tolist()) for v in (x, y))
    return len(first & second) / len(first)


def rows(each: list[dict[str, Tensor]], top: int = 2) -> Iterator[dict[str, Any]]:
    """How well every step ranks the layers, a mean over clients, from `scores` of each (weight layers only).

    "rank correlation" with the sharpness of the layers, "rank correlation with the step before", and "top layers
    shared": of the `top` that the step would select, the share that are among the sharpest; chance gives top / L.
    """
    before = dict(zip(STEPS[1:], STEPS, strict=False))
    for step in STEPS[1:]:
        alike = [rank_correlation(found[step], found[SHARPNESS]) for found in each]
        stepwise = [rank_correlation(found[step], found[before[step]]) for found in each]
        hits = [shared(found[step], found[SHARPNESS], top) for found in each]
        yield {"method": step, "measure": "rank correlation", "value": _mean(alike)}
        yield {"method": step, "measure": "rank correlation with the step before", "value": _mean(stepwise)}
        yield {"method": step, "measure": "top layers shared", "value": _mean(hits)}
    layers = len(each[0][SHARPNESS])
    yield {"method": CHANCE, "measure": "top layers shared", "value": min(1.0, top / layers)}


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


@measurement("sensitivity")
@one_thread()
def of_layers(
    results: Results, radii: tuple[float, ...] = (0.1, 0.9), top: int = 2, samples: int | None = None,
    device: str = "auto",
) -> pd.DataFrame:  # fmt: skip
    """How well every step from Eq. 7 to 11 of FedFSA ranks layers: `rows` of every run and radius, from probed models.

    And each layer's share of all scores; all are means over clients. The column method says which step, `training`
    which method trained the clients. The loss is that on the client's training samples, `samples` of them (500; at
    smoke scale 50), in fp64 and evaluation mode. radii: 0.1 is ρ on Fashion-MNIST and CIFAR-10, 0.9 the larger one on
    CIFAR-100.
    """
    import pandas as pd

    some = samples or (50 if results.grid.scale == "smoke" else 500)
    found: list[dict[str, Any]] = []
    runs = {run.key: run for run in results.runs}
    for head, kept in probed(finished(results), "model"):
        head = {**head, "training": head.pop("method")}
        run = runs[head["key"]]
        losses = cache(partial(client_losses, run, kept.clients, some, device))
        chosen = [i for i, weight in enumerate(weights_only(kept.layout)) if weight]
        for rho in radii:
            asked = Question(run, "sensitivity", VERSION,
                             {"round": kept.round, "rho": rho, "samples": some, "device": device})  # fmt: skip
            seen = asked.answer(partial(_by_client, losses, kept, rho))
            each = [{step: seen[step][c, chosen] for step in STEPS} for c in range(len(kept.clients))]
            about = {**head, "rho": rho}
            named = [kept.layout.names[i] for i in chosen]
            found += [{**about, **row} for row in (*rows(each, top), *_shares(each, named))]
    return pd.DataFrame(found)


def _by_client(losses: Callable[[], list[Sample]], kept: Probed, rho: float) -> Measured:
    """`scores` of every client that was probed, `[C, L]`; what it received is its model without its move."""
    found = []
    with bar_of(len(kept.clients), f"layers within {rho:g}", unit="client") as bar:
        for loss, model, move in zip(losses(), kept.vectors["model"], kept.vectors["move"], strict=True):
            w, moved = loss.place(model), loss.place(move)
            found.append(scores(loss, w, w - moved, kept.layout, rho))
            bar.update()
    return {step: torch.stack([each[step] for each in found]) for step in STEPS}


def _shares(each: list[dict[str, Tensor]], layers: list[str]) -> Iterator[dict[str, Any]]:
    """Every layer's share of the sum over layers, at every step: a mean over clients, so that steps can be compared."""
    for step in STEPS:
        shares = torch.stack([found[step] / found[step].abs().sum() for found in each]).mean(0)
        for layer, value in zip(layers, shares.tolist(), strict=True):
            yield {"method": step, "measure": "share of all layers", "layer": layer, "value": value}


def client_losses(run: Run, clients: tuple[int, ...], count: int, device: str = "auto") -> list[Sample]:
    """The loss of some clients on (at most `count` of) their own training samples, in double precision."""
    refuse_others(run)
    setting = run.setting.but(precision="fp64")
    data, parts = dealt(setting, run.seed)
    trained = own_split(setting, run.seed, parts)[0] if setting.evaluation == "personal" else parts
    problem = problem_of(setting, run.seed, device_of(device), data, parts)
    assert problem.samples is not None
    x, y = problem.samples
    b = run.entry.weights()["b"].to(x.device, torch.float64)
    indices = (torch.from_numpy(trained[i][drawn(len(trained[i]), count, run.seed)]).to(y.device) for i in clients)
    return [Sample(problem.objective, problem.inputs(x[index]), y[index], b) for index in indices]
