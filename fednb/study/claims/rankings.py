"""Rules about one method or setting among all: first, among the top, lowest, steadiest, best at."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

import numpy as np

from fednb.study.claims.claim import Claim, Judged, rule
from fednb.study.claims.tables import by_setting, means

if TYPE_CHECKING:
    import pandas as pd


@rule("left", of_all=True)
def first(table: pd.DataFrame, claim: Claim) -> Judged:
    """{measure} of {left} is above every other method's by more than {tolerance}"""
    return _ahead(table, claim)


@rule("left", "along", of_all=True)
def first_on_average(table: pd.DataFrame, claim: Claim) -> Judged:
    """{measure} of {left}, the mean over every {along}, is above every other method's by more than {tolerance}"""
    return _ahead(table, claim, claim.along)


def _ahead(table: pd.DataFrame, claim: Claim, *averaged: str) -> Judged:
    """Whether left is ahead of all others, setting by setting; columns that are averaged over tell none apart."""
    out = {}
    for where, part in by_setting(table, *averaged):
        own, others = _rivals(part, claim)
        if len(others):
            said = f"{own:.4g}, next {others.idxmax()} {others.max():.4g}"
            out[where] = (bool(own - others.max() > claim.tolerance), said)
    return out


@rule("left", of_all=True)
def top(table: pd.DataFrame, claim: Claim) -> Judged:
    """fewer than {most} methods have {measure} above that of {left} by more than {tolerance}"""
    out = {}
    for where, part in by_setting(table):
        own, others = _rivals(part, claim)
        above = others[others - own > claim.tolerance].sort_values(ascending=False)
        if len(others):
            said = "".join(f", {name} {value:.4g}" for name, value in above.items()) or ", nobody above"
            out[where] = (bool(own == own and len(above) < claim.most), f"{own:.4g}{said}")
    return out


@rule("left", of_all=True)
def lowest(table: pd.DataFrame, claim: Claim) -> Judged:
    """{measure} of {left} is below every other method's by more than {tolerance}; who never gets there is last"""
    out = {}
    for where, part in by_setting(table):
        own, others = _rivals(part, claim)
        least = others.min() if len(others) else inf
        said = f"{own:.4g}, next {others.idxmin()} {least:.4g}" if len(others) else f"{own:.4g}, nobody else gets there"
        out[where] = (bool(least - own > claim.tolerance), said)
    return out


def _rivals(part: pd.DataFrame, claim: Claim) -> tuple[float, pd.Series]:
    """The value of left, nan if it is not there, and those of all other methods that have one."""
    seen = means(part)
    return seen.get(claim.left[0], np.nan), seen.drop(list(claim.left), errors="ignore").dropna()


@rule("left", "along", of_all=True)
def steadiest(table: pd.DataFrame, claim: Claim) -> Judged:
    """{measure} of {left} varies least along {along}, by more than {tolerance} less than any other method's"""
    out = {}
    for where, part in by_setting(table, claim.along):
        if claim.left[0] not in set(part["method"]):
            continue
        seen = {name: means(each, claim.along).sort_index() for name, each in part.groupby("method", sort=False)}
        same = {name: line for name, line in seen.items() if line.index.equals(seen[claim.left[0]].index)}
        spans = {name: float(np.ptp(line.to_numpy())) for name, line in same.items()}  # nan where a value is missing
        own, others = spans.pop(claim.left[0]), {name: span for name, span in spans.items() if span == span}
        if others:
            least = min(others, key=lambda name: others[name])
            said = f"{own:.4g}, next {least} {others[least]:.4g}"
            out[where] = (bool(others[least] - own > claim.tolerance), said)
    return out


@rule("left", "at")
def best_at(table: pd.DataFrame, claim: Claim) -> Judged:
    """{measure} of {left} is above that in every other setting by more than {tolerance} at {at}"""
    seen = {
        where: part["value"].mean(skipna=False) for where, part in by_setting(table[table["method"].isin(claim.left)])
    }
    own = [value for where, value in seen.items() if where in claim.at]
    others = {where: value for where, value in seen.items() if where not in claim.at and value == value}
    if not own or not others:
        return {}
    next_best = max(others, key=lambda where: others[where])
    said = f"{own[0]:.4g}, next {next_best} {others[next_best]:.4g}"
    return {claim.at[0]: (bool(own[0] - others[next_best] > claim.tolerance), said)}
