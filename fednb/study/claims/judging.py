"""Verdicts on claims: holds, holds on average, does not hold, or not decided, and the numbers that they rest on."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import exp, isfinite, nan
from typing import TYPE_CHECKING, Any

import numpy as np

from fednb.base.inputs import one_line
from fednb.study.claims import outcomes
from fednb.study.claims.checking import check_scale, checked_claims, checked_table
from fednb.study.claims.claim import Claim
from fednb.study.claims.comparison import Comparison, gathered
from fednb.study.claims.evidence import Estimate, Evidence, doubtful
from fednb.study.claims.intervals import SEEDS
from fednb.study.claims.outcomes import Coverage
from fednb.study.claims.planned import rivals_lacking, settings_run, values_run
from fednb.study.claims.sides import TO_TARGET
from fednb.study.claims.tables import CIRCUMSTANCES, compatible, varied

if TYPE_CHECKING:
    import pandas as pd

NUMBERS = ("effect", "low", "high", "bound", "printed")
SHOWN = ("claim", "says", "rule", "paper", "ours", "n", "verdict", *NUMBERS, "ratio", "reading", "rests_on",
         "settings_run", "settings_claimed", *CIRCUMSTANCES)  # fmt: skip  # columns of a verdict
LEFT_OUT = 200  # letters of a list that are shown


def verdict(table: pd.DataFrame | Sequence[pd.DataFrame], claims: Claim | Iterable[Claim], scale: str) -> pd.DataFrame:
    """One row per claim, indexed by its id: the rule, what the paper prints, what was seen, and the verdict.

    `table`, one or several, is tidy: columns that name the setting, method, seed, measure, value; rounds are averaged.
    Columns precision, tuned and protocol, if there, say how it was run. scale: "paper" decides (holds, holds on
    average, does not hold, not decided), "laptop" shows (seen, seen on average, not seen, not clear), "smoke" only says
    that it ran.

    verdict: with partial coverage it says so. effect, low, high: the number that it rests on, signed so that the
    sentence says it is above `bound` (or at most so far from 0, if `reading` is "inside"), with its one-sided 95%
    bounds; rests_on: which one that is. printed, ratio: the
    printed effect, and ours in units of it. n: seeds. settings_run, settings_claimed: how many of the sentence's
    settings were run. paper, ours: the numbers in words.

    >>> rule = dict(kind="at_most", left="FedAvg", measure="drift", tolerance=7.0)
    >>> claim = fn.Claim(paper="fedfft", section="fig1", id="near", says="clients stay near", **rule)
    >>> table = pd.DataFrame({"method": "FedAvg", "seed": [0, 1, 2], "measure": "drift", "value": [5.0, 4.0, 6.0]})
    >>> fn.verdict(table, [claim], scale="paper")[["n", "verdict", "effect", "low"]].round(2)
           n verdict  effect   low
    claim
    near   3   holds     2.0  0.31
    """
    import pandas as pd

    check_scale(scale)
    whole, several = checked_table(table), checked_claims(claims)
    rows = [_row(whole, claim, scale) for claim in several]
    return pd.DataFrame(rows, columns=list(SHOWN)).set_index("claim")


def _row(table: pd.DataFrame, claim: Claim, scale: str) -> dict[str, Any]:
    """The row of one claim: judged on the rows of the table that it is about."""
    mine = claim.about(table)
    printed, on_paper = _printed(claim)
    claimed = len({c.first.key[0] for c in printed})
    row = dict.fromkeys(SHOWN, nan) | {
        "claim": claim.id, "says": claim.says, "rule": f"{claim.rule} ({outcomes.RULE})", "paper": on_paper, "n": 0,
        "reading": "", "rests_on": "", "settings_run": 0, "settings_claimed": claimed,
    }  # fmt: skip
    row |= _circumstances(mine)
    absent = claim.absent(mine)
    asked = claim.without(absent) if not mine.empty else None
    if asked is None:
        return row | {"ours": "not run at this scale", "verdict": f"not run at {scale} scale"}
    if unfit := asked.unfit(mine) or asked.unknown(mine):
        said = _worded("open", scale, claim, row, ["cannot be judged"])
        return row | {"ours": f"cannot be judged: {unfit}", "verdict": said}
    seen = gathered((seed, asked.seen(part)) for seed, part in mine.groupby("seed"))
    if not seen and set(claim.measures) <= set(TO_TARGET) and mine["value"].isna().all():
        said = _worded("open", scale, claim, row, ["nobody gets to the target"])
        return row | {"ours": "nobody gets to the target", "verdict": said}
    if not seen:
        apart = f"settings differ by {one_line(', '.join(map(str, varied(mine))), LEFT_OUT)}" if varied(mine) else ""
        why = "no seed has all that is compared in one setting" + (f"; {apart}" if apart else "")
        return row | {"ours": why, "verdict": f"not run at {scale} scale"}
    _match(seen, printed)
    absent += [f"{name} in some settings" for name in rivals_lacking(claim, mine)]
    of_grid = (0, 0) if printed or claim.rule_kind.of_settings else settings_run(asked, mine)
    return row | _judged(claim, seen, printed, absent, scale, row, _part(asked, mine), of_grid)


def _part(claim: Claim, mine: pd.DataFrame) -> str:
    """How many values along the claim's column, or settings among which one stands out, were run, in words.

    An empty text where all were.
    """
    ran, asked = values_run(claim, mine)
    settings = outcomes.share(*settings_run(claim, mine)) if claim.rule_kind.of_settings else ""
    return f"{ran} of {asked} values of {claim.line}" if ran < asked else settings


def _circumstances(mine: pd.DataFrame) -> dict[str, str]:
    """How the rows were run: the distinct values of the columns that say so."""
    known = {name: mine[name].dropna() if name in mine else () for name in CIRCUMSTANCES}
    return {name: "; ".join(dict.fromkeys(map(str, values))) for name, values in known.items()}


def _printed(claim: Claim) -> tuple[list[Comparison], str]:
    """The comparisons in the printed table, its numbers taken as one seed, and what the rule makes of them in words."""
    mine = None if claim.printed is None else claim.about(claim.printed)
    if mine is None or mine.empty:
        return [], "no numbers printed"
    if unfit := claim.unfit(mine):
        return [], f"cannot be judged: {unfit}"
    found = gathered([("printed", claim.seen(mine))])
    if any(c.first.spread for c in found):  # one number of each: how far seeds scatter is not known
        return [replace(c, d={}) for c in found], "no spread printed"
    return found, _on_paper(claim, found) if found else "no numbers printed"


def _match(seen: list[Comparison], printed: list[Comparison]) -> None:
    """Give each comparison the effect that is printed for it, where one is."""
    for c in seen:
        same = [p for p in printed if p.first.key[1:4] == c.first.key[1:4] and p.d]
        there = [d for p in same if compatible(p.first.where, c.first.where) for d in p.d.values()]
        c.printed = float(np.mean(there)) if there else nan


def _judged(
    claim: Claim, seen: list[Comparison], printed: list[Comparison], absent: list[str], scale: str, row: dict[str, Any],
    part: str, of_grid: tuple[int, int],
) -> dict[str, Any]:  # fmt: skip
    """The columns that come from our numbers.

    part: what was run of what the sentence compares. of_grid: how many settings were run of how many that are to be,
    which are the claimed ones where none are printed.
    """
    used = [c for c in seen if c.n >= SEEDS] if not claim.by_construction else seen
    cover = _coverage(used, seen, printed, of_grid)
    told = bool(printed) and cover.among < cover.claimed  # printed settings are of every value along a column
    cover = replace(cover, absent=absent, part="" if told else part)
    evidence = Evidence(used, claim.spare, claim.rule_kind.margin, claim.parts)
    outcome, on = evidence.decided() if used and not claim.by_construction else ("open", None)
    if outcome == "fails" and part and claim.rule_kind.whole:
        outcome = "open"  # the rest of the line may be what the sentence is about
    notes = [part] * bool(used and part) if used else [f"fewer than {SEEDS} seeds"]
    notes += [cover.words] * bool(used and absent and claim.rule_kind.options)
    notes += ["too few rivals"] * bool(used and evidence.vacuous)
    if used and claim.kind in ("first", "first_on_average"):
        notes += ["behind, not beyond doubt" if on and on.bounds[1] < on.bound else "among the best"]
    numbers = _numbers(on, printed)
    counts = [c.n for c in used] or [max(c.n for c in seen)]
    ours = _in_words(evidence if used else Evidence(seen, claim.spare), absent)
    said = _fixed(seen) if claim.by_construction and scale != "smoke" else ""
    settled = said or _worded(outcome, scale, claim, row, notes, cover)
    return {"ours": ours, "n": min(counts), "verdict": settled, "reading": _reading(on),
            "rests_on": on.name if on else "", "settings_run": cover.run, "settings_claimed": cover.claimed,
            **numbers}  # fmt: skip


def _reading(on: Estimate | None) -> str:
    """How the effect is read: it should be above its bound, or inside it on both sides of 0."""
    return "" if on is None else "inside" if on.inside else "above"


def _coverage(
    used: list[Comparison], seen: list[Comparison], printed: list[Comparison], of_grid: tuple[int, int]
) -> Coverage:
    """How many settings were run with enough seeds, of those that are printed; without any, of those in the grid."""
    ours = list({c.first.key[0]: c.first.where for c in used}.values())
    claimed = list({p.first.key[0]: p.first.where for p in printed}.values())
    if not claimed:
        lacking = max(0, of_grid[1] - of_grid[0])
        return Coverage(len(ours), len({c.first.key[0] for c in seen}) + lacking, len(ours))
    reached = sum(any(compatible(where, own) for own in ours) for where in claimed)
    inside = sum(any(compatible(where, own) for where in claimed) for own in ours)
    return Coverage(len(ours), len(claimed), min(reached, inside))


def _worded(
    outcome: str, scale: str, claim: Claim, row: dict[str, Any], notes: list[str], cover: Coverage | None = None
) -> str:
    """The verdict in the words of its scale."""
    if scale == "smoke":
        return outcomes.SMOKE
    untuned = claim.tuned and any(text in ("untuned", "False") for text in row["tuned"].split("; "))
    return outcomes.worded(outcome, scale, cover or Coverage(0, 0, 0), notes, untuned)


def _fixed(seen: list[Comparison]) -> str:
    """The verdict on what cannot be otherwise: every seed by itself has to be as the sentence says."""
    options: dict[frozenset, dict[str, bool]] = defaultdict(dict)
    for c in seen:
        of_setting = options[c.first.key[0]]
        of_setting[c.first.option] = of_setting.get(c.first.option, True) and c.whole and all(map(c.true, c.d.values()))
    true = all(any(each.values()) for each in options.values())
    return f"by construction: {'holds' if true else 'does not hold'}"


def _numbers(on: Estimate | None, printed: list[Comparison]) -> dict[str, float]:
    """The effect that the verdict rests on, its bounds, and the printed effect."""
    if on is None:
        return dict.fromkeys((*NUMBERS, "ratio"), nan)
    if on.printed != on.printed:  # printed for other settings only
        known = [d for p in printed if not p.first.veto for d in p.d.values()]
        on = on.with_printed(float(np.mean(known)) if known else nan)
    return on.shown | {"ratio": on.ratio}


def _in_words(evidence: Evidence, absent: list[str]) -> str:
    """What was seen, setting by setting: the comparison on which it hangs, with its interval."""
    settings: dict[frozenset, list[tuple[Comparison, Estimate]]] = defaultdict(list)
    for c, e in zip(evidence.comparisons, evidence.estimates, strict=True):
        if not c.first.veto:
            settings[c.first.key[0]].append((c, e))
    said = []
    for key, several in settings.items():
        hangs_on = doubtful((c.first.option, e) for c, e in several)
        c, e = next(each for each in several if each[1] is hangs_on)
        said.append(f"{evidence.names[key]}{_pair(c)}: {c.words}{_interval(c, e)}")
    gone = f" (not run: {one_line(', '.join(map(str, absent)), LEFT_OUT)})" if absent else ""
    return "; ".join(said) + gone


def _pair(c: Comparison) -> str:
    return f" {c.first.pair}" if c.first.pair and c.first.said in ("{} against {}", "{}", "") else ""


def _interval(c: Comparison, e: Estimate) -> str:
    """The number of a comparison and its 90% interval; factors where it is a logarithm, left minus right if it can."""
    if not c.d:
        return ""
    known, sign = isfinite(e.mean), c.first.sign
    mean = e.mean if known else float(np.mean(list(c.d.values())))
    low, high = e.bounds if known else (mean, mean)
    if c.first.said.count("{}") == 1 and not e.log:  # the number itself was said
        own, reach = c.means[0], (high - low) / 2
        return f" [{own - reach:.3g}, {own + reach:.3g}]" if known and reach else ""
    ends = sorted((sign * low, sign * high))
    ends, form = ([exp(x) for x in ends], "{:.3g}x") if e.log else (ends, "{:+.3g}")
    middle = form.format(exp(sign * mean) if e.log else sign * mean)
    return f": {middle}" + (f" [{ends[0]:.3g}, {ends[1]:.3g}]" if known and high > low else "")


def _on_paper(claim: Claim, printed: list[Comparison]) -> str:
    """The printed numbers in words; settings where they fail the rule are named."""
    evidence = Evidence(printed, claim.spare, certain=True)
    wrong = [name for name, true in evidence.truth().items() if not true]
    said = _in_words(evidence, [])
    return said + (f" (its own numbers fail the rule: {', '.join(wrong)})" if wrong else "")
