"""The kinds of rules that a claim can be: each a function from a tidy table to true or false, setting by setting.

The first line of a kind's docstring is the rule in words, with the claim's own names and numbers filled in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import inf
from typing import TYPE_CHECKING, Any

import numpy as np

from fednb.metrics.tidy import NOT_A_SETTING

if TYPE_CHECKING:
    import pandas as pd

    from fednb.study.claims import Claim

Judged = dict[str, tuple[bool, str]]


def varied(table: pd.DataFrame, *but: str) -> list[str]:
    """The columns that tell settings apart: those with more than one value."""
    columns = [c for c in table if c not in (*NOT_A_SETTING, *but)]
    return [c for c in columns if table[c].nunique(dropna=False) > 1]


def _split(table: pd.DataFrame, *but: str) -> Iterator[tuple[str, pd.DataFrame]]:
    """The table setting by setting, each under its name."""
    settings = varied(table, *but)
    if not settings:
        yield "all", table
        return
    for values, part in table.groupby(settings, sort=False, dropna=False):
        each = [(c, v) for c, v in zip(settings, values, strict=True) if v == v]  # a setting may lack what others have
        yield ", ".join(f"{c} {v:g}" if isinstance(v, float) else f"{c} {v}" for c, v in each) or "all", part


def _means(part: pd.DataFrame, column: str = "method") -> pd.Series:
    """The mean value of each entry of a column; where a value is missing it stays missing."""
    return part.groupby(column, sort=False)["value"].mean(skipna=False)


def _pairs(claim: Claim, seen: pd.Series) -> Iterator[tuple[str, float, float]]:
    """Every left with every right; nan for a method that is not there."""
    for left in claim.left:
        for right in claim.right:
            named = f"{left} − {right}" if len(claim.left) * len(claim.right) > 1 else ""
            yield named, seen.get(left, np.nan), seen.get(right, np.nan)


def _rivals(part: pd.DataFrame, claim: Claim) -> tuple[float, pd.Series]:
    """The value of left, nan if it is not there, and those of all other methods that have one."""
    seen = _means(part)
    return seen.get(claim.left[0], np.nan), seen.drop(list(claim.left), errors="ignore").dropna()


def _compared(table: pd.DataFrame, claim: Claim, holds: Callable[[float], bool]) -> Judged:
    """Whether the difference of each pair is as it should be, setting by setting."""
    return {
        f"{where} {named}".strip(): (bool(holds(a - b)), f"{a:.4g} against {b:.4g}: {a - b:+.3g}")
        for where, part in _split(table)
        for named, a, b in _pairs(claim, _means(part))
    }


def _above(table: pd.DataFrame, claim: Claim) -> Judged:
    """{measure} of {left} is above that of {right} by more than {tolerance}"""
    return _compared(table, claim, lambda apart: apart > claim.tolerance)


def _each_compared(table: pd.DataFrame, claim: Claim, holds: Callable[[float], bool]) -> Judged:
    """The same with left and right taken two by two."""
    out = {}
    for where, part in _split(table):
        seen = _means(part)
        for left, right in zip(claim.left, claim.right, strict=True):
            a, b = seen.get(left, np.nan), seen.get(right, np.nan)
            if left in seen or right in seen:  # a scale may leave out a pair, not one of it
                out[f"{where} {left}"] = (bool(holds(a - b)), f"{a:.4g} against {b:.4g}: {a - b:+.3g}")
    return out


def _each_above(table: pd.DataFrame, claim: Claim) -> Judged:
    """{measure} of {left} is above that of {right}, each above its own, by more than {tolerance}"""
    return _each_compared(table, claim, lambda apart: apart > claim.tolerance)


def _each_not_above(table: pd.DataFrame, claim: Claim) -> Judged:
    """{measure} of {left} is not above that of {right}, each above its own, by more than {tolerance}"""
    return _each_compared(table, claim, lambda apart: apart <= claim.tolerance)


def _not_above(table: pd.DataFrame, claim: Claim) -> Judged:
    """{measure} of {left} is not above that of {right} by more than {tolerance}"""
    return _compared(table, claim, lambda apart: apart <= claim.tolerance)


def _below(table: pd.DataFrame, claim: Claim) -> Judged:
    """{measure} of {left} is below that of {right} by more than {tolerance}"""
    return _compared(table, claim, lambda apart: -apart > claim.tolerance)


def _near(table: pd.DataFrame, claim: Claim) -> Judged:
    """{measure} of {left} is within {tolerance} of that of {right}"""
    return _compared(table, claim, lambda apart: abs(apart) <= claim.tolerance)


def _first(table: pd.DataFrame, claim: Claim) -> Judged:
    """{measure} of {left} is above every other method's by more than {tolerance}"""
    return _ahead(table, claim)


