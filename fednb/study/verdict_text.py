"""Verdicts for a terminal: every claim with its sentence, rule and numbers, or a summary that fits a screen."""

from __future__ import annotations

import re
from collections import Counter
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from fednb.base.checks import is_number
from fednb.study.claims import OUTCOMES, outcome_class
from fednb.study.claims.outcomes import RULE
from fednb.study.columns import WIDTH, fitting

if TYPE_CHECKING:
    import pandas as pd

SCREEN = 50  # lines that are printed whole; what is longer is summed up
TOLD = 36  # lines of a summary that tell single claims
HEADLINE = "headline"  # the weight of claims that a paper stands on
INDENT = "    "
UNDECIDED = ("ran", "none", "")  # classes of verdicts that say nothing about a claim
MORE = ("`--full` prints every claim with its numbers, `--claim ID` one of them; `--kept` judges what is kept with the "
        "papers and runs nothing")  # fmt: skip


def for_terminal(table: pd.DataFrame, full: bool = False) -> str:
    """A table of verdicts for a terminal of 100 letters: all of it where that fits a screen, or else a summary.

    The summary counts the verdicts of each paper and tells the claims of most weight with their sentences and rules.
    full: print every claim, however many there are.
    """
    whole = in_columns(table)
    if full or whole.count("\n") < SCREEN:
        return whole
    return "\n".join([counted(table), "", *_told(table), *wrap(MORE, WIDTH)])


def _told(table: pd.DataFrame) -> list[str]:
    """Headline claims in three lines each, or where these are too many those that say something, in one if need be."""
    decided = ~table["verdict"].map(outcome_class).isin(UNDECIDED)
    headlines = table["weight"] == HEADLINE if "weight" in table else decided
    chosen = headlines if 3 * headlines.sum() <= TOLD else headlines & decided
    rows = table[chosen].reset_index().to_dict("records")
    blocks = [_brief(row) for row in rows]
    each = 3 if sum(map(len, blocks)) <= TOLD else 1
    lines = [line for block in blocks for line in block[:each]]
    what = f"{HEADLINE} claims{' that say something' * (chosen is not headlines)}" if "weight" in table else "of these"
    return [f"{what}:", *lines, ""] if lines else []


def _brief(row: dict[str, Any]) -> list[str]:
    """One claim in at most three lines: verdict with effect where there is room, sentence, rule; cut where too long."""
    said, effect, kept = f"{row['paper_id']} {row['claim']}: {row['verdict']}", interval(row), _kept(row)
    said += f", {effect}" * (bool(effect) and len(said) + len(effect) + 2 <= WIDTH)
    texts = [said + f"; kept: {kept}" * bool(kept)]
    texts += [f"{INDENT}{name}: {text}" for name, text in (("says", row.get("says")), ("rule", _rule(row))) if text]
    return [text if len(text) <= WIDTH else f"{text[: WIDTH - 1]}…" for text in texts]


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
    told = {"": _numbers(row), "says": row.get("says", ""), "rule": _rule(row), "seen": row["ours"], "kept": _kept(row)}
    lines = wrap(f"{row['paper_id']} {row['claim']}: {row['verdict']}", WIDTH, subsequent_indent=INDENT)
    for name, text in told.items():
        if text:
            first = f"{INDENT}{name}: ".replace(" : ", " ")
            lines += wrap(str(text), WIDTH, initial_indent=first, subsequent_indent=2 * INDENT, break_on_hyphens=False)
    return lines


def _rule(row: dict[str, Any]) -> str:
    """The rule of one claim, without what holds for all of them."""
    return str(row.get("rule", "")).replace(f" ({RULE})", "")


def _kept(row: dict[str, Any]) -> str:
    """The best verdict that was kept, with its scale and seeds; an empty text where there is none."""
    return f"{row['best_verdict']} ({row['best_scale']}, n = {row['best_n']})" if row["best_verdict"] else ""


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

    >>> from fednb.study.verdict_text import interval
    >>> interval({"effect": 1.234, "low": 0.3, "high": 2.1})
    '1.23 [0.3, 2.1]'
    """
    effect, low, high = (short(row[f"{of}{name}"]) for name in ("effect", "low", "high"))
    return f"{effect} [{low or '?'}, {high or '?'}]" if effect and (low or high) else effect


def without_source(says: str) -> str:
    """A claim's sentence up to the bracket that says where the paper has it. "(WA)" is a part of a name.

    A second sentence, which tells two readings of one claim apart, stays.

    >>> without_source("FedSCAM (WA), with 70.63, is above FedAvg (section 5.3: 69.68), and so on")
    'FedSCAM (WA), with 70.63, is above FedAvg'
    >>> without_source("FedFSA is above FedAvg (Table 1: by 0.8 points). Layers by Eq. 11 as printed")
    'FedFSA is above FedAvg. Layers by Eq. 11 as printed'
    """
    first, *rest = re.split(r" \((?!(?!abstract)\w+\))", says, maxsplit=1)
    second = re.search(r"\)[^()]*?\. ([A-Z][^()]*)$", "".join(rest))
    return f"{first}. {second[1]}" if second else first


def short(number: Any) -> str:
    """A number in three digits; an empty text for what is none."""
    return f"{number:.3g}" if is_number(number) else ""


def on_which(row: dict[str, Any], of: str = "") -> str:
    """The effect of a claim with its interval and, in parentheses, the comparison on which the verdict hangs.

    >>> from fednb.study.verdict_text import on_which
    >>> on_which({"effect": 1.234, "low": 0.3, "high": 2.1, "rests_on": "all FedSAM"})
    '1.23 [0.3, 2.1] (FedSAM)'
    """
    told, which = interval(row, of), str(row.get(f"{of}rests_on") or "").removeprefix("all").strip()
    return f"{told} ({which})" if told and which else told
