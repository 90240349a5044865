"""A claim, as papers/<id>/claims.toml has it, and the kinds of rules that it can be.

A kind of rule is a function from the rows of one seed and a claim to the comparisons that the sentence makes, each a
number that should be above a bound. It is registered by `@rule` in one of the files beside this one, and `Claim.kind`
names it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from math import inf
from typing import TYPE_CHECKING, Any

import numpy as np

from fednb.base.checks import is_number, is_text, passes
from fednb.base.inputs import closest, one_line, shown
from fednb.study.claims.comparison import Seen
from fednb.study.claims.tables import varied

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = ("method", "seed", "measure", "value")  # of every table that claims are judged on
PRINTED = ("method", "measure", "value")  # of every printed table
WEIGHTS = ("headline", "table", "detail")  # what a paper is known for; the rest of its tables; what is said beside
MANY = 10**6  # methods: more than any table has
SKEW = "alpha"  # the column along which bands are compared where settings differ by more than one


class BadClaim(ValueError):
    """A claim that lacks a field, or has one that is unknown or of another kind than it should be."""


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
YES_NO: Form = ("true or false", lambda v: isinstance(v, bool))
BOUND: Form = ("a number", lambda v: is_number(v) or (isinstance(v, float) and v in (inf, -inf)))
FORMS: dict[str, Form] = {
    "id": NAME,
    "section": NAME,
    "says": ("a text", lambda v: isinstance(v, str) and v != ""),
    "kind": NAME,
    "measure": NAME,
    "or_measure": NAMES,
    "tolerance": ("a finite number", is_number),
    "left": NAMES,
    "right": NAMES,
    "where": ("a table of values, or of lists of them", lambda v: all(map(_one_or_several(_is_cell), v.values()))),
    "along": NAME,
    "at": NAMES,
    "least": BOUND,
    "most": BOUND,
    "table": NAME,
    "weight": (" | ".join(WEIGHTS), lambda v: v in WEIGHTS),
    "by_construction": YES_NO,
    "tuned": YES_NO,
}
REQUIRED = ("id", "section", "says", "kind")
SEVERAL = ("left", "right", "at", "or_measure")  # fields of one name or several
EMPTY: tuple[Any, ...] = ((), {}, "")  # fields that say nothing
Test = Callable[[Any, "Claim"], list[Seen]]


@dataclass(frozen=True)
class Claim:
    """One sentence of a paper as a rule that a table can fail; `fn.verdict` judges it.

    left, right: the methods it is about, one name or several, as in the paper's table. kind: what it says of them, such
    as "above" (by more than `tolerance`), "near" (within it) or "first" (of all). measure: what is compared;
    or_measure: other measures, one or several, where it is enough that one of all is as the sentence says. where: the
    settings it is about; all if empty. along: the column it goes along, between `least` and `most`; at: values of it
    that it singles out. table: the printed table that it is read from. weight: how much hangs on it, headline, table or
    detail. by_construction: what it says cannot be otherwise. tuned: the paper tuned the methods that it compares.
    printed: the printed numbers, a tidy table like the one that is judged; its settings are the ones claimed. planned:
    all that is to be run, a row for each method in each setting: where only some values along a column were, the
    verdict says so, and what is said of the whole line does not fail on a part of it.

    >>> claim = fn.Claim(paper="mine", id="helps", section="table1", says="A is better than B", kind="above",
    ...                  left="A", right="B", tolerance=0.5)
    >>> claim.left, claim.rule
    (('A',), 'accuracy of A is above that of B by more than 0.5')
    """

    paper: str
    id: str
    section: str
    says: str
    kind: str
    measure: str = "accuracy"
    tolerance: float = 0.0
    left: Sequence[str] = ()
    right: Sequence[str] = ()
    where: dict[str, Any] = field(default_factory=dict)
    along: str = ""
    at: Sequence[str] = ()
    least: float = -inf
    most: float = inf
    table: str = ""
    weight: str = "table"
    by_construction: bool = False
    tuned: bool = False
    or_measure: Sequence[str] = ()
    printed: Any = field(default=None, compare=False, repr=False)  # that table, tidy, where there is one
    planned: Any = field(default=None, compare=False, repr=False)  # a table with the columns of the one that is judged

    def __post_init__(self) -> None:
        given = {name: getattr(self, name) for name in FORMS}
        _refuse_misspelled({name: value for name, value in given.items() if name in REQUIRED or value not in EMPTY})
        where = {k: list(v) if isinstance(v, tuple) else v for k, v in self.where.items()}
        object.__setattr__(self, "where", where)
        for side in SEVERAL:
            names = _several(given[side])
            object.__setattr__(self, side, names if self.rule_kind.paired else tuple(dict.fromkeys(names)))

    @classmethod
    def of(cls, paper: str, described: dict[str, Any], printed: pd.DataFrame | None = None) -> Claim:
        """From a table of a claims file, whose entries are the fields; BadClaim where one is not as it should be."""
        _refuse_misspelled(described)
        return cls(paper, **described, printed=printed)

    @property
    def measures(self) -> tuple[str, ...]:
        """What is compared: the measure, and those of which one is enough instead of it."""
        return tuple(dict.fromkeys((self.measure, *self.or_measure)))

    @property
    def rule_kind(self) -> Rule:
        """The registered rule that `kind` names."""
        return RULES[self.kind]

    @property
    def line(self) -> str:
        """The column that it goes along, its own or that of its kind; an empty text if none."""
        return self.along or self.rule_kind.along

    def check(self) -> None:
        """Refuse a claim that lacks what its kind looks at."""
        if lacking := [name for name in self.rule_kind.needs if not getattr(self, name)]:
            raise BadClaim(f"claim {one_line(self.id, 80)}: a claim of the kind {self.kind} needs `{lacking[0]}`")
        if self.rule_kind.paired and len(self.left) != len(self.right):
            counts = f"{len(self.left)} and {len(self.right)} names"
            raise BadClaim(f"claim {one_line(self.id, 80)}: {self.kind} takes left and right two by two, not {counts}")
        pairs = zip(self.left, self.right, strict=True) if self.rule_kind.paired else product(self.left, self.right)
        if same := [left for left, right in pairs if left == right]:
            who = f"claim {one_line(self.id, 80)}"
            raise BadClaim(f"{who}: {shown(same[0])} is on both sides; left and right must differ")
        if self.rule_kind.spread and self.tolerance < 0:
            raise BadClaim(
                f"claim {one_line(self.id, 80)}: tolerance = {self.tolerance}, must be at least 0 for a spread"
            )
        if self.printed is not None and (lacking := [name for name in PRINTED if name not in self.printed]):
            raise BadClaim(f"claim {one_line(self.id, 80)}: its printed table has no {shown(lacking[0])}")
        if self.planned is not None and "method" not in self.planned:
            raise BadClaim(f"claim {one_line(self.id, 80)}: its planned table has no 'method'")
        if self.or_measure and self.rule_kind.options:
            raise BadClaim(f"claim {one_line(self.id, 80)}: a claim of the kind {self.kind} has no `or_measure`")

    @property
    def rule(self) -> str:
        """What is tested, in words, with the names and numbers of this claim."""
        words = {name: getattr(self, name) for name in ("along", "tolerance", "least", "most")}
        words["measure"] = " or ".join(self.measures)
        words |= {side: " and ".join(getattr(self, side)) for side in ("left", "right", "at")}
        there = f" ({', '.join(f'{k} {_words(v)}' for k, v in self.where.items())})" if self.where else ""
        return self.rule_kind.words.format(**words) + there

    def about(self, table: pd.DataFrame) -> pd.DataFrame:
        """The rows of a tidy table that the claim is about: its section's, its measure, its settings."""
        mine = table[table["measure"].isin(self.measures)]
        if "grid" in mine:
            mine = mine[mine["grid"] == self.section]
            mine = mine[[c for c in mine if c in COLUMNS or mine[c].notna().any()]]  # no columns of other sections
        return self.fitting(mine)

    def fitting(self, rows: pd.DataFrame) -> pd.DataFrame:
        """The rows that have the values which `where` names, as far as there are such columns."""
        for column, value in self.where.items():
            if column in rows:
                rows = rows[rows[column].isin(value if isinstance(value, list) else [value])]
        return rows

    def absent(self, mine: pd.DataFrame) -> list[str]:
        """The methods that it is about and that were not run at all; of the first of all, those that the paper has.

        A claim on the first of all may list the others in `where`.
        """
        named = [*self.left, *self.right]
        if self.rule_kind.of_all and isinstance(listed := self.where.get("method"), list):
            named += listed
        if self.rule_kind.of_all and self.printed is not None:
            named += list(self.about(self.printed)["method"])
        return [name for name in dict.fromkeys(named) if name not in set(mine["method"])]

    def without(self, absent: list[str]) -> Claim | None:
        """The claim about the methods that were run; None where none are left."""
        if self.rule_kind.paired:
            pairs = [p for p in zip(self.left, self.right, strict=True) if not set(p) & set(absent)]
            left, right = tuple(a for a, _ in pairs), tuple(b for _, b in pairs)
        else:
            left, right = (tuple(name for name in side if name not in absent) for side in (self.left, self.right))
        lost = (self.left and not left) or (self.right and not right)
        return None if lost else replace(self, left=left, right=right)

    def unfit(self, mine: pd.DataFrame) -> str:
        """Why rows that the claim is about cannot be judged; an empty text where they can."""
        rule = self.rule_kind
        looked_at = [self.along] * ("along" in rule.needs) + ["band"] * rule.bands
        if lacking := [name for name in looked_at if name not in mine]:
            return f"the table has no column {shown(lacking[0])}"
        if rule.bands and len(apart := varied(mine)) > 1 and SKEW not in apart:
            said = one_line(", ".join(map(str, apart)), 100)
            return f"bands are compared along one setting, or along {SKEW} in each of several, not along {said}"
        for name in looked_at + (varied(mine) if rule.bands else []):
            kinds = {"text" if isinstance(v, str) else "number" for v in mine[name].dropna()}
            if len(kinds) > 1 or (rule.between and "text" in kinds):
                return f"the column {shown(name)} must have numbers alone"
        return ""

    def unknown(self, mine: pd.DataFrame) -> str:
        """Which column `where` names that neither the table nor the printed one has, in words; an empty text if none.

        mine: rows that the claim is about. A printed table may tell more settings apart than ours.
        """
        known = {*mine, *(() if self.printed is None else self.printed)}
        names = [name for name in self.where if name not in known]
        return f"the table has no column {shown(names[0])}, which `where` names" if names else ""

    @property
    def parts(self) -> int:
        """How many alternatives there are, of which one is enough: measures, or pairs of methods."""
        if self.rule_kind.paired and self.rule_kind.options:
            return len(set(zip(self.left, self.right, strict=True)))
        return len(self.measures)

    @property
    def spare(self) -> int:
        """How many comparisons of a setting may fail: of the methods above the left, all but one of `most`."""
        return int(min(max(self.most, 1), MANY)) - 1 if self.rule_kind.several else 0

    def seen(self, table: pd.DataFrame) -> list[Seen]:
        """What the rows of one seed say: the comparisons that the sentence makes."""
        with np.errstate(all="ignore"):
            if len(self.measures) == 1:
                return self.rule_kind.test(table, self)
            return [
                replace(seen, option=measure, unit=measure, pair=f"{measure} {seen.pair}".strip())
                for measure in self.measures
                for seen in replace(self, measure=measure, or_measure=()).seen(table[table["measure"] == measure])
            ]


