"""What clients and server remember: declared buffers under plain names, masked writes, tables of client rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor

from fednb.core.vectors import Layout

P = "P"
"""The length of a buffer that a part declares: one number per parameter of the model.

>>> fn.method("SCAFFOLD").declared("per_client") == {"c_k": fn.P}
True
"""
L = "L"
"""The length of a buffer that a part declares: one number per layer of the model.

>>> fn.L in fn.method("FedFSA").declared("this_round").values()
True
"""
Dim = str | int | Callable[[Layout], int]
Declared = dict[str, Dim]
Answer = tuple[Tensor, ...]  # gradient, loss, number of samples, buffers after the pass; what a told loss has seen
Oracle = Callable[..., Answer]  # asked with w, buffers, step, what the loss is told; may answer for `last` layers alone


@dataclass(frozen=True)
class LocalTraining:
    """The numbers by which every client trains: learning rate and its decay, weight decay, clip, epochs, steps.

    lr: the learning rate of round 0. lr_decay: the factor on it, per round. clip_norm: the longest step direction,
    or none. nominal_steps: FL-Simulator's K, epochs · n_0 / batch, a real number.
    """

    lr: float
    lr_decay: float = 1.0
    weight_decay: float = 0.0
    clip_norm: float | None = None
    epochs: int = 1
    nominal_steps: float = 1.0

    def rate(self, t: int) -> float:
        """The learning rate of round t.

        >>> LocalTraining(lr=0.5, lr_decay=0.5).rate(2)
        0.125
        """
        return self.lr * self.lr_decay**t


class UndeclaredState(AttributeError):
    """A name that no part of the method declares."""


def length(dim: Dim, layout: Layout) -> int:
    """A declared dimension as a number."""
    if isinstance(dim, int):
        return dim
    return {P: layout.total, L: len(layout)}[dim] if isinstance(dim, str) else dim(layout)


@dataclass(frozen=True, eq=False)
class OwnLoss:
    """A loss that a part brings in place of the data's, with the numbers that it needs beside a batch.

    loss(answer, y, row, step, common) returns the losses `[n, 1]` and what it has seen of each sample `[n, D]`, which
    is added up over the batch. answer(draws) is what the model answers (draws reach only a model that has a use for
    them), row is the client's own of `rows`, common is the same for all clients of a run, step is a number or a tensor
    of one. Two losses that are dataclasses with equal fields count as one, so that rounds and runs share a captured
    step; any other is new in every round, and its steps are launched one by one.
    """

    loss: Callable[..., tuple[Tensor, Tensor]]
    rows: Tensor  # [C, D]
    common: Tensor  # [K], or a row for each client `[C, K]` where clients of several runs are together


class Record:
    """Values under plain names. Reading is noted (what is read was sent); writing needs a declaration."""

    _values: dict[str, Any]
    _read: set[str]
    locked: bool

    def __init__(self, values: dict[str, Any]) -> None:
        vars(self).update(_values=dict(values), _read=set(), locked=False)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name not in self._values:
            raise UndeclaredState(f"no {name!r} on the {self._whose()}; declared: {', '.join(self._values)}")
        self._read.add(name)
        return self._values[name]

    def __setattr__(self, name: str, value: Any) -> None:
        if name in vars(self) or name in vars(type(self)):
            object.__setattr__(self, name, value)
        elif name not in self._values:
            raise UndeclaredState(
                f"cannot write {name!r} on the {self._whose()}; declared: {', '.join(self._values)}. "
                f"Declare it in the part: per_client, this_round or on_server."
            )
        elif self.locked:
            raise UndeclaredState(f"a client stage cannot write {name!r} on the server; use `server`")
        else:
            self._values[name] = self._fit(name, value)

    def _whose(self) -> str:
        return type(self).__name__.lower()

    def _fit(self, name: str, value: Any) -> Any:
        old = self._values[name]
        if not isinstance(old, Tensor):
            return value
        if isinstance(value, int | float):
            value = old.new_full((), value)  # a fill, not a copy from the host
        value = torch.as_tensor(value, dtype=old.dtype, device=old.device)
        try:
            return value.expand(old.shape)
        except RuntimeError:
            raise ValueError(
                f"{name!r} on the {self._whose()} has shape {tuple(old.shape)}, not {tuple(value.shape)}"
            ) from None

    @property
    def names(self) -> tuple[str, ...]:
        """Everything that can be read here."""
        return tuple(self._values)

    def values(self, names: Iterable[str]) -> dict[str, Tensor]:
        """Several values at once, without noting that they were read."""
        return {name: self._values[name] for name in names}

    def borrowing(self, values: dict[str, Tensor], **others: Any) -> Self:
        """A copy that works on other tensors under the same names; nothing that it does is seen here."""
        twin = copy(self)
        vars(twin).update(_values={**self._values, **values}, _read=set(), **others)
        return twin

    def receive(self, values: dict[str, Tensor], read: Iterable[str] = ()) -> None:
        """Take over what a twin has written and read."""
        self._values.update(values)
        self._read.update(read)

    def listen(self) -> None:
        """Forget what was read so far."""
        self._read.clear()

    @property
    def heard(self) -> frozenset[str]:
        """The names read since `listen`."""
        return frozenset(self._read)


class Server(Record):
    """The server `s`: the model `w` `[P]`, buffers `b`, what parts declare; `lr`, round `t`, clients `N`, `samples`.

    seed: the run's, which everyone knows; random choices of parts follow it.
    """

    def __init__(
        self,
        w: Tensor,
        b: Tensor,
        own: dict[str, Tensor],
        *,
        t: int,
        N: int,
        lr: float,
        samples: float = 1,
        seed: int = 0,
    ) -> None:
        move = {"w": w, "b": b, "delta": torch.zeros_like(w), "step": torch.zeros_like(w)}
        super().__init__({**move, "lr": lr, **own})
        vars(self).update(t=t, N=N, samples=samples, seed=seed)

    @property
    def sent(self) -> frozenset[str]:
        """What went down to each client: everything read that is the server's to know."""
        return self.heard - {"lr", "delta", "step"} | {"w", "b"}


