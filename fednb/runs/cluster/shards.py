"""A grid in equal parts for job arrays without a server: each part is the same whoever asks, whatever is finished."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fednb.base.inputs import shown
from fednb.runs.together import Wanted, families

MOST = 100_000


class BadShard(ValueError):
    """A text that names no part of a grid."""


@dataclass(frozen=True)
class Shard:
    """Part `number` (from 1) of `count` parts of a grid's runs, which differ by one run at most."""

    number: int
    count: int

    @classmethod
    def of(cls, text: str) -> Shard:
        """A part as typed.

        >>> from fednb.runs.cluster.shards import Shard
        >>> Shard.of("3/16")
        Shard(number=3, count=16)
        """
        number, _, count = text.partition("/")
        if not (number.isdecimal() and count.isdecimal() and 1 <= int(number) <= int(count) <= MOST):
            raise BadShard(f"shard {shown(text)}: must be such as 3/16, from 1/16 to 16/16")
        return cls(int(number), int(count))

    def keys(self, wanted: Mapping[str, Wanted]) -> list[str]:
        """The keys of this part's runs. Runs that can train in the same lanes stand together, as far as parts are even.

        wanted: all runs of the grid by key, in its order; every part must be given the same ones.
        """
        line = [key for family in families(wanted) for key in family]
        begin, end = (len(line) * n // self.count for n in (self.number - 1, self.number))
        return line[begin:end]
