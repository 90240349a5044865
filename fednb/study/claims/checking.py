"""What `fn.verdict` takes: a table, claims and a scale, checked; refused in one line where they are something else."""

from __future__ import annotations

from collections.abc import Iterable
from math import nan
from typing import TYPE_CHECKING, Any

import numpy as np

from fednb.base.checks import is_number
from fednb.base.inputs import shown
from fednb.study.claims.claim import COLUMNS, BadClaim, BadTable, Claim
from fednb.study.claims.outcomes import WORDS
from fednb.study.claims.tables import columns_of_settings

if TYPE_CHECKING:
    import pandas as pd

SMOKE = "smoke"  # the scale that decides nothing


def checked_table(table: Any) -> pd.DataFrame:
    """A tidy table, or several below one another, with finite numbers or nan as values."""
    import pandas as pd

    several = list(table) if isinstance(table, list | tuple) else [table]
    if wrong := [each for each in several if not isinstance(each, pd.DataFrame)]:
        raise BadTable(
            f"claims are judged on a pandas.DataFrame, or a list of them, not on a {type(wrong[0]).__name__}"
        )
    if not several:
        return pd.DataFrame(columns=COLUMNS)
    whole = pd.concat(several, ignore_index=True) if len(several) > 1 else several[0].reset_index(drop=True)
    if lacking := [name for name in COLUMNS if name not in whole]:
        raise BadTable(f"the table that claims are judged on has no {lacking[0]!r}; it needs {', '.join(COLUMNS)}")
    _refuse_unclear(whole)
    return whole.assign(value=_floats(whole["value"]))


def _refuse_unclear(table: pd.DataFrame) -> None:
    """Refuse columns by which runs cannot be told apart."""
    if twice := table.columns[table.columns.duplicated()].tolist():
        raise BadTable(f"the table that claims are judged on has two columns {shown(twice[0])}")
    if table["seed"].isna().any():
        raise BadTable("the column 'seed' has empty places; it must say of every row which seed it is of")
    for name in columns_of_settings(table):
        if kinds := [value for value in table[name].head(1) if isinstance(value, list | dict | set | np.ndarray)]:
            raise BadTable(
                f"the column {shown(name)} has {shown(kinds[0])}, and settings are told apart by numbers or texts"
            )


def _floats(values: pd.Series) -> np.ndarray:
    """The values as finite numbers, nan for what is none; numbers that are written as texts are refused."""
    found = np.fromiter(map(_float, values), dtype=float)
    return np.where(np.isfinite(found), found, nan)


def _float(value: Any) -> float:
    if isinstance(value, str):
        try:
            float(value)
        except ValueError:
            return nan
        raise BadTable(
            f"the column 'value' has the text {shown(value)}; make it numbers first, as by pandas.to_numeric"
        )
    return float(value) if isinstance(value, float | bool | np.bool_) or is_number(value) else nan


def checked_claims(claims: Any) -> list[Claim]:
    """Claims, or one."""
    several = list(claims) if isinstance(claims, Iterable) and not isinstance(claims, str | dict) else [claims]
    for each in several:
        if not isinstance(each, Claim):
            raise BadClaim(
                f"{shown(each)} is no claim; make one with fn.Claim(paper=, id=, section=, says=, kind=, ...)"
            )
        each.check()
    return several


def check_scale(scale: Any) -> None:
    """Refuse a scale that there is not."""
    if scale not in (known := [SMOKE, *WORDS]):
        raise ValueError(f"no scale {shown(scale)}; the scales are {', '.join(sorted(known))}")
