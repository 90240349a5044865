"""Any method on explicit data: how a published run, batch by batch, is held against ours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor, nn

from fednb.algorithms.catalogue import method as named
from fednb.core.record import LocalTraining, Table
from fednb.core.rounds import Method, observed_server
from fednb.data.plan import ExplicitPlan, Plan
from fednb.engines.loop import Loop
from fednb.engines.objective import Objective
from fednb.engines.problem import Problem
from fednb.engines.stacked import Stacked

Array = Tensor | np.ndarray


@dataclass
class Replay:
    """Every round of a replayed run: global weights, local weights (NaN for those who stayed away), and state."""

    w: Tensor  # [T+1, P]
    local: Tensor  # [T, N, P]
    clients: dict[str, Tensor] = field(default_factory=dict)  # name -> [T, N, dim], after each round
    server: dict[str, Tensor] = field(default_factory=dict)  # name -> [T, dim]
    gradients: Tensor = field(default_factory=lambda: torch.zeros(0))  # [T, N] network passes
    buffers: Tensor = field(default_factory=lambda: torch.zeros(0))  # [T+1, B] the server's, such as BatchNorm's


def replay(
    method: str | Method,
    model: nn.Module,
    w0: Array,
    X: Array,
    Y: Array,
    mask: Array,
    *,
    lr: float,
    lr_decay: float = 1.0,
    weight_decay: float = 0.0,
    server_lr: float = 1.0,
    clip_norm: float | None = None,
    n: Array | None = None,
    engine: str = "loop",
) -> Replay:
    """Drive a method with any module over given batches, in the dtype of `w0`.

    X `[T, N, E, B, b, ...]` and Y `[T, N, E, B, b]` hold every batch of every client, mask `[T, N]` says who takes
    part, n `[N]` weighs clients by size where given. The rate of round t is lr · lr_decay^t.

    >>> model = torch.nn.Linear(2, 2, bias=False)
    >>> X, Y = torch.ones(1, 3, 1, 1, 4, 2), torch.zeros(1, 3, 1, 1, 4)    # 1 round, 3 clients, 1 epoch, 1 batch
    >>> done = fn.replay("FedAvg", model, torch.zeros(4), X, Y, mask=torch.ones(1, 3), lr=1.0)
    >>> done.w[1]
    tensor([ 0.5000,  0.5000, -0.5000, -0.5000])
    """
    method = named(method)
    w, X, Y, mask = torch.as_tensor(w0).clone(), torch.as_tensor(X), torch.as_tensor(Y).long(), torch.as_tensor(mask)
    training = LocalTraining(lr=lr, lr_decay=lr_decay, weight_decay=weight_decay, clip_norm=clip_norm)
    problem = _problem(model, w, X, Y, n, training, server_lr)
    run = {"loop": Loop, "stacked": Stacked}[engine](problem)
    T, N = mask.shape
    s = problem.server(method, w, problem.objective.start(w.dtype, w.device)[1])
    table = Table(method.buffers("per_client", problem.objective.layout, w))
    out = Replay(w=w.new_zeros(T + 1, len(w)), local=w.new_full((T, N, len(w)), torch.nan))
    out.gradients = torch.zeros(T, N, dtype=torch.int64)
    out.w[0] = w
    out.buffers = torch.stack([s.values(["b"])["b"]] * (T + 1))
    for t in range(T):
        s.t = t
        if ids := mask[t].nonzero().view(-1).tolist():
            k, _ = run.train(method, s, ids, table.gather(ids))
            observed_server(method, k, s)
            table.scatter(ids, k.values(table.start))
            out.local[t, ids] = k.values(["w"])["w"]
            out.gradients[t, ids] = k.evaluations.view(-1)
        out.w[t + 1], out.buffers[t + 1] = s.values(("w", "b")).values()
        _note(out.clients, t, T, table.gather(range(N)))
        _note(out.server, t, T, s.values(method.declared("on_server")))
    return out


def _problem(
    model: nn.Module, w: Tensor, X: Tensor, Y: Tensor, n: Array | None, training: LocalTraining, server_lr: float
) -> Problem:
    if X.shape[:5] != Y.shape[:5]:
        raise ValueError(f"X {tuple(X.shape)} and Y {tuple(Y.shape)} must agree in [T, N, E, B, b]")
    objective = Objective(model)
    if objective.layout.total != len(w):
        raise ValueError(f"w0 has {len(w)} numbers, the model {objective.layout.total}")
    _, N, E, B, b = Y.shape
    X = X.to(w.dtype) if X.is_floating_point() else X
    sizes = torch.full((N,), B * b) if n is None else torch.as_tensor(n)

    def plan(t: int, ids: Sequence[int]) -> Plan:
        ids = list(ids)
        return ExplicitPlan(X[t, ids].flatten(1, 2), Y[t, ids].flatten(1, 2))

    return Problem(
        objective, plan, layout=objective.layout, sizes=sizes, steps=torch.full((N,), E * B), server_lr=server_lr,
        training=replace(training, epochs=E, nominal_steps=E * float(sizes[0]) / b), by_size=n is not None,
        labels=_labels(Y),
    )  # fmt: skip


def _labels(Y: Tensor) -> Tensor:
    """How often each client has each label, over all rounds."""
    each = torch.nn.functional.one_hot(Y.transpose(0, 1).flatten(1))
    return each.sum(1)


def _note(into: dict[str, Tensor], t: int, T: int, now: dict[str, Tensor]) -> None:
    for name, x in now.items():
        into.setdefault(name, x.new_zeros(T, *x.shape))[t] = x
