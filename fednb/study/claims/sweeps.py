"""Kinds along a column, such as a radius or a ratio: what methods gain there, and whether values rise or fall."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from fednb.study.claims.claim import Claim, rule
from fednb.study.claims.comparison import Seen, plain
from fednb.study.claims.sides import block_of, matched
from fednb.study.claims.tables import Where, by_setting, means, shown

if TYPE_CHECKING:
    import pandas as pd


@rule("left", "along", "right", between=True, margin=True, whole=True)
def gain_grows(table: pd.DataFrame, claim: Claim) -> list[Seen]:
    """what {left} gains over {right} grows with {along}, and no step goes back by more than {tolerance} beyond doubt"""
    return _steadily(table, claim, 1)


@rule("left", "along", "right", between=True, margin=True, whole=True)
def gain_shrinks(table: pd.DataFrame, claim: Claim) -> list[Seen]:
    """what {left} gains over {right} shrinks with {along}, and no step goes up by more than {tolerance} beyond doubt"""
    return _steadily(table, claim, -1)


def _steadily(table: pd.DataFrame, claim: Claim, sign: int) -> list[Seen]:
    """How much gains change along a column, by a straight line; and every step, which may speak against it."""
    out = []
    for where, left, base, _ in _gains(table, claim):
        gain = left - base
        if len(gain) > 1:
            lost = not np.isfinite(left).all()
            out.append(Seen(where, sign * trend(gain), sign=sign, lost=lost, **_listed(gain)))
            steps = pairwise(gain.items()) if len(gain) > 2 else ()  # of two levels the line is the step
            for (x, low), (y, high) in steps:
                step, pair = sign * (high - low), f"from {shown(x)} to {shown(y)}"
                out.append(Seen(where, step, -claim.tolerance, pair, strict=False, veto=True))
    return out


@rule("left", "along", "right", between=True, margin=True)
def gain_positive(table: pd.DataFrame, claim: Claim) -> list[Seen]:
    """{left} is above {right} by more than {tolerance} at every {along} from {least} to {most}"""
    return _everywhere(table, claim, 1, bound=claim.tolerance)


@rule("left", "along", "right", between=True)
def gain_gone(table: pd.DataFrame, claim: Claim) -> list[Seen]:
    """{left} is not above {right} by more than {tolerance} at any {along} from {least} to {most}"""
    return _everywhere(table, claim, -1, bound=-claim.tolerance, strict=False)


def _everywhere(table: pd.DataFrame, claim: Claim, sign: int, **how: Any) -> list[Seen]:
    """The gain at every value of a column; where right is one number, all are compared with it and share its error."""
    out = []
    for where, left, base, swept in _gains(table, claim):
        for at, a in left.items():
            b, here = base[at], where | {claim.along: at}
            known, accurate = np.isfinite(a), "accuracy" in claim.measure
            out.append(Seen(here, sign * (a - b), block="" if swept else block_of(where), said="{} against {}",
                            numbers=(a, b), sign=sign, lost=not known and (sign > 0 or not accurate),
                            behind=bool(known and not np.isfinite(b) and sign > 0 and accurate), **how))  # fmt: skip
    return out


@rule("left", "along", "right", between=True)
def gain_flat(table: pd.DataFrame, claim: Claim) -> list[Seen]:
    """what {left} gains over {right} is positive at every {along}, and no two differ by more than {tolerance}"""
    out = []
    for where, left, base, _ in _gains(table, claim):
        gain, lost = left - base, not np.isfinite(left).all()
        out += [Seen(where, g, pair=f"at {shown(x)}", lost=lost, **_listed(gain)) for x, g in gain.items()]
        for (x, g), (y, h) in combinations(gain.items(), 2):
            pair = f"{shown(y)} against {shown(x)}"
            out.append(Seen(where, h - g, claim.tolerance, pair, inside=True, lost=lost, strict=False))
    return out


def _gains(table: pd.DataFrame, claim: Claim) -> Iterator[tuple[Where, pd.Series, pd.Series, bool]]:
    """Left and right along a column, in its order, between least and most, and whether right goes along it too."""
    for where, part in by_setting(table, claim.along):
        left, right = (part[part["method"].isin(side)] for side in (claim.left, claim.right))
        seen = means(left[left[claim.along].between(claim.least, claim.most)], claim.along).sort_index()
        if len(seen) and len(right):
            swept = bool(right[claim.along].notna().any())
            base = means(right, claim.along) if swept else right["value"].mean(skipna=False)
            both = seen.index.intersection(base.index) if swept else seen.index
            if len(both):
                yield where, seen[both], base[both] if swept else seen[both] * 0 + base, swept


@rule("left", "along", "at", "right", paired=True, margin=True, whole=True)
def gain_least_at(table: pd.DataFrame, claim: Claim) -> list[Seen]:
    """what {left} gains over {right}, each over its own, is smallest at {along} {at}, by more than {tolerance}"""
    out = []
    for where, part in by_setting(table, claim.along):
        for left, right, pair in matched(claim):
            of_left, of_right = (means(part[part["method"] == name], claim.along) for name in (left, right))
            gain = (of_left - of_right).loc[of_left.index.intersection(of_right.index)]  # where both were run
            here = gain[gain.index.isin(claim.at)]
            for other, elsewhere in gain[~gain.index.isin(claim.at)].items():
                out += [Seen(where, elsewhere - own, claim.tolerance, f"{pair}, {shown(other)}",
                             block=block_of(where, left), said="gain {}, elsewhere {}", numbers=(own, elsewhere))
                        for own in here]  # fmt: skip
    return out


@rule("left", "along", margin=True, whole=True)
def falls_along(table: pd.DataFrame, claim: Claim) -> list[Seen]:
    """{measure} of {left} falls with {along}: from the smallest to the largest by more than {tolerance}"""
    return _trends(table, claim, -1, {"": list(claim.left)})


@rule("left", "along", margin=True, whole=True)
def rises_along(table: pd.DataFrame, claim: Claim) -> list[Seen]:
    """{measure} of {left}, each by itself, rises with {along}: from the smallest to the largest by over {tolerance}"""
    return _trends(table, claim, 1, {name: [name] for name in claim.left})


@rule("left", "along", margin=True, whole=True)
def each_falls_along(table: pd.DataFrame, claim: Claim) -> list[Seen]:
    """{measure} of {left}, each by itself, falls with {along}: from the smallest to the largest by over {tolerance}"""
    return _trends(table, claim, -1, {name: [name] for name in claim.left})


def _trends(table: pd.DataFrame, claim: Claim, sign: int, groups: dict[str, list[str]]) -> list[Seen]:
    """How much the values of each group of methods change along a column."""
    out = []
    for pair, names in groups.items():
        for where, part in by_setting(table[table["method"].isin(names)], claim.along):
            seen = means(part, claim.along).sort_index()
            if len(seen) > 1:
                lost = not np.isfinite(seen).all()
                out.append(Seen(where, sign * trend(seen), claim.tolerance, pair, sign=sign, lost=lost,
                                block=block_of(where, pair), **_listed(seen)))  # fmt: skip
    return out


@rule("left", "along", margin=True, options=True, whole=True)
def peaks_inside(table: pd.DataFrame, claim: Claim) -> list[Seen]:
    """{measure} of {left}, each by itself, is higher between the ends of {along} than at them, by over {tolerance}"""
    out = []
    for left in claim.left:
        for where, part in by_setting(table[table["method"] == left], claim.along):
            seen = means(part, claim.along).sort_index()
            lost = not np.isfinite(seen).all()
            inner = [(at, end) for at in seen.index[1:-1] for end in (seen.index[0], seen.index[-1])]
            for at, end in inner:
                pair, alone = f"{shown(at)} over {shown(end)}", where | {"method": left}
                out.append(Seen(alone, seen[at] - seen[end], claim.tolerance, pair, shown(at), lost=lost,
                                **_listed(seen)))  # fmt: skip
    return out


def trend(values: pd.Series) -> float:
    """How much values change from the first to the last, by the straight line that fits them best; steps count alike.

    >>> from fednb.study.claims.sweeps import trend
    >>> trend(pd.Series([1.0, 3.0])), trend(pd.Series([0.0, 3.0, 0.0, 1.0]))
    (2.0, 0.0)
    """
    at = np.arange(len(values)) - (len(values) - 1) / 2
    return float((at * values.to_numpy(float)).sum() / (at**2).sum() * (len(values) - 1))


def _listed(values: pd.Series) -> dict[str, Any]:
    """Numbers with what they belong to, for a `Seen`: "0.1: {}, 0.6: {}"."""
    said = ", ".join(f"{plain(shown(x))}: {{}}" for x in values.index)
    return {"said": said, "numbers": tuple(float(value) for value in values)}
