"""A worker process of the pool: holds a problem, trains one client at a time with one thread."""

from __future__ import annotations

import sys
from dataclasses import replace
from multiprocessing.connection import Connection
from typing import Any

import torch

from fednb.base.processes.member import serve
from fednb.core.rounds import Method
from fednb.data.sources import Dataset
from fednb.engines.loop import train_one
from fednb.engines.losses import LOSSES, Loss
from fednb.engines.problem import Problem, problem_of
from fednb.engines.setting import Setting
from fednb.models import MODELS, OwnModel


class Worker:
    """What a worker knows between messages. Each public method answers one kind of message."""

    def __init__(self) -> None:
        self.sets: dict[str, Dataset] = {}
        self.problem: Problem
        self.rows: dict[str, torch.Tensor]
        self.server: dict[str, torch.Tensor]

    def data(self, key: str, frame: Dataset, tensors: dict[str, Any]) -> None:
        """Hold a data set that the parent shares."""
        self.sets = {key: replace(frame, **tensors)}

    def work_on(
        self, setting: Setting, seed: int, key: str, parts: list, own: OwnModel | None, loss: Loss | None
    ) -> None:
        """Build the problem of a run; own, loss: its model and its loss, where they are a user's."""
        if own is not None:
            MODELS[setting.model] = own
        if loss is not None:
            LOSSES.known[setting.loss] = loss
        self.problem = problem_of(setting, seed, data=self.sets[key], parts=parts)

    def arena(self, rows: dict[str, torch.Tensor], server: dict[str, torch.Tensor]) -> None:
        """Hold the cohort's rows and the server's vectors, which the parent shares."""
        self.rows, self.server = rows, server

    def train(self, method: Method, t: int, slot: int, client: int, kept: tuple[str, ...]) -> tuple[int, int]:
        """Train one client in place; answers with its gradient evaluations and the numbers that it received."""
        own = dict(self.server)
        s = self.problem.server(method, own.pop("w"), own.pop("b"))
        s.t = t
        for name, x in own.items():
            setattr(s, name, x)
        rows = {n: self.rows[n][slot : slot + 1].clone() for n in kept}
        with self.problem.objective.arithmetic():
            k, down = train_one(self.problem, method, s, client, rows)
        for name, x in k.values(k.buffers).items():
            self.rows[name][slot] = x[0]
        return int(k.evaluations), down

    def score_own(self, slot: int, client: int) -> float:
        """Score a trained client's model on its own test split."""
        return self.problem.score_own(self.rows["w"][slot], self.rows["b"][slot], client)

    def score(self, chunk: int) -> tuple[int, float]:
        """Score one piece of the test set with the server's model."""
        right, loss = self.problem.score(self.server["w"], self.server["b"], chunk)
        return int(right), float(loss)


if __name__ == "__main__":
    torch.set_num_threads(1)
    serve(Connection(int(sys.argv[1])), Worker())
