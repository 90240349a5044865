"""Claims as rules that a table can fail, and verdicts: holds, does not hold, or not decided."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import inf
from typing import TYPE_CHECKING, Any

import numpy as np

from fednb.base.checks import is_number, is_text, passes
from fednb.base.inputs import closest, one_line, shown
from fednb.study.rules import KINDS, Judged, varied

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = ("method", "seed", "measure", "value")  # of every table that claims are judged on
RULE = "holds: true in every setting and seed; does not hold: false in some setting for every seed; else not decided"
OF_ALL = ("first", "first_on_average", "top", "lowest", "steadiest")  # about one method among all of the paper
PAIRED = ("each_above", "each_not_above", "gain_least_at")  # kinds that take left and right two by two
BETWEEN = ("gain_grows", "gain_shrinks", "gain_positive", "gain_gone", "gain_flat")  # from least to most of a column
BANDS = ("lowest_band_largest", "falls_with_band", "low_band_grows_with_skew")  # about curves over frequency bands
ALONG = ("first_on_average", "steadiest", "falls_along", "rises_along", "each_falls_along", "peaks_inside",
         "gain_least_at", *BETWEEN)  # fmt: skip
LEFT_ALONE = (*OF_ALL, *ALONG[:6], "best_at", "at_most", "at_least")  # all others compare left with right
AT = ("gain_least_at", "best_at")


class BadClaim(ValueError):
    """A claim that is not written as claims are."""


class BadTable(ValueError):
    """A table without the columns that every claim looks at."""


def _is_name(value: Any) -> bool:
    return is_text(value) and value != ""


def _is_cell(value: Any) -> bool:
    return isinstance(value, bool) or is_number(value) or is_text(value)


def _one_or_several(test: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda v: test(v) or (isinstance(v, list | tuple) and len(v) > 0 and all(map(test, v)))


Form = tuple[str, Callable[[Any], bool]]
NAME: Form = ("a text of one line", _is_name)
NAMES: Form = ("a name, or a list of names", _one_or_several(_is_name))
BOUND: Form = ("a number", lambda v: is_number(v) or (isinstance(v, float) and v in (inf, -inf)))
FORMS: dict[str, Form] = {
    "id": NAME,
    "section": NAME,
    "says": ("a text", lambda v: isinstance(v, str) and v != ""),
    "kind": NAME,
    "measure": NAME,
    "tolerance": ("a finite number", is_number),
    "left": NAMES,
    "right": NAMES,
    "where": ("a table of values, or of lists of them", lambda v: all(map(_one_or_several(_is_cell), v.values()))),
    "along": NAME,
    "at": NAMES,
    "least": BOUND,
    "most": BOUND,
    "table": NAME,
}
REQUIRED = ("id", "section", "says", "kind")


def _refuse_misspelled(described: dict[str, Any]) -> None:
    """Refuse a description with fields that are unknown, lacking, or of another kind than they should be."""
    who = f"claim {one_line(str(described.get('id', 'without id')), 80)}"
    for name in described:
        if name not in FORMS:
            raise BadClaim(f"{who}: no field {shown(name)}; closest: {closest(str(name), FORMS, ', '.join(FORMS))}")
    for name in REQUIRED:
        if name not in described:
            raise BadClaim(f"{who}: `{name}` is not there; it must be {FORMS[name][0]}")
    for name, value in described.items():
        allowed, test = FORMS[name]
        if not passes(test, value) and not (name in ("left", "right", "at", "where") and value in ((), {})):
            raise BadClaim(f"{who}: {name} = {shown(value)}, must be {allowed}")
    if described["kind"] not in KINDS:
        near = closest(described["kind"], KINDS)
        raise BadClaim(f"{who}: kind = {shown(described['kind'])}, must be one of {', '.join(KINDS)}; closest: {near}")


@dataclass(frozen=True)
class Claim:
    """One sentence of a paper as a rule that a table can fail.

    left, right: the methods it is about, by the names of the paper's table. where: the settings it is about; all if
    empty. along: the column it goes along, between `least` and `most`; at: values of it that it singles out. table: the
    printed table that it is read from.
    """

    paper: str
    id: str
    section: str
    says: str
    kind: str
    measure: str = "accuracy"
    tolerance: float = 0.0
    left: tuple[str, ...] = ()
    right: tuple[str, ...] = ()
    where: dict[str, Any] = field(default_factory=dict)
    along: str = ""
    at: tuple[str, ...] = ()
    least: float = -inf
    most: float = inf
    table: str = ""
    printed: Any = field(default=None, compare=False, repr=False)  # that table, tidy, where there is one

    @classmethod
    def of(cls, paper: str, described: dict[str, Any], printed: pd.DataFrame | None = None) -> Claim:
        """From a table of a claims file, whose entries are the fields; BadClaim where one is not as it should be."""
        _refuse_misspelled(described)
        names = {side: _several(described[side]) for side in ("left", "right", "at") if side in described}
        return cls(paper, **described | names, printed=printed)

    def check(self) -> None:
        """Refuse a claim that lacks what its kind looks at."""
        needed = ["left"] * (self.kind not in ("within", *BANDS)) + ["along"] * (self.kind in ALONG)
        needed += ["at"] * (self.kind in AT) + ["right"] * (self.kind not in ("within", *BANDS, *LEFT_ALONE))
        if lacking := [name for name in needed if not getattr(self, name)]:
            raise BadClaim(f"claim {one_line(self.id, 80)}: a claim of the kind {self.kind} needs `{lacking[0]}`")
        if self.kind in PAIRED and len(self.left) != len(self.right):
            counts = f"{len(self.left)} and {len(self.right)} names"
            raise BadClaim(f"claim {one_line(self.id, 80)}: {self.kind} takes left and right two by two, not {counts}")

    @property
    def rule(self) -> str:
        """What is tested, in words, with the names and numbers of this claim."""
        words = {name: getattr(self, name) for name in ("along", "measure", "tolerance", "least", "most")}
        words |= {side: " and ".join(getattr(self, side)) for side in ("left", "right", "at")}
        there = f" ({', '.join(f'{k} {_words(v)}' for k, v in self.where.items())})" if self.where else ""
        return (KINDS[self.kind].__doc__ or "").format(**words) + there

    def about(self, table: pd.DataFrame) -> pd.DataFrame:
        """The rows of a tidy table that the claim is about: its section's, its measure, its settings."""
        mine = table[table["measure"] == self.measure]
        if "grid" in mine:
            mine = mine[mine["grid"] == self.section]
            mine = mine[[c for c in mine if c in COLUMNS or mine[c].notna().any()]]  # no columns of other sections
        for column, value in self.where.items():
            if column in mine:
                mine = mine[mine[column].isin(value if isinstance(value, list) else [value])]
        return mine

    def absent(self, mine: pd.DataFrame) -> list[str]:
        """The methods that it is about and that were not run at all; of the first of all, those that the paper has."""
        named = [*self.left, *self.right]
        if self.kind in OF_ALL and self.printed is not None:
            named += list(self.about(self.printed)["method"])
        return [name for name in dict.fromkeys(named) if name not in set(mine["method"])]

    def without(self, absent: list[str]) -> Claim | None:
        """The claim about the methods that were run; nothing where none are left."""
        if self.kind in PAIRED:
            pairs = [p for p in zip(self.left, self.right, strict=True) if not set(p) & set(absent)]
            left, right = tuple(a for a, _ in pairs), tuple(b for _, b in pairs)
        else:
            left, right = (tuple(name for name in side if name not in absent) for side in (self.left, self.right))
        lost = (self.left and not left) or (self.right and not right)
        return None if lost else replace(self, left=left, right=right)

    def unfit(self, mine: pd.DataFrame) -> str:
        """Why rows that the claim is about cannot be judged; nothing where they can."""
        looked_at = [self.along] * (self.kind in ALONG) + ["band"] * (self.kind in BANDS)
        if lacking := [name for name in looked_at if name not in mine]:
            return f"the table has no column {shown(lacking[0])}"
        if self.kind in BANDS and len(apart := varied(mine)) > 1:
            return f"bands are compared along one setting, not along {one_line(', '.join(map(str, apart)), 100)}"
        for name in looked_at + (varied(mine) if self.kind in BANDS else []):
            kinds = {"text" if isinstance(v, str) else "number" for v in mine[name].dropna()}
            if len(kinds) > 1 or (self.kind in BETWEEN and "text" in kinds):
                return f"the column {shown(name)} must have numbers alone"
        return ""

    def not_finite(self, mine: pd.DataFrame) -> list[str]:
        """The numbers that it depends on and that are missing or not finite, by method and seed."""
        if self.kind not in OF_ALL and self.left:
            mine = mine[mine["method"].isin([*self.left, *self.right])]
        if self.kind in BETWEEN:
            mine = mine[mine[self.along].isna() | mine[self.along].between(self.least, self.most)]
        broken = mine[~np.isfinite(mine["value"]) | mine["seed"].isna() | mine["method"].isna()]
        return list(dict.fromkeys(f"{m} seed {s}: {v:g}" for m, s, v in broken[["method", "seed", "value"]].to_numpy()))

    def judge(self, table: pd.DataFrame) -> Judged:
        """For one seed: setting -> (true or false, the numbers)."""
        return KINDS[self.kind](table, self)


