"""Claims of papers as rules that a table can fail, and verdicts on them.

claim.py has a claim as its file describes it; comparisons, rankings, sweeps, bands and spreads have the kinds of rules,
each from the rows of one seed to the numbers that the sentence compares (comparison.py, sides.py). A sentence that says
"A or B" names a second measure, `or_measure`: any kind, and one of its measures is enough. A sentence about the spread
over seeds is of the kind `spread_below`, `spread_not_above` or `spread_at_most`. intervals.py and variances.py have the
statistics; evidence.py puts the numbers of all seeds to the sentence; judging.py gives the verdict, outcomes.py its
words, units.py puts it in units of what is printed; simulation.py counts how often the rule errs.
"""

from fednb.study.claims import bands, comparisons, rankings, spreads, sweeps  # noqa: F401  (they register their rules)
from fednb.study.claims.claim import RULES, BadClaim, BadTable, Claim
from fednb.study.claims.judging import verdict
from fednb.study.claims.outcomes import COLOURS, GROUPS, OUTCOMES, line, outcome_class, wrong_by_chance
from fednb.study.claims.units import in_printed_units

__all__ = [
    "COLOURS", "GROUPS", "OUTCOMES", "RULES", "BadClaim", "BadTable", "Claim", "in_printed_units", "line",
    "outcome_class", "verdict", "wrong_by_chance",
]  # fmt: skip