def _first_on_average(table: pd.DataFrame, claim: Claim) -> Judged:
    """{measure} of {left}, the mean over every {along}, is above every other method's by more than {tolerance}"""
    return _ahead(table, claim, claim.along)


def _ahead(table: pd.DataFrame, claim: Claim, *averaged: str) -> Judged:
    """Whether left is ahead of all others, setting by setting; columns that are averaged over tell none apart."""
    out = {}
    for where, part in _split(table, *averaged):
        own, others = _rivals(part, claim)
        if len(others):
            said = f"{own:.4g}, next {others.idxmax()} {others.max():.4g}"
            out[where] = (bool(own - others.max() > claim.tolerance), said)
    return out


def _top(table: pd.DataFrame, claim: Claim) -> Judged:
    """fewer than {most} methods have {measure} above that of {left} by more than {tolerance}"""
    out = {}
    for where, part in _split(table):
        own, others = _rivals(part, claim)
        above = others[others - own > claim.tolerance].sort_values(ascending=False)
        if len(others):
            said = "".join(f", {name} {value:.4g}" for name, value in above.items()) or ", nobody above"
            out[where] = (bool(own == own and len(above) < claim.most), f"{own:.4g}{said}")
    return out


def _lowest(table: pd.DataFrame, claim: Claim) -> Judged:
    """{measure} of {left} is below every other method's by more than {tolerance}; who never gets there is last"""
    out = {}
    for where, part in _split(table):
        own, others = _rivals(part, claim)
        least = others.min() if len(others) else inf
        said = f"{own:.4g}, next {others.idxmin()} {least:.4g}" if len(others) else f"{own:.4g}, nobody else gets there"
        out[where] = (bool(least - own > claim.tolerance), said)
    return out


def _gains(table: pd.DataFrame, claim: Claim) -> Iterator[tuple[str, pd.Series]]:
    """Left minus right along a column, in its order, between least and most; right may be one number beside it."""
    for where, part in _split(table, claim.along):
        left, right = (part[part["method"].isin(side)] for side in (claim.left, claim.right))
        seen = _means(left[left[claim.along].between(claim.least, claim.most)], claim.along).sort_index()
        swept = right[claim.along].notna().any()
        base = _means(right, claim.along).reindex(seen.index) if swept else right["value"].mean(skipna=False)
        if len(seen):
            yield where, seen - base


def _listed(gain: pd.Series) -> str:
    return ", ".join(f"{x}: {v:+.3g}" if isinstance(x, str) else f"{x:g}: {v:+.3g}" for x, v in gain.items())


def _gain_grows(table: pd.DataFrame, claim: Claim) -> Judged:
    """what {left} gains over {right} grows with {along}, no step back by more than {tolerance}"""
    return {
        where: (bool((np.diff(gain) > -claim.tolerance).all() and gain.iloc[-1] > gain.iloc[0]), _listed(gain))
        for where, gain in _gains(table, claim)
    }


def _gain_shrinks(table: pd.DataFrame, claim: Claim) -> Judged:
    """what {left} gains over {right} shrinks with {along}, no step up by more than {tolerance}"""
    return {
        where: (bool((np.diff(gain) < claim.tolerance).all() and gain.iloc[-1] < gain.iloc[0]), _listed(gain))
        for where, gain in _gains(table, claim)
    }


def _gain_positive(table: pd.DataFrame, claim: Claim) -> Judged:
    """{left} is above {right} by more than {tolerance} at every {along} from {least} to {most}"""
    return {where: (bool((gain > claim.tolerance).all()), _listed(gain)) for where, gain in _gains(table, claim)}


def _gain_gone(table: pd.DataFrame, claim: Claim) -> Judged:
    """{left} is not above {right} by more than {tolerance} at any {along} from {least} to {most}"""
    return {where: (bool((gain <= claim.tolerance).all()), _listed(gain)) for where, gain in _gains(table, claim)}


def _gain_flat(table: pd.DataFrame, claim: Claim) -> Judged:
    """what {left} gains over {right} is positive at every {along}, and varies by at most {tolerance}"""
    return {
        where: (bool((gain > 0).all() and gain.max() - gain.min() <= claim.tolerance), _listed(gain))
        for where, gain in _gains(table, claim)
    }


