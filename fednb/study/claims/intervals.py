"""The statistics behind verdicts: pooled noise, t-tests against a bound, and how several comparisons are put together.

All functions take numbers or arrays; the last axis of `all_hold` and `some_fails` runs over comparisons. The error
rates of the rules built on them are simulated in `fednb.study.claims.simulation`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any

import numpy as np
from scipy.special import fdtrc, stdtr, stdtrit

LEVEL = 0.05  # of every test, one-sided
SEEDS = 3  # fewer decide nothing
UNLIKE = 0.01  # chance, for all settings together, that one of several which scatter alike is taken for a noisier one
SHARED = 0.25  # squared correlation of two differences that have a run in common: (1/2)²
ROUNDING = 1e-9  # spreads and gaps below this share of the numbers are zero


def pooled(samples: Sequence[np.ndarray], blocks: Sequence[str]) -> tuple[float, float]:
    """One standard deviation for all samples, and its degrees of freedom.

    Independent samples have Σ(n − 1). Samples of one block share runs, so that their variances say partly the same:
    degrees of freedom by Satterthwaite's formula, with correlation 1/2.
    """
    squares, weight, of_block = 0.0, 0, defaultdict(list)
    for sample, block in zip(samples, blocks, strict=True):
        with np.errstate(over="ignore"):
            squares += float(((sample - sample.mean()) ** 2).sum())
        weight += len(sample) - 1
        of_block[block].append(len(sample) - 1)
    if not weight:
        return 0.0, 0.0
    spread = sum(sum(each) * (1 + (len(each) - 1) * SHARED) for each in of_block.values())
    size = max((float(np.abs(sample).max()) for sample in samples), default=0.0)
    sd = float(np.sqrt(squares / weight))
    return (0.0 if sd <= ROUNDING * size else sd), weight**2 / spread


@dataclass(frozen=True)
class Noise:
    """The standard deviation of paired differences: one for all, but what is noisier has its own.

    blocks: the standard deviation and degrees of freedom of each block by itself; apart: the noisier ones of them.
    pairs: the noise of a comparison that is noisier than the others, such as with a rival that learns nothing with some
    seeds; alone: of one that is so in a single block, by block and pair. These are no part of any other's.
    """

    sd: float
    df: float
    blocks: dict[str, tuple[float, float]] = field(default_factory=dict)
    apart: frozenset[str] = frozenset()
    pairs: dict[str, Noise] = field(default_factory=dict)
    alone: dict[tuple[str, str], tuple[float, float]] = field(default_factory=dict)

    @classmethod
    def of(cls, samples: Sequence[np.ndarray], blocks: Sequence[str], pairs: Sequence[str] = ()) -> Noise:
        """From samples of at least two numbers each, the block of each, and which comparison of its block it is."""
        known = list(zip(samples, blocks, pairs or [""] * len(blocks), strict=True))
        noisy = _noisy(_pooled_by([pair for *_, pair in known], known))
        by_pair = {name: cls._one([each for each in known if each[2] == name]) for name in noisy}
        known = [each for each in known if each[2] not in noisy]
        alone = _noisy_cells(_pooled_by([(block, pair) for _, block, pair in known], known))
        return replace(cls._one([each for each in known if each[1:] not in alone]), pairs=by_pair, alone=alone)

    @classmethod
    def _one(cls, known: Sequence[tuple[np.ndarray, str, str]]) -> Noise:
        """The noise of samples by their blocks alone."""
        blocks = [block for _, block, _ in known]
        own = _pooled_by(blocks, known)
        unlike = noisier([sd**2 for sd, _ in own.values()], [df for _, df in own.values()])
        apart = frozenset(block for block, noisy in zip(own, unlike, strict=True) if noisy)
        return cls(*pooled([sample for sample, *_ in known], blocks), own, apart)

    def at(self, block: str, pair: str = "") -> tuple[float, float]:
        """The standard deviation in a block, of one of its comparisons, and its degrees of freedom."""
        if pair in self.pairs:
            return self.pairs[pair].at(block)
        if (block, pair) in self.alone:
            return self.alone[block, pair]
        return self.blocks[block] if block in self.apart else (self.sd, self.df)

    def of_sum(self, weights: Mapping[str, float], pair: str = "") -> tuple[float, float]:
        """The standard error of a sum over blocks, and its degrees of freedom, from the weight of each one's variance.

        Where one is noisier than the others, each counts with its own variance (Welch, Satterthwaite).
        """
        if pair in self.pairs:
            return self.pairs[pair].of_sum(weights)
        alone = {block: self.alone[block, pair] for block in weights if (block, pair) in self.alone}
        if not alone and not self.apart & weights.keys():
            return self.sd * float(np.sqrt(sum(weights.values()))), self.df
        each = self.blocks | alone
        own = [(weight, *each.get(block, (self.sd, self.df))) for block, weight in weights.items()]
        variances = np.array([weight * sd**2 for weight, sd, _ in own])
        total = float(variances.sum())
        return float(np.sqrt(total)), total**2 / float((variances**2 / [df for _, _, df in own]).sum())


def _pooled_by(labels: Sequence[Any], known: Sequence[tuple[np.ndarray, str, str]]) -> dict[Any, tuple[float, float]]:
    """The standard deviation and degrees of freedom of all samples that have a label in common."""
    several: dict[Any, list[tuple[np.ndarray, str]]] = defaultdict(list)
    for label, (sample, block, _) in zip(labels, known, strict=True):
        several[label].append((sample, block))
    return {label: pooled(*zip(*each, strict=True)) for label, each in several.items()}


def _noisy(own: dict[Any, tuple[float, float]], level: float = UNLIKE) -> dict[Any, tuple[float, float]]:
    """Those that scatter more than the others; what never varies tells nothing about these."""
    varies = {label: each for label, each in own.items() if each[0] > 0}
    unlike = noisier([sd**2 for sd, _ in varies.values()], [df for _, df in varies.values()], level)
    return {label: each for (label, each), noisy in zip(varies.items(), unlike, strict=True) if noisy}


def _noisy_cells(cells: dict[tuple[str, str], tuple[float, float]]) -> dict[tuple[str, str], tuple[float, float]]:
    """Of the comparisons of each of several blocks those that scatter more than the others there."""
    blocks = dict.fromkeys(block for block, _ in cells)
    if len(blocks) < 2:
        return {}  # of one block the comparisons are looked at already
    found = [
        _noisy({cell: cells[cell] for cell in cells if cell[0] == block}, UNLIKE / len(blocks)) for block in blocks
    ]
    return {cell: own for each in found for cell, own in each.items()}


def noisier(variances: Any, df: Any, level: float = UNLIKE) -> np.ndarray:
    """Which of several variances (last axis) are larger than the others' mean by more than chance allows (F-test).

    The largest first, then the next without it, and so on; each at 1%, corrected for their number. With few degrees of
    freedom only large ratios show. level: another chance.

    >>> from fednb.study.claims.intervals import noisier
    >>> noisier([1.0, 0.8, 1.3, 1.1, 60.0, 0.9], 2), noisier([1.0, 0.8, 1.3, 1.1, 6.0, 0.9], 2)
    (array([False, False, False, False,  True, False]), array([False, False, False, False, False, False]))
    """
    variances, df = np.broadcast_arrays(np.asarray(variances, float), np.asarray(df, float))
    apart, going = np.zeros(variances.shape, bool), np.ones((*variances.shape[:-1], 1), bool)
    for _ in range(variances.shape[-1] - 1):
        left = np.where(apart, 0.0, df)
        largest = np.where(apart, -1.0, variances).argmax(-1)[..., None]
        own, top = np.take_along_axis(df, largest, -1), np.take_along_axis(variances, largest, -1)
        others = left.sum(-1, keepdims=True) - own
        with np.errstate(all="ignore"):
            rest = ((left * variances).sum(-1, keepdims=True) - own * top) / others
            going = going & (top > 0) & (fdtrc(own, others, top / np.maximum(rest, 0)) * df.shape[-1] <= level)
        if not going.any():
            break
        np.put_along_axis(apart, largest, going | np.take_along_axis(apart, largest, -1), -1)
    return apart


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


def bounds(mean: float, se: float, df: float, level: float = LEVEL) -> tuple[float, float]:
    """The one-sided 95% lower and upper bound of a mean, which together are its 90% interval. level: another error."""
    reach = float(stdtrit(df, 1 - level)) * se if se > 0 else 0.0
    return mean - reach, mean + reach


def ratio_bounds(top: np.ndarray, bottom: np.ndarray) -> tuple[float, float]:
    """The one-sided 95% lower and upper bound of mean(top) / mean(bottom), two samples paired by seed.

    By Fieller's theorem: all r for which a t-test does not tell the mean of top − r · bottom from 0. Unbounded, which
    is (-inf, inf), where the mean of bottom is not above 0 by that test, or where there are fewer than two seeds.

    >>> from fednb.study.claims.intervals import ratio_bounds
    >>> [round(end, 2) for end in ratio_bounds(np.array([4.0, 5.0, 6.0]), np.array([10.0, 10.0, 10.0]))]
    [0.33, 0.67]
    >>> ratio_bounds(np.array([4.0, 5.0, 6.0]), np.array([-1.0, 1.0, 3.0]))      # 1 ± 1.15: it may be nothing
    (-inf, inf)
    """
    n = len(bottom)
    if n < 2:
        return -inf, inf
    a, b = float(np.mean(top)), float(np.mean(bottom))
    (aa, ab), (_, bb) = (np.cov(top, bottom) / n * float(stdtrit(n - 1, 1 - LEVEL)) ** 2).tolist()
    squared = b**2 - bb  # (a − r b)² ≤ aa − 2 r ab + r² bb, an equation of second degree in r
    if b <= 0 or squared <= ROUNDING * b**2:
        return -inf, inf
    middle = a * b - ab
    reach = float(np.sqrt(max(0.0, middle**2 - squared * (a**2 - aa))))
    return (middle - reach) / squared, (middle + reach) / squared


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
