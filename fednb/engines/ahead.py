"""The batches of a round, and those of the next one ahead of time: a thread draws them while a GPU trains."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache

from fednb.data.resident import Drawn, Resident, ResidentPlan

THREADS = 2  # that draw for all runs of this process


class PlansAhead:
    """A function of a round and its clients that gives their batches; a thread draws those of the next round meanwhile.

    draw(t, ids) draws batches on the host; cohort(t) tells who takes part in round t; rounds: how many the run has.
    Called for a part of a cohort, it draws for that part alone, and nothing ahead.
    """

    def __init__(
        self, home: Resident, draw: Callable[[int, list[int]], Drawn], cohort: Callable[[int], list[int]], rounds: int
    ) -> None:
        self.home, self.draw, self.cohort, self.rounds = home, draw, cohort, rounds
        self.coming: tuple[int, Future[Drawn]] | None = None

    def __call__(self, t: int, ids: Sequence[int]) -> ResidentPlan:
        if list(ids) != self.cohort(t):
            return self.home.placed(self.draw(t, list(ids)))
        coming, self.coming = self.coming, None
        drawn = coming[1].result() if coming is not None and coming[0] == t else self.draw(t, list(ids))
        if t + 1 < self.rounds:
            self.coming = t + 1, _threads().submit(lambda: self.draw(t + 1, self.cohort(t + 1)))
        return self.home.placed(drawn)


@lru_cache(maxsize=1)
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(THREADS, thread_name_prefix="fednb draws batches")
