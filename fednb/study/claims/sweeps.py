"""Rules along a column, such as a radius or a ratio: what methods gain there, and whether values rise or fall."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from fednb.study.claims.claim import Claim, Judged, rule
from fednb.study.claims.tables import by_setting, listed, means

if TYPE_CHECKING:
    import pandas as pd


@rule("left", "along", "right", between=True)
def gain_grows(table: pd.DataFrame, claim: Claim) -> Judged:
    """what {left} gains over {right} grows with {along}, no step back by more than {tolerance}"""
    return {
        where: (bool((np.diff(gain) > -claim.tolerance).all() and gain.iloc[-1] > gain.iloc[0]), listed(gain))
        for where, gain in _gains(table, claim)
    }


@rule("left", "along", "right", between=True)
def gain_shrinks(table: pd.DataFrame, claim: Claim) -> Judged:
    """what {left} gains over {right} shrinks with {along}, no step up by more than {tolerance}"""
    return {
        where: (bool((np.diff(gain) < claim.tolerance).all() and gain.iloc[-1] < gain.iloc[0]), listed(gain))
        for where, gain in _gains(table, claim)
    }


@rule("left", "along", "right", between=True)
def gain_positive(table: pd.DataFrame, claim: Claim) -> Judged:
    """{left} is above {right} by more than {tolerance} at every {along} from {least} to {most}"""
    return {where: (bool((gain > claim.tolerance).all()), listed(gain)) for where, gain in _gains(table, claim)}


@rule("left", "along", "right", between=True)
def gain_gone(table: pd.DataFrame, claim: Claim) -> Judged:
    """{left} is not above {right} by more than {tolerance} at any {along} from {least} to {most}"""
    return {where: (bool((gain <= claim.tolerance).all()), listed(gain)) for where, gain in _gains(table, claim)}


@rule("left", "along", "right", between=True)
def gain_flat(table: pd.DataFrame, claim: Claim) -> Judged:
    """what {left} gains over {right} is positive at every {along}, and varies by at most {tolerance}"""
    return {
        where: (bool((gain > 0).all() and gain.max() - gain.min() <= claim.tolerance), listed(gain))
        for where, gain in _gains(table, claim)
    }


def _gains(table: pd.DataFrame, claim: Claim) -> Iterator[tuple[str, pd.Series]]:
    """Left minus right along a column, in its order, between least and most; right may be one number beside it."""
    for where, part in by_setting(table, claim.along):
        left, right = (part[part["method"].isin(side)] for side in (claim.left, claim.right))
        seen = means(left[left[claim.along].between(claim.least, claim.most)], claim.along).sort_index()
        swept = right[claim.along].notna().any()
        base = means(right, claim.along).reindex(seen.index) if swept else right["value"].mean(skipna=False)
        if len(seen):
            yield where, seen - base


@rule("left", "along", "at", "right", paired=True)
def gain_least_at(table: pd.DataFrame, claim: Claim) -> Judged:
    """what {left} gains over {right}, each over its own, is smallest at {along} {at}, by more than {tolerance}"""
    out = {}
    for where, part in by_setting(table, claim.along):
        for left, right in zip(claim.left, claim.right, strict=True):
            of_left, of_right = (means(part[part["method"] == name], claim.along) for name in (left, right))
            gain = of_left - of_right  # nan where one of the two was not run
            here, rest = gain[gain.index.isin(claim.at)], gain[~gain.index.isin(claim.at)]
            if len(here) and len(rest):
                own, least = here.max(skipna=False), rest.min(skipna=False)
                said = f"{own:+.3g}, elsewhere {least:+.3g} or more"
                out[f"{where} {left}"] = (bool(least - own > claim.tolerance), said)
    return out


@rule("left", "along")
def falls_along(table: pd.DataFrame, claim: Claim) -> Judged:
    """{measure} of {left} is lower at the largest {along} than at the smallest by more than {tolerance}"""
    out = {}
    for where, part in by_setting(table[table["method"].isin(claim.left)], claim.along):
        seen = means(part, claim.along).sort_index()
        if len(seen):
            out[where] = (bool(seen.iloc[0] - seen.iloc[-1] > claim.tolerance), listed(seen, sign=""))
    return out


@rule("left", "along")
def rises_along(table: pd.DataFrame, claim: Claim) -> Judged:
    """{measure} of {left}, each by itself, rises by more than {tolerance} from the smallest {along} to the largest"""
    return _along(table, claim, lambda seen: seen.iloc[-1] - seen.iloc[0] > claim.tolerance)


@rule("left", "along")
def each_falls_along(table: pd.DataFrame, claim: Claim) -> Judged:
    """{measure} of {left}, each by itself, falls by more than {tolerance} from the smallest {along} to the largest"""
    return _along(table, claim, lambda seen: seen.iloc[0] - seen.iloc[-1] > claim.tolerance)


@rule("left", "along")
def peaks_inside(table: pd.DataFrame, claim: Claim) -> Judged:
    """{measure} of {left}, each by itself, is higher between the ends of {along} than at them, by over {tolerance}"""

    def holds(seen: pd.Series) -> bool:
        return seen.iloc[1:-1].max(skipna=False) - seen.iloc[[0, -1]].max(skipna=False) > claim.tolerance

    return _along(table, claim, holds)


def _along(table: pd.DataFrame, claim: Claim, holds: Callable[[pd.Series], bool]) -> Judged:
    """Whether the values of each left, in the order of a column, are as they should be."""
    out = {}
    for left in claim.left:
        for where, part in by_setting(table[table["method"] == left], claim.along):
            seen = means(part, claim.along).sort_index()
            if len(seen):
                out[f"{where} {left}"] = (bool(holds(seen)), listed(seen, sign=""))
    return out
