"""How the kinds of claims read a tidy table: setting by setting, as a mean for each method or value of a column."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from fednb.metrics.tidy import NOT_A_SETTING

if TYPE_CHECKING:
    import pandas as pd

Where = dict[str, Any]  # a setting: the value of each column that it has one in
CIRCUMSTANCES = ("precision", "tuned", "protocol")  # columns about all rows of a run; they tell no settings apart
END = "end"  # column with the number of rounds of a run, where a table about rounds to a target has it


def columns_of_settings(table: pd.DataFrame, *but: str) -> list[str]:
    """The columns that can tell settings apart, except the ones named in `but`."""
    return [c for c in table if c not in (*NOT_A_SETTING, *CIRCUMSTANCES, END, *but)]


def varied(table: pd.DataFrame, *but: str) -> list[str]:
    """The columns that tell settings apart: all with more than one value, except the ones named in `but`."""
    return [c for c in columns_of_settings(table, *but) if table[c].nunique(dropna=False) > 1]


def by_setting(table: pd.DataFrame, *but: str) -> Iterator[tuple[Where, pd.DataFrame]]:
    """Each setting with its rows; columns in `but` do not tell settings apart."""
    columns = columns_of_settings(table, *but)
    if not columns:
        yield {}, table
        return
    for values, part in table.groupby(columns, sort=False, dropna=False):
        yield {c: v for c, v in zip(columns, values, strict=True) if v == v and v is not None}, part


def names_of(settings: list[Where]) -> list[str]:
    """Settings by what tells them apart, such as "alpha 0.1"; "all" for one alone."""
    columns = list(dict.fromkeys(c for where in settings for c in where))
    apart = [c for c in columns if len({where.get(c) for where in settings}) > 1]
    return [", ".join(f"{c} {shown(where[c])}" for c in apart if c in where) or "all" for where in settings]


def compatible(one: Where, other: Where) -> bool:
    """True if two settings agree in every column that both have."""
    return all(one[c] == other[c] for c in one if c in other)


def means(part: pd.DataFrame, column: str = "method") -> pd.Series:
    """The mean value of each entry of a column; nan where one of its values is missing."""
    import pandas as pd

    entries = part[column]
    if entries.is_unique and not entries.hasnans:  # as in most settings of one seed: nothing to average
        return pd.Series(part["value"].to_numpy(), index=pd.Index(entries), name="value")
    return part.groupby(column, sort=False)["value"].mean(skipna=False)


def shown(value: Any) -> str:
    """A value of a column as text: 0.1, 20, CIFAR-10."""
    return f"{value:g}" if isinstance(value, float) else str(value)
