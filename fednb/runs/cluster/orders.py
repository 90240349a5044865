"""What a worker is asked for and what it answers: orders of one run or of several, and what became of each run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod

from fednb import models
from fednb.core.record import P
from fednb.data import sources
from fednb.runs.experiment import fitted
from fednb.runs.keys import key_of
from fednb.runs.together import AT_ONCE, Wanted, families

VECTORS = 8  # of a model's size that training holds beside what clients keep: weights, gradients, a few steps of each
NUMBER = 4  # bytes
PYTHON = 500 << 20  # bytes of a process that has loaded torch
MOST_TOGETHER = 2 * AT_ONCE  # runs of one order: as many train at once, and as many again keep the lanes full


@dataclass(frozen=True)
class Order:
    """Runs for one worker, with their keys; token: a file of the client's store, by which a worker knows it."""

    wanted: tuple[Wanted, ...]
    keys: tuple[str, ...]
    device: str
    engine: str
    token: str


@dataclass(frozen=True)
class Answer:
    """What became of a run on a worker.

    status: that of the run; empty where it failed, which `why` tells, or was stopped. archive: the finished run, as
    `fednb store export` writes it, where the worker has a store of its own.
    """

    key: str
    where: str
    status: str = ""
    why: str = ""
    archive: bytes | None = None

    @property
    def stopped(self) -> bool:
        """True if the worker neither made the run nor failed: nobody wanted it any more, or the worker had to end."""
        return not self.status and not self.why


def task_of(keys: Sequence[str]) -> str:
    """The name of a task for some runs: whoever asks for the same ones asks for the same task.

    >>> task_of(["0123456789abcdef"])
    'fednb-0123456789abcdef'
    """
    return f"fednb-{keys[0] if len(keys) == 1 else key_of(sorted(keys))}"


def bundles(wanted: Sequence[Wanted], keys: Sequence[str], gpu: bool) -> list[list[str]]:
    """The keys of runs that go to one worker: on a GPU some that can train in the same lanes, otherwise one each.

    They are made from all runs that are wanted, missing or not, so that another client makes the same ones.
    """
    if not gpu:
        return [[key] for key in dict.fromkeys(keys)]
    grouped = families(dict(zip(keys, wanted, strict=True)))
    return [family[i : i + MOST_TOGETHER] for family in grouped for i in range(0, len(family), MOST_TOGETHER)]


def bytes_of(each: Wanted) -> int:
    """About how much memory a run takes: Python, the data set, and vectors of the model's size.

    The vectors are what clients keep between rounds, and what training holds.
    """
    setting = fitted(each.setting, each.method)
    source = sources.find(setting.data)
    samples = (source.train + source.test) * prod(source.shape[1:] if source.text else source.shape)
    kept = setting.clients * sum(size == P for size in each.method.declared("per_client").values())
    vectors = NUMBER * _size(setting.model, setting.data) * (VECTORS + kept)
    return int(PYTHON + samples * (NUMBER if source.text else 1) + vectors)


@lru_cache(maxsize=64)
def _size(model: str, data: str) -> int:
    """How many numbers a model has for a data set; 0 where only the data can say."""
    source = sources.find(data)
    if not source.classes:
        return 0
    made = models.build(model, source.classes, source.shape)
    return sum(x.numel() for x in made.state_dict().values())
