"""What a claim compares: one number per seed, signed so that the sentence says it is above a bound (or inside one)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import isfinite, nan

import numpy as np

from fednb.study.claims.tables import Where


@dataclass(frozen=True)
class Seen:
    """What one seed says about one comparison of a claim.

    where: the setting. d: the number that the sentence is about, signed so that it should be above `bound` (or its size
    at most `bound`, with `inside`). pair: which of several comparisons in the setting. option: of several, one is
    enough. block: comparisons of one block share runs, so that their errors are not independent; the setting, if empty.
    said, numbers: the numbers behind d in words, "{} against {}" and (71.0, 70.0). sign: -1 if d is what right is above
    left, so that words turn it round. strict: false if d may equal the bound. veto: a side condition that can only
    speak against the sentence. log: d is a logarithm. lost: the method that the sentence is about has no number here.
    behind: its rival diverged. unit: the measure, where the sentence is about one or another. spread: how the numbers
    scatter over seeds is compared, with each other or with `most`; then d only says that they are there.
    """

    where: Where
    d: float
    bound: float = 0.0
    pair: str = ""
    option: str = ""
    block: str = ""
    said: str = ""
    numbers: tuple[float, ...] = ()
    sign: int = 1
    strict: bool = True
    inside: bool = False
    veto: bool = False
    log: bool = False
    lost: bool = False
    behind: bool = False
    unit: str = ""
    spread: bool = False
    most: float = 0.0

    @property
    def key(self) -> tuple[frozenset, str, str, bool, str]:
        """What is the same for all seeds of one comparison: the setting first."""
        return frozenset(self.where.items()), self.pair, self.option, self.veto, self.said


@dataclass
class Comparison:
    """One comparison of a claim with the numbers of all its seeds."""

    first: Seen
    d: dict[object, float] = field(default_factory=dict)  # by seed, finite
    numbers: list[tuple[float, ...]] = field(default_factory=list)
    lost: int = 0  # seeds in which the method that the sentence is about has no number
    behind: int = 0  # seeds in which its rival diverged
    empty: int = 0  # seeds in which another number is missing
    printed: float = nan

    def add(self, seed: object, seen: Seen) -> None:
        """Take in what one seed says."""
        finite = isfinite(seen.d) and not seen.lost and not seen.behind
        if finite:
            self.d[seed] = seen.d
        self.numbers.append(seen.numbers)
        self.lost += seen.lost
        self.behind += seen.behind and not seen.lost
        self.empty += not finite and not seen.lost and not seen.behind

    @property
    def n(self) -> int:
        """How many seeds were run, with a number or without."""
        return len(self.numbers)

    @property
    def whole(self) -> bool:
        """True if no number is missing."""
        return not self.lost and not self.empty

    def true(self, d: float) -> bool:
        """True if a number, taken for certain, is as the sentence says."""
        s = self.first
        return abs(d) <= s.bound if s.inside else d > s.bound or (not s.strict and d >= s.bound)

    @property
    def samples(self) -> list[np.ndarray]:
        """The numbers behind the comparison: for each of them an array over the seeds that have it."""
        return [np.array([value for value in each if isfinite(value)]) for each in zip(*self.numbers, strict=True)]

    @property
    def means(self) -> list[float]:
        """The numbers behind the comparison, means over seeds; standard deviations where these are compared."""
        if self.first.spread:
            return [float(each.std(ddof=1)) if len(each) > 1 else nan for each in self.samples]
        return [float(each.mean()) if len(each) else nan for each in self.samples]

    @property
    def words(self) -> str:
        """The numbers behind the comparison in words, and what has none."""
        said = self.first.said.format(*(f"{value:.4g}" for value in self.means))
        gone = {"left": self.lost, "right": self.behind, "a number": self.empty}
        lacking = [f"{what} in {count} of {len(self.numbers)}" for what, count in gone.items() if count]
        return said + (f" (not finite: {', '.join(lacking)} seeds)" if lacking else "")


def gathered(by_seed: Iterable[tuple[object, list[Seen]]]) -> list[Comparison]:
    """The comparisons of a claim, from what each seed says."""
    found: dict[tuple, Comparison] = {}
    for seed, seen in by_seed:
        for each in seen:
            found.setdefault(each.key, Comparison(each)).add(seed, each)
    return list(found.values())


def plain(text: str) -> str:
    """A text that `str.format` leaves as it is."""
    return text.replace("{", "{{").replace("}", "}}")
