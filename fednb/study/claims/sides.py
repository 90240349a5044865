"""Two sides of a comparison: left against right, with what it means that one of them diverged or never gets there."""

from __future__ import annotations

from collections.abc import Iterator
from math import isfinite, log, nan
from typing import TYPE_CHECKING, Any

from fednb.study.claims.claim import Claim
from fednb.study.claims.comparison import Seen, plain
from fednb.study.claims.tables import END, Where, by_setting, means

if TYPE_CHECKING:
    import pandas as pd

OF_FEDAVG = ("relative_comm", "relative_passes")  # in units of what FedAvg sends or computes in all its rounds
TO_TARGET = ("rounds", "seconds_total", *OF_FEDAVG)  # measures of reaching a target
LATER = 1.01  # who never gets there takes so many times what the last one took, where no end is known


def each_setting(table: pd.DataFrame, claim: Claim, *but: str) -> Iterator[tuple[Where, dict[str, float], float]]:
    """Each setting, the value of every method there, and what counts for one that never gets there."""
    for where, part in by_setting(table, *but):
        yield where, means(part).to_dict(), past_the_end(part, claim)


def past_the_end(part: pd.DataFrame, claim: Claim) -> float:
    """One round past the end for a run that never reaches a target; nan for other measures.

    The end is the table's column `end`; without one, the latest that anyone got there. Where the measure is a share of
    FedAvg's whole run, each of its rounds counts as no more than one of FedAvg's.
    """
    if claim.measure not in TO_TARGET:
        return nan
    last = float(part["value"].max())
    rounds = float(part[END].max()) if END in part else nan
    if claim.measure == "rounds":
        return (rounds if isfinite(rounds) else last) + 1
    whole = 1 + 1 / rounds if claim.measure in OF_FEDAVG and isfinite(rounds) else 0.0
    return max(last * LATER, whole)


def difference(
    claim: Claim, where: Where, values: dict[str, float], end: float, left: str, right: str, sign: int = 1, **more: Any
) -> list[Seen]:
    """Left minus right (sign 1) or right minus left (sign -1); nothing where one of the two was not run.

    Numbers about reaching a target are compared as logarithms; who never gets there counts as `end`, and where both do
    not, that says nothing. A rival without accuracy diverged and is behind.
    """
    if left not in values or right not in values:
        return []
    a, b = values[left], values[right]
    how: dict[str, Any] = {"bound": claim.tolerance, "said": "{} against {}"} | more
    if claim.measure in TO_TARGET:
        return _arrivals(where, a, b, end, sign, how)
    accurate = "accuracy" in claim.measure
    lost = not isfinite(a) and (sign > 0 or not accurate)  # a diverged left is below, but it has shown nothing
    behind = isfinite(a) and not isfinite(b) and sign > 0 and accurate and not how.get("inside")
    return [Seen(where, sign * (a - b), numbers=(a, b), sign=sign, lost=lost, behind=behind, **how)]


def _arrivals(where: Where, a: float, b: float, end: float, sign: int, how: dict[str, Any]) -> list[Seen]:
    """When two get to a target, as the logarithm of how many times longer one takes than the other."""
    if not isfinite(a) and not isfinite(b):
        return []
    a, b = (value if isfinite(value) else end for value in (a, b))
    inside, shift = how.get("inside"), how["bound"]
    if inside:
        return [Seen(where, a - b, numbers=(a, b), **how)]
    more, less = (a, b) if sign > 0 else (b, a)
    more, less = (more, less + shift) if shift >= 0 else (more - shift, less)
    d = log(more) - log(less) if min(more, less) > 0 else nan
    return [Seen(where, d, numbers=(a, b), log=True, **how | {"bound": 0.0})]


def pairs(claim: Claim) -> Iterator[tuple[str, str, str]]:
    """Every left with every right, and what the two are called where there are several."""
    for left in claim.left:
        for right in claim.right:
            yield left, right, f"{left} − {right}" if len(claim.left) * len(claim.right) > 1 else ""


def matched(claim: Claim) -> Iterator[tuple[str, str, str]]:
    """Left and right taken two by two, and what the two are called: left, or both where it stands there twice."""
    for left, right in dict.fromkeys(zip(claim.left, claim.right, strict=True)):
        yield left, right, left if claim.left.count(left) == 1 else f"{left} − {right}"


def block_of(where: Where, *names: str) -> str:
    """The name of comparisons that share runs: those of one setting, or of one method in it."""
    return f"{sorted(where.items(), key=str)} {' '.join(names)}"


def named(name: object, sign: str = "") -> str:
    """A place for a number, after the name that it belongs to."""
    return f"{plain(str(name))}{sign} {{}}"
