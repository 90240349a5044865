"""How much clients disagree at each frequency (Figure 1 of FedFFT and of SpecGradFilter)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from fednb.core.vectors import Layout
from fednb.filters import Centralize
from fednb.metrics import spectra
from fednb.metrics.tidy import probed
from fednb.study.measurements.registry import measurement

if TYPE_CHECKING:
    import pandas as pd

    from fednb.runs.grid import Results

WHOLE, CENTRALISED = "as they are", "centralised"

measurement("variance_by_band")(spectra.variance_by_band)  # FedFFT Fig. 1
measurement("distance_by_band")(spectra.distance_by_band)  # SpecGradFilter Fig. 1


@measurement("variance_without_means")
def variance_without_means(results: Results, what: str = "perturbation", bands: int = 10) -> pd.DataFrame:
    """FedFFT's Figure 1 with a control: V(m) of vectors as they are, and without the mean of each output's weights.

    The column `vectors` says which. The difference in a band is due to these means, one number per output.
    """
    return _without_means(
        results, what, "V(m)", lambda x, layout: torch.stack([*spectra.variance(x, layout, bands).values()]).mean(0)
    )


@measurement("distance_without_means")
def distance_without_means(results: Results, what: str = "gradient", bands: int = 10) -> pd.DataFrame:
    """SpecGradFilter's Figure 1 with the same control: Dist(m), see `variance_without_means`."""
    return _without_means(results, what, "Dist(m)", lambda x, layout: spectra.dist(spectra.distances(x, layout, bands)))


def _without_means(results: Results, what: str, measure: str, of: Callable[[Tensor, Layout], Tensor]) -> pd.DataFrame:
    """A number by band of every probed round's vectors, whole and centralised."""
    import pandas as pd

    rows = []
    for head, kept in probed(results, what):
        whole, layout = kept.vectors[what], kept.layout
        for name, x in ((WHOLE, whole), (CENTRALISED, layout.map(Centralize(), whole))):
            each = enumerate(of(x, layout).tolist())
            rows += [{**head, "vectors": name, "measure": measure, "band": m + 1, "value": value} for m, value in each]
    return pd.DataFrame(rows)


@measurement("variance_by_layer")
def variance_by_layer(results: Results, what: str = "perturbation", bands: int = 10) -> pd.DataFrame:
    """The variance across clients of each band in every layer, averaged over runs and rounds (beside FedFFT Fig. 1)."""
    wide = spectra.by_layer(results, what, bands).rename_axis("layer").reset_index()
    return wide.melt("layer", var_name="band").assign(measure="variance by layer", seed="mean")
