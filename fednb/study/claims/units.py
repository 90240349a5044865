"""Effects in units of the printed ones: differences as they are, factors by their logarithms."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf, isclose, isfinite, log, nan
from typing import Any

from fednb.study.claims.judging import NUMBERS


def in_printed_units(row: Mapping[str, Any]) -> dict[str, float] | None:
    """The numbers of a verdict so that 0 is no effect and 1 what is printed, or −1 where that is a loss.

    row: of `fn.verdict`'s table. None where there is nothing to compare: no number of ours or of the paper's, no
    printed effect, or a sentence about a range. Half as many rounds where a third is printed is 0.63, and twice as
    many is −0.63: the logarithms of factors are divided, and a factor of 1 is no effect.

    >>> in_printed_units(dict(reading="above", effect=2.0, low=1.0, high=3.0, bound=0.0, printed=4.0, ratio=0.5))
    {'effect': 0.5, 'low': 0.25, 'high': 0.75, 'bound': 0.0, 'printed': 1.0}
    >>> in_printed_units(dict(reading="above", effect=0.5, low=0.25, high=1.0, bound=1.0, printed=2.0, ratio=-1.0))
    {'effect': -1.0, 'low': -2.0, 'high': 0.0, 'bound': 0.0, 'printed': 1.0}
    """
    effect, printed = (_number(row[name]) for name in ("effect", "printed"))
    if row["reading"] != "above" or not isfinite(effect) or not isfinite(printed) or printed == 0:
        return None
    told = {name: _number(row.get(name)) for name in NUMBERS}
    ratio = _number(row.get("ratio", effect / printed))
    if not isfinite(ratio):
        return None  # a printed factor of 1 is no effect
    if not isclose(ratio, effect / printed, rel_tol=1e-6, abs_tol=1e-9):  # it is that of logarithms
        told = {name: log(value) if value > 0 else -inf if value == 0 else nan for name, value in told.items()}
    return {name: value / abs(told["printed"]) for name, value in told.items()}


def _number(value: Any) -> float:
    """A number; nan in place of a text or nothing."""
    return float(value) if isinstance(value, int | float) else nan
