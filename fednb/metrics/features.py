"""What a model makes of its inputs: the activations of named layers, and their mean for each class."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from fednb.base.progress import OnProgress, bar_of
from fednb.core.vectors import NoSuchLayer
from fednb.engines.objective import Objective, one_thread
from fednb.metrics.cache import Measured, Question
from fednb.metrics.sample import CHUNK, Sample, evaluating, sample_of
from fednb.metrics.tidy import Cloud, kept_of

if TYPE_CHECKING:
    from fednb.runs.grid import Results

VERSION = 1  # of what is stored; see `fednb.metrics.cache`
PENULTIMATE = "@penultimate"  # what the last module, the classifier, is given


class NeedsStatistics(ValueError):
    """Client models with BatchNorm, of which a probe keeps the weights alone."""


def layers_of(objective: Objective) -> list[str]:
    """The modules that hold a weight of two or more axes (convolutions, linear layers, embeddings), in their order.

    >>> from fednb.engines.objective import Objective
    >>> model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.ReLU(), torch.nn.Linear(3, 2))
    >>> fn.features.layers_of(Objective(model))
    ['0', '2']
    """
    names = zip(objective.layout.names, objective.layout.shapes, strict=True)
    return list(dict.fromkeys(name.rpartition(".")[0] for name, shape in names if len(shape) > 1 and "." in name))


def activations(
    objective: Objective, w: Tensor, b: Tensor, x: Tensor, layers: Sequence[str], batch: int = CHUNK
) -> dict[str, Tensor]:
    """What layers answer to inputs x when the model's weights are the vector w: `[n, d]` by name, flattened.

    A layer is a module's name ("layer4.1.bn2"), or "@penultimate": what the classifier is given. Where a module answers
    several times or with several tensors, the last time and the first tensor count.

    >>> from fednb.engines.objective import Objective
    >>> model = Objective(torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.ReLU(), torch.nn.Linear(3, 2)))
    >>> w, b = model.start(torch.float32, torch.device("cpu"))
    >>> fn.features.activations(model, w, b, torch.ones(4, 2), ["@penultimate"])["@penultimate"].shape
    torch.Size([4, 3])
    """
    kept: dict[str, list[Tensor]] = {name: [] for name in layers}
    for at in range(0, len(x), batch):
        for name, seen in _seen(objective, w, b, x[at : at + batch], layers).items():
            kept[name].append(seen.flatten(1))
    return {name: torch.cat(pieces) for name, pieces in kept.items()}


@torch.no_grad()
def _seen(objective: Objective, w: Tensor, b: Tensor, x: Tensor, layers: Sequence[str]) -> dict[str, Tensor]:
    """One pass with a hook on every layer."""
    seen: dict[str, Tensor] = {}
    hooks = [_hook(objective, name, seen) for name in layers]
    try:
        with evaluating(objective.model):
            objective.outputs(w, b, x)
    finally:
        for hook in hooks:
            hook.remove()
    if silent := [name for name in layers if name not in seen]:
        raise NoSuchLayer(f"layer {silent[0]!r} is never called by the model's forward pass")
    return {name: seen[name] for name in layers}


def _hook(objective: Objective, name: str, seen: dict[str, Tensor]) -> Any:
    if name == PENULTIMATE:
        head = _module(objective, objective.layout.names[-1].rpartition(".")[0])
        return head.register_forward_pre_hook(lambda _, given: seen.update({name: given[0]}))
    return _module(objective, name).register_forward_hook(
        lambda _, given, out: seen.update({name: out[0] if isinstance(out, tuple) else out})
    )


def _module(objective: Objective, name: str) -> nn.Module:
    modules = dict(objective.model.named_modules())
    if name not in modules:
        known = ", ".join(each for each in modules if each)
        raise NoSuchLayer(f"no layer {name!r}; the layers are {known}, and {PENULTIMATE}")
    return modules[name]


def class_means(x: Tensor, y: Tensor, classes: int) -> Tensor:
    """The mean of features `[n, d]` over the samples of each class, `[classes, d]`; nan where a class has none.

    >>> fn.features.class_means(torch.tensor([[1.0], [3.0], [5.0]]), torch.tensor([0, 0, 1]), classes=2)
    tensor([[2.],
            [5.]], dtype=torch.float64)
    """
    member = torch.nn.functional.one_hot(y, classes).to(torch.float64)
    return member.T @ x.double() / member.sum(0)[:, None]


def refuse_statistics(sample: Sample) -> None:
    """Say clearly that a client model with BatchNorm cannot be put together again.

    >>> from fednb.metrics.sample import sample_of
    >>> fn.features.refuse_statistics(sample_of(results.runs[0], 5))    # passes: the model has no BatchNorm
    """
    if len(sample.objective.buffers):
        raise NeedsStatistics(
            "probes keep the clients' weights, not their BatchNorm statistics, so client models cannot be evaluated; "
            "use the model with GroupNorm (-gn)"
        )


@one_thread()
def clouds(
    results: Results, layer: str = PENULTIMATE, samples: int = 500, seed: int = 0, device: str = "auto",
    progress: bool | OnProgress = True,
) -> list[Cloud]:  # fmt: skip
    """Mean features per class of every client model that a probe kept, on the same test samples (FedFFT Fig. 4b).

    One vector per client and class. layer: layer4.1.bn2 in the paper, ResNet-18's last block before its sum.

    >>> cloud = fn.features.clouds(results, samples=20, progress=False)[0]
    >>> cloud.about["method"], list(cloud.rows[0])
    ('FedAvg', ['client', 'class'])
    """
    found = []
    asked = {"layer": layer, "samples": samples, "seed": seed, "device": device}
    with bar_of(len(results.runs) * len(results.probe.rounds), f"features at {layer}", progress, unit="probe") as bar:
        for cell, run in results:
            sample = sample_of(run, samples, seed, device)
            refuse_statistics(sample)
            classes = sample.y.unique().tolist()
            for head, kept in kept_of(cell, run, results.probe, "model"):
                question = Question(run, "features", VERSION, {**asked, "round": kept.round})
                there, make = question.answered, partial(_by_client_and_class, sample, kept.vectors["model"], layer)
                rows = [{"client": client, "class": c} for client in kept.clients for c in classes]
                found.append(Cloud(head, rows, question.answer(make)["means"]))
                bar.update(before=there)
    return found


def _by_client_and_class(sample: Sample, models: Tensor, layer: str) -> Measured:
    """The mean features of every client's model for every class that the sample has, one below another."""
    classes = sample.y.unique().tolist()
    means = []
    for w in models:
        x = activations(sample.objective, sample.place(w), sample.b, sample.x, [layer])[layer]
        means.append(class_means(x, sample.y, max(classes) + 1)[classes].cpu())
    return {"means": torch.cat(means)}