def _gain_least_at(table: pd.DataFrame, claim: Claim) -> Judged:
    """what {left} gains over {right}, each over its own, is smallest at {along} {at}, by more than {tolerance}"""
    out = {}
    for where, part in _split(table, claim.along):
        for left, right in zip(claim.left, claim.right, strict=True):
            of_left, of_right = (_means(part[part["method"] == name], claim.along) for name in (left, right))
            gain = of_left - of_right  # nan where one of the two was not run
            here, rest = gain[gain.index.isin(claim.at)], gain[~gain.index.isin(claim.at)]
            if len(here) and len(rest):
                own, least = here.max(skipna=False), rest.min(skipna=False)
                said = f"{own:+.3g}, elsewhere {least:+.3g} or more"
                out[f"{where} {left}"] = (bool(least - own > claim.tolerance), said)
    return out


def _best_at(table: pd.DataFrame, claim: Claim) -> Judged:
    """{measure} of {left} is above that in every other setting by more than {tolerance} at {at}"""
    seen = {where: part["value"].mean(skipna=False) for where, part in _split(table[table["method"].isin(claim.left)])}
    own = [value for where, value in seen.items() if where in claim.at]
    others = {where: value for where, value in seen.items() if where not in claim.at and value == value}
    if not own or not others:
        return {}
    next_best = max(others, key=lambda where: others[where])
    said = f"{own[0]:.4g}, next {next_best} {others[next_best]:.4g}"
    return {claim.at[0]: (bool(own[0] - others[next_best] > claim.tolerance), said)}


def _steadiest(table: pd.DataFrame, claim: Claim) -> Judged:
    """{measure} of {left} varies least along {along}, by more than {tolerance} less than any other method's"""
    out = {}
    for where, part in _split(table, claim.along):
        if claim.left[0] not in set(part["method"]):
            continue
        seen = {name: _means(each, claim.along).sort_index() for name, each in part.groupby("method", sort=False)}
        same = {name: line for name, line in seen.items() if line.index.equals(seen[claim.left[0]].index)}
        spans = {name: float(np.ptp(line.to_numpy())) for name, line in same.items()}  # nan where a value is missing
        own, others = spans.pop(claim.left[0]), {name: span for name, span in spans.items() if span == span}
        if others:
            least = min(others, key=lambda name: others[name])
            said = f"{own:.4g}, next {least} {others[least]:.4g}"
            out[where] = (bool(others[least] - own > claim.tolerance), said)
    return out


def _falls_along(table: pd.DataFrame, claim: Claim) -> Judged:
    """{measure} of {left} is lower at the largest {along} than at the smallest by more than {tolerance}"""
    out = {}
    for where, part in _split(table[table["method"].isin(claim.left)], claim.along):
        seen = _means(part, claim.along).sort_index()
        if len(seen):
            out[where] = (bool(seen.iloc[0] - seen.iloc[-1] > claim.tolerance), _listed(seen).replace("+", ""))
    return out


def _rises_along(table: pd.DataFrame, claim: Claim) -> Judged:
    """{measure} of {left}, each by itself, rises by more than {tolerance} from the smallest {along} to the largest"""
    return _along(table, claim, lambda seen: seen.iloc[-1] - seen.iloc[0] > claim.tolerance)


def _each_falls_along(table: pd.DataFrame, claim: Claim) -> Judged:
    """{measure} of {left}, each by itself, falls by more than {tolerance} from the smallest {along} to the largest"""
    return _along(table, claim, lambda seen: seen.iloc[0] - seen.iloc[-1] > claim.tolerance)


def _peaks_inside(table: pd.DataFrame, claim: Claim) -> Judged:
    """{measure} of {left}, each by itself, is higher between the ends of {along} than at them, by over {tolerance}"""

    def holds(seen: pd.Series) -> bool:
        return seen.iloc[1:-1].max(skipna=False) - seen.iloc[[0, -1]].max(skipna=False) > claim.tolerance

    return _along(table, claim, holds)


def _along(table: pd.DataFrame, claim: Claim, holds: Callable[[pd.Series], bool]) -> Judged:
    """Whether the values of each left, in the order of a column, are as they should be."""
    out = {}
    for left in claim.left:
        for where, part in _split(table[table["method"] == left], claim.along):
            seen = _means(part, claim.along).sort_index()
            if len(seen):
                out[f"{where} {left}"] = (bool(holds(seen)), _listed(seen).replace("+", ""))
    return out


def _at_most(table: pd.DataFrame, claim: Claim) -> Judged:
    """{measure} of {left} is at most {tolerance}"""
    return _each(table, claim, lambda value: value <= claim.tolerance)


def _at_least(table: pd.DataFrame, claim: Claim) -> Judged:
    """{measure} of {left} is at least {tolerance}"""
    return _each(table, claim, lambda value: value >= claim.tolerance)


