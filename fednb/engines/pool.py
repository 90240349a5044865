"""Persistent worker processes with one torch thread each: the engine for CPUs."""

from __future__ import annotations

import atexit
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from multiprocessing.connection import Connection, wait
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fednb.data.dataset import TENSORS, Dataset
from fednb.engines.loop import joined, total
from fednb.engines.problem import Problem
from fednb.engines.shared import shared
from fednb.record import Cohort, Server
from fednb.rounds import Method, blank
from fednb.setting import Setting


class WorkerFailed(RuntimeError):
    """A worker process raised an error or ended."""


class Crew:
    """Worker processes and a line to each. They outlive runs and end with this process."""

    def __init__(self, workers: int) -> None:
        self.members = [_hire() for _ in range(workers)]
        self.data: Dataset | None = None  # what the workers hold

    def tell(self, *message: Any) -> None:
        """The same message to everyone; returns when all have done it."""
        self.deal([message] * len(self.members), everyone=True)

    def deal(self, messages: Sequence[tuple], everyone: bool = False) -> list[Any]:
        """Each message to whoever is free, in order; answers in the same order."""
        answers: list[Any] = [None] * len(messages)
        waiting = list(enumerate(messages))[::-1]
        busy: dict[Connection, int] = {}
        try:
            for _, line in self.members[: len(messages)]:
                busy[line] = self._send(line, waiting)
            while busy:
                for line in wait(list(busy)):
                    assert isinstance(line, Connection)
                    answers[busy.pop(line)] = _answer(line)
                    if waiting and not everyone:
                        busy[line] = self._send(line, waiting)
        except BaseException:
            self.close()  # an interrupted crew has answers on the line that nobody waits for
            raise
        return answers

    def _send(self, line: Connection, waiting: list[tuple[int, tuple]]) -> int:
        at, message = waiting.pop()
        line.send(message)
        return at

    def close(self) -> None:
        for process, line in self.members:
            line.close()
            process.kill()
            process.wait()
        self.members = []


def _hire() -> tuple[subprocess.Popen, Connection]:
    ours, theirs = socket.socketpair()
    path = os.pathsep.join(p for p in sys.path if p)
    process = subprocess.Popen(
        [sys.executable, "-m", "fednb.engines.worker", str(theirs.fileno())],
        pass_fds=[theirs.fileno()],
        env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"},
        stdin=subprocess.DEVNULL,
    )
    theirs.close()
    return process, Connection(ours.detach())


def _answer(line: Connection) -> Any:
    try:
        how, what = line.recv()
    except (EOFError, ConnectionResetError):
        raise WorkerFailed("a worker process ended by itself; was it killed, or out of memory?") from None
    if how == "failed":
        raise WorkerFailed(f"a client's training failed in a worker process:\n{what}")
    return what


_crew: Crew | None = None


def crew(workers: int) -> Crew:
    """The process's crew, started on first use and kept."""
    global _crew
    if _crew is None or len(_crew.members) != workers:
        dismiss()
        _crew = Crew(workers)
    return _crew


@atexit.register
def dismiss() -> None:
    """End the worker processes."""
    global _crew
    if _crew is not None:
        _crew.close()
        _crew = None


class Pool:
    """Clients dealt out to worker processes, the longest first; weights and data in shared memory."""

    name = "pool"

    def __init__(self, problem: Problem, setting: Setting, seed: int, data: Dataset, parts: list[np.ndarray],
                 workers: int) -> None:  # fmt: skip
        self.problem = problem
        self.crew = crew(workers)
        if self.crew.data is not data:  # not by name: another folder may hold another set of that name
            tensors = {name: getattr(data, name) for name in TENSORS}
            nothing = {name: torch.zeros(0) for name in tensors}
            frame = replace(data, **nothing, owner=None, owner_test=None)  # who holds what is in the parts
            with shared(tensors) as (_, about):
                self.crew.tell("data", data.name, frame, about)
            self.crew.data = data
        self.crew.tell("work_on", setting, seed, data.name, parts)
        self.rows: dict[str, Tensor] = {}
        self.server: dict[str, Tensor] = {}

    def train(self, method: Method, s: Server, ids: Sequence[int], rows: dict[str, Tensor]) -> tuple[Cohort, int]:
        """All clients of a round; returns the cohort and the count of numbers that each received."""
        self._fill(method, s, ids, rows)
        order = sorted(range(len(ids)), key=lambda c: -int(self.problem.steps[ids[c]]))
        done = self.crew.deal([("train", method, s.t, c, ids[c], tuple(rows)) for c in order])
        counted = torch.zeros(len(ids), 1, dtype=torch.int64)
        for c, (evaluations, _) in zip(order, done, strict=True):
            counted[c] = evaluations
        together = {name: x[: len(ids)].clone() for name, x in self.rows.items()}
        return joined(self.problem, method, s, ids, together, counted), max(down for _, down in done)

    def evaluate(self, w: Tensor, b: Tensor) -> tuple[float, float]:
        """Accuracy (in percent) and mean loss on the test set, its pieces dealt out."""
        self.server["w"].copy_(w)
        self.server["b"].copy_(b)
        return total(self.problem, self.crew.deal([("score", i) for i in range(self.problem.chunks())]))

    def evaluate_own(self, k: Cohort) -> list[float]:
        """Accuracy of each client just trained on its own test split."""
        return self.crew.deal([("score_own", c, client) for c, client in enumerate(k.ids)])

    def _fill(self, method: Method, s: Server, ids: Sequence[int], rows: dict[str, Tensor]) -> None:
        """Put the round's start into shared memory; make it anew where it is too small or of another shape."""
        server = s.values(["w", "b", *method.declared("on_server")])
        empty = blank(method, self.problem.objective.layout, server["w"], server["b"], len(ids))
        wanted = {**empty, "lr": empty["loss"], **rows}
        fits = self.rows.keys() == wanted.keys() and self.server.keys() == server.keys()
        if not fits or len(self.rows["w"]) < len(ids):
            with shared(wanted) as (mine, about_rows), shared(server) as (ours, about_server):
                self.crew.tell("arena", about_rows, about_server)
            self.rows, self.server = mine, ours
        for name, x in server.items():
            self.server[name].copy_(x)
        for name, x in rows.items():
            self.rows[name][: len(ids)] = x
