"""The statistics behind verdicts: pooled noise, t-tests against a bound, and how several comparisons are put together.

All functions take numbers or arrays; the last axis of `all_hold` and `some_fails` runs over comparisons. The error
rates of the rules built on them are simulated in `fednb.study.claims.simulation`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.special import stdtr, stdtrit

LEVEL = 0.05  # of every test, one-sided
SEEDS = 3  # fewer decide nothing
SHARED = 0.25  # squared correlation of two differences that have a run in common: (1/2)²
ROUNDING = 1e-9  # spreads and gaps below this share of the numbers are zero


def pooled(samples: Sequence[np.ndarray], blocks: Sequence[str]) -> tuple[float, float]:
    """One standard deviation for all samples, and its degrees of freedom.

    Independent samples have Σ(n − 1). Samples of one block share runs, so that their variances say partly the same:
    degrees of freedom by Satterthwaite's formula, with correlation 1/2.
    """
    squares, weight, of_block = 0.0, 0, defaultdict(list)
    for sample, block in zip(samples, blocks, strict=True):
        squares += float(((sample - sample.mean()) ** 2).sum())
        weight += len(sample) - 1
        of_block[block].append(len(sample) - 1)
    if not weight:
        return 0.0, 0.0
    spread = sum(sum(each) * (1 + (len(each) - 1) * SHARED) for each in of_block.values())
    size = max((float(np.abs(sample).max()) for sample in samples), default=0.0)
    sd = float(np.sqrt(squares / weight))
    return (0.0 if sd <= ROUNDING * size else sd), weight**2 / spread


def p_above(mean: Any, se: Any, df: Any, bound: Any, strict: Any = True) -> np.ndarray:
    """The p-value of "the true mean is at most `bound`": small where it is above. se 0: the mean itself is the truth.

    >>> from fednb.study.claims.intervals import p_above
    >>> float(p_above(2.92, 1.0, 2, 0.0).round(3))                  # the 95% quantile of t with 2 degrees of freedom
    0.05
    """
    mean, se, bound = np.asarray(mean, float), np.asarray(se, float), np.asarray(bound, float)
    gap = mean - bound
    gap = np.where(np.abs(gap) <= ROUNDING * np.maximum(np.abs(mean), np.abs(bound)), 0.0, gap)
    with np.errstate(divide="ignore", invalid="ignore"):
        p = stdtr(df, -gap / se)
    exact = np.where((gap > 0) | ((gap == 0) & np.logical_not(strict)), 0.0, 1.0)
    return np.where(se > 0, p, exact)


def p_below(mean: Any, se: Any, df: Any, bound: Any, strict: Any = True) -> np.ndarray:
    """The p-value of "the true mean is at least `bound`": small where it is below."""
    return p_above(-np.asarray(mean, float), se, df, -np.asarray(bound, float), strict)


def p_inside(mean: Any, se: Any, df: Any, bound: Any) -> np.ndarray:
    """The p-value of "the true mean is further from 0 than `bound`": two one-sided tests."""
    low, high = p_above(mean, se, df, -np.asarray(bound, float), False), p_below(mean, se, df, bound, False)
    return np.maximum(low, high)


def p_outside(mean: Any, se: Any, df: Any, bound: Any) -> np.ndarray:
    """The p-value of "the true mean is at most `bound` from 0", two-sided: small where it is further away."""
    high, low = p_above(mean, se, df, bound), p_below(mean, se, df, -np.asarray(bound, float))
    return np.minimum(1.0, 2 * np.minimum(low, high))


def all_hold(p: Any, spare: int = 0) -> np.ndarray:
    """The p-value that all hold, from each one's: the largest (an intersection-union test needs no correction).

    spare: so many may fail. Then the largest but `spare`, times the ways in which one too many could hold by chance.
    """
    p = np.sort(np.asarray(p, float), axis=-1)
    if p.shape[-1] <= spare:
        return np.zeros(p.shape[:-1])
    return np.minimum(1.0, (spare + 1) * p[..., p.shape[-1] - 1 - spare])


def some_fails(p: Any, spare: int = 0) -> np.ndarray:
    """The p-value that one fails (more than `spare`), from each one's: Holm's first step."""
    p = np.sort(np.asarray(p, float), axis=-1)
    if p.shape[-1] <= spare:
        return np.ones(p.shape[:-1])
    return np.minimum(1.0, (p.shape[-1] - spare) * p[..., spare])


def bounds(mean: float, se: float, df: float) -> tuple[float, float]:
    """The one-sided 95% lower and upper bound of a mean, which together are its 90% interval."""
    reach = float(stdtrit(df, 1 - LEVEL)) * se if se > 0 else 0.0
    return mean - reach, mean + reach


def decide(p_holds: Any, p_fails: Any, mean_holds: Any, mean_fails: Any) -> np.ndarray:
    """The outcome from the p-values of each setting (last axis) and of the mean over settings.

    "holds": in every setting. "fails": in some setting, corrected by Holm; a mean that fails says the same, since some
    setting is no better than the mean, and counts as one more. "average": the mean holds, and nothing fails. "open":
    neither. With one setting there is no mean: give 1.
    """
    p_fails = np.asarray(p_fails, float)
    one_more = np.expand_dims(np.asarray(mean_fails, float), -1)
    family = np.concatenate([p_fails, one_more], axis=-1) if p_fails.shape[-1] > 1 else p_fails
    holds, fails = all_hold(p_holds) <= LEVEL, some_fails(family) <= LEVEL
    return np.select([holds, fails, np.asarray(mean_holds) <= LEVEL], ["holds", "fails", "average"], "open")
