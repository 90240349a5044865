"""From the comparisons of a claim to an outcome: which of them hold, which fail, their mean, and what it rests on."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from math import exp, inf, isfinite, nan, sqrt

import numpy as np

from fednb.study.claims import intervals as stat
from fednb.study.claims.comparison import Comparison, Seen
from fednb.study.claims.tables import names_of
from fednb.study.claims.variances import Spread, Variance

QUARTER = 0.25  # of what is printed beyond the bound: a sentence fails if even that is ruled out


@dataclass(frozen=True)
class Estimate:
    """A mean with its standard error, and the p-values that it is as the sentence says and that it is not."""

    mean: float
    se: float
    df: float
    bound: float
    holds: float  # p-value against "it is not as the sentence says"
    fails: float  # p-value against "it is"
    printed: float = nan
    log: bool = False
    name: str = ""
    inside: bool = False  # the sentence says that the number is at most `bound` from 0
    veto: bool = False  # of a side condition, which can only speak against the sentence
    limits: tuple[float, float] | None = None  # one-sided 95% bounds, where they are not those of a t-distribution

    @property
    def bounds(self) -> tuple[float, float]:
        """The one-sided 95% lower and upper bound."""
        if self.limits is not None:
            return self.limits
        return stat.bounds(self.mean, self.se, self.df) if isfinite(self.mean) else (nan, nan)

    @property
    def shown(self) -> dict[str, float]:
        """Effect, one-sided 95% bounds, bound of the sentence, printed effect; factors where they are logarithms."""
        low, high = self.bounds
        seen = {"effect": self.mean, "low": low, "high": high, "bound": self.bound, "printed": self.printed}
        return {name: exp(value) for name, value in seen.items()} if self.log else seen

    def doubt(self) -> tuple[float, float]:
        """How far the number is from being as the sentence says: the p-value, then the distance to the bound."""
        return self.holds, self.bound - self.mean if isfinite(self.mean) else -inf

    def with_printed(self, printed: float) -> Estimate:
        """The estimate beside another printed effect."""
        return replace(self, printed=printed)

    @property
    def ratio(self) -> float:
        """The effect in units of the printed one."""
        return self.mean / self.printed if isfinite(self.printed) and self.printed else nan


@dataclass(frozen=True)
class Evidence:
    """The comparisons of a claim that have enough seeds, put to its sentence.

    spare: in each setting so many comparisons may fail. margin: a printed effect counts, and a quarter of it has to be
    ruled out before the sentence fails. parts: of so many parts one is enough, and all have to fail before it fails.
    """

    comparisons: list[Comparison]
    spare: int = 0
    margin: bool = False
    parts: int = 1
    certain: bool = False  # one seed says all: printed numbers, which have no spread

    @cached_property
    def names(self) -> dict[frozenset, str]:
        """The settings by name."""
        settings = {c.first.key[0]: c.first.where for c in self.comparisons}
        return dict(zip(settings, names_of(list(settings.values())), strict=True))

    @cached_property
    def estimates(self) -> list[Estimate]:
        """One for each comparison; the standard deviation is pooled, but what is noisier has its own."""
        pools: dict[tuple[object, ...], list[Comparison]] = defaultdict(list)
        for c in self.comparisons:
            pools[_pool(c)].append(c)
        noise = {kind: _noise((_sample(c), _block(c), _pair(c)) for c in several) for kind, several in pools.items()}
        return [self._estimate(c, *noise[_pool(c)].at(_block(c), _pair(c))) for c in self.comparisons]

    def _estimate(self, c: Comparison, sd: float, df: float) -> Estimate:
        first, sample, name = c.first, _sample(c), f"{self.names[c.first.key[0]]} {c.first.pair}".strip()
        if first.spread:
            return self._spread([c], name)
        if c.lost == c.n or c.behind == c.n or not ((_enough(c) and df) or (self.certain and c.d)):
            won, lost = float(c.behind < c.n), float(c.lost < c.n)  # by divergence alone; 1 and 1 where neither
            return Estimate(nan, nan, df, first.bound, won, lost, c.printed, first.log, name)
        mean, se = float(sample.mean()), sd / sqrt(len(sample))
        holds, fails = self._tests(mean, se, df, first.bound, first, c.printed)
        if c.lost or c.empty:
            holds = 1.0  # nothing holds on a number that is not there
        holds = 0.0 if first.veto else holds
        return Estimate(mean, se, df, first.bound, holds, fails, c.printed, first.log, name, first.inside, first.veto)

    def _tests(self, mean: float, se: float, df: float, bound: float, seen: Seen, printed: float) -> tuple:
        """The p-values of one number: for the sentence, and against it."""
        if seen.inside:
            return float(stat.p_inside(mean, se, df, bound)), float(stat.p_outside(mean, se, df, bound))
        beyond = QUARTER * max(0.0, printed - bound) if self.margin and isfinite(printed) else 0.0
        holds = stat.p_above(mean, se, df, bound, seen.strict)
        return float(holds), float(stat.p_below(mean, se, df, bound + beyond, not seen.strict))

    def _spread(self, several: list[Comparison], name: str) -> Estimate:
        """How much smaller a standard deviation over seeds is than another, or than a number: in all settings alike."""
        first, used = several[0].first, [c for c in several if _enough(c) and min(map(len, c.samples)) > 1]
        sides = [Variance.of(side) for side in zip(*(c.samples for c in used), strict=True)]
        seen = Spread(first.most, *sides) if used else None
        if seen is None or not seen.known:
            return Estimate(nan, nan, 0.0, first.bound, 1.0, 1.0, nan, True, name)
        holds = 1.0 if any(c.lost or c.empty for c in several) else seen.p_smaller(first.bound)
        fails = seen.p_larger(first.bound)
        return Estimate(seen.log, nan, 0.0, first.bound, holds, fails, nan, True, name, limits=seen.bounds)

    def by_setting(self) -> dict[frozenset, tuple[float, float]]:
        """The two p-values of each setting."""
        found: dict[frozenset, list[tuple[str, Estimate]]] = {key: [] for key in self.names}
        for c, e in self._pairs():
            found[c.first.key[0]].append((c.first.option, e))
        return {key: self._combined(several) for key, several in found.items()}

    @property
    def vacuous(self) -> bool:
        """True where a setting has no more comparisons than may fail."""
        counts = Counter(c.first.key[0] for c in self.comparisons)
        return any(count <= self.spare for count in counts.values())

    def truth(self) -> dict[str, bool]:
        """Whether each setting is as the sentence says, for numbers that are certain."""
        settings = self.by_setting()
        return {self.names[key]: holds < fails for key, (holds, fails) in settings.items()}

    def _pairs(self) -> list[tuple[Comparison, Estimate]]:
        return list(zip(self.comparisons, self.estimates, strict=True))

    def _combined(self, estimates: list[tuple[str, Estimate]]) -> tuple[float, float]:
        """The p-values of several comparisons together: all of an option have to hold, and one option is enough."""
        options = _by_option(estimates)
        holds = min(self._holds(each) for each in options.values())
        fails = [float(stat.some_fails([e.fails for e in each], self.spare)) for each in options.values()]
        asked = max(len(options), self.parts)  # a part that was not measured may be the one that holds
        return min(1.0, asked * holds), max(fails) if len(options) == asked else 1.0

    def _holds(self, option: list[Estimate]) -> float:
        """The p-value that all comparisons of an option hold; none does beside a side condition that fails.

        Where there are no more of them than may fail, nothing was tried.
        """
        if 0 < len(option) <= self.spare:
            return 1.0
        vetoes = [e.fails for e in option if e.veto]
        denied = vetoes and stat.some_fails(vetoes) <= stat.LEVEL
        return 1.0 if denied else float(stat.all_hold([e.holds for e in option], self.spare))

    def averages(self) -> list[tuple[str, Estimate]]:
        """The mean over settings of each comparison that settings have in common, with its option.

        Comparisons of one block share runs: their mean is taken seed by seed, and only blocks are independent.
        """
        groups: dict[tuple[str, str], list[Comparison]] = defaultdict(list)
        for c in self.comparisons:
            if not c.first.veto:
                groups[c.first.pair, c.first.option].append(c)
        series = {key: _series(several) for key, several in groups.items()}
        pools: dict[str, list[tuple[np.ndarray, str, str]]] = defaultdict(list)
        for key, each in series.items():
            first = groups[key][0]
            pools[first.first.unit] += [(sample, block, _pair(first)) for block, (sample, _) in each.items()]
        noise = {unit: _noise(samples) for unit, samples in pools.items()}
        return [(key[1], self._average(groups[key], each, noise[groups[key][0].first.unit]))
                for key, each in series.items()]  # fmt: skip

    def _average(self, several: list[Comparison], series: dict, noise: stat.Noise) -> Estimate:
        first, printed = several[0].first, _mean([c.printed for c in several])
        where = f"mean of {len(several)}" if len(several) > 1 else self.names[first.key[0]]
        name = f"{where} {first.pair}".strip()
        bound = _mean([c.first.bound for c in several])
        if first.spread:
            return self._spread(several, name)
        short = any(c.lost or c.empty for c in several)
        if not series or not noise.df:
            won = float(short or any(c.behind < c.n for c in several))
            return Estimate(nan, nan, noise.df, bound, won, 1.0, printed, first.log, name)
        total = sum(size for _, size in series.values())
        shares = {block: size / total for block, (_, size) in series.items()}
        mean = sum(shares[block] * float(sample.mean()) for block, (sample, _) in series.items())
        weights = {block: shares[block] ** 2 / len(sample) for block, (sample, _) in series.items()}
        se, df = noise.of_sum(weights, _pair(several[0]))
        holds, fails = self._tests(mean, se, df, bound, first, printed)
        holds = 1.0 if short else holds
        return Estimate(mean, se, df, bound, holds, fails, printed, first.log, name, first.inside)

    def decided(self) -> tuple[str, Estimate | None]:
        """The outcome ("holds", "average", "fails" or "open") and the number that it rests on."""
        if _too_few_for_spreads(self.comparisons):
            return "open", self.averages()[0][1]
        settings = self.by_setting()
        averages = self.averages()
        average = self._combined(averages) if len(settings) > 1 and averages else (1.0, 1.0)
        holds, fails = zip(*settings.values(), strict=True)
        outcome = str(stat.decide(holds, fails, *average))
        if outcome == "fails" and average[1] < min(fails):
            return outcome, _failing(averages)
        own: dict[frozenset, list[tuple[str, Estimate]]] = {key: [] for key in settings}
        for c, e in self._pairs():
            own[c.first.key[0]].append((c.first.option, e))
        if outcome == "fails":
            return outcome, _failing(own[list(settings)[int(np.argmin(fails))]])
        if outcome == "holds":
            worst = [("", e) for e in map(doubtful, map(_with_numbers, own.values())) if e]
            return outcome, doubtful(_with_numbers(worst))
        return outcome, doubtful(_with_numbers(averages))


def _by_option(estimates: Iterable[tuple[str, Estimate]]) -> dict[str, list[Estimate]]:
    options: dict[str, list[Estimate]] = defaultdict(list)
    for option, estimate in estimates:
        options[option].append(estimate)
    return options


def doubtful(estimates: Iterable[tuple[str, Estimate]]) -> Estimate | None:
    """The comparison on which it hangs that several hold: the most doubtful one of the option that is least so."""
    options = [[e for e in each if not e.veto] for each in _by_option(estimates).values()]
    return min((max(each, key=Estimate.doubt) for each in options if each), key=Estimate.doubt, default=None)


def _with_numbers(estimates: Iterable[tuple[str, Estimate]]) -> list[tuple[str, Estimate]]:
    """Those with a mean; all where none has one."""
    several = list(estimates)
    return [(option, e) for option, e in several if isfinite(e.mean)] or several


def _failing(estimates: Iterable[tuple[str, Estimate]]) -> Estimate:
    """The comparison on which it hangs that several fail: the surest one of the option that is least sure to fail."""
    return max((min(each, key=lambda e: e.fails) for each in _by_option(estimates).values()), key=lambda e: e.fails)


def _too_few_for_spreads(comparisons: list[Comparison]) -> bool:
    """True for three seeds in one setting, where a standard deviation could be almost anything."""
    settings = {c.first.key[0] for c in comparisons}
    return len(settings) == 1 and any(c.first.spread and c.n <= stat.SEEDS for c in comparisons)


def _sample(c: Comparison) -> np.ndarray:
    return np.array(list(c.d.values()), float)


def _enough(c: Comparison) -> bool:
    """True if there are numbers, and enough seeds with those in which one of the two diverged, which says as much."""
    return bool(c.d) and c.n - c.empty >= stat.SEEDS


def _pool(c: Comparison) -> tuple[object, ...]:
    """What has to be alike for two comparisons to have one spread."""
    return c.first.veto, c.first.log, c.first.inside, c.first.unit


def _block(c: Comparison) -> str:
    return c.first.block or str(sorted(c.first.where.items(), key=str))


def _pair(c: Comparison) -> str:
    """The name of a comparison within its setting, the same in every setting."""
    return f"{c.first.option}: {c.first.pair}"


def _noise(samples: Iterable[tuple[np.ndarray, str, str]]) -> stat.Noise:
    """The standard deviation of numbers, from samples, the block of each, and which of the block's it is."""
    known = [each for each in samples if len(each[0]) > 1]
    return stat.Noise.of([each[0] for each in known], [each[1] for each in known], [each[2] for each in known])


def _series(several: list[Comparison]) -> dict[str, tuple[np.ndarray, int]]:
    """By block: the mean over its comparisons, seed by seed, and how many they are."""
    blocks: dict[str, list[Comparison]] = defaultdict(list)
    for c in several:
        if _enough(c):
            blocks[_block(c)].append(c)
    out = {}
    for block, each in blocks.items():
        common = [seed for seed in each[0].d if all(seed in c.d for c in each)]
        if common:
            out[block] = (np.array([np.mean([c.d[seed] for c in each]) for seed in common]), len(each))
    return out


def _mean(values: list[float]) -> float:
    known = [value for value in values if isfinite(value)]
    return sum(known) / len(known) if known else nan
