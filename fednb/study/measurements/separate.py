"""How well a model's features tell classes apart, and how well clients agree on them (FedWMSAM Fig. 5)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from fednb.base.progress import bar_of
from fednb.engines.objective import one_thread
from fednb.metrics import embed, features
from fednb.metrics.cache import Measured, Question
from fednb.metrics.sample import sample_of
from fednb.metrics.tidy import Cloud, about, finished
from fednb.study.measurements.registry import measurement

if TYPE_CHECKING:
    import pandas as pd

    from fednb.runs.experiment import Run
    from fednb.runs.grid import Results

VERSION = 1  # of what is stored; see `metrics.cache`


def silhouette(x: np.ndarray | Tensor, y: Tensor) -> float:
    """The mean over samples of (b − a) / max(a, b) (Rousseeuw 1987): 1 classes far apart and tight, 0 mixed.

    a is the mean distance to the others of the own class, b that to the nearest other class.
    """
    from sklearn.metrics import silhouette_score

    return float(silhouette_score(np.asarray(x, dtype=np.float64), np.asarray(y)))


@measurement("separation")
def separation(
    results: Results, samples: int | None = None, layer: str = features.PENULTIMATE, device: str = "auto"
) -> pd.DataFrame:  # fmt: skip
    """The silhouette of the classes in the global model's features, and in their t-SNE plane (FedWMSAM Fig. 5).

    samples: test samples, the same for all runs; 500, at smoke scale 100, if nothing is said.
    """
    import pandas as pd

    rows = []
    for head, (x, y, plane) in _seen(results, samples, layer, device):
        rows.append({**head, "measure": "silhouette", "value": silhouette(x, y)})
        rows.append({**head, "measure": "silhouette in the plane", "value": silhouette(plane, y)})
    return pd.DataFrame(rows)


@measurement("class_points")
def class_points(
    results: Results, samples: int | None = None, layer: str = features.PENULTIMATE, device: str = "auto"
) -> pd.DataFrame:  # fmt: skip
    """Where each test sample lies by t-SNE of the global model's features, x and y (FedWMSAM Fig. 5).

    Each run has axes of its own; samples: as in `separation`.
    """
    import pandas as pd

    rows = []
    for head, (_, y, plane) in _seen(results, samples, layer, device):
        rows += [{**head, "class": c, "x": a, "y": b} for c, (a, b) in zip(y.tolist(), plane, strict=True)]
    return pd.DataFrame(rows)


@measurement("discrepancy")
def discrepancy(results: Results, samples: int | None = None, layer: str = features.PENULTIMATE) -> pd.DataFrame:
    """How far the client models' mean features of a class lie apart, also relative to their size (FedWMSAM Fig. 5).

    The probe must keep model. See `embed.spreads`.
    """
    sound = finished(results)
    return embed.spreads(features.clouds(sound, layer, samples or _by_scale(results), progress=False))


@measurement("client_separation")
def client_separation(results: Results, samples: int | None = None, layer: str = features.PENULTIMATE) -> pd.DataFrame:
    """The silhouette of the classes among what all clients' models make of them, also by t-SNE (FedWMSAM Fig. 5).

    A point is the mean feature that one client's model has of one class; the probe must keep model. samples: as in
    `separation`.
    """
    import pandas as pd

    rows = []
    for cloud, plane in _clients_seen(results, samples, layer):
        y = torch.tensor([row["class"] for row in cloud.rows])
        rows.append({**cloud.about, "measure": "silhouette (clients)", "value": silhouette(cloud.vectors, y)})
        in_plane = silhouette(plane[["x", "y"]].to_numpy(), y)
        rows.append({**cloud.about, "measure": "silhouette (clients, plane)", "value": in_plane})
    return pd.DataFrame(rows)


@measurement("client_points")
def client_points(results: Results, samples: int | None = None, layer: str = features.PENULTIMATE) -> pd.DataFrame:
    """Where each client's mean feature of each class lies by t-SNE, x and y (FedWMSAM Fig. 5).

    Each run has axes of its own: features of two models cannot be compared one by one. As in `client_separation`.
    """
    import pandas as pd

    return pd.concat([plane for _, plane in _clients_seen(results, samples, layer)], ignore_index=True)


def _clients_seen(results: Results, samples: int | None, layer: str) -> Iterator[tuple[Cloud, pd.DataFrame]]:
    """The mean features of every client and class, of each run and probed round, and where t-SNE puts them."""
    sound = finished(results)
    for cloud in features.clouds(sound, layer, samples or _by_scale(results), progress=False):
        yield cloud, embed.points([cloud], "tsne")


def _seen(
    results: Results, samples: int | None, layer: str, device: str
) -> Iterator[tuple[dict[str, Any], tuple[Tensor, Tensor, np.ndarray]]]:
    """Features `[n, d]`, labels and t-SNE of test samples, of every run's last model; kept beside the run."""
    sound, count = finished(results), samples or _by_scale(results)
    with bar_of(len(sound.runs), "features in the plane", unit="run") as bar:
        for cell, run in sound:
            asked = Question(run, "tsne", VERSION, {"samples": count, "layer": layer, "device": device})
            there, make = asked.answered, partial(_of, run, count, layer, device)
            found = asked.answer(make)
            yield about(cell, run, run.rounds_done - 1), (found["x"], found["y"], found["plane"].numpy())
            bar.update(before=there)


@one_thread()
def _of(run: Run, samples: int, layer: str, device: str) -> Measured:
    sample = sample_of(run, samples, device=device)
    x = features.activations(sample.objective, sample.place(run.w), sample.b, sample.x, [layer])[layer].cpu()
    return {"x": x, "y": sample.y, "plane": torch.from_numpy(embed.tsne(x))}


def _by_scale(results: Results) -> int:
    return 100 if results.grid.scale == "smoke" else 500
