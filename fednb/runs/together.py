"""Many runs in one process: on a GPU several at a time, which share data, lanes and captured steps, nothing else."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from math import ceil
from typing import Any

import torch

from fednb.base.processes.ending import DeviceFailed, device_failed
from fednb.core.rounds import Method
from fednb.engines import Company, device_of
from fednb.engines.lane_step import alike
from fednb.engines.setting import Setting
from fednb.engines.stacked import SharedSteps, free_bytes
from fednb.runs.experiment import Run, fitted, run
from fednb.runs.probes import Probe

AT_ONCE = 6  # runs on one GPU, such as two methods with three seeds each
SHARED = (
    "data", "model", "loss", "batch", "epochs", "augment", "precision", "weight_decay", "clip_norm", "evaluation"
)  # fmt: skip
EARLY = 2  # runs with steps of another kind that may be begun before it is their turn, so that these are compiled
LOOK = 0.2  # seconds between two looks for a signal
OnRound = Callable[[int, dict[str, Any]], None]


@dataclass(frozen=True)
class Wanted:
    """A run that is to be made."""

    setting: Setting
    method: Method
    seed: int
    probe: Probe | None = None

    def like(self) -> tuple[Any, ...]:
        """What runs have in common that can train in the same lanes; the shapes of their rounds decide in the end."""
        setting = fitted(self.setting, self.method)
        return alike(self.method), *(getattr(setting, name) for name in SHARED)


def families(wanted: Mapping[str, Wanted]) -> list[list[str]]:
    """The keys of runs in groups that can train in the same lanes; in the order in which they are wanted."""
    like: dict[tuple[Any, ...], list[str]] = {}
    for key, each in wanted.items():
        like.setdefault(each.like(), []).append(key)
    return list(like.values())


def evenly(count: int) -> int:
    """How many runs a GPU makes at a time where so many are wanted: six at most, in turns of about the same size.

    >>> [evenly(count) for count in (1, 6, 8, 12, 13)]
    [1, 6, 4, 6, 5]
    """
    return ceil(count / max(1, ceil(count / AT_ONCE)))


class TimeIsUp(Exception):
    """No further round is to be begun."""


def run_all(
    wanted: Sequence[Wanted],
    *,
    device: str = "auto",
    engine: str = "auto",
    until: float | None = None,
    on_round: OnRound | None = None,
    at_once: int | None = None,
) -> Iterator[tuple[int, Run | Exception]]:
    """Make runs, and give each with its place among the wanted as it ends, or the error that ended it.

    until: a `time.monotonic()` after which no further round is begun; runs at work are saved, and not given. on_round
    is told the place of a run and each row of its history. at_once: how many, at most; one on a CPU. Where the device
    fails, that is the error of the runs at work, and no other is begun.
    """
    several = at_once or (evenly(len(wanted)) if device_of(device).type == "cuda" else 1)
    work = _Work(wanted, device, engine, until, on_round)
    if several == 1:
        for at in range(len(wanted)):
            if work.stopped():
                return
            if (made := work.make(at, None)) is not None:
                yield at, made
        return
    yield from _threaded(work, several)


@dataclass
class _Work:
    """What is to be made, and until when."""

    wanted: Sequence[Wanted]
    device: str
    engine: str
    until: float | None
    on_round: OnRound | None
    interrupted: bool = False

    def stopped(self) -> bool:
        return self.interrupted or (self.until is not None and time.monotonic() >= self.until)

    def make(self, at: int, beside: Company | None) -> Run | Exception | None:
        """One run, or its error; nothing where the time was up before its last round."""
        each = self.wanted[at]

        def watch(row: dict[str, Any]) -> None:
            if self.on_round is not None:
                self.on_round(at, row)
            if self.stopped() and row["round"] + 1 < each.setting.rounds:
                raise TimeIsUp

        try:
            return run(each.setting, each.method, each.seed, engine=self.engine, device=self.device, probe=each.probe,
                       progress=watch, beside=beside)  # fmt: skip
        except TimeIsUp:
            return None
        except Exception as error:
            if not device_failed(error):
                return error
            self.interrupted = True
            return DeviceFailed(error)


def _threaded(work: _Work, several: int) -> Iterator[tuple[int, Run | Exception]]:
    """Several runs at a time, each in a thread and on a stream of its own; one that ends makes room for the next."""
    line = _Line(work, several)
    try:
        while line.threads or (line.todo and not work.stopped()):
            if not work.stopped():
                line.move_up()
            try:
                at, made = line.ended.get(timeout=LOOK)
            except queue.Empty:
                continue
            line.left(at)
            if made is not None:
                yield at, made
    finally:
        work.interrupted = True
        for thread in line.threads.values():
            thread.join()


class _Line:
    """Runs in the order in which they are wanted: to be begun, begun early and waiting for their turn, at work."""

    def __init__(self, work: _Work, several: int) -> None:
        self.work, self.several, self.shared = work, several, SharedSteps()
        self.todo, self.alike = list(range(len(work.wanted))), [each.like() for each in work.wanted]
        self.begun: set[tuple[Any, ...]] = set()  # kinds of runs of which there was one
        self.turns: dict[int, threading.Event] = {}  # of those that wait
        self.threads: dict[int, threading.Thread] = {}
        self.ended: queue.SimpleQueue[tuple[int, Run | Exception | None]] = queue.SimpleQueue()

    def move_up(self) -> None:
        """Let as many work as may, those wanted first first; then begin some early."""
        while (self.todo or self.turns) and len(self.threads) - len(self.turns) < self.several:
            at = min([*self.todo[:1], *self.turns])
            self.turns.pop(at).set() if at in self.turns else self._begin(self.todo.pop(0), None)
        other = [at for at in self.todo if self.alike[at] not in self.begun]
        if other and len(self.turns) < EARLY and self.shared.settled() and _has_room(self.work.device):
            self.todo.remove(other[0])
            self._begin(other[0], threading.Event())

    def beside(self, at: int) -> tuple[int, int]:
        """Of the runs that are at work with this one: how many are like it, itself included, and how many kinds.

        As many as can be of kinds; of runs those of its turn, which begin and end together if all are equally long.
        """
        turn = at - at % self.several
        first = range(max(0, at + 1 - self.several), at + 1)
        kinds = max(len(set(self.alike[i : i + self.several])) for i in first)
        return self.alike[turn : turn + self.several].count(self.alike[at]), kinds

    def left(self, at: int) -> None:
        """One is over, whether it was its turn or not; lanes that no other run needs go with it."""
        self.threads.pop(at).join()
        self.turns.pop(at, None)
        if rest := [*self.todo, *self.threads]:
            self.shared.keep_only({self.alike[i][0] for i in rest})

    def _begin(self, at: int, turn: threading.Event | None) -> None:
        self.begun.add(self.alike[at])
        if turn is not None:
            self.turns[at] = turn
        self.threads[at] = threading.Thread(target=self._make, args=(at, turn), name=f"fednb run {at}")
        self.threads[at].start()

    def _make(self, at: int, turn: threading.Event | None) -> None:
        def wait() -> None:
            while turn is not None and not turn.wait(LOOK):
                if self.work.stopped():
                    raise TimeIsUp

        company = Company(self.shared, *self.beside(at), wait)
        with _own_stream(self.work.device):
            self.ended.put((at, self.work.make(at, company)))


def _has_room(device: str) -> bool:
    """True if half of a GPU's memory is free: steps that are made early would be of fewer clients in less."""
    where = device_of(device)
    return where.type == "cuda" and free_bytes(where) > torch.cuda.mem_get_info(where)[1] / 2


def _own_stream(device: str) -> AbstractContextManager[object]:
    """The work of this thread on a GPU waits for nobody else's."""
    where = device_of(device)
    return torch.cuda.stream(torch.cuda.Stream(where)) if where.type == "cuda" else nullcontext()
