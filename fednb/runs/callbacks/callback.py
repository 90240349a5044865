"""What a run tells while it is made: its start, each of its rounds, its end."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from math import isfinite
from typing import Any

from fednb.runs.result import Run

Watch = Callable[[dict[str, Any]], None]


class Callback:
    """What is told of a run: `start` once, the callback itself for every round, `end` once.

    A function of one row is a callback, too. A row is a line of the run's history: round (from 0), accuracy,
    test_loss and the setting's metrics (None in rounds that are not tested), train_loss, drift, seconds,
    gradient_evaluations, bytes_down, bytes_up, clients, lr. Every round of the run is told in order, also those that
    the store has from before, so that a log is always whole. An error in a callback ends the run; the finished rounds
    are saved, and the same call goes on after them.

    >>> class Best(fn.callbacks.Callback):
    ...     def start(self, run):
    ...         self.rounds = 0
    ...     def __call__(self, row):
    ...         self.rounds += 1
    ...
    >>> best, setting = Best(), fn.Setting(samples=100, clients=4, rounds=2, epochs=1, batch=25)
    >>> run = fn.run(setting, "FedAvg", progress=False, on_round=best)
    >>> best.rounds
    2
    """

    def start(self, run: Run) -> None:
        """The run is about to tell its rounds; its setting, method, seed and key are known."""

    def __call__(self, row: dict[str, Any]) -> None:
        """A round is over."""

    def end(self, run: Run) -> None:
        """The run is over, or was interrupted: `run.status` says which."""


@contextmanager
def telling(callbacks: Watch | Sequence[Watch], run: Run, now: Callable[[], Run]) -> Iterator[Watch]:
    """A function that passes rows on to some callbacks, which are started before and ended behind the block.

    now: the run as it is when the block ends.
    """
    each = [callbacks] if callable(callbacks) or not isinstance(callbacks, Iterable) else list(callbacks)
    if wrong := [one for one in each if not callable(one)]:
        raise TypeError(f"on_round = {wrong[0]!r}: must be a function of one row, or a Callback")

    def tell(row: dict[str, Any]) -> None:
        for one in each:
            one(row)

    with ExitStack() as stack:
        for one in (one for one in each if isinstance(one, Callback)):
            one.start(run)
            stack.callback(_end, one, now)
        yield tell


def _end(one: Callback, now: Callable[[], Run]) -> None:
    one.end(now())


def numbers(row: dict[str, Any]) -> dict[str, float]:
    """The finite numbers of a row by name, without its round: what a log can draw."""
    return {k: float(v) for k, v in row.items() if k != "round" and v is not None and isfinite(v)}


def title(run: Run) -> str:
    """A run's name in a log: method, seed, and the beginning of its key."""
    return f"{run.method.name}, seed {run.seed}, {run.key[:8]}"
