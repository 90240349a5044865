"""Rules that compare values with each other or with a number: above, below, near, at most, within."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from fednb.study.claims.claim import Claim, Judged, rule
from fednb.study.claims.tables import by_setting, means, varied

if TYPE_CHECKING:
    import pandas as pd


def _compared(table: pd.DataFrame, claim: Claim, holds: Callable[[float], bool]) -> Judged:
    """Whether the difference of every left to every right is as it should be, setting by setting."""
    return {
        f"{where} {named}".strip(): (bool(holds(a - b)), f"{a:.4g} against {b:.4g}: {a - b:+.3g}")
        for where, part in by_setting(table)
        for named, a, b in _pairs(claim, means(part))
    }


@rule("left", "right")
def above(table: pd.DataFrame, claim: Claim) -> Judged:
    """{measure} of {left} is above that of {right} by more than {tolerance}"""
    return _compared(table, claim, lambda apart: apart > claim.tolerance)


@rule("left", "right")
def not_above(table: pd.DataFrame, claim: Claim) -> Judged:
    """{measure} of {left} is not above that of {right} by more than {tolerance}"""
    return _compared(table, claim, lambda apart: apart <= claim.tolerance)


@rule("left", "right")
def below(table: pd.DataFrame, claim: Claim) -> Judged:
    """{measure} of {left} is below that of {right} by more than {tolerance}"""
    return _compared(table, claim, lambda apart: -apart > claim.tolerance)


@rule("left", "right")
def near(table: pd.DataFrame, claim: Claim) -> Judged:
    """{measure} of {left} is within {tolerance} of that of {right}"""
    return _compared(table, claim, lambda apart: abs(apart) <= claim.tolerance)


@rule("left", "right")
def at_most_times(table: pd.DataFrame, claim: Claim) -> Judged:
    """{measure} of {left} is at most {tolerance} times that of {right}"""
    return {
        f"{where} {named}".strip(): (bool(a <= claim.tolerance * b), f"{a:.4g} against {b:.4g}: {a / b:.3g} times")
        for where, part in by_setting(table)
        for named, a, b in _pairs(claim, means(part))
    }


def _pairs(claim: Claim, seen: pd.Series) -> Iterator[tuple[str, float, float]]:
    """Every left with every right; nan for a method that is not there."""
    for left in claim.left:
        for right in claim.right:
            named = f"{left} − {right}" if len(claim.left) * len(claim.right) > 1 else ""
            yield named, seen.get(left, np.nan), seen.get(right, np.nan)


@rule("left", "right", paired=True)
def each_above(table: pd.DataFrame, claim: Claim) -> Judged:
    """{measure} of {left} is above that of {right}, each above its own, by more than {tolerance}"""
    return _each_compared(table, claim, lambda apart: apart > claim.tolerance)


@rule("left", "right", paired=True)
def each_not_above(table: pd.DataFrame, claim: Claim) -> Judged:
    """{measure} of {left} is not above that of {right}, each above its own, by more than {tolerance}"""
    return _each_compared(table, claim, lambda apart: apart <= claim.tolerance)


def _each_compared(table: pd.DataFrame, claim: Claim, holds: Callable[[float], bool]) -> Judged:
    """Whether the difference of left and right, taken two by two, is as it should be, setting by setting."""
    out = {}
    for where, part in by_setting(table):
        seen = means(part)
        for left, right in zip(claim.left, claim.right, strict=True):
            a, b = seen.get(left, np.nan), seen.get(right, np.nan)
            if left in seen or right in seen:  # a scale may leave out a pair, not one of it
                out[f"{where} {left}"] = (bool(holds(a - b)), f"{a:.4g} against {b:.4g}: {a - b:+.3g}")
    return out


@rule("left")
def at_most(table: pd.DataFrame, claim: Claim) -> Judged:
    """{measure} of {left} is at most {tolerance}"""
    return _each(table, claim, lambda value: value <= claim.tolerance)


@rule("left")
def at_least(table: pd.DataFrame, claim: Claim) -> Judged:
    """{measure} of {left} is at least {tolerance}"""
    return _each(table, claim, lambda value: value >= claim.tolerance)


def _each(table: pd.DataFrame, claim: Claim, holds: Callable[[float], bool]) -> Judged:
    """Whether the value of each left is as it should be."""
    return {
        f"{where} {left}": (bool(holds(value)), f"{value:.4g}")
        for where, part in by_setting(table)
        for left, value in means(part).reindex(claim.left).items()
    }


@rule()
def within(table: pd.DataFrame, claim: Claim) -> Judged:
    """{measure} lies from {least} to {most}, give or take {tolerance}, for every method in every setting"""
    values = table["value"]
    outside = table[~values.between(claim.least - claim.tolerance, claim.most + claim.tolerance)]  # nan is outside
    said = f"{values.min():.4g} to {values.max():.4g}, n = {len(values)}"
    if len(outside):
        first = outside.iloc[0]
        where = ", ".join(str(first[c]) for c in [*varied(table), "method"])
        said += f", {len(outside)} outside, such as {first['value']:.4g} ({where})"
    return {"all": (outside.empty, said)}
