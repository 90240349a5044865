"""Verdicts on claims: holds, does not hold, or not decided."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fednb.base.checks import is_number
from fednb.base.inputs import one_line
from fednb.study.claims.claim import COLUMNS, BadTable, Claim, Judged

if TYPE_CHECKING:
    import pandas as pd

OUTCOMES = (
    "holds: true in every setting and seed; does not hold: false in some setting for every seed; else not decided"
)


def verdict(
    table: pd.DataFrame | list[pd.DataFrame], claims: tuple[Claim, ...] | list[Claim], scale: str
) -> pd.DataFrame:
    """One row per claim: the rule, what the paper prints, what was seen, and the outcome.

    `table`, one or several, is tidy: columns that name the setting, method, seed, measure, value; rounds are averaged.
    A number that is missing or not finite counts against the claim, and no claim holds that depends on one. At smoke
    scale the outcome only says that it ran.

    >>> from fednb.study.claims import Claim
    >>> rule = dict(kind="at_most", left=("FedAvg",), measure="drift", tolerance=7.0)
    >>> claim = Claim(paper="fedfft", section="fig1", id="near", says="clients stay near", **rule)
    >>> table = pd.DataFrame({"method": "FedAvg", "seed": [0, 1, 2], "measure": "drift", "value": [5.0, 4.0, 6.0]})
    >>> fn.verdict(table, [claim], scale="laptop")[["n", "verdict"]]
           n verdict
    claim
    near   3   holds
    """
    import pandas as pd

    if isinstance(table, list):
        table = pd.concat(table, ignore_index=True) if table else pd.DataFrame(columns=COLUMNS)
    if lacking := [name for name in COLUMNS if name not in table]:
        raise BadTable(f"the table that claims are judged on has no {lacking[0]!r}; it needs {', '.join(COLUMNS)}")
    table = table.assign(value=_floats(table["value"]))
    rows = [_row(table, claim, scale) for claim in claims]
    return pd.DataFrame(rows, columns=["claim", "says", "rule", "paper", "ours", "n", "verdict"]).set_index("claim")


def _floats(values: pd.Series) -> np.ndarray:
    """The values as numbers, nan for what is none."""
    numbers = (float(v) if isinstance(v, float | bool | np.bool_) or is_number(v) else np.nan for v in values)
    return np.fromiter(numbers, dtype=float)


def _row(table: pd.DataFrame, claim: Claim, scale: str) -> dict[str, Any]:
    """The row of one claim: judged seed by seed on the rows of the table that it is about."""
    claim.check()
    mine = claim.about(table)
    absent = claim.absent(mine)
    asked = claim.without(absent) if not mine.empty else None
    unfit = asked.unfit(mine) if asked else ""
    broken = asked.not_finite(mine) if asked and not unfit else []
    seeds = {seed: asked.judge(part) for seed, part in mine.groupby("seed")} if asked and not unfit else {}
    settings = list(dict.fromkeys(setting for judged in seeds.values() for setting in judged))
    seeds = {seed: {s: judged.get(s, (False, "missing")) for s in settings} for seed, judged in seeds.items()}
    seen = "; ".join(f"{s}: {' | '.join(j[s][1] for j in seeds.values())}" for s in settings)
    if settings and absent:
        seen += f" (not run: {', '.join(map(str, absent))})"
    if broken:
        seen = f"{seen} (not finite: {one_line(', '.join(broken), 200)})".lstrip()
    if unfit:
        return _judged(claim, f"cannot be judged: {unfit}", 0, "not decided")
    outcome = _outcome(seeds, settings, scale, bool(absent or broken)) if settings or not broken else "not decided"
    return _judged(claim, seen or "not run at this scale", len(seeds), outcome)


def _judged(claim: Claim, ours: str, n: int, outcome: str) -> dict[str, Any]:
    """The columns of one row; n: of how many seeds."""
    return {"claim": claim.id, "says": claim.says, "rule": f"{claim.rule} ({OUTCOMES})", "paper": _printed(claim),
            "ours": ours, "n": n, "verdict": outcome}  # fmt: skip


def _outcome(seeds: dict[Any, Judged], settings: list[str], scale: str, partly: bool) -> str:
    """The verdict from what was judged of each seed; partly: methods or numbers that the claim is about are missing."""
    if not settings:
        return f"not run at {scale} scale"
    if scale == "smoke":
        return "ran (smoke scale decides nothing)"
    votes = [[judged[setting][0] for judged in seeds.values()] for setting in settings]
    if any(not any(v) for v in votes):
        return "does not hold"
    return "not decided" if partly or not all(all(v) for v in votes) else "holds"


def _printed(claim: Claim) -> str:
    """What the rule makes of the numbers that the paper prints, in words; settings where they fail it are named."""
    mine = None if claim.printed is None else claim.about(claim.printed)
    if mine is None or mine.empty:
        return "no numbers printed"
    if unfit := claim.unfit(mine):
        return f"cannot be judged: {unfit}"
    judged = claim.judge(mine)
    said = "; ".join(f"{s}: {numbers}" for s, (_, numbers) in judged.items())
    wrong = [s for s, (true, _) in judged.items() if not true]
    return said + (f" (its own numbers fail the rule: {', '.join(wrong)})" if wrong else "")
