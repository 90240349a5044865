"""Rules about curves over frequency bands: the lowest is largest, they fall, the lowest grows with skew."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fednb.study.claims.claim import Claim, Judged, rule
from fednb.study.claims.tables import varied

if TYPE_CHECKING:
    import pandas as pd


@rule(bands=True)
def lowest_band_largest(table: pd.DataFrame, claim: Claim) -> Judged:
    """the first band is at least (1 + {tolerance}) times every other band"""
    curves = _curves(table)
    rest = curves.iloc[:, 1:].max(axis=1, skipna=False)
    return {
        str(i): (bool(low >= (1 + claim.tolerance) * high), f"{low / high:.2f}x the next largest")
        for i, low, high in zip(curves.index, curves.iloc[:, 0], rest, strict=True)
    }


@rule(bands=True)
def falls_with_band(table: pd.DataFrame, claim: Claim) -> Judged:
    """the rank correlation of value and band is at most -{tolerance}"""
    curves = _curves(table)
    ranks = curves.rank(axis=1).where(curves.notna().all(axis=1), axis=0)
    bands = ranks.columns.to_series().rank().to_numpy()
    return {
        str(i): (bool((r := _correlation(row.to_numpy(), bands)) <= -claim.tolerance), f"rank correlation {r:+.2f}")
        for i, row in ranks.iterrows()
    }


@rule(bands=True)
def low_band_grows_with_skew(table: pd.DataFrame, claim: Claim) -> Judged:
    """from the largest alpha to the smallest the first band grows, and (1 + {tolerance}) times as much as the last"""
    curves = _curves(table)
    skewed, even = curves.loc[curves.index.min()], curves.loc[curves.index.max()]
    growth = skewed / even
    low, high = growth.iloc[0], growth.iloc[-1]
    said = f"first band x{low:.2f}, last band x{high:.2f}"
    true = bool(low >= (1 + claim.tolerance) * high and low > 1)
    return {f"{curves.index.max()} to {curves.index.min()}": (true, said)}


def _curves(table: pd.DataFrame) -> pd.DataFrame:
    """Bands across, settings down."""
    (by,) = varied(table) or ["method"]
    return table.groupby([by, "band"])["value"].mean(skipna=False).unstack("band")


def _correlation(x: Any, y: Any) -> float:
    return float(np.corrcoef(x, y)[0, 1])
