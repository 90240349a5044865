"""Kinds about one method or setting among all: first, among the top, lowest, steadiest, best at."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import isfinite, nan
from typing import TYPE_CHECKING, Any

import numpy as np

from fednb.metrics.tidy import is_control
from fednb.study.claims.claim import Claim, rule
from fednb.study.claims.comparison import Seen, plain
from fednb.study.claims.sides import difference, each_setting, named
from fednb.study.claims.tables import by_setting, means, names_of

if TYPE_CHECKING:
    import pandas as pd


@rule("left", of_all=True)
def first(table: pd.DataFrame, claim: Claim) -> list[Seen]:
    """{measure} of {left} is above every other method's by more than {tolerance}"""
    return _against_all(table, claim)


@rule("left", of_all=True)
def lowest(table: pd.DataFrame, claim: Claim) -> list[Seen]:
    """{measure} of {left} is below every other method's by more than {tolerance}; who never gets there is last"""
    return _against_all(table, claim, sign=-1)


@rule("left", of_all=True, several=True)
def top(table: pd.DataFrame, claim: Claim) -> list[Seen]:
    """fewer than {most} methods have {measure} above that of {left} by more than {tolerance}"""
    return _against_all(table, claim, bound=-claim.tolerance, strict=False)


def _against_all(table: pd.DataFrame, claim: Claim, **how: Any) -> list[Seen]:
    """Left against every other method, setting by setting."""
    return [
        seen
        for where, values, end in each_setting(table, claim)
        for rival in _rivals(claim, values)
        for seen in difference(
            claim, where, values, end, claim.left[0], rival, pair=rival, said=f"{{}}, {named(rival)}", **how
        )
    ]


def _rivals(claim: Claim, values: Iterable[str]) -> list[str]:
    """All others; a control of ours is none of the methods that a paper compares with, unless the claim names it."""
    return [name for name in values if name not in claim.left and (name in claim.right or not is_control(name))]


@rule("left", "along", of_all=True, whole=True)
def first_on_average(table: pd.DataFrame, claim: Claim) -> list[Seen]:
    """{measure} of {left}, the mean over every {along}, is above every other method's by more than {tolerance}"""
    out = []
    for where, own, others in _lines(table, claim):
        values = {name: _mean(line) for name, line in others.items()} | {claim.left[0]: _mean(own)}
        for rival in _rivals(claim, values):
            said = f"{{}}, {named(rival)}"
            out += difference(claim, where, values, nan, claim.left[0], rival, pair=rival, said=said)
    return out


def _mean(line: dict) -> float:
    return float(np.mean(list(line.values())))


@rule("left", "along", of_all=True, whole=True)
def steadiest(table: pd.DataFrame, claim: Claim) -> list[Seen]:
    """{measure} of {left} varies least along {along}, by more than {tolerance} less than any other method's"""
    out = []
    for where, own, others in _lines(table, claim):
        if len(own) < 2:
            continue  # nothing varies in one place
        spans = {name: float(np.ptp(list(others[name].values()))) for name in _rivals(claim, others)}
        mine = float(np.ptp(list(own.values())))
        out += [Seen(where, span - mine, claim.tolerance, name, said=f"{{}}, {named(name)}", numbers=(mine, span),
                     lost=not isfinite(mine)) for name, span in spans.items()]  # fmt: skip
    return out


def _lines(table: pd.DataFrame, claim: Claim) -> Iterator[tuple[Any, dict, dict[str, dict]]]:
    """By setting: the values of left along the claim's column, and those of all others that have the same places."""
    for where, part in by_setting(table, claim.along):
        lines = {name: means(rows, claim.along).to_dict() for name, rows in part.groupby("method", sort=False)}
        if own := lines.pop(claim.left[0], None):
            yield where, own, {name: line for name, line in lines.items() if line.keys() == own.keys()}


@rule("left", "at", of_settings=True)
def best_at(table: pd.DataFrame, claim: Claim) -> list[Seen]:
    """{measure} of {left} is above that in every other setting by more than {tolerance} at {at}"""
    found = list(by_setting(table[table["method"].isin(claim.left)]))
    names = names_of([where for where, _ in found])
    values = {n: float(part["value"].mean(skipna=False)) for n, (_, part) in zip(names, found, strict=True)}
    here = next((name for name in claim.at if name in values), "")
    return [
        seen
        for other in values
        if here and other not in claim.at
        for seen in difference(
            claim, {}, values, nan, here, other, pair=other, said=f"{plain(here)} {{}}, {named(other)}"
        )
    ]
