"""The statistics of spreads over seeds: a variance or a quotient of two against a bound, by chi-square and F."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import exp, log, sqrt

import numpy as np
from scipy.special import chdtr, chdtrc, chdtri, digamma, fdtrc, fdtri, polygamma

from fednb.study.claims.intervals import LEVEL


@dataclass(frozen=True)
class Variance:
    """A variance and its degrees of freedom."""

    value: float
    df: float

    @classmethod
    def of(cls, samples: Sequence[np.ndarray]) -> Variance:
        """Of one sample; of several the geometric mean, with the degrees of freedom that its logarithm scatters as."""
        own = [cls(float(sample.var(ddof=1)), len(sample) - 1.0) for sample in samples]
        if len(own) == 1:
            return own[0]
        df = 2 * _inverse_trigamma(sum(float(polygamma(1, each.df / 2)) for each in own) / len(own) ** 2)
        if min(each.value for each in own) <= 0:
            return cls(0.0, df)
        mean = sum(log(each.value) - _bias(each.df) for each in own) / len(own)
        return cls(exp(mean + _bias(df)), df)


@dataclass(frozen=True)
class Spread:
    """A standard deviation over seeds, left's, against right's, or against `most` where there is no right."""

    most: float
    left: Variance
    right: Variance | None = None

    @property
    def known(self) -> bool:
        """True if something can be said: two that do not scatter at all have no quotient."""
        return self.left.value > 0 or (self.right is None or self.right.value > 0)

    @property
    def log(self) -> float:
        """How much smaller left's standard deviation is, as a logarithm."""
        other = self.most**2 if self.right is None else self.right.value
        with np.errstate(divide="ignore"):
            return float(np.log(other) - np.log(self.left.value)) / 2

    def p_smaller(self, bound: float) -> float:
        """The p-value of "left's is smaller by a factor of at most exp(bound)": small where it is smaller by more."""
        quotient = _times(exp(min(2 * (self.log - bound), 700)))
        if self.right is None:
            return float(chdtr(self.left.df, self.left.df / quotient))
        return float(fdtrc(self.right.df, self.left.df, quotient))

    def p_larger(self, bound: float) -> float:
        """The p-value of "left's is smaller by a factor of at least exp(bound)": small where it is not."""
        quotient = _times(exp(min(2 * (bound - self.log), 700)))
        if self.right is None:
            return float(chdtrc(self.left.df, self.left.df * quotient))
        return float(fdtrc(self.left.df, self.right.df, quotient))

    @property
    def bounds(self) -> tuple[float, float]:
        """The one-sided 95% lower and upper bound of the logarithm."""
        if self.right is None:
            few, many = (sqrt(float(chdtri(self.left.df, p)) / self.left.df) for p in (1 - LEVEL, LEVEL))
            return self.log + log(few), self.log + log(many)
        low, high = (float(fdtri(*df, 1 - LEVEL)) for df in (_dfs(self.right, self.left), _dfs(self.left, self.right)))
        return self.log - log(low) / 2, self.log + log(high) / 2


def _times(quotient: float) -> float:
    return max(quotient, 1e-300)  # nothing is divided by zero


def _dfs(one: Variance, other: Variance) -> tuple[float, float]:
    return one.df, other.df


def _bias(df: float) -> float:
    """What the logarithm of an estimated variance is off by, on average."""
    return float(digamma(df / 2)) - log(df / 2)


@lru_cache(maxsize=256)
def _inverse_trigamma(value: float) -> float:
    """The number whose trigamma function is `value`: Newton's method on 1 / trigamma, which is nearly straight."""
    x = 0.5 + 1 / value
    for _ in range(20):
        trigamma = float(polygamma(1, x))
        x += trigamma * (1 - trigamma / value) / float(polygamma(2, x))
    return x
