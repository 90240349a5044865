"""How far perturbations reach, in units of the radius that they should have."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import TYPE_CHECKING

import numpy as np
import torch

from fednb.algorithms.parts.released_bugs import by_tensor_number
from fednb.base.streams import stream
from fednb.core.vectors import Layout, norm
from fednb.metrics.tidy import finished, probed
from fednb.models import build
from fednb.study.measurements.registry import measurement

if TYPE_CHECKING:
    import pandas as pd

    from fednb.runs.grid import Results

MEASURE = "length over radius"
INPUTS = {"cnn-small": (1, 28, 28)}  # others: 32x32 in colour


@measurement("lengths")
def lengths(results: Results) -> pd.DataFrame:
    """‖δ_k‖ / ρ in probed rounds, the mean over participants, at the first step of each (notebooks/across/03).

    At most 1 for a perturbation that is divided by its norm. Ascents that look along their own steps have none at the
    first and are of no use here.
    """
    import pandas as pd

    radius = {run.key: cell.method.parameters()["rho"] for cell, run in results}
    found = [
        {**head, "measure": MEASURE, "value": float(norm(kept.vectors["perturbation"]).mean()) / radius[head["key"]]}
        for head, kept in probed(finished(results), "perturbation")
    ]
    return pd.DataFrame(found)


@measurement("flat_index")
def flat_index(scale: str, models: list[str], draws: int = 1000, seeds: Sequence[int] = (0, 1, 2)) -> pd.DataFrame:
    """How long FedLESAM's perturbation is with its code's flat index, if updates are Gaussian (notebooks/across/03).

    Needs no runs: with L tensors of n_j numbers, ‖δ‖/ρ = √(Σ n_j d_j²) / Σ |d_j| over L numbers d_j alone. The mean
    over draws, and between which numbers nine in ten of them lie, for each seed. scale: makes no difference.
    """
    import pandas as pd

    rows = []
    for name, seed in product(models, seeds):
        seen = _draws(Layout.of_parameters(build(name, 10, INPUTS.get(name, (3, 32, 32)))), draws, seed)
        low, high = np.quantile(seen, [0.05, 0.95])
        said = {MEASURE: seen.mean(), f"{MEASURE}, 5%": low, f"{MEASURE}, 95%": high}
        head = {"model": name, "method": "flat index", "seed": seed}
        rows += [{**head, "measure": measure, "value": float(value)} for measure, value in said.items()]
    return pd.DataFrame(rows)


def _draws(layout: Layout, draws: int, seed: int) -> np.ndarray:
    """‖δ‖/ρ of some updates, from the first numbers of each, one per tensor: no more is ever looked at.

    Every number of a tensor is the same, so that one of them stands for all: ‖δ‖² = Σ n_j δ_j².
    """
    tensors = Layout(layout.names, ((1,),) * len(layout))
    d = torch.from_numpy(stream(seed, "flat-index", len(layout)).standard_normal((draws, len(layout))))
    shift = by_tensor_number(tensors, d)
    return norm(shift * torch.tensor(layout.sizes, dtype=d.dtype).sqrt()).squeeze(-1).numpy()