def _each(table: pd.DataFrame, claim: Claim, holds: Callable[[float], bool]) -> Judged:
    """Whether the value of each left is as it should be."""
    return {
        f"{where} {left}": (bool(holds(value)), f"{value:.4g}")
        for where, part in _split(table)
        for left, value in _means(part).reindex(claim.left).items()
    }


def _within(table: pd.DataFrame, claim: Claim) -> Judged:
    """{measure} lies from {least} to {most}, give or take {tolerance}, for every method in every setting"""
    values = table["value"]
    outside = table[~values.between(claim.least - claim.tolerance, claim.most + claim.tolerance)]  # nan is outside
    said = f"{values.min():.4g} to {values.max():.4g}, n = {len(values)}"
    if len(outside):
        first = outside.iloc[0]
        where = ", ".join(str(first[c]) for c in [*varied(table), "method"])
        said += f", {len(outside)} outside, such as {first['value']:.4g} ({where})"
    return {"all": (outside.empty, said)}


def _at_most_times(table: pd.DataFrame, claim: Claim) -> Judged:
    """{measure} of {left} is at most {tolerance} times that of {right}"""
    return {
        f"{where} {named}".strip(): (bool(a <= claim.tolerance * b), f"{a:.4g} against {b:.4g}: {a / b:.3g} times")
        for where, part in _split(table)
        for named, a, b in _pairs(claim, _means(part))
    }


def _curves(table: pd.DataFrame) -> pd.DataFrame:
    """Bands across, settings down."""
    (by,) = varied(table) or ["method"]
    return table.groupby([by, "band"])["value"].mean(skipna=False).unstack("band")


def _lowest_band_largest(table: pd.DataFrame, claim: Claim) -> Judged:
    """the first band is at least (1 + {tolerance}) times every other band"""
    curves = _curves(table)
    rest = curves.iloc[:, 1:].max(axis=1, skipna=False)
    return {
        str(i): (bool(low >= (1 + claim.tolerance) * high), f"{low / high:.2f}x the next largest")
        for i, low, high in zip(curves.index, curves.iloc[:, 0], rest, strict=True)
    }


def _falls_with_band(table: pd.DataFrame, claim: Claim) -> Judged:
    """the rank correlation of value and band is at most -{tolerance}"""
    curves = _curves(table)
    ranks = curves.rank(axis=1).where(curves.notna().all(axis=1), axis=0)
    bands = ranks.columns.to_series().rank().to_numpy()
    return {
        str(i): (bool((r := _correlation(row.to_numpy(), bands)) <= -claim.tolerance), f"rank correlation {r:+.2f}")
        for i, row in ranks.iterrows()
    }


def _low_band_grows_with_skew(table: pd.DataFrame, claim: Claim) -> Judged:
    """from the largest alpha to the smallest the first band grows, and (1 + {tolerance}) times as much as the last"""
    curves = _curves(table)
    skewed, even = curves.loc[curves.index.min()], curves.loc[curves.index.max()]
    growth = skewed / even
    low, high = growth.iloc[0], growth.iloc[-1]
    said = f"first band x{low:.2f}, last band x{high:.2f}"
    true = bool(low >= (1 + claim.tolerance) * high and low > 1)
    return {f"{curves.index.max()} to {curves.index.min()}": (true, said)}


def _correlation(x: Any, y: Any) -> float:
    return float(np.corrcoef(x, y)[0, 1])


KINDS: dict[str, Callable[[Any, Claim], Judged]] = {
    "above": _above,
    "each_above": _each_above,
    "each_not_above": _each_not_above,
    "not_above": _not_above,
    "below": _below,
    "near": _near,
    "first": _first,
    "first_on_average": _first_on_average,
    "top": _top,
    "lowest": _lowest,
    "gain_grows": _gain_grows,
    "gain_shrinks": _gain_shrinks,
    "gain_positive": _gain_positive,
    "gain_gone": _gain_gone,
    "gain_flat": _gain_flat,
    "gain_least_at": _gain_least_at,
    "best_at": _best_at,
    "steadiest": _steadiest,
    "falls_along": _falls_along,
    "rises_along": _rises_along,
    "each_falls_along": _each_falls_along,
    "peaks_inside": _peaks_inside,
    "at_most": _at_most,
    "at_least": _at_least,
    "at_most_times": _at_most_times,
    "within": _within,
    "lowest_band_largest": _lowest_band_largest,
    "falls_with_band": _falls_with_band,
    "low_band_grows_with_skew": _low_band_grows_with_skew,
}
