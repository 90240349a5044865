"""Claims as rules that a table can fail, and verdicts: holds, does not hold, or not decided."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import inf
from typing import TYPE_CHECKING, Any

from fednb.rules import KINDS, Judged

if TYPE_CHECKING:
    import pandas as pd

RULE = "holds: true in every setting and seed; does not hold: false in some setting for every seed; else not decided"
OF_ALL = ("first", "first_on_average", "top", "lowest", "steadiest")  # about one method among all of the paper
PAIRED = ("each_above", "each_not_above", "gain_least_at")  # kinds that take left and right two by two


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
        names = {side: _several(described[side]) for side in ("left", "right", "at") if side in described}
        claim = cls(paper, **described | names, printed=printed)
        if claim.kind not in KINDS:
            raise ValueError(f"claim {claim.id}: kind = {claim.kind!r}, must be one of {', '.join(KINDS)}")
        return claim

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
            mine = mine[[c for c in mine if c == "value" or mine[c].notna().any()]]  # no columns of other sections
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
    A number that is missing or not finite counts against the claim. At smoke scale the outcome only says that it ran.
    """
    import pandas as pd

    if isinstance(table, list):
        table = pd.concat(table, ignore_index=True)
    return pd.DataFrame([_row(table, claim, scale) for claim in claims]).set_index("claim")


def _row(table: pd.DataFrame, claim: Claim, scale: str) -> dict[str, Any]:
    mine = claim.about(table)
    absent = claim.absent(mine)
    asked = claim.without(absent)
    seeds = {seed: asked.judge(part) for seed, part in mine.groupby("seed")} if asked else {}
    settings = list(dict.fromkeys(setting for judged in seeds.values() for setting in judged))
    seeds = {seed: {s: judged.get(s, (False, "missing")) for s in settings} for seed, judged in seeds.items()}
    seen = "; ".join(f"{s}: {' | '.join(j[s][1] for j in seeds.values())}" for s in settings)
    if settings and absent:
        seen += f" (not run: {', '.join(absent)})"
    return {"claim": claim.id, "says": claim.says, "rule": f"{claim.rule} ({RULE})", "paper": _printed(claim),
            "ours": seen or "not run at this scale", "n": len(seeds),
            "verdict": _outcome(seeds, settings, scale, bool(absent))}  # fmt: skip


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
    judged = claim.judge(mine)
    said = "; ".join(f"{s}: {numbers}" for s, (_, numbers) in judged.items())
    wrong = [s for s, (true, _) in judged.items() if not true]
    return said + (f" (its own numbers fail the rule: {', '.join(wrong)})" if wrong else "")