def _several(names: str | list[str]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)


def _words(value: Any) -> str:
    return " or ".join(map(str, value)) if isinstance(value, list) else str(value)


def verdict(
    table: pd.DataFrame | list[pd.DataFrame], claims: tuple[Claim, ...] | list[Claim], scale: str
) -> pd.DataFrame:
    """One row per claim: the rule, what the paper prints, what was seen, and the outcome.

    `table`, one or several, is tidy: columns that name the setting, method, seed, measure, value; rounds are averaged.
    A number that is missing or not finite counts against the claim, and no claim holds that depends on one. At smoke
    scale the outcome only says that it ran.
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
    return {"claim": claim.id, "says": claim.says, "rule": f"{claim.rule} ({RULE})", "paper": _printed(claim),
            "ours": ours, "n": n, "verdict": outcome}  # fmt: skip


def _outcome(seeds: dict[Any, Judged], settings: list[str], scale: str, partly: bool) -> str:
    if not settings:
        return f"not run at {scale} scale"
    if scale == "smoke":
        return "ran (smoke scale decides nothing)"
    votes = [[judged[setting][0] for judged in seeds.values()] for setting in settings]
    if any(not any(v) for v in votes):
        return "does not hold"
    return "not decided" if partly or not all(all(v) for v in votes) else "holds"


def _printed(claim: Claim) -> str:
    """The same rule on the paper's own numbers."""
    mine = None if claim.printed is None else claim.about(claim.printed)
    if mine is None or mine.empty:
        return "no numbers printed"
    if unfit := claim.unfit(mine):
        return f"cannot be judged: {unfit}"
    judged = claim.judge(mine)
    said = "; ".join(f"{s}: {numbers}" for s, (_, numbers) in judged.items())
    wrong = [s for s, (true, _) in judged.items() if not true]
    return said + (f" (its own numbers fail the rule: {', '.join(wrong)})" if wrong else "")
