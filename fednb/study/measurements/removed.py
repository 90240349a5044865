"""What filters take away of the clients' gradients: of what these have in common, and of what they differ in."""

from __future__ import annotations

from collections.abc import Iterator
from math import nan
from typing import TYPE_CHECKING, Any

from torch import Tensor

from fednb.algorithms.sums import built
from fednb.core.vectors import Layout
from fednb.engines.objective import one_thread
from fednb.filters import Filter
from fednb.metrics.tidy import finished, probed
from fednb.study.measurements.registry import measurement

if TYPE_CHECKING:
    import pandas as pd

    from fednb.runs.grid import Results

PARTS = {"classifier": "@head", "all but the classifier": "@body"}
NOTHING = "no filter"


def energy(x: Tensor, layout: Layout, where: str) -> float:
    """‖x‖² over some layers, summed over clients."""
    picked = zip(layout.layers(x).values(), layout.select(where), strict=True)
    return sum(float(layer.square().sum()) for layer, yes in picked if yes)


def rows(x: Tensor, layout: Layout, filters: dict[str, Filter]) -> Iterator[dict[str, Any]]:
    """Shares of energy of gradients `[C, P]`, in the classifier and in all else; ḡ is their mean over clients.

    "drift removed": 1 − Σ ‖Φ(g_k − ḡ)‖² / Σ ‖g_k − ḡ‖². "mean removed": 1 − ‖Φ(ḡ)‖² / ‖ḡ‖²; where clients are few,
    something of the drift is left in ḡ. "mean over drift removed": what is lost for what is won, 1 where a filter does
    not tell them apart. "share of the drift", under "no filter": how much of it lies in this part of the model.
    """
    mean = x.mean(0, keepdim=True)
    kinds = {"drift": x - mean, "mean": mean}
    whole = energy(kinds["drift"], layout, "*")
    for part, where in PARTS.items():
        before = {kind: energy(v, layout, where) for kind, v in kinds.items()}
        yield _row(NOTHING, part, "share of the drift", before["drift"] / whole if whole else nan)
        for name, filter in filters.items():
            left = {kind: energy(layout.map(filter, v), layout, where) for kind, v in kinds.items()}
            gone = {kind: round(1 - left[kind] / before[kind], 12) if before[kind] else nan for kind in kinds}
            yield from (_row(name, part, f"{kind} removed", share) for kind, share in gone.items())
            ratio = gone["mean"] / gone["drift"] if gone["drift"] else nan  # nothing removed is no ratio
            yield _row(name, part, "mean over drift removed", ratio)


def _row(method: str, part: str, measure: str, value: float) -> dict[str, Any]:
    return {"method": method, "part": part, "measure": measure, "value": value}


@measurement("removed")
@one_thread()
def removed(results: Results, filters: dict[str, str]) -> pd.DataFrame:
    """What filters take away of drift and mean of probed gradients, see `rows` (notebooks/across/01).

    filters: by their names in the table, such as {"5%": "highpass(0.05)"}.
    """
    import pandas as pd

    made = {name: built(text) for name, text in filters.items()}
    if wrong := [name for name, filter in made.items() if not isinstance(filter, Filter)]:
        raise ValueError(f"{wrong[0]!r} = {filters[wrong[0]]!r}: must be a filter, such as highpass(0.05)")
    found = [
        {**head, **row}
        for head, kept in probed(finished(results), "gradient")
        for row in rows(kept.vectors["gradient"].double(), kept.layout, made)  # type: ignore[arg-type]
    ]
    return pd.DataFrame(found)
