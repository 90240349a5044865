"""Rounds of one method on clients that any oracle stands for: who trains, by which numbers, and what comes of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fednb.core.record import Cohort, LocalTraining, Oracle, Server, Table
from fednb.core.rounds import Method, blank, observed_round
from fednb.core.vectors import Layout

OracleOf = Callable[[int, list[int]], Oracle]  # of a round and its participants


@dataclass(frozen=True, eq=False, kw_only=True)
class Population:
    """All clients of a run and the numbers by which they and the server train; makes the server and the cohorts."""

    layout: Layout
    sizes: Tensor  # [N] samples of each client
    steps: Tensor  # [N] local steps of each client in a round
    training: LocalTraining
    server_lr: float = 1.0
    by_size: bool = True
    labels: Tensor | None = None  # [N, classes] samples of each class at each client
    seed: int = 0

    @property
    def clients(self) -> int:
        """N, the number of clients."""
        return len(self.sizes)

    def rate(self, t: int) -> float:
        """η of round t."""
        return self.training.rate(t)

    def server(self, method: Method, w: Tensor, b: Tensor) -> Server:
        """The server before the first round."""
        own = method.buffers("on_server", self.layout, w)
        samples = self.sizes.sum().item()  # sizes may be shares, such as 0.25
        return Server(w, b, own, t=0, N=self.clients, lr=self.server_lr, samples=samples, seed=self.seed)

    def cohort(self, method: Method, s: Server, ids: Sequence[int], rows: dict[str, Tensor], oracle: Oracle) -> Cohort:
        """Clients before training, with the rows that they kept from earlier rounds."""
        w, b = s.values(("w", "b")).values()
        return Cohort(
            ids,
            {**blank(method, self.layout, w, b, len(ids)), **rows},
            layout=self.layout,
            oracle=oracle,
            n=self.sizes[list(ids)],
            steps=self.steps[list(ids)],
            training=self.training,
            t=s.t,
            labels=None if self.labels is None else self.labels[list(ids)],
            p=self.shares(ids).to(w),
        )

    def shares(self, ids: Sequence[int]) -> Tensor:
        """How much each client of a cohort counts before any part has a say: by samples, or all alike."""
        n = self.sizes[list(ids)].double().view(-1, 1)
        return n / n.sum() if self.by_size else torch.full_like(n, 1 / len(n))


@dataclass(frozen=True, eq=False)
class Round:
    """What one round did: the cohort after training, the global model after it, and the numbers that were sent.

    state: what the parts declare, as it is after the round: "s.NAME" of the server `[D]`, "k.NAME" of those who took
    part `[C, D]`. down, up: how many numbers each of them received and sent.
    """

    cohort: Cohort
    w: Tensor  # [P]
    state: dict[str, Tensor]
    down: int
    up: int

    @property
    def participants(self) -> tuple[int, ...]:
        """The numbers of the C clients that took part."""
        return self.cohort.ids

    @property
    def moves(self) -> Tensor:
        """How far each of them went from the model that it received, `[C, P]`."""
        return self.cohort.values(["delta"])["delta"]

    @property
    def gradients(self) -> Tensor:
        """How many gradients each of them took in its steps and beside them, `[C]`."""
        return self.cohort.evaluations.view(-1)

    @property
    def looks(self) -> Tensor:
        """How many of these gradients were taken beside the steps, such as those of a pilot, `[C]`."""
        return self.cohort.looks.view(-1)


class Rounds:
    """A method's rounds, each made by `next`; `s` is the server, `table` what each client keeps.

    oracle_of(t, ids) gives the oracle of the participants of round t (see `fednb.core.record.Oracle`). w `[P]` is the
    first model, b `[B]` its buffers.
    """

    def __init__(self, method: Method, population: Population, w: Tensor, b: Tensor, oracle_of: OracleOf) -> None:
        self.method, self.population, self.oracle_of = method, population, oracle_of
        self.s = population.server(method, w, b)
        self.table = Table(method.buffers("per_client", population.layout, w))

    def next(self, participants: Sequence[int] | None = None) -> Round:
        """Run one round with these clients, or with all."""
        ids = list(range(self.population.clients) if participants is None else participants)
        k = self.population.cohort(self.method, self.s, ids, self.table.gather(ids), self.oracle_of(self.s.t, ids))
        down, up = observed_round(self.method, k, self.s)
        self.table.scatter(ids, k.values(self.table.start))
        return Round(k, self.s.values(["w"])["w"], self._state(k), down, up)

    def _state(self, k: Cohort) -> dict[str, Tensor]:
        of_clients = k.values([*self.method.declared("per_client"), *self.method.declared("this_round")])
        of_server = self.s.values(self.method.declared("on_server"))
        return {f"k.{name}": x for name, x in of_clients.items()} | {f"s.{name}": x for name, x in of_server.items()}
