"""Kinds about curves over frequency bands: the lowest is largest, they fall, the lowest grows with skew."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf, isfinite, log1p, nan
from typing import TYPE_CHECKING, Any

import numpy as np

from fednb.study.claims.claim import SKEW, Claim, rule
from fednb.study.claims.comparison import Seen
from fednb.study.claims.tables import Where, by_setting, means, shown, varied

if TYPE_CHECKING:
    import pandas as pd


@rule(bands=True)
def lowest_band_largest(table: pd.DataFrame, claim: Claim) -> list[Seen]:
    """the first band is at least (1 + {tolerance}) times every other band"""
    out = []
    for where, curve in _curves(table):
        logs = np.log(curve)
        for band, each in logs.iloc[1:].items():
            d = float(logs.iloc[0] - each)
            out.append(Seen(where, d, _log(claim), f"band {shown(band)}", said="{}, {}", strict=False, log=True,
                            numbers=(curve.iloc[0], curve[band]), lost=not isfinite(d)))  # fmt: skip
    return out


@rule(bands=True)
def falls_with_band(table: pd.DataFrame, claim: Claim) -> list[Seen]:
    """the rank correlation of value and band is at most -{tolerance}"""
    out = []
    for where, curve in _curves(table):
        ranks, bands = curve.rank().to_numpy(), np.arange(len(curve))
        r = float(np.corrcoef(ranks, bands)[0, 1]) if np.isfinite(curve).all() and len(curve) > 1 else nan
        out.append(Seen(where, -r, claim.tolerance, said="rank correlation {}", numbers=(r,), sign=-1, strict=False,
                        lost=not isfinite(r)))  # fmt: skip
    return out


@rule(bands=True, whole=True, along=SKEW)
def low_band_grows_with_skew(table: pd.DataFrame, claim: Claim) -> list[Seen]:
    """from the largest alpha to the smallest the first band grows, and (1 + {tolerance}) times as much as the last"""
    apart = varied(table) or ["method"]
    by = SKEW if SKEW in apart else apart[0]
    return [seen for where, part in by_setting(table, by) for seen in _grown(where, part, by, claim)]


def _grown(where: Where, table: pd.DataFrame, by: str, claim: Claim) -> list[Seen]:
    """In one setting: how much the first band grows, and how much more than the last."""
    curves = table.groupby([by, "band"])["value"].mean(skipna=False).unstack("band")
    if len(curves) < 2:
        return []  # nothing grows in one place
    growth = curves.loc[curves.index.min()] / curves.loc[curves.index.max()]
    low, high = (float(each) for each in np.log(growth.iloc[[0, -1]]))
    how: dict[str, Any] = {"said": "first band x{}, last band x{}", "log": True, "lost": not isfinite(low - high),
                           "numbers": (growth.iloc[0], growth.iloc[-1])}  # fmt: skip
    return [
        Seen(where, low, pair="first band", **how),
        Seen(where, low - high, _log(claim), "first against last band", strict=False, **how),
    ]


def _log(claim: Claim) -> float:
    """The logarithm of 1 + tolerance; -inf, which everything is above, where that is not positive."""
    return log1p(claim.tolerance) if claim.tolerance > -1 else -inf


def _curves(table: pd.DataFrame) -> Iterator[tuple[Where, pd.Series]]:
    """The mean curve over bands of each method in each setting."""
    for where, part in by_setting(table):
        for method, rows in part.groupby("method", sort=False):
            yield where | {"method": method}, means(rows, "band").sort_index()
