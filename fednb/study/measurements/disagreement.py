"""Where clients disagree, beside how much: relative to a band's power, and the lowest band's share of it all."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from fednb.metrics import spectra
from fednb.metrics.tidy import probed
from fednb.study.measurements.registry import measurement

if TYPE_CHECKING:
    import pandas as pd

    from fednb.runs.grid import Results


@measurement("disagreement")
def disagreement(results: Results, what: str = "perturbation", bands: int = 10) -> pd.DataFrame:
    """Two numbers beside the variance of each band in FedFFT's Figure 1, from probed runs; layers count alike.

    "relative variance": the share of a band's power that differs between clients, by band. "lowest band's share": how
    much of a layer's variance over all bands lies in the first, 1 / `bands` for white noise; it has no band.
    """
    import pandas as pd

    rows = []
    for head, kept in probed(results, what):
        x, layout = kept.vectors[what], kept.layout
        relative = _over_layers(spectra.relative_variance(x, layout, bands))
        by_layer = spectra.variance(x, layout, bands).items()
        shares = _over_layers({name: v / v.sum().clamp_min(spectra.LEAST) for name, v in by_layer})
        rows += [{**head, "measure": "relative variance", "band": m + 1, "value": v} for m, v in enumerate(relative)]
        rows.append({**head, "measure": "lowest band's share", "value": shares[0]})
    return pd.DataFrame(rows)


def _over_layers(per_layer: dict[str, Tensor]) -> list[float]:
    """The mean over layers, by band."""
    return torch.stack(list(per_layer.values())).mean(0).tolist()
