"""Kinds about the spread over seeds: the standard deviation of one method against another's, or against a number.

Each seed gives the values; `variances` compares how they scatter. Left and right share seeds, which makes the two alike
and the test more careful than it says. Three seeds in one setting decide nothing.
"""

from __future__ import annotations

from math import inf, isfinite, log1p
from typing import TYPE_CHECKING, Any

from fednb.study.claims.claim import Claim, rule
from fednb.study.claims.comparison import Seen
from fednb.study.claims.sides import block_of, each_setting, pairs
from fednb.study.claims.tables import Where

if TYPE_CHECKING:
    import pandas as pd


@rule("left", "right", spread=True)
def spread_below(table: pd.DataFrame, claim: Claim) -> list[Seen]:
    """over seeds, the standard deviation of {measure} of {left} times (1 + {tolerance}) is below that of {right}"""
    return _against(table, claim, 1, strict=True)


@rule("left", "right", spread=True)
def spread_not_above(table: pd.DataFrame, claim: Claim) -> list[Seen]:
    """over seeds, the standard deviation of {measure} of {left} is at most (1 + {tolerance}) times that of {right}"""
    return _against(table, claim, -1, strict=False)


def _against(table: pd.DataFrame, claim: Claim, sign: int, **how: Any) -> list[Seen]:
    """The values of left and right in one seed, setting by setting."""
    out = []
    for where, values in _values(table, claim):
        for left, right, pair in pairs(claim):
            if left in values and right in values:
                numbers = values[left], values[right]
                out.append(_seen(where, numbers, pair=pair, bound=sign * log1p(claim.tolerance), **how))
    return out


@rule("left", "tolerance", spread=True)
def spread_at_most(table: pd.DataFrame, claim: Claim) -> list[Seen]:
    """over seeds, the standard deviation of {measure} of {left}, each by itself, is at most {tolerance}"""
    return [
        _seen(where, (values[left],), pair=left, block=block_of(where, left), strict=False, most=claim.tolerance)
        for where, values in _values(table, claim)
        for left in claim.left
        if left in values
    ]


def _values(table: pd.DataFrame, claim: Claim) -> list[tuple[Where, dict[str, float]]]:
    """Each setting and the value of every method there."""
    return [(where, values) for where, values, _ in each_setting(table, claim)]


def _seen(where: Where, numbers: tuple[float, ...], **how: Any) -> Seen:
    """The values of one seed, whose scatter over all seeds is compared."""
    said = " against ".join(["sd {}"] * len(numbers))
    known = all(map(isfinite, numbers))
    return Seen(where, numbers[0] if known else inf, said=said, numbers=numbers, log=True, spread=True,
                lost=not isfinite(numbers[0]), **how)  # fmt: skip
