"""Kinds that compare values with each other or with a number: above, below, near, at most, within."""

from __future__ import annotations

from dataclasses import replace
from math import isfinite, log, nan
from typing import TYPE_CHECKING, Any

from fednb.study.claims.claim import Claim, rule
from fednb.study.claims.comparison import Seen
from fednb.study.claims.sides import TO_TARGET, block_of, difference, each_setting, matched, pairs
from fednb.study.claims.tables import Where

if TYPE_CHECKING:
    import pandas as pd


@rule("left", "right", margin=True)
def above(table: pd.DataFrame, claim: Claim) -> list[Seen]:
    """{measure} of {left} is above that of {right} by more than {tolerance}"""
    return _compared(table, claim)


@rule("left", "right")
def not_above(table: pd.DataFrame, claim: Claim) -> list[Seen]:
    """{measure} of {left} is not above that of {right} by more than {tolerance}"""
    return _compared(table, claim, sign=-1, bound=-claim.tolerance, strict=False)


@rule("left", "right", margin=True)
def below(table: pd.DataFrame, claim: Claim) -> list[Seen]:
    """{measure} of {left} is below that of {right} by more than {tolerance}"""
    return _compared(table, claim, sign=-1)


@rule("left", "right")
def near(table: pd.DataFrame, claim: Claim) -> list[Seen]:
    """{measure} of {left} is within {tolerance} of that of {right}"""
    return _compared(table, claim, inside=True)


def _compared(table: pd.DataFrame, claim: Claim, **how: Any) -> list[Seen]:
    """The difference of every left to every right, setting by setting."""
    return [
        seen
        for where, values, end in each_setting(table, claim)
        for left, right, pair in pairs(claim)
        for seen in difference(claim, where, values, end, left, right, pair=pair, **how)
    ]


@rule("left", "right", paired=True, margin=True)
def each_above(table: pd.DataFrame, claim: Claim) -> list[Seen]:
    """{measure} of {left} is above that of {right}, each above its own, by more than {tolerance}"""
    return _each_compared(table, claim)


@rule("left", "right", paired=True, margin=True, options=True)
def some_above(table: pd.DataFrame, claim: Claim) -> list[Seen]:
    """{measure} of at least one of {left} is above that of {right}, each above its own, by more than {tolerance}"""
    return [replace(seen, option=seen.pair) for seen in _each_compared(table, claim)]


@rule("left", "right", paired=True)
def each_not_above(table: pd.DataFrame, claim: Claim) -> list[Seen]:
    """{measure} of {left} is not above that of {right}, each above its own, by more than {tolerance}"""
    return _each_compared(table, claim, sign=-1, bound=-claim.tolerance, strict=False)


def _each_compared(table: pd.DataFrame, claim: Claim, **how: Any) -> list[Seen]:
    """The difference of left and right, taken two by two, setting by setting."""
    return [
        seen
        for where, values, end in each_setting(table, claim)
        for left, right, pair in matched(claim)
        for seen in difference(
            claim, where, values, end, left, right, pair=pair, block=block_of(where, left, right), **how
        )
    ]


@rule("left", "right")
def at_most_times(table: pd.DataFrame, claim: Claim) -> list[Seen]:
    """{measure} of {left} is at most {tolerance} times that of {right}"""
    out = []
    for where, values, end in each_setting(table, claim):
        for left, right, pair in pairs(claim):
            if left in values and right in values:
                out += _times(claim, where, values[left], values[right], end, pair)
    return out


def _times(claim: Claim, where: Where, a: float, b: float, end: float, pair: str) -> list[Seen]:
    """How much less left is than so many times right: a logarithm, a ratio, or a difference where signs differ."""
    arrives, times = claim.measure in TO_TARGET, claim.tolerance
    if arrives and not isfinite(a) and not isfinite(b):
        return []
    numbers = a, b = tuple(end if arrives and not isfinite(value) else value for value in (a, b))
    if arrives:
        d = log(times * b) - log(a) if min(times * b, a) > 0 else nan
    elif "gain" in claim.measure:
        d = times * b - a  # a quotient of gains near zero says nothing
    else:
        d = times - a / b if b else nan
    lost = not isfinite(a)
    return [Seen(where, d, said="{} against {}", numbers=numbers, pair=pair, strict=False, lost=lost, log=arrives)]


@rule("left")
def at_most(table: pd.DataFrame, claim: Claim) -> list[Seen]:
    """{measure} of {left} is at most {tolerance}"""
    return _bounded(table, claim, -1)


@rule("left")
def at_least(table: pd.DataFrame, claim: Claim) -> list[Seen]:
    """{measure} of {left} is at least {tolerance}"""
    return _bounded(table, claim, 1)


def _bounded(table: pd.DataFrame, claim: Claim, sign: int) -> list[Seen]:
    """How far the value of each left is on its side of the bound; who never reaches a target takes longer than it."""
    out = []
    for where, values, end in each_setting(table, claim):
        for left in claim.left:
            if left in values:
                value, bound, arrives = values[left], claim.tolerance, claim.measure in TO_TARGET
                if arrives and not isfinite(value):
                    value = max(end, bound + 1) if isfinite(end) else bound + 1
                lost = not isfinite(value) and (sign > 0 or "accuracy" not in claim.measure)
                apart = value - bound if not arrives else log(value / bound) if min(value, bound) > 0 else nan
                out.append(Seen(where, sign * apart, pair=left, block=block_of(where, left), said="{}",
                                numbers=(value,), strict=False, lost=lost, log=arrives))  # fmt: skip
    return out


@rule()
def within(table: pd.DataFrame, claim: Claim) -> list[Seen]:
    """{measure} lies from {least} to {most}, give or take {tolerance}, for every method in every setting"""
    low, high = claim.least - claim.tolerance, claim.most + claim.tolerance
    out = []
    for where, values, _ in each_setting(table, claim):
        for method, value in values.items():
            here = where | {"method": method}
            how: dict[str, Any] = {"said": "{}", "numbers": (value,), "lost": not isfinite(value), "strict": False}
            if isfinite(low) and isfinite(high):
                out.append(Seen(here, value - (low + high) / 2, (high - low) / 2, inside=True, **how))
            elif isfinite(low):
                out.append(Seen(here, value - low, **how))
            else:
                out.append(Seen(here, high - value, **how))
    return out
