"""How much clients disagree at each frequency: variance (FedFFT), Dist and Std (SpecGradFilter Eq. 4)."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from fednb.base.progress import bar_of
from fednb.core.vectors import Layout
from fednb.filters import bins
from fednb.metrics.tidy import probed

if TYPE_CHECKING:
    import pandas as pd

    from fednb.runs.grid import Results

PerLayer = dict[str, Tensor]
LEAST = torch.finfo(torch.float64).tiny  # in place of a power of 0


class TooFewClients(ValueError):
    """Disagreement needs at least two clients."""


def edges(n: int, bands: int) -> list[int]:
    """Where each of `bands` equal bands of a layer's ⌊n/2⌋ + 1 frequencies begins, and where the last ends.

    >>> fn.spectra.edges(n=20, bands=5)
    [0, 2, 4, 6, 8, 11]
    """
    return [m * bins(n) // bands for m in range(bands + 1)]


def _spectra(x: Tensor, layout: Layout, bands: int, norm: str) -> dict[str, list[Tensor]]:
    """Per layer, the coefficients `[C, *]` of each band. Layers with fewer frequencies than bands are left out."""
    if x.ndim != 2 or len(x) < 2:
        raise TooFewClients(f"vectors of shape {tuple(x.shape)}: at least two clients are needed, [C, P]")
    out = {}
    for name, layer in layout.layers(x).items():
        if bins(layer.shape[-1]) >= bands:
            z, at = torch.fft.rfft(layer.double(), norm=norm), edges(layer.shape[-1], bands)
            out[name] = [z[:, low:high] for low, high in pairwise(at)]
    if not out:
        raise ValueError(f"no layer has {bands} frequencies; ask for fewer bands")
    return out


def variance(x: Tensor, layout: Layout, bands: int = 10) -> PerLayer:
    """The variance across clients of each band's coefficients, per layer (FedFFT Fig. 1): `[bands]` by name.

    mean over the band of E_k |ẑ_k − E ẑ|². The transform is unitary, so white noise gives the variance of a weight in
    every band, whatever the layer's length: long and short layers count alike when layers are averaged.

    >>> from fednb.core.vectors import Layout
    >>> layout = Layout(("fc.weight",), ((1, 4),))
    >>> x = torch.tensor([[1.0], [3.0]]).expand(2, 4)    # two clients that differ in the mean
    >>> fn.spectra.variance(x, layout, bands=3)["fc.weight"]
    tensor([4., 0., 0.], dtype=torch.float64)
    """
    return {
        name: torch.stack([(z - z.mean(0)).abs().square().mean() for z in parts])
        for name, parts in _spectra(x, layout, bands, "ortho").items()
    }


def relative_variance(x: Tensor, layout: Layout, bands: int = 10) -> PerLayer:
    """The share of each band's power that differs between clients, per layer: `[bands]` by name, each from 0 to 1.

    Σ E_k |ẑ_k − E ẑ|² / Σ E_k |ẑ_k|² over the band: 0 where all clients agree, 1 − 1/C where C clients have nothing in
    common, however much power the band has. 0 for a band without any.

    >>> from fednb.core.vectors import Layout
    >>> layout = Layout(("fc.weight",), ((1, 4),))
    >>> x = torch.tensor([[1.0], [3.0]]).expand(2, 4)    # means 1 and 3: of a power of 5 a variance of 1
    >>> fn.spectra.relative_variance(x, layout, bands=3)["fc.weight"]
    tensor([0.2000, 0.0000, 0.0000], dtype=torch.float64)
    """
    return {
        name: torch.stack([_power(z - z.mean(0)) / _power(z).clamp_min(LEAST) for z in parts])
        for name, parts in _spectra(x, layout, bands, "ortho").items()
    }


def _power(z: Tensor) -> Tensor:
    return z.abs().square().sum()


def distances(x: Tensor, layout: Layout, bands: int = 10) -> PerLayer:
    """δ_{l,m}^{(j,k)} = ‖ĝ_l^j ⊙ M_m − ĝ_l^k ⊙ M_m‖ of all pairs of clients, per layer: `[pairs, bands]` by name.

    >>> from fednb.core.vectors import Layout
    >>> layout = Layout(("fc.weight",), ((1, 4),))
    >>> x = torch.tensor([[1.0], [3.0]]).expand(2, 4)    # two clients that differ in the mean
    >>> fn.spectra.distances(x, layout, bands=3)["fc.weight"]
    tensor([[8., 0., 0.]], dtype=torch.float64)
    """
    return {
        name: torch.stack([torch.pdist(torch.view_as_real(z).flatten(1)) for z in parts], dim=-1)
        for name, parts in _spectra(x, layout, bands, "backward").items()
    }


def dist(delta: PerLayer) -> Tensor:
    """Dist(m): the mean over layers and pairs (Eq. 4).

    >>> fn.spectra.dist({"conv": torch.tensor([[1.0, 2.0]]), "fc": torch.tensor([[3.0, 2.0]])})
    tensor([2., 2.])
    """
    return torch.cat(list(delta.values())).mean(0)


def std(delta: PerLayer) -> Tensor:
    """Std(m): the root mean square of δ − Dist(m) over layers and pairs (Eq. 4).

    >>> fn.spectra.std({"conv": torch.tensor([[1.0, 2.0]]), "fc": torch.tensor([[3.0, 2.0]])})
    tensor([1., 0.])
    """
    return torch.cat(list(delta.values())).std(0, correction=0)


def _tidy(results: Results, what: str, measures: dict[str, Callable[[Tensor, Layout], Tensor]]) -> pd.DataFrame:
    """One row per run, probed round, measure and band; a round with a single participant has nothing to compare."""
    import pandas as pd

    rows = [
        {**head, "measure": measure, "band": m + 1, "value": value}
        for head, kept in probed(results, what)
        for measure, of in measures.items()
        for m, value in enumerate(of(kept.vectors[what], kept.layout).tolist())
    ]
    return pd.DataFrame(rows)


def variance_by_band(results: Results, what: str = "perturbation", bands: int = 10) -> pd.DataFrame:
    """FedFFT's Figure 1 from probed runs: the variance of each band, averaged over layers.

    >>> table = fn.spectra.variance_by_band(results, what="gradient", bands=4)
    >>> table.loc[table["method"] == "FedSAM", ["measure", "band"]]
        measure  band
    4  variance     1
    5  variance     2
    6  variance     3
    7  variance     4
    """
    return _tidy(
        results, what, {"variance": lambda x, layout: torch.stack(list(variance(x, layout, bands).values())).mean(0)}
    )


def distance_by_band(results: Results, what: str = "gradient", bands: int = 10) -> pd.DataFrame:
    """SpecGradFilter's Figure 1 from probed runs: Dist(m) and Std(m).

    >>> table = fn.spectra.distance_by_band(results, bands=4)
    >>> table["measure"].unique().tolist(), int(table["band"].max())
    (['Dist', 'Std'], 4)
    """
    measures = {
        "Dist": lambda x, layout: dist(distances(x, layout, bands)),
        "Std": lambda x, layout: std(distances(x, layout, bands)),
    }
    return _tidy(results, what, measures)


def by_layer(results: Results, what: str = "perturbation", bands: int = 10) -> pd.DataFrame:
    """The variance of each band in every layer, averaged over runs and rounds: layers down, bands across.

    >>> table = fn.spectra.by_layer(results, what="gradient", bands=4)
    >>> list(table.columns), bool((table > 0).all(axis=None))
    ([1, 2, 3, 4], True)
    """
    import pandas as pd

    tables, runs = [], [run for _, run in results]
    with bar_of(len(runs), f"{what} by layer", unit="run") as bar:
        for run in runs:
            for kept in run.all_probed(results.probe):
                found = {name: x.tolist() for name, x in variance(kept.vectors[what], kept.layout, bands).items()}
                tables.append(pd.DataFrame(found, index=range(1, bands + 1)).T)
            bar.update()
    return sum(tables[1:], start=tables[0]) / len(tables)
