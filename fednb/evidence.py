"""What can be measured on the runs of a grid, by name: each a function from results to a tidy table.

A tidy table has the columns that tell settings apart, then method, seed, key, measure and value; claims are judged on
it, figures are drawn from it, and it is what is kept of a run that was made elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from math import nan
from typing import TYPE_CHECKING, Any

from fednb.engines.problem import class_counts
from fednb.metrics import alike, cost, layers, sharpness, skew, spectra, theory

if TYPE_CHECKING:
    import pandas as pd

    from fednb.experiment import Run
    from fednb.grid import Results


class UnknownEvidence(KeyError):
    """A name that no measurement has."""

    def __str__(self) -> str:
        return str(self.args[0])


def accuracy(results: Results) -> pd.DataFrame:
    """The accuracy that the setting reports (best, last, or mean of the last ten), in percent: one row per run."""
    import pandas as pd

    rows = [
        {**c.tags, "method": c.label, "seed": r.seed, "key": r.key, "measure": "accuracy", "value": r.accuracy}
        for c, r in results
    ]
    return pd.DataFrame(rows).astype({"value": float})


def curves(results: Results, most: int | None = None) -> pd.DataFrame:
    """The test accuracy of every evaluated round, in percent; of `most` rounds of each run, evenly, if it has more."""
    import pandas as pd

    rows = [
        {**c.tags, "method": c.label, "seed": r.seed, "key": r.key, "measure": "accuracy by round",
         "round": row["round"], "value": row["accuracy"]}
        for c, r in results for row in thinned(_evaluated(r), most)
    ]  # fmt: skip
    return pd.DataFrame(rows).astype({"value": float})


def _evaluated(run: Run) -> list[dict[str, Any]]:
    return [row for row in run.rows if row["accuracy"] is not None and not row.get("tuned")]


def thinned(rows: list[Any], most: int | None) -> list[Any]:
    """At most so many of a list, evenly spread, the last always among them.

    >>> thinned([1, 2, 3, 4, 5, 6, 7, 8], 4)
    [2, 4, 6, 8]
    """
    if most is None or len(rows) <= most:
        return rows
    return [rows[(i + 1) * len(rows) // most - 1] for i in range(most)]


def early(results: Results, share: float = 0.25) -> pd.DataFrame:
    """The mean test accuracy over the first `share` of the rounds, in percent: how fast a run starts."""
    import pandas as pd

    rows = []
    for c, r in results:
        seen = [row["accuracy"] for row in _evaluated(r) if row["round"] < max(1, share * c.setting.rounds)]
        value = sum(seen) / len(seen) if seen else nan
        rows.append({**c.tags, "method": c.label, "seed": r.seed, "key": r.key, "measure": "early accuracy",
                     "value": value})  # fmt: skip
    return pd.DataFrame(rows).astype({"value": float})


def setbacks(results: Results) -> pd.DataFrame:
    """How much test accuracy is lost from one evaluated round to the next, in percent, on average; 0 if it only rises.

    Smoothness of a learning curve as a number (FedFFT App. E.4); compare runs that are evaluated equally often.
    """
    import pandas as pd

    rows = []
    for c, r in results:
        seen = [row["accuracy"] for row in _evaluated(r)]
        lost = [max(0.0, before - after) for before, after in pairwise(seen)]
        value = sum(lost) / len(lost) if lost else nan
        rows.append({**c.tags, "method": c.label, "seed": r.seed, "key": r.key, "measure": "setback", "value": value})
    return pd.DataFrame(rows).astype({"value": float})


def client_sizes(results: Results) -> pd.DataFrame:
    """How many samples each client has: one row per client of every split, which the methods of a setting share."""
    import pandas as pd

    rows, seen = [], set()
    for c, r in results:
        split = (c.setting.data, str(c.setting.partition), c.setting.clients, c.setting.samples, r.seed)
        if split not in seen:
            seen.add(split)
            held = class_counts(c.setting, r.seed).sum(1).tolist()
            head = {**c.tags, "method": "all", "seed": r.seed, "measure": "samples"}
            rows += [{**head, "client": i, "value": float(n)} for i, n in enumerate(held)]
    return pd.DataFrame(rows)


def variance_by_layer(results: Results, what: str = "perturbation", bands: int = 10) -> pd.DataFrame:
    """The variance of each band in every layer, averaged over runs and rounds."""
    wide = spectra.by_layer(results, what, bands).rename_axis("layer").reset_index()
    return wide.melt("layer", var_name="band").assign(measure="variance by layer", seed="mean")


EVIDENCE: dict[str, Callable[..., Any]] = {
    "accuracy": accuracy,
    "curves": curves,
    "early": early,
    "setbacks": setbacks,
    "client_sizes": client_sizes,
    "class_skew": skew.class_skew,
    "variance_by_band": spectra.variance_by_band,
    "variance_by_layer": variance_by_layer,
    "distance_by_band": spectra.distance_by_band,
    "to_target": cost.to_target,
    "spreads": alike.spreads,
    "places": alike.places,
    "neighbours": alike.neighbours,
    "eigenvalues": sharpness.eigenvalues,
    "surface": sharpness.surface,
    "left_by_filter": layers.left_by_filter,
    "likeness": layers.likeness,
    "theorem": theory.theorem,
}
