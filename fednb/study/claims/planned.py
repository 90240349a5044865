"""What of a claim was run, of all that is to be: values along its column, settings, and rivals in each of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fednb.metrics.tidy import is_control
from fednb.study.claims.claim import Claim
from fednb.study.claims.tables import columns_of_settings

if TYPE_CHECKING:
    import pandas as pd

Found = dict[tuple[Any, ...], set[Any]]  # by setting, as values of columns: what another column has there


def values_run(claim: Claim, mine: pd.DataFrame) -> tuple[int, int]:
    """How many values along its column were run, of how many that are to be; for the method that lacks most of them.

    mine: rows that the claim is about; a value counts where all seeds have it. Who was not run at all in a setting is
    not counted, nor what lies beyond the claim's `least` and `most`.
    """
    planned = claim.planned
    if planned is None or not claim.line or claim.line not in planned or claim.line not in mine:
        return 0, 0
    told = ["method", *_told(claim, mine)]
    by_seed = [_lines(claim, part, told) for _, part in mine.groupby("seed")]
    counts = []
    for line, values in _lines(claim, planned, told).items():
        if ran := [each[line] for each in by_seed if line in each]:
            counts.append((len(values.intersection(*ran)), len(values)))
    return min(counts, key=lambda count: count[0] - count[1], default=(0, 0))


def settings_run(claim: Claim, mine: pd.DataFrame) -> tuple[int, int]:
    """How many settings were run, of how many that are to be."""
    if claim.planned is None or not (told := _told(claim, mine)):
        return 0, 0
    ran, asked = (set(_cells(claim, table, told, "method")) for table in (mine, claim.planned))
    return len(asked & ran), len(asked)


def rivals_lacking(claim: Claim, mine: pd.DataFrame) -> list[str]:
    """Rivals that were run in some settings and are missing in others, where the claim's own method was run.

    Those that were run in no setting are the claim's `absent`.
    """
    if claim.planned is None or not claim.rule_kind.of_all:
        return []
    told = _told(claim, mine)
    ran, asked = (_cells(claim, table, told, "method") for table in (mine, claim.planned))
    shared = [setting for setting in asked if ran.get(setting, set()) & set(claim.left)]
    rivals = (name for setting in shared for name in sorted(asked[setting] - ran[setting]))
    known = {name for name in mine["method"] if name in claim.right or not is_control(name)}
    return [name for name in dict.fromkeys(rivals) if name in known]


def _told(claim: Claim, mine: pd.DataFrame) -> list[str]:
    """The columns that tell settings apart, in a table and in what is planned, but the one along which it goes."""
    return [c for c in columns_of_settings(mine, claim.line) if c in claim.planned]


def _lines(claim: Claim, table: pd.DataFrame, columns: list[str]) -> Found:
    """The values along the claim's column, from its `least` to its `most`."""
    rows = table[table[claim.line].notna()]
    if claim.rule_kind.between:
        rows = rows[rows[claim.line].between(claim.least, claim.most)]
    return _cells(claim, rows, columns, claim.line)


def _cells(claim: Claim, table: pd.DataFrame, columns: list[str], of: str) -> Found:
    """What a column has in each setting, in rows that the claim is about."""
    named = {*claim.left, *claim.right}
    rows = table if claim.rule_kind.of_all or not named else table[table["method"].isin(named)]
    found: Found = {}
    for *setting, value in claim.fitting(rows)[[*columns, of]].itertuples(index=False):
        found.setdefault(tuple(None if cell != cell else cell for cell in setting), set()).add(value)
    return found
