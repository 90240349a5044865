"""A client's half of a round: what came from the server in, one client trained, what the method sends out."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from torch import Tensor

from fednb.core.rounds import Method
from fednb.engines.loop import train_one
from fednb.engines.problem import Problem
from fednb.engines.setting import Setting
from fednb.flower.rows import ClientRows
from fednb.flower.wire import Parcels, fault, wire_of


class NotSent(RuntimeError):
    """A method that read what the other side did not send."""


@dataclass(frozen=True)
class Task:
    """What the server tells a client beside arrays: the round, and what it knows of the federation.

    counted: the last round of this client that counted, -1 if none did. samples: of all clients together.
    first_samples: of client 0, by which nominal steps are counted.
    """

    federation: str
    client: int
    round: int
    counted: int
    samples: int
    first_samples: int


class ClientSide:
    """One client: its problem, a method, and the folder where its rows lie."""

    def __init__(self, problem: Problem, setting: Setting, method: Method, folder: Path) -> None:
        self.problem, self.setting, self.method, self.folder = problem, setting, method, folder
        self.wire = wire_of(method)
        self.parcels = Parcels(method, self.wire, problem.layout)
        like = next(problem.objective.model.parameters())
        self.w, self.b = problem.objective.start(like.dtype, like.device)
        self.start = method.buffers("per_client", problem.layout, self.w)

    def answer(self, task: Task, came: dict[str, Tensor]) -> dict[str, Tensor]:
        """Train this client in one round; returns what goes up. What it keeps is saved before it answers."""
        kept = {name: self.start[name] for name in self.wire.rows_at_client(self.method)}
        rows = ClientRows(self.folder, task.federation, task.client)
        own = {**self.start, **rows.before(task.round, task.counted, kept)}
        problem = replace(self.problem, training=self.setting.training(task.first_samples))
        s = problem.server(self.method, self.w, self.b)
        vars(s).update(t=task.round, samples=task.samples)
        sent = {**s.values(self.wire.down), **{f"row.{name}": self.start[name] for name in self.wire.rows_down}}
        if wrong := fault(came, self.parcels.packed(sent, sent), self.method.name):
            raise NotSent(f"the server {wrong}")
        whole = self.parcels.unpacked(came, sent, sent)
        for name in self.wire.down:
            setattr(s, name, whole[name])
        s.w = whole[self.wire.model]
        own |= {name: whole[f"row.{name}"] for name in self.wire.rows_down}
        with problem.objective.arithmetic():
            k, _ = train_one(problem, self.method, s, task.client, {name: x[None] for name, x in own.items()})
        if unsent := s.sent - {*self.wire.down, "w"}:
            raise NotSent(f"{self.method.name} read {sorted(unsent)[0]!r} of the server, which does not travel")
        rows.save(task.round, {name: x[0] for name, x in k.values(kept).items()})
        return self.parcels.packed({name: x[0] for name, x in k.values(self.wire.up).items()}, self.wire.up)
