"""How much clients disagree at each frequency (Figure 1 of FedFFT and of SpecGradFilter)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fednb.metrics import spectra
from fednb.study.measurements.registry import measurement

if TYPE_CHECKING:
    import pandas as pd

    from fednb.runs.grid import Results

measurement("variance_by_band")(spectra.variance_by_band)  # FedFFT Fig. 1
measurement("distance_by_band")(spectra.distance_by_band)  # SpecGradFilter Fig. 1


@measurement("variance_by_layer")
def variance_by_layer(results: Results, what: str = "perturbation", bands: int = 10) -> pd.DataFrame:
    """The variance across clients of each band in every layer, averaged over runs and rounds (beside FedFFT Fig. 1)."""
    wide = spectra.by_layer(results, what, bands).rename_axis("layer").reset_index()
    return wide.melt("layer", var_name="band").assign(measure="variance by layer", seed="mean")
