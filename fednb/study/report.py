"""Verdicts for a terminal: every claim with its sentence, rule and numbers, or only how many there are of each."""

from __future__ import annotations

from collections import Counter
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from fednb.base.checks import is_number
from fednb.study.claims import OUTCOMES, outcome_class
from fednb.study.claims.outcomes import RULE
from fednb.study.columns import WIDTH, fitting

if TYPE_CHECKING:
    import pandas as pd

MANY = 20  # claims: more that only ran, or were not run, are counted
INDENT = "    "
UNDECIDED = ("ran", "none", "")  # classes of verdicts that say nothing about a claim


def report(table: pd.DataFrame) -> str:
    """A table of verdicts for a terminal of 100 letters: claims that say something in full, many others counted."""
    undecided = table["verdict"].map(outcome_class).isin(UNDECIDED)
    if undecided.sum() <= MANY:
        return in_columns(table)
    told = [in_columns(table[~undecided]), ""] if not undecided.all() else []
    more = "`--claim ID` shows one claim; `--kept` judges what is kept with the papers, and runs nothing"
    return "\n".join([*told, counted(table), "", more])


def counted(table: pd.DataFrame) -> str:
    """How many claims of each paper have which verdict, and which the best that was kept has."""
    begins = {kind: begin for begin, kind in OUTCOMES.items()}
    rows = []
    for paper, part in table.groupby("paper_id", sort=False):
        seen, kept = (
            Counter(begins.get(outcome_class(said), "not run") for said in part[name] if said)
            for name in ("verdict", "best_verdict")
        )
        rows.append({"paper": paper, "claims": len(part), "verdicts": _listed(seen), "best kept": _listed(kept)})
    told = any(row["best kept"] for row in rows)
    return fitting(rows if told else [{k: v for k, v in row.items() if k != "best kept"} for row in rows])


def _listed(counts: Counter[str]) -> str:
    return ", ".join(f"{count} {said}" for said, count in counts.most_common())


def in_columns(table: pd.DataFrame) -> str:
    """Claims one below the other: paper, id and verdict; then numbers, sentence, rule and what was seen, wrapped."""
    rule = wrap(RULE, WIDTH)
    return "\n".join([*rule, "", *(line for row in table.reset_index().to_dict("records") for line in _block(row))])


def _block(row: dict[str, Any]) -> list[str]:
    """One claim."""
    kept = f"{row['best_verdict']} ({row['best_scale']}, n = {row['best_n']})" if row["best_verdict"] else ""
    told = {"": _numbers(row), "says": row.get("says", ""), "rule": str(row.get("rule", "")).replace(f" ({RULE})", ""),
            "seen": row["ours"], "kept": kept}  # fmt: skip
    lines = wrap(f"{row['paper_id']} {row['claim']}: {row['verdict']}", WIDTH, subsequent_indent=INDENT)
    for name, text in told.items():
        if text:
            first = f"{INDENT}{name}: ".replace(" : ", " ")
            lines += wrap(str(text), WIDTH, initial_indent=first, subsequent_indent=2 * INDENT, break_on_hyphens=False)
    return lines


def _numbers(row: dict[str, Any]) -> str:
    """Effect with interval, printed effect, n, settings, and how it was run: one line."""
    printed, ran = short(row["printed"]), bool(row["n"])
    said = [f"effect {interval(row)}" * bool(interval(row)), f"printed {printed}" * bool(printed),
            f"n = {row['n']}" * ran, f"{row['settings_run']} of {row['settings_claimed']} settings" * ran,
            *(str(row.get(name) or "") for name in ("scale", "precision", "tuned", "protocol") if ran)]  # fmt: skip
    return ", ".join(filter(None, said))


def interval(row: dict[str, Any], of: str = "") -> str:
    """The effect of a claim with its interval, "1.2 [0.3, 2.1]"; an empty text where it has none.

    row: of a table of verdicts. of: what the names of its columns begin with, such as "best_".

    >>> from fednb.study.report import interval
    >>> interval({"effect": 1.234, "low": 0.3, "high": 2.1})
    '1.23 [0.3, 2.1]'
    """
    effect, low, high = (short(row[f"{of}{name}"]) for name in ("effect", "low", "high"))
    return f"{effect} [{low or '?'}, {high or '?'}]" if effect and (low or high) else effect


def short(number: Any) -> str:
    """A number in three digits; an empty text for what is none."""
    return f"{number:.3g}" if is_number(number) else ""
