"""Clients layer by layer: what a filter leaves of their divergence, beside a control; how alike their features are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from fednb.core.vectors import Layout
from fednb.engines.objective import one_thread
from fednb.filters import Centralize, Filter, HighPass
from fednb.metrics import cka
from fednb.metrics.drift import Turned, divergence
from fednb.metrics.features import PENULTIMATE
from fednb.metrics.tidy import finished, probed
from fednb.study.measurements.bands import CENTRALISED
from fednb.study.measurements.registry import measurement

if TYPE_CHECKING:
    import pandas as pd

    from fednb.runs.grid import Results

BEFORE, AFTER, CONTROL = "before", "after", "random axes"


def weights(layout: Layout) -> list[str]:
    """The layers with two axes or more: convolutions and linear maps, without biases and norms."""
    return [name for name, shape in zip(layout.names, layout.shapes, strict=True) if len(shape) > 1]


def rows(x: Tensor, layout: Layout, filter: Filter, draws: int = 5) -> Iterator[dict[str, Any]]:
    """Eq. 5 of gradients `[C, P]` in every weight layer before and after a filter and two controls, and what is left.

    The controls are the same filter in random axes, and centralisation, which takes one mean per output away.

    "divergence" by layer (one row per draw of the control); "share left", Δ_l(Φ) / Δ_l, as a mean over layers, as the
    largest of all layers, and by half: 1 the layers nearer to the input, 2 those nearer to the output; "drop by half",
    Δ_l − Δ_l(Φ), as a mean over the layers of a half; "excess", how much the share left is above the control's in the
    worst layer. In random axes it is a mean over draws.
    """
    names = weights(layout)
    turned = [(CONTROL, Turned.of(filter, seed)) for seed in range(draws)]
    seen: dict[str, list[list[float]]] = {BEFORE: [], AFTER: [], CENTRALISED: [], CONTROL: []}
    for name, each in [(BEFORE, None), (AFTER, filter), (CENTRALISED, Centralize()), *turned]:
        found = divergence(x, layout, each)
        values = [found[layer] for layer in names]
        for layer, value in zip(names, values, strict=True):
            yield {"method": name, "measure": "divergence", "draw": len(seen[name]), "layer": layer, "value": value}
        seen[name].append(values)
    whole = np.array(seen[BEFORE][0])
    left = {name: np.mean(values, axis=0) / whole for name, values in seen.items()}
    middle = -(-len(names) // 2)
    for name, share in left.items():
        yield {"method": name, "measure": "share left", "value": share.mean()}
        yield {"method": name, "measure": "largest share left", "value": share.max()}
        for half, some in ((1, slice(middle)), (2, slice(middle, None))):
            yield {"method": name, "measure": "share left by half", "half": half, "value": share[some].mean()}
            drop = (whole - whole * share)[some].mean()
            yield {"method": name, "measure": "drop by half", "half": half, "value": drop}
    yield {"method": AFTER, "measure": "excess", "value": (left[AFTER] - left[CONTROL]).max()}


@measurement("left_by_filter")
@one_thread()
def left_by_filter(results: Results, ratio: float = 0.05, draws: int = 5) -> pd.DataFrame:
    """SpecGradFilter's Figure 2 from probed gradients, with two controls: `rows` of every run and round.

    The column method says what was done to the gradients. ratio: of the high-pass filter, 0.05 in the paper (§V-A).
    """
    import pandas as pd

    found = [
        {**head, **row}
        for head, kept in probed(finished(results), "gradient")
        for row in rows(kept.vectors["gradient"], kept.layout, HighPass(ratio), draws)
    ]
    return pd.DataFrame(found)


@measurement("likeness")
def likeness(results: Results, samples: int = 256) -> pd.DataFrame:
    """SpecGradFilter's Figure 7 from probed models: linear CKA between clients, on the same test samples.

    "CKA" of every pair of clients in the penultimate layer, which the text speaks of; and over pairs of different
    clients "mean CKA by layer" (the caption says layer-wise), "mean CKA, penultimate layer" and "mean CKA, all layers".
    Each of them as it is, and with ", debiased" behind its name by the estimator that many features do not raise.
    """
    import pandas as pd

    found = []
    for estimator, behind in ((cka.BIASED, ""), (cka.DEBIASED, ", debiased")):
        pairs = cka.between_clients(finished(results), layers="*", samples=samples, estimator=estimator)
        by_layer = cka.mean_by_layer(pairs).assign(measure=f"mean CKA by layer{behind}")
        every = by_layer.drop(columns="layer")
        last = every[by_layer["layer"] == PENULTIMATE].assign(measure=f"mean CKA, penultimate layer{behind}")
        every = every.assign(measure=f"mean CKA, all layers{behind}")
        keys = [name for name in every if name != "value"]
        mean = every.groupby(keys, sort=False, dropna=False)["value"].agg(lambda x: x.mean(skipna=False)).reset_index()
        found += [pairs[pairs["layer"] == PENULTIMATE], by_layer, last, mean]
    return pd.concat(found, ignore_index=True)
