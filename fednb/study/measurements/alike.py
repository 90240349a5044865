"""How alike clients are: their perturbations, what their models make of each class, their weights (FedFFT Fig. 4)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from fednb.core.vectors import NoSuchLayer
from fednb.metrics import embed, features
from fednb.metrics.tidy import Cloud, finished
from fednb.study.measurements.registry import measurement

if TYPE_CHECKING:
    import pandas as pd

    from fednb.runs.grid import Results

# The first of these that a model has. In the paper, with ResNet-18, they are conv1.weight and layer4.1.bn2; the small
# networks have no such features, and so few weights in their first convolution that 1% of its frequencies is none.
LAYERS = ("conv2.weight", "conv1.weight")
AFTER = ("layer4.1.bn2", features.PENULTIMATE)
PANELS = ("a: perturbations", "b: class features", "c: client models")


def clouds(
    results: Results, layers: Sequence[str] = LAYERS, after: Sequence[str] = AFTER, samples: int = 500
) -> list[Cloud]:  # fmt: skip
    """The three clouds of every run and probed round, one for each panel; the probe must keep perturbation and model.

    layers: of the perturbations and the models. after: where the features are taken, on `samples` test samples, one
    mean for each client and class. Of both, the first that the model has.
    """
    results = finished(results)
    found = (
        _first(layers, lambda layer: embed.clouds(results, "perturbation", layer)),
        _first(after, lambda layer: features.clouds(results, layer, samples)),
        _first(layers, lambda layer: embed.clouds(results, "model", layer)),
    )
    return [
        replace(cloud, about={**cloud.about, "panel": panel})
        for panel, group in zip(PANELS, found, strict=True)
        for cloud in group
    ]


def _first(layers: Sequence[str], look: Callable[[str], list[Cloud]]) -> list[Cloud]:
    for layer in layers[:-1]:
        with suppress(NoSuchLayer):
            return look(layer)
    return look(layers[-1])


@measurement("spreads")
def spreads(
    results: Results, layers: Sequence[str] = LAYERS, after: Sequence[str] = AFTER, samples: int = 500
) -> pd.DataFrame:  # fmt: skip
    """How far the vectors of each cloud spread, also relative to their length (FedFFT Fig. 4).

    Features are compared within their class.
    """
    return embed.spreads(clouds(results, layers, after, samples))


@measurement("places")
def places(
    results: Results, layers: Sequence[str] = LAYERS, after: Sequence[str] = AFTER, samples: int = 500
) -> pd.DataFrame:  # fmt: skip
    """Where each vector lies in two principal axes, x and y, that the methods share (FedFFT Fig. 4)."""
    return embed.points(clouds(results, layers, after, samples), "pca")


@measurement("neighbours")
def neighbours(
    results: Results, layers: Sequence[str] = LAYERS, after: Sequence[str] = AFTER, samples: int = 500
) -> pd.DataFrame:  # fmt: skip
    """Where each vector lies by t-SNE, x and y: neighbours stay neighbours (beside FedFFT Fig. 4)."""
    return embed.points(clouds(results, layers, after, samples), "tsne")
