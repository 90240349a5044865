"""What a method costs: counted while it runs on a small quadratic, not declared."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fednb.core.federation import Population, Rounds
from fednb.core.record import Answer, LocalTraining, Oracle
from fednb.core.rounds import Method
from fednb.core.vectors import Layout

LAYOUT = Layout(("body.weight", "head.weight", "head.bias"), ((100, 90), (10, 99), (10,)))
STEPS = 3


@dataclass(frozen=True)
class Cost:
    """What a method costs, seen by running it: gradients per step and round, numbers sent and kept per parameter."""

    passes: float
    down: float
    up: float
    kept: float
    extra: float = 0.0  # gradients beside the steps, per client and round

    @property
    def traffic(self) -> float:
        """Both ways together, FedAvg = 1."""
        return (self.down + self.up) / 2


def cost(method: Method) -> Cost:
    """Run two rounds on a small quadratic and watch: gradients at the oracle, reads across the network.

    >>> seen = fn.cost(fn.method("SCAFFOLD"))
    >>> seen.passes, seen.traffic, seen.kept
    (1.0, 2.0, 1.0)
    """
    rounds = small_rounds(method)
    rounds.next()
    seen = rounds.next()
    kept = sum(x.numel() for x in rounds.table.start.values())
    return Cost(
        passes=round((seen.gradients - seen.looks).sum().item() / (2 * STEPS), 3),
        extra=seen.looks.sum().item() / 2,
        down=round(seen.down / LAYOUT.total, 2),
        up=round(seen.up / LAYOUT.total, 2),
        kept=round(kept / LAYOUT.total, 2),
    )


def small_rounds(method: Method) -> Rounds:
    """A method's rounds for two clients on a small quadratic: quick to run, to see what it reads, sends and keeps."""
    w, none = torch.zeros(LAYOUT.total, dtype=torch.float64), torch.zeros(0, dtype=torch.float64)
    at = torch.linspace(-1.0, 1.0, 2 * LAYOUT.total, dtype=torch.float64).view(2, -1)
    one = torch.ones(2, 1, dtype=torch.float64)

    def oracle_of(t: int, ids: list[int]) -> Oracle:
        def oracle(x: Tensor, b: Tensor, *asked: object, **fewer: object) -> Answer:
            return x - at[ids], one[ids], one[ids], b

        return oracle

    two = Population(
        layout=LAYOUT, sizes=one.view(-1), steps=STEPS * one.view(-1), labels=torch.tensor([[1, 2], [2, 1]]),
        training=LocalTraining(lr=0.1, nominal_steps=STEPS),
    )  # fmt: skip
    return Rounds(method, two, w, none, oracle_of)
