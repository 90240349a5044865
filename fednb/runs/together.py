"""Many runs in one process: on a GPU several at a time, which share data, lanes and captured steps, nothing else."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch

from fednb.core.rounds import Method
from fednb.engines import Company, device_of
from fednb.engines.lane_step import alike
from fednb.engines.setting import Setting
from fednb.engines.stacked import SharedSteps
from fednb.runs.experiment import Run, fitted, run
from fednb.runs.probes import Probe

AT_ONCE = 6  # runs on one GPU, such as two methods with three seeds each
SHARED = ("data", "model", "batch", "epochs", "augment", "precision", "weight_decay", "clip_norm", "evaluation")
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
    is told the place of a run and each row of its history. at_once: how many, at most; one on a CPU.
    """
    several = (at_once or AT_ONCE) if device_of(device).type == "cuda" else (at_once or 1)
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
            return error


def _threaded(work: _Work, several: int) -> Iterator[tuple[int, Run | Exception]]:
    """Several runs at a time, each in a thread and on a stream of its own; one that ends makes room for the next."""
    todo, shared, alike = list(range(len(work.wanted))), SharedSteps(), [each.like() for each in work.wanted]
    ended: queue.SimpleQueue[tuple[int, Run | Exception | None]] = queue.SimpleQueue()
    at_work: dict[int, threading.Thread] = {}

    def one(at: int) -> None:
        company = Company(shared, min(several, alike.count(alike[at])))
        with _own_stream(work.device):
            ended.put((at, work.make(at, company)))

    try:
        while at_work or (todo and not work.stopped()):
            while todo and len(at_work) < several and not work.stopped():
                at = todo.pop(0)
                at_work[at] = threading.Thread(target=one, args=(at,), name=f"fednb run {at}")
                at_work[at].start()
            try:
                at, made = ended.get(timeout=LOOK)
            except queue.Empty:
                continue
            at_work.pop(at).join()
            if made is not None:
                yield at, made
    finally:
        work.interrupted = True
        for thread in at_work.values():
            thread.join()


def _own_stream(device: str) -> AbstractContextManager[object]:
    """The work of this thread on a GPU waits for nobody else's."""
    where = device_of(device)
    return torch.cuda.stream(torch.cuda.Stream(where)) if where.type == "cuda" else nullcontext()
