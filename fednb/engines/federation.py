"""Federation: any method on clients that are known by their gradients, such as a quadratic in a notebook cell."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fednb.algorithms.catalogue import method as named
from fednb.base.checks import is_number, is_whole
from fednb.base.inputs import shown
from fednb.base.streams import stream
from fednb.core.federation import OracleOf, Population, Round, Rounds
from fednb.core.record import Answer, LocalTraining, Oracle
from fednb.core.rounds import Method
from fednb.core.vectors import Layout
from fednb.engines.setting import checked

Vector = Tensor | Sequence[float] | float
Who = int | Callable[[int], Sequence[int]] | None


class BadFederation(ValueError):
    """Clients, a model or participants that make no federation."""


@dataclass(frozen=True, eq=False)
class Trajectory:
    """A run: the global model before the first round and after each, w `[T+1, P]`, and the T rounds themselves."""

    w: Tensor
    rounds: tuple[Round, ...]


class Federation:
    """Clients whose losses are known by their gradients, and a server: `run` trains them by any method.

    gradient(w) takes one model per client, `[N, P]`, to the gradient of each client's loss there, `[N, P]`.
    w0: the first model, `[P]`; in float64 unless it is a tensor of floats. clients: N, their number.
    loss(w): the losses there, `[N]`, for methods that look at them; without it every loss is 1.
    layout: the layers inside a model; one layer without it. sizes: how many samples each client has, `[N]`; 1 without
    it. labels: how many of each class, `[N, classes]`, for methods that look at them; one class without it.

    >>> minima = torch.tensor([[0.0], [4.0]])
    >>> two = fn.Federation(lambda w: w - minima, w0=[10.0], clients=2)
    >>> two.run("FedAvg", rounds=3, lr=0.5).w.tolist()
    [[10.0], [6.0], [4.0], [3.0]]
    >>> seen = two.run("SCAFFOLD", rounds=1, lr=0.5).rounds[0]
    >>> seen.moves.tolist(), seen.state["k.c_k"].tolist(), seen.gradients.tolist(), seen.down, seen.up
    ([[-5.0], [-3.0]], [[10.0], [6.0]], [1, 1], 2, 2)
    """

    oracle_of: OracleOf | None = None  # of clients that are known by more than their gradients

    def __init__(
        self, gradient: Callable[[Tensor], Tensor], w0: Vector, clients: int, *,
        loss: Callable[[Tensor], Tensor] | None = None, layout: Layout | None = None,
        sizes: Vector | None = None, labels: Tensor | Sequence[Sequence[float]] | None = None,
    ) -> None:  # fmt: skip
        if not is_whole(clients, 1):
            raise BadFederation(f"clients = {shown(clients)}: must be a whole number of at least 1")
        self.gradient, self.loss, self.clients = gradient, loss, int(clients)
        self.w0 = _floats("w0", w0).reshape(-1)
        self.buffers = self.w0[:0]
        self.layout = layout or Layout(("w",), (tuple(self.w0.shape),))
        if self.layout.total != len(self.w0):
            raise BadFederation(f"w0 has {len(self.w0)} numbers, the layout {self.layout.total}")
        self.sizes = _each("sizes", 1 if sizes is None else sizes, clients)
        self.labels = _table("labels", self.sizes[:, None] if labels is None else labels, clients)
        self._check("gradient", gradient, (self.clients, len(self.w0)))
        if loss is not None:
            self._check("loss", loss, (self.clients,))

    @classmethod
    def of_oracles(
        cls, oracle_of: OracleOf, w0: Vector, clients: int, *, buffers: Vector = (), **others: Any
    ) -> Federation:
        """Clients that know more than a gradient: steps with batches of their own, losses, buffers of the model.

        oracle_of(t, ids) gives the oracle of those who take part in round t: oracle(w, b, step, *loss, last=None)
        returns the gradients `[C, P]`, the losses `[C, 1]`, the samples behind them `[C, 1]` and the buffers `[C, B]`.

        >>> def oracle_of(t, ids):
        ...     return lambda w, b, step, *loss, last=None: (w - step, 0 * w, 0 * w + 1, b)
        >>> one = fn.Federation.of_oracles(oracle_of, w0=[1.0], clients=1)
        >>> one.run("FedAvg", rounds=1, steps=2, lr=1.0).w.tolist()
        [[1.0], [1.0]]
        """
        made = cls(lambda w: w, w0, clients, **others)
        made.oracle_of, made.buffers = oracle_of, _floats("buffers", buffers).reshape(-1).to(made.w0)
        return made

    def start(
        self, method: str | Method, *, steps: int | Sequence[int] = 1, lr: float = 0.1, lr_decay: float = 1.0,
        weight_decay: float = 0.0, clip_norm: float | None = None, server_lr: float = 1.0, epochs: int = 1,
        nominal_steps: float | None = None, seed: int = 0,
    ) -> Rounds:  # fmt: skip
        """A method before its first round; `next` of what is returned runs one round, with all clients or some.

        steps: local steps of a round, one number or one per client. The other numbers are those of `fn.Setting`;
        nominal_steps: what methods take for the number of steps, those of client 0 without it.
        """
        made, count = named(method), _each("steps", steps, self.clients).long()
        rates = checked(lr=lr, lr_decay=lr_decay, weight_decay=weight_decay, clip_norm=clip_norm, epochs=epochs)
        nominal = float(count[0]) if nominal_steps is None else nominal_steps
        if not is_number(nominal) or nominal <= 0:
            raise BadFederation(f"nominal_steps = {shown(nominal)}: must be a number above 0")
        population = Population(
            layout=self.layout, sizes=self.sizes, steps=count, labels=self.labels, seed=seed,
            training=LocalTraining(**rates, nominal_steps=nominal), **checked(server_lr=server_lr),
        )  # fmt: skip
        return Rounds(made, population, self.w0, self.buffers, self.oracle_of or self._exact(count.to(self.w0.device)))

    def run(
        self, method: str | Method, rounds: int = 50, *, participants: Who = None, seed: int = 0, **numbers: Any
    ) -> Trajectory:
        """Rounds of a method from w0 on; numbers: steps, lr and the others that `start` takes.

        method: a method, or its name. participants: how many clients take part in each round, drawn by the seed; or a
        function of the round that names them; all of them without it.
        """
        checked(rounds=rounds)
        going, done = self.start(method, seed=seed, **numbers), []
        for t in range(rounds):
            done.append(going.next(self._present(participants, seed, t)))
        return Trajectory(torch.stack([self.w0, *(each.w for each in done)]), tuple(done))

    def _exact(self, steps: Tensor) -> OracleOf:
        """Oracles by the gradient of all clients; those who stay away are asked at w0."""

        def oracle_of(t: int, ids: list[int]) -> Oracle:
            everyone = ids == list(range(self.clients))

            def of_those(function: Callable[[Tensor], Tensor], w: Tensor) -> Tensor:
                if everyone:
                    return function(w)
                rows = self.w0.expand(self.clients, -1).clone()
                rows[ids] = w
                return function(rows)[ids]

            def oracle(w: Tensor, b: Tensor, step: int, *loss: Any, **fewer: Any) -> Answer:
                there = (steps[ids] > step).to(w).view(-1, 1)
                losses = torch.ones_like(there) if self.loss is None else of_those(self.loss, w).reshape(-1, 1)
                return of_those(self.gradient, w), losses, there, b

            return oracle

        return oracle_of

    def _check(self, name: str, function: Any, shape: tuple[int, ...]) -> None:
        """Call a function of models once, with w0 for every client, and refuse what is not finite or of this shape."""
        if not callable(function):
            raise BadFederation(f"{name} = {shown(function)}: must be a function of models [clients, P]")
        found = function(self.w0.expand(self.clients, -1).clone())
        if not isinstance(found, Tensor) or found.shape != shape:
            given = f"has shape {tuple(found.shape)}" if isinstance(found, Tensor) else f"is {shown(found)}"
            raise BadFederation(f"what {name}(w) returns {given}: must be a tensor of shape {shape}")
        if not found.isfinite().all():
            raise BadFederation(f"{name}(w) is not finite at w0")

    def _present(self, participants: Who, seed: int, t: int) -> list[int] | None:
        if participants is None:
            return None
        if callable(participants):
            ids = list(participants(t))
            if not ids or len(set(ids)) < len(ids) or not all(is_whole(i, 0, self.clients - 1) for i in ids):
                raise BadFederation(
                    f"participants of round {t} = {shown(ids)}: must be some of 0 to {self.clients - 1}"
                )
            return ids
        if not is_whole(participants, 1, self.clients):
            raise BadFederation(
                f"participants = {shown(participants)}: must be from 1 to {self.clients}, or a function"
            )
        return sorted(stream(seed, "participants", t).choice(self.clients, participants, replace=False).tolist())


def _floats(name: str, value: Any) -> Tensor:
    """A tensor of finite floats: a tensor in its own kind, anything else in float64."""
    try:
        made = value if isinstance(value, Tensor) else torch.as_tensor(value, dtype=torch.float64)
    except (TypeError, ValueError, RuntimeError):
        raise BadFederation(f"{name} = {shown(value)}: must be numbers") from None
    made = made.detach() if made.is_floating_point() else made.double()
    if not made.isfinite().all():
        raise BadFederation(f"{name} = {shown(value)}: must be finite")
    return made.clone()


def _each(name: str, value: Any, clients: int) -> Tensor:
    """A number for each client, `[N]`: whole numbers of at least 1, or one for all."""
    made = _floats(name, value)
    if made.numel() not in (1, clients) or made.dim() > 1 or (made < 1).any() or (made != made.round()).any():
        raise BadFederation(f"{name} = {shown(value)}: must be a whole number of at least 1, or {clients} of them")
    return made.expand(clients).clone()


def _table(name: str, value: Any, clients: int) -> Tensor:
    made = _floats(name, value)
    if made.dim() != 2 or len(made) != clients:
        raise BadFederation(f"{name} has shape {tuple(made.shape)}: must have a row for each of {clients} clients")
    return made.long()
