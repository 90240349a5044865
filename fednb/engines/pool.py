"""Persistent worker processes with one torch thread each: the engine for CPUs."""

from __future__ import annotations

import atexit
import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fednb.base.processes.shared import Shared
from fednb.core.record import Cohort, Server
from fednb.core.rounds import Method, blank
from fednb.data.dataset import TENSORS, Dataset
from fednb.data.labels import Iid
from fednb.engines.crew import Crew
from fednb.engines.loop import joined, total
from fednb.engines.losses import LOSSES
from fednb.engines.problem import Problem
from fednb.engines.setting import Setting
from fednb.models import own_of

_crew: Crew | None = None


def crew(workers: int) -> Crew:
    """The process's crew, started on first use and kept."""
    global _crew
    if _crew is None or len(_crew.members) != workers or _crew.owner != os.getpid():
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
        self.crew, own, loss = crew(workers), own_of(setting.model), LOSSES.own(setting.loss)
        known = {f"{type(each).__name__} {each.name}": each.serial for each in (own, loss) if each is not None}
        if any(self.crew.own.get(name, serial) != serial for name, serial in known.items()):
            dismiss()  # workers may have imported what the former model or loss of that name was made of
            self.crew = crew(workers)
        self.crew.own |= known
        self.crew.losses = 0
        if self.crew.data is not data:  # not by name: another folder may hold another set of that name
            tensors = {name: getattr(data, name) for name in TENSORS}
            nothing: dict[str, Any] = {name: torch.zeros(0) for name in tensors}
            frame = replace(data, **nothing, owner=None, owner_test=None)  # who holds what is in the parts
            self.crew.tell("data", data.name, frame, Shared(tensors))
            self.crew.data = data
        plain = setting.but(partition=Iid())  # who holds what is in the parts
        self.crew.tell("work_on", plain, seed, data.name, parts, own and replace(own, origin=None),
                       loss and replace(loss, sent=True))  # fmt: skip
        self.rows: dict[str, Tensor] = {}
        self.server: dict[str, Tensor] = {}

    def train(self, method: Method, s: Server, ids: Sequence[int], rows: dict[str, Tensor]) -> tuple[Cohort, int]:
        """All clients of a round; returns the cohort and the count of numbers that each received."""
        self._fill(method, s, ids, rows)
        order = sorted(range(len(ids)), key=lambda c: -int(self.problem.steps[ids[c]]))
        asked = [("train", method, s.t, c, ids[c], tuple(rows)) for c in order]
        done = self.crew.deal(asked, again=lambda at: self._put(rows, order[at]))
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
            self.rows, self.server = Shared(wanted), Shared(server)
            self.crew.tell("arena", self.rows, self.server)
        for name, x in server.items():
            self.server[name].copy_(x)
        for c in range(len(ids)):
            self._put(rows, c)

    def _put(self, rows: dict[str, Tensor], c: int) -> None:
        """What client c of the cohort kept from earlier rounds; a worker that was killed may have written over it."""
        for name, x in rows.items():
            self.rows[name][c] = x[c]
