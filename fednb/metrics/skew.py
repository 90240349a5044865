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

    >>> fn.skew.distance(np.array([[4, 0], [0, 4]]))
    0.5
    """
    return float(distances(counts).mean())


def distances(counts: np.ndarray) -> np.ndarray:
    """½ Σ_c |p_k(c) − p(c)| of each client k, `[clients]`: how far its classes are from those of all together.

    >>> fn.skew.distances(np.array([[4, 0], [0, 4]]))
    array([0.5, 0.5])
    """
    shares = counts / counts.sum(1, keepdims=True)
    return np.abs(shares - counts.sum(0) / counts.sum()).sum(1) / 2


def classes_for(counts: np.ndarray, share: float = 0.9) -> float:
    """How many of its largest classes make up `share` of a client's samples, mean over clients.

    >>> fn.skew.classes_for(np.array([[90, 10, 0], [50, 30, 20]]))
    2.0
    """
    largest_first = -np.sort(-counts, axis=1)
    missing = largest_first.cumsum(1) < share * counts.sum(1, keepdims=True)
    return float((missing.sum(1) + 1).mean())


def class_skew(scale: str, partitions: Sequence[str], seeds: Sequence[int] = (0,), **cases: Cases) -> pd.DataFrame:
    """`distance` and `classes_for` of every data set, partition and seed (FedFFT Fig. 5, FedSCAM Fig. 18).

    The kind of partition stands in the column `method`. cases: for each scale a list of data sets with their settings,
    as paper.toml has them, and with `partitions` of their own where those of all do not fit.

    >>> cases = [{"dataset": "digits", "data": "digits", "clients": 4}]
    >>> table = fn.skew.class_skew("smoke", ["iid", "dirichlet(alpha=0.1)"], smoke=cases)
    >>> table[["method", "measure"]]
          method                measure
    0        iid  distance to the whole
    1        iid        classes for 90%
    2  dirichlet  distance to the whole
    3  dirichlet        classes for 90%
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
    """How unequal clients are (FedSCAM Fig. 19): the largest over the mean, and how much the smallest has.

    >>> cases = [{"dataset": "digits", "data": "digits", "clients": 4}]
    >>> table = fn.skew.size_skew("smoke", ["dirichlet(alpha=0.1)"], smoke=cases)
    >>> table["measure"].tolist()
    ['largest over the mean', 'smallest client']
    """
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
    """Samples by client and class, `[clients, classes]`, of every data set and partition, each under its title.

    kind: only partitions of that name. cases: as in `class_skew`. A title names α, or the partition where it has none.

    >>> cases = [{"dataset": "digits", "data": "digits", "clients": 4}]
    >>> counts = fn.skew.tables("smoke", ["dirichlet(alpha=0.1)"], smoke=cases)
    >>> {title: table.shape for title, table in counts.items()}
    {'digits, α = 0.1': (4, 10)}
    """
    return {
        f"{about['dataset']}, {_title(about['alpha'], setting)}": class_counts(setting, seed)
        for about, setting in _settings(partitions, cases[scale])
        if kind in ("", about["method"])
    }


def _title(alpha: float | None, setting: Setting) -> str:
    return str(setting.partition) if alpha is None else f"α = {alpha:g}"


def _settings(partitions: Sequence[str], cases: Cases) -> Iterator[tuple[dict[str, Any], Setting]]:
    for case in cases:
        own = {name: value for name, value in case.items() if name not in ("dataset", "partitions")}
        for partition in map(parse, case.get("partitions", partitions)):
            about = {"dataset": case["dataset"], "alpha": getattr(partition, "alpha", None), "method": partition.name}
            yield about, Setting(partition=partition, **own)
