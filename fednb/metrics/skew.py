"""Who has what, in numbers: how far the classes of a client are from those of all clients together (FedFFT Fig. 5)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fednb.data.partition import parse
from fednb.engines.problem import class_counts
from fednb.engines.setting import Setting

if TYPE_CHECKING:
    import pandas as pd

Cases = list[dict[str, Any]]  # at one scale: `dataset`, the name to show, and settings


def distance(counts: np.ndarray) -> float:
    """½ Σ_c |p_k(c) − p(c)|, mean over clients k: 0 where all have the classes of the whole, towards 1 where one each.

    >>> distance(np.array([[4, 0], [0, 4]]))
    0.5
    """
    return float(distances(counts).mean())


def distances(counts: np.ndarray) -> np.ndarray:
    """The same of each client, `[clients]`: the total variation between its classes and those of all together."""
    shares = counts / counts.sum(1, keepdims=True)
    return np.abs(shares - counts.sum(0) / counts.sum()).sum(1) / 2


def classes_for(counts: np.ndarray, share: float = 0.9) -> float:
    """How many of its largest classes make up `share` of a client's samples, mean over clients.

    >>> classes_for(np.array([[90, 10, 0], [50, 30, 20]]))
    2.0
    """
    largest_first = -np.sort(-counts, axis=1)
    missing = largest_first.cumsum(1) < share * counts.sum(1, keepdims=True)
    return float((missing.sum(1) + 1).mean())


def class_skew(scale: str, partitions: Sequence[str], seeds: Sequence[int] = (0,), **cases: Cases) -> pd.DataFrame:
    """Both numbers of every data set, partition and seed; the kind of partition stands in the column `method`.

    cases: for each scale a list of data sets with their settings, as paper.toml has them.
    """
    import pandas as pd

    rows = []
    for seed in seeds:
        for about, setting in _settings(partitions, cases[scale]):
            counts = class_counts(setting, seed)
            seen = {"distance to the whole": distance(counts), "classes for 90%": classes_for(counts)}
            rows += [{**about, "seed": seed, "measure": name, "value": value} for name, value in seen.items()]
    return pd.DataFrame(rows)


def size_skew(scale: str, partitions: Sequence[str], seeds: Sequence[int] = (0,), **cases: Cases) -> pd.DataFrame:
    """How unequal clients are (FedSCAM Fig. 19): the largest over the mean, and how much the smallest has."""
    import pandas as pd

    rows = []
    for seed in seeds:
        for about, setting in _settings(partitions, cases[scale]):
            held = class_counts(setting, seed).sum(1)
            seen = {"largest over the mean": held.max() / held.mean(), "smallest client": held.min()}
            rows += [{**about, "seed": seed, "measure": name, "value": float(v)} for name, v in seen.items()]
    return pd.DataFrame(rows)


def tables(
    scale: str, partitions: Sequence[str], seed: int = 0, kind: str = "", **cases: Cases
) -> dict[str, np.ndarray]:
    """The counts themselves, `[clients, classes]`, each under its title; kind: only partitions of that name."""
    return {
        f"{about['dataset']}, α = {about['alpha']:g}": class_counts(setting, seed)
        for about, setting in _settings(partitions, cases[scale])
        if kind in ("", about["method"])
    }


def _settings(partitions: Sequence[str], cases: Cases) -> Iterator[tuple[dict[str, Any], Setting]]:
    for case in cases:
        own = {name: value for name, value in case.items() if name != "dataset"}
        for partition in map(parse, partitions):
            about = {"dataset": case["dataset"], "alpha": getattr(partition, "alpha", None), "method": partition.name}
            yield about, Setting(partition=partition, **own)