@dataclass(frozen=True)
class Rule:
    """A kind of rule that claims can be.

    test: from the rows of one seed and the claim to its comparisons. needs: the fields of a claim that it looks at.
    paired: left and right are taken two by two. of_all: about one method among all of the paper. several: some others
    may be ahead, fewer than the claim's `most`. between: along a column of numbers, from the claim's `least` to its
    `most`. whole: about a whole line along a column, so that a part of it cannot fail. along: that column, where it is
    the same for all claims. of_settings: about one setting among all. bands: about curves over frequency bands. margin:
    before it fails, even a quarter of the printed effect has to be ruled out. options: of several comparisons in a
    setting one is enough. spread: about the spread over seeds.
    """

    test: Test
    needs: tuple[str, ...] = ()
    paired: bool = False
    of_all: bool = False
    several: bool = False
    between: bool = False
    whole: bool = False
    along: str = ""
    of_settings: bool = False
    bands: bool = False
    margin: bool = False
    options: bool = False
    spread: bool = False

    @property
    def words(self) -> str:
        """The rule in words, with fields of a claim in braces: the first line of the function's docstring."""
        return self.test.__doc__ or ""


RULES: dict[str, Rule] = {}  # by the name that claims.toml has for it


def rule(*needs: str, along: str = "", **more: bool) -> Callable[[Test], Test]:
    """Register a function as a kind of rule under its own name; needs and more: see `Rule`."""

    def register(test: Test) -> Test:
        RULES[test.__name__] = Rule(test, needs, along=along, **more)
        return test

    return register


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
        if not passes(test, value) and not (name in (*SEVERAL, "where") and value in ((), {})):
            raise BadClaim(f"{who}: {name} = {shown(value)}, must be {allowed}")
    if described["kind"] not in RULES:
        near = closest(described["kind"], RULES)
        raise BadClaim(
            f"{who}: kind = {shown(described['kind'])}, must be one of {', '.join(sorted(RULES))}; closest: {near}"
        )


def _several(names: str | Sequence[str]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)


def _words(value: Any) -> str:
    return " or ".join(map(str, value)) if isinstance(value, list) else str(value)
