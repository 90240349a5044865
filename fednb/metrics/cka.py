"""How alike two models see the same samples: linear centred kernel alignment (Kornblith et al. 2019), debiased.

Plain linear CKA rises with the number of features: of n samples, independent features `[n, d]` have about d / (d + n),
which is 0.94 for 256 samples and 4,096 features. With the unbiased estimator of Song et al. (2012) they have about 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from fednb.base.inputs import shown
from fednb.base.progress import OnProgress, bar_of
from fednb.engines.objective import one_thread
from fednb.metrics.cache import Measured, Question
from fednb.metrics.features import PENULTIMATE, activations, layers_of, refuse_statistics
from fednb.metrics.sample import Sample, sample_of
from fednb.metrics.tidy import kept_of

if TYPE_CHECKING:
    import pandas as pd

    from fednb.runs.grid import Results

VERSION = 1  # of what is stored; see `fednb.metrics.cache`
DEBIASED, BIASED = "debiased", "biased"
ESTIMATORS = (DEBIASED, BIASED)
MEASURES = {BIASED: "CKA", DEBIASED: "CKA, debiased"}  # what tables call them
Compare = Callable[[Tensor], Tensor]  # a function of the shapes of all clients and layers


class BadEstimator(ValueError):
    """An estimator of CKA that does not exist, or one that needs more samples than there are."""


def linear(x: Tensor, y: Tensor, estimator: str = DEBIASED) -> float:
    """Linear CKA of features `[n, d]` and `[n, e]` of the same n samples; nan where either does not vary.

    estimator: "debiased", at least 4 samples: about 0 for independent features however many they are, and never above
    1. "biased": ‖Yᵀ X‖² / (‖Xᵀ X‖ ‖Yᵀ Y‖) of centred features, from 0 to 1, which many features bring close to 1. Both
    are 1 where Y is X up to a rotation, a scale and a shift.

    >>> x = torch.tensor([[0.0, 1.0], [1.0, 0.0], [2.0, 2.0], [5.0, 1.0]])
    >>> round(fn.cka.linear(x, 3 * x + 1), 6)
    1.0
    >>> one, other = torch.randn(2, 100, 1000, generator=torch.Generator().manual_seed(0))    # 1,000 features
    >>> abs(fn.cka.linear(one, other)) < 0.03, fn.cka.linear(one, other, "biased") > 0.9
    (True, True)
    """
    if estimator != BIASED:
        return float(shape(x, estimator) @ shape(y, estimator))
    x, y = (z.flatten(1).double() - z.flatten(1).double().mean(0) for z in (x, y))
    return float((y.T @ x).square().sum() / ((x.T @ x).norm() * (y.T @ y).norm()))


def shape(x: Tensor, estimator: str = DEBIASED) -> Tensor:
    """All that CKA knows of features `[n, ...]`: the centred Gram matrix as a vector `[n²]` of length 1.

    ‖Yᵀ X‖² = ⟨X Xᵀ, Y Yᵀ⟩, so CKA is the inner product of two such vectors; they are small where features are many.
    Debiased, the diagonal is left out, and what a row and a column have in common is removed from the rest: the inner
    product of two such matrices is n (n − 3) times Song et al.'s estimator of HSIC.

    >>> fn.cka.shape(torch.tensor([[1.0], [-1.0]]), "biased")
    tensor([ 0.5000, -0.5000, -0.5000,  0.5000], dtype=torch.float64)
    """
    _refuse(estimator, len(x))
    x = x.flatten(1).double()
    x = x - x.mean(0)
    gram = x @ x.T
    gram = (_without_diagonal(gram) if estimator == DEBIASED else gram).flatten()
    return gram / gram.norm()


def _without_diagonal(gram: Tensor) -> Tensor:
    """The U-centred Gram matrix: zero on the diagonal and in the sum of every row (Székely and Rizzo 2014, Eq. 2.1)."""
    n = len(gram)
    gram = gram - gram.diagonal().diag()
    rows = gram.sum(0) / (n - 2)
    centred = gram - rows[:, None] - rows + rows.sum() / (n - 1)
    return centred - centred.diagonal().diag()


def _refuse(estimator: str, samples: int) -> None:
    """Refuse an unknown estimator, and the debiased one for fewer than 4 samples."""
    if estimator not in ESTIMATORS:
        raise BadEstimator(f"estimator = {shown(estimator)}: must be {' or '.join(ESTIMATORS)}")
    if estimator == DEBIASED and samples < 4:
        raise BadEstimator(f"debiased CKA needs at least 4 samples, not {samples}; more samples, or estimator='biased'")


def between(features: Sequence[Tensor], estimator: str = DEBIASED) -> Tensor:
    """CKA of every model with every other, `[C, C]`, from the features of each; estimator: see `linear`.

    >>> x = torch.tensor([[0.0, 1.0], [1.0, 0.0], [2.0, 2.0], [5.0, 1.0]])
    >>> fn.cka.between([x, 2 * x]).round(decimals=6)
    tensor([[1., 1.],
            [1., 1.]], dtype=torch.float64)
    """
    shapes = torch.stack([shape(x, estimator) for x in features])
    return shapes @ shapes.T


def mean_between(matrix: Tensor) -> float:
    """The mean over pairs of different models: the diagonal, always 1, does not count.

    >>> fn.cka.mean_between(torch.tensor([[1.0, 0.5], [0.5, 1.0]]))
    0.5
    """
    C = len(matrix)
    return float((matrix.sum() - matrix.diagonal().sum()) / (C * (C - 1)))


def layer_by_layer(shapes: Tensor) -> Tensor:
    """CKA of layer l in one model and layer m in another, averaged over all ordered pairs: `[L, L]` from `[C, L, n²]`.

    Σ over j ≠ k of ⟨u_jl, u_km⟩ is ⟨Σ u_jl, Σ u_km⟩ − Σ ⟨u_jl, u_jm⟩.

    >>> x = fn.cka.shape(torch.tensor([[1.0], [-1.0]]), "biased")
    >>> fn.cka.layer_by_layer(x.expand(3, 2, 4)).round(decimals=6)    # 3 clients, 2 layers, all alike
    tensor([[1., 1.],
            [1., 1.]], dtype=torch.float64)
    """
    C, total = len(shapes), shapes.sum(0)
    own = torch.einsum("cli,cmi->lm", shapes, shapes)
    return (total @ total.T - own) / (C * (C - 1))


def client_by_client(shapes: Tensor) -> Tensor:
    """CKA of every client with every other in each layer, `[L, C, C]`, from shapes `[C, L, n²]`.

    >>> x = fn.cka.shape(torch.tensor([[1.0], [-1.0]]), "biased")
    >>> fn.cka.client_by_client(x.expand(3, 2, 4)).shape
    torch.Size([2, 3, 3])
    """
    return torch.stack([shapes[:, at] @ shapes[:, at].T for at in range(shapes.shape[1])])


def shapes_of(sample: Sample, models: Tensor, layers: Sequence[str], estimator: str = DEBIASED) -> Tensor:
    """The shapes `[C, L, n²]` of all layers of client models `[C, P]`, on the CPU.

    >>> from fednb.metrics.sample import sample_of
    >>> run = results.runs[0]
    >>> two = run.w.expand(2, -1)
    >>> fn.cka.shapes_of(sample_of(run, 5), two, ["@penultimate"]).shape    # 2 models, 1 layer, 5 samples
    torch.Size([2, 1, 25])
    """
    out = []
    for w in models:
        seen = activations(sample.objective, sample.place(w), sample.b, sample.x, layers)
        out.append(torch.stack([shape(x, estimator).cpu() for x in seen.values()]))
    return torch.stack(out)


@one_thread()
def between_clients(
    results: Results, layers: str | Sequence[str] = PENULTIMATE, samples: int = 256, seed: int = 0,
    device: str = "auto", progress: bool | OnProgress = True, estimator: str = DEBIASED,
) -> pd.DataFrame:  # fmt: skip
    """SpecGradFilter's Figure 7 from probed models: CKA of all pairs of clients on the same test samples.

    layers: module names; the text compares penultimate layers (the default), the caption says layer-wise: "*" takes
    every layer that `features.layers_of` lists, and the penultimate one. Rows have client, other, layer, value.
    estimator: see `linear`; the column measure says "CKA, debiased" or, for "biased", "CKA".

    >>> table = fn.cka.between_clients(results, samples=5, progress=False)
    >>> len(table), list(table.columns[-4:])
    (32, ['layer', 'client', 'other', 'value'])
    """
    rows, asked = [], (layers, samples, seed, device, progress, estimator)
    for head, clients, names, found in _compared(results, client_by_client, *asked):
        for layer, matrix in zip(names, found, strict=True):
            rows += [
                {**head, "measure": MEASURES[estimator], "layer": layer, "client": j, "other": k, "value": value}
                for j, line in zip(clients, matrix, strict=True)
                for k, value in zip(clients, line, strict=True)
            ]
    return _frame(rows)


@one_thread()
def between_layers(
    results: Results, layers: str | Sequence[str] = "*", samples: int = 256, seed: int = 0, device: str = "auto",
    progress: bool | OnProgress = True, estimator: str = DEBIASED,
) -> pd.DataFrame:  # fmt: skip
    """CKA of every layer with every other between two clients, averaged over pairs. Rows have layer, other, value.

    estimator: see `linear`; the column measure says "CKA, debiased" or, for "biased", "CKA".

    >>> table = fn.cka.between_layers(results, layers=["@penultimate"], samples=5, progress=False)
    >>> table[["method", "layer", "other"]]
       method         layer         other
    0  FedAvg  @penultimate  @penultimate
    1  FedSAM  @penultimate  @penultimate
    """
    rows, asked = [], (layers, samples, seed, device, progress, estimator)
    for head, _, names, matrix in _compared(results, layer_by_layer, *asked):
        rows += [
            {**head, "measure": MEASURES[estimator], "layer": layer, "other": other, "value": value}
            for layer, line in zip(names, matrix, strict=True)
            for other, value in zip(names, line, strict=True)
        ]
    return _frame(rows)


def mean_by_layer(table: pd.DataFrame) -> pd.DataFrame:
    """The mean CKA over pairs of different clients, one row per run, round and layer of a `between_clients` table.

    >>> table = fn.cka.between_clients(results, samples=5, progress=False)
    >>> fn.cka.mean_by_layer(table)[["method", "layer"]]
       method         layer
    0  FedAvg  @penultimate
    1  FedSAM  @penultimate
    """
    pairs = table[table["client"] != table["other"]]
    by = [name for name in pairs.columns if name not in ("client", "other", "value")]
    return pairs.groupby(by, sort=False, dropna=False)["value"].agg(lambda x: x.mean(skipna=False)).reset_index()


def _compared(
    results: Results, how: Compare, layers: str | Sequence[str], samples: int, seed: int, device: str,
    progress: bool | OnProgress, estimator: str,
) -> Iterator[tuple[dict[str, Any], Sequence[int], list[str], list]]:  # fmt: skip
    """For every run and probed round: the first columns, the clients, the layers, and their comparison, as lists.

    The comparisons are kept beside the run.
    """
    _refuse(estimator, samples)
    with bar_of(len(results.runs) * len(results.probe.rounds), "CKA", progress, unit="probe") as bar:
        for cell, run in results:
            sample = sample_of(run, samples, seed, device)
            refuse_statistics(sample)
            names = _names(sample, layers)
            for head, kept in kept_of(cell, run, results.probe, "model"):
                asked = Question(run, "cka", VERSION, {
                    "how": how.__name__, "round": kept.round, "layers": tuple(names), "samples": samples, "seed": seed,
                    "device": device, "estimator": estimator,
                })  # fmt: skip
                there, make = asked.answered, partial(_comparison, how, sample, kept.vectors["model"], names, estimator)
                yield head, kept.clients, names, asked.answer(make)["CKA"].tolist()
                bar.update(before=there)


def _comparison(how: Compare, sample: Sample, models: Tensor, names: Sequence[str], estimator: str) -> Measured:
    return {"CKA": how(shapes_of(sample, models, names, estimator))}


def _names(sample: Sample, layers: str | Sequence[str]) -> list[str]:
    if layers == "*":
        *body, head = layers_of(sample.objective)
        return [*body, PENULTIMATE, head]
    return [layers] if isinstance(layers, str) else list(layers)


def _frame(rows: list[dict]) -> pd.DataFrame:
    import pandas as pd

    return pd.DataFrame(rows)
