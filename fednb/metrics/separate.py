"""How well a model's features tell classes apart, and how well clients agree on them (FedWMSAM Fig. 5)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from torch import Tensor

from fednb.engines.objective import one_thread
from fednb.metrics import embed, features
from fednb.metrics.sample import sample_of
from fednb.metrics.tidy import about, finished

if TYPE_CHECKING:
    import pandas as pd

    from fednb.experiment import Run
    from fednb.grid import Results

Seen = tuple[Tensor, Tensor, np.ndarray]
_held: dict[tuple, Seen] = {}  # a figure and a table want the same t-SNE


def silhouette(x: np.ndarray | Tensor, y: Tensor) -> float:
    """The mean over samples of (b − a) / max(a, b) (Rousseeuw 1987): 1 classes far apart and tight, 0 mixed.

    a is the mean distance to the others of the own class, b that to the nearest other class.
    """
    from sklearn.metrics import silhouette_score

    return float(silhouette_score(np.asarray(x, dtype=np.float64), np.asarray(y)))


def separation(
    results: Results, samples: int | None = None, layer: str = features.PENULTIMATE, device: str = "auto"
) -> pd.DataFrame:  # fmt: skip
    """The silhouette of the classes in the global model's features, and in the t-SNE plane that the paper draws.

    samples: test samples, the same for all runs; 500, at smoke scale 100, if nothing is said.
    """
    import pandas as pd

    rows = []
    for cell, run in finished(results):
        x, y, plane = _of(run, samples or _by_scale(results), layer, device)
        head = about(cell, run, len(run.rows) - 1)
        rows.append({**head, "measure": "silhouette", "value": silhouette(x, y)})
        rows.append({**head, "measure": "silhouette in the plane", "value": silhouette(plane, y)})
    return pd.DataFrame(rows)


def class_points(
    results: Results, samples: int | None = None, layer: str = features.PENULTIMATE, device: str = "auto"
) -> pd.DataFrame:  # fmt: skip
    """Where each test sample lies by t-SNE of the global model's features, x and y, each run in axes of its own."""
    import pandas as pd

    rows = []
    for cell, run in finished(results):
        _, y, plane = _of(run, samples or _by_scale(results), layer, device)
        head = about(cell, run, len(run.rows) - 1)
        rows += [{**head, "class": c, "x": a, "y": b} for c, (a, b) in zip(y.tolist(), plane, strict=True)]
    return pd.DataFrame(rows)


def discrepancy(results: Results, samples: int | None = None, layer: str = features.PENULTIMATE) -> pd.DataFrame:
    """How far the client models' mean features of a class lie apart: their spread within a class, and relative to size.

    The probe keeps model. See `embed.spreads`.
    """
    sound = finished(results)
    return embed.spreads(features.clouds(sound, layer, samples or _by_scale(results), progress=False))


@one_thread()
def _of(run: Run, samples: int, layer: str, device: str) -> Seen:
    """Features `[n, d]`, labels and t-SNE of test samples, of a run's last model."""
    key = (run.key, samples, layer)  # a run's key says all about its model
    if key not in _held:
        sample = sample_of(run, samples, device=device)
        x = features.activations(sample.objective, sample.place(run.w), sample.b, sample.x, [layer])[layer]
        _held[key] = x.cpu(), sample.y.cpu(), embed.tsne(x.cpu())
    return _held[key]


def _by_scale(results: Results) -> int:
    return 100 if results.grid.scale == "smoke" else 500
