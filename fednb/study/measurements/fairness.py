"""How evenly one model serves its clients: its test accuracy on the mix of classes that each of them has."""

from __future__ import annotations

from math import nan
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from fednb.base.progress import bar_of
from fednb.engines.objective import one_thread
from fednb.engines.problem import class_counts
from fednb.metrics.sample import CHUNK, Sample, evaluating, sample_of
from fednb.study.measurements.registry import measurement

if TYPE_CHECKING:
    import pandas as pd

    from fednb.runs.experiment import Run
    from fednb.runs.grid import Results


def mixed(by_class: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Σ_c p_k(c) a_c: the accuracy to expect at each client k, from that of each class and the counts `[N, classes]`.

    >>> mixed(np.array([90.0, 10.0]), np.array([[5, 5], [0, 3]])).tolist()
    [50.0, 10.0]
    """
    return (counts / counts.sum(1, keepdims=True)) @ by_class


@one_thread()
@torch.no_grad()
def by_class(sample: Sample, w: torch.Tensor) -> np.ndarray:
    """The accuracy on each class of the sample, in percent; nan for a class that it lacks."""
    w = sample.place(w)
    with evaluating(sample.objective.model):
        answers = [sample.objective.outputs(w, sample.b, x).argmax(-1) for x in sample.x.split(CHUNK)]
    right, y = (torch.cat(answers) == sample.y).double().cpu().numpy(), sample.y.cpu().numpy()
    return np.array([100 * right[y == c].mean() if (y == c).any() else nan for c in range(int(y.max()) + 1)])


@measurement("by_client")
def by_client(results: Results, samples: int = 2000, device: str = "auto") -> pd.DataFrame:
    """The last model's accuracy at each client, in percent, and their standard deviation, "spread over clients".

    At a client it is that of test samples in the client's own mix of classes (FedSCAM Fig. 7, read as over clients).
    samples: of the test set, the same for all runs. A diverged run has nan.
    """
    import pandas as pd

    rows: list[dict[str, Any]] = []
    with bar_of(len(results.runs), "accuracy by client", unit="run") as bar:
        for c, r in results:
            seen = _of_run(r, samples, device)
            head = {**c.tags, "method": c.label, "seed": r.seed, "key": r.key}
            rows += [{**head, "measure": "client accuracy", "client": i, "value": float(a)} for i, a in enumerate(seen)]
            rows.append({**head, "measure": "spread over clients", "client": None, "value": float(seen.std())})
            bar.update()
    return pd.DataFrame(rows)


def _of_run(run: Run, samples: int, device: str) -> np.ndarray:
    counts = class_counts(run.setting, run.seed)
    if run.status != "finished":
        return np.full(len(counts), nan)
    seen = by_class(sample_of(run, samples, device=device), run.w)
    return mixed(np.pad(seen, (0, counts.shape[1] - len(seen)), constant_values=nan), counts)
