"""How the rules read a tidy table: setting by setting, as a mean for each method or each value of a column."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from fednb.metrics.tidy import NOT_A_SETTING

if TYPE_CHECKING:
    import pandas as pd


def varied(table: pd.DataFrame, *but: str) -> list[str]:
    """The columns that tell settings apart: all with more than one value, except the ones named in `but`."""
    columns = [c for c in table if c not in (*NOT_A_SETTING, *but)]
    return [c for c in columns if table[c].nunique(dropna=False) > 1]


def by_setting(table: pd.DataFrame, *but: str) -> Iterator[tuple[str, pd.DataFrame]]:
    """The rows of each setting with its name, such as "alpha 0.1"; columns in `but` do not tell settings apart."""
    settings = varied(table, *but)
    if not settings:
        yield "all", table
        return
    for values, part in table.groupby(settings, sort=False, dropna=False):
        each = [(c, v) for c, v in zip(settings, values, strict=True) if v == v]  # a setting may lack what others have
        yield ", ".join(f"{c} {v:g}" if isinstance(v, float) else f"{c} {v}" for c, v in each) or "all", part


def means(part: pd.DataFrame, column: str = "method") -> pd.Series:
    """The mean value of each entry of a column; nan where one of its values is missing."""
    return part.groupby(column, sort=False)["value"].mean(skipna=False)


def listed(values: pd.Series, sign: str = "+") -> str:
    """Numbers with what they belong to, as text: "0.1: +2, 0.6: +1"; without signs of positive ones if sign is ""."""
    named = ((x if isinstance(x, str) else f"{x:g}", f"{v:+.3g}") for x, v in values.items())
    return ", ".join(f"{x}: {number}" for x, number in named).replace("+", sign)
