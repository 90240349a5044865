"""A worker process: holds a problem, trains one client at a time with one thread, ends when its parent does."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
import traceback
from dataclasses import replace
from multiprocessing.connection import Connection
from typing import Any

import torch

from fednb.data.sources import Dataset
from fednb.engines.loop import train_one
from fednb.engines.problem import Problem, problem_of
from fednb.engines.shared import Description, opened
from fednb.rounds import Method
from fednb.setting import Setting


class Worker:
    """What a worker knows between messages. Each public method answers one kind of message."""

    def __init__(self) -> None:
        self.sets: dict[str, Dataset] = {}
        self.problem: Problem
        self.rows: dict[str, torch.Tensor]
        self.server: dict[str, torch.Tensor]

    def data(self, key: str, frame: Dataset, about: Description) -> None:
        """Open a data set that the parent shares."""
        self.sets = {key: replace(frame, **opened(about))}

    def work_on(self, setting: Setting, seed: int, key: str, parts: list) -> None:
        """Build the problem of a run."""
        self.problem = problem_of(setting, seed, data=self.sets[key], parts=parts)

    def arena(self, rows: Description, server: Description) -> None:
        """Open the cohort's rows and the server's vectors."""
        self.rows, self.server = opened(rows), opened(server)

    def train(self, method: Method, t: int, slot: int, client: int, kept: tuple[str, ...]) -> tuple[int, int]:
        """Train one client in place; answers with its gradient evaluations and the numbers that it received."""
        own = dict(self.server)
        s = self.problem.server(method, own.pop("w"), own.pop("b"))
        s.t = t
        for name, x in own.items():
            setattr(s, name, x)
        k, down = train_one(self.problem, method, s, client, {n: self.rows[n][slot : slot + 1].clone() for n in kept})
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


def serve(line: Connection) -> None:
    """Answer messages until the parent hangs up."""
    worker = Worker()
    while True:
        try:
            what, *given = line.recv()
        except (EOFError, ConnectionResetError):
            return
        try:
            answer: tuple[str, Any] = ("done", getattr(worker, what)(*given))
        except Exception:
            answer = ("failed", traceback.format_exc())
        line.send(answer)


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what an interrupt means
    torch.set_num_threads(1)
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    serve(Connection(int(sys.argv[1])))
