"""Claims of papers as rules that a table can fail, and verdicts on them.

claim.py has a claim as its file describes it; comparisons, rankings, sweeps and bands have the rules; judging.py puts a
table to a claim's rule, seed by seed, and gives the verdict.
"""

from fednb.study.claims import bands, comparisons, rankings, sweeps  # noqa: F401  (they register their rules)
from fednb.study.claims.claim import RULES, BadClaim, BadTable, Claim
from fednb.study.claims.judging import verdict

__all__ = ["RULES", "BadClaim", "BadTable", "Claim", "verdict"]