class Cohort(Record):
    """The clients of a round, `k`: vectors `[C, P]`, numbers `[C, 1]`; `k.grad` is the gradient at any point.

    training: the numbers of local training; t: the round, which decides the learning rate.
    While `active` is a mask, writes leave the rows of clients that have finished their steps as they are.
    """

    FREE = frozenset({"lr", "weight_decay", "clip_norm", "p"})  # known on both sides
    MOVE = frozenset({"w", "w0", "delta"})  # each derivable from the other and what was sent: one upload

    def __init__(
        self,
        ids: Sequence[int],
        rows: dict[str, Tensor],
        *,
        layout: Layout,
        oracle: Oracle,
        n: Tensor,
        steps: Tensor,
        training: LocalTraining,
        t: int = 0,
        labels: Tensor | None = None,
        p: Tensor | None = None,
    ) -> None:
        rows = {"lr": torch.full_like(rows["loss"], training.rate(t)), **rows}
        given = {"weight_decay": training.weight_decay, "clip_norm": training.clip_norm, "p": p}
        super().__init__({**rows, **given})
        column = rows["w"].new_tensor
        counts = [int(c) for c in steps.tolist()]
        vars(self).update(
            ids=tuple(ids),
            buffers=tuple(rows),
            layout=layout,
            oracle=oracle,
            n=column(n.tolist()).view(-1, 1),
            steps=column(counts).view(-1, 1),
            nominal_steps=training.nominal_steps,
            epochs=training.epochs,
            lr_decay=training.lr_decay,
            first_lr=training.lr,
            labels=labels,
            min_steps=min(counts),
            max_steps=max(counts),
            active=None,
            told=(),
            noticed=torch.zeros(0),
            step=0,
            fresh=True,
            evaluations=torch.zeros(len(counts), 1, dtype=torch.int64),
            looks=torch.zeros(len(counts), 1, dtype=torch.int64),
            samples=torch.zeros_like(rows["loss"]),
            counts=torch.tensor(counts).view(-1, 1),
            on=torch.ones(len(counts), 1, dtype=torch.int64),
            asked=0,
        )

    def begin(self, step: int) -> None:
        """Turn to a step's batch. Finished clients stand still from here on."""
        done = step >= self.min_steps
        on = (self.counts > step).long()  # known without asking the device
        vars(self).update(step=step, fresh=True, on=on, active=self.steps > step if done else None)

    def end(self) -> None:
        """After the last step everyone may write again."""
        vars(self).update(active=None)

    def tell(self, loss: Callable[..., tuple[Tensor, Tensor]], rows: Tensor, common: Tensor) -> None:
        """Train on another loss from here on (see `OwnLoss`); `noticed` then has what it saw of each step's batch."""
        vars(self).update(told=(OwnLoss(loss, rows, common),))

    def grad(self, w: Tensor) -> Tensor:
        """∇L at w on each client's batch of this step.

        Only the first pass of a step gives its training loss and moves buffers such as BatchNorm's statistics.
        """
        g, loss, count, b, *seen = self.oracle(w, self._values["b"], self.step, *self.told)
        vars(self).update(evaluations=self.evaluations + self.on, asked=self.asked + 1)
        if self.fresh:
            vars(self).update(fresh=False, samples=self.samples + count, noticed=seen[0] if seen else self.noticed)
            before = self._values["loss"]
            self._values["loss"] = before + (loss - before) * count / self.samples.clamp_min(1)
            self.b = b
        return g

    def look(
        self, w: Tensor, step: int, who: Tensor | bool = True, last: int | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """∇L, L and the number of samples at w on the batch of any step; nothing of the training moves.

        who: the clients that need to look; the others are not charged for it. last: with respect to so many layers
        at the end alone, a gradient `[C, n]` of as many numbers as they have.
        """
        fewer = {} if last is None or self.told else {"last": last}
        g, loss, count, *_ = self.oracle(w, self._values["b"], step, *self.told, **fewer)
        g = g if last is None else g[:, -self.layout.top(last) :]
        on = ((self.steps > step) & who).to("cpu", torch.int64)
        vars(self).update(evaluations=self.evaluations + on, looks=self.looks + on)
        return g, loss, count

    def _fit(self, name: str, value: Any) -> Any:
        if name not in self.buffers:
            return value
        new = super()._fit(name, value)
        return new if self.active is None else torch.where(self.active, new, self._values[name])

    @property
    def sent(self) -> frozenset[str]:
        """What went up to the server: everything read that is not known there; the move counts once."""
        return self.heard - self.FREE - self.MOVE | {"delta", "b"}


def core_rows(layout: Layout, w: Tensor, b: Tensor, clients: int) -> dict[str, Tensor]:
    """Zeros for what every cohort has, `[clients, dim]` by name: the model's vectors, the loss, the buffers."""
    dims: Declared = {"w": P, "w0": P, "delta": P, "loss": 1, "b": b.shape[-1]}
    return {name: w.new_zeros(clients, length(dim, layout)) for name, dim in dims.items()}


def server_names() -> frozenset[str]:
    """Every public name that a server has before parts declare any state."""
    nothing = torch.zeros(0)
    return _public_names(Server(nothing, nothing, {}, t=0, N=1, lr=1.0))


def cohort_names() -> frozenset[str]:
    """Every public name that a cohort has before parts declare any state."""
    nothing, one = torch.zeros(0), torch.ones(1)
    layout = Layout(("w",), ((0,),))
    rows = core_rows(layout, nothing, nothing, 1)
    return _public_names(
        Cohort((0,), rows, layout=layout, oracle=_no_oracle, n=one, steps=one, training=LocalTraining(lr=1.0))
    )


def _no_oracle(*asked: Any) -> Answer:
    raise RuntimeError("these clients have no data")


def _public_names(record: Record) -> frozenset[str]:
    """Values, attributes and methods of a record, without those that begin with an underscore."""
    return frozenset(name for name in (*record.names, *dir(record)) if not name.startswith("_"))


class Table:
    """What each client keeps between rounds: rows by client, made on first use from the declared start values.

    on_host: rows lie in the host's memory and only those of a cohort come to the device, where all would not fit.
    """

    def __init__(self, start: dict[str, Tensor], on_host: bool = False) -> None:
        self.devices = {name: x.device for name, x in start.items()}
        self.start = {name: _on_host(x) for name, x in start.items()} if on_host else start
        self.clients: dict[int, dict[str, Tensor]] = {}
        self.on_host = on_host

    def gather(self, ids: Sequence[int], names: Iterable[str] | None = None) -> dict[str, Tensor]:
        """The rows of some clients, `[C, dim]` by name: all of them, or the named ones."""
        rows = [self.clients.get(i, self.start) for i in ids]
        return {
            name: _together([row[name] for row in rows], self.devices[name])
            for name in (self.start if names is None else names)
        }

    def scatter(self, ids: Sequence[int], rows: dict[str, Tensor]) -> None:
        """Keep the rows of a finished round."""
        keep = _on_host if self.on_host else Tensor.clone
        for c, i in enumerate(ids):
            self.clients[i] = dict(self.start) | {name: keep(rows[name][c]) for name in rows}


def _together(rows: Sequence[Tensor], device: torch.device) -> Tensor:
    """Rows as one tensor on a device. Those on the host are copied one by one, so that it need not join them first."""
    if rows[0].device == device:
        return torch.stack(list(rows))
    there = rows[0].new_empty((len(rows), *rows[0].shape), device=device)
    for to, row in zip(there, rows, strict=True):
        to.copy_(row, non_blocking=True)
    return there


def _on_host(x: Tensor) -> Tensor:
    """A copy in the host's memory, in pages that a GPU reads by itself."""
    kept = torch.empty(x.shape, dtype=x.dtype, pin_memory=x.device.type == "cuda")
    return kept.copy_(x)
