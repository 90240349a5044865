"""One client at a time, in this process: the engine to read and to debug."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from fednb.core.record import Answer, Cohort, OwnLoss, Server
from fednb.core.rounds import Method, observed_local
from fednb.data.plan import Plan
from fednb.engines.objective import Objective, arithmetic
from fednb.engines.problem import Problem


def single_oracle(objective: Objective, plan: Plan):
    """The gradient of one client: w `[1, P]`, on the samples of its batch that are there."""
    held: dict[int, tuple[Tensor, Tensor]] = {}  # both passes of a step see the same augmented batch

    def oracle(w: Tensor, b: Tensor, step: int, *told: OwnLoss, last: int | None = None) -> Answer:
        if step not in held:
            held.clear()
            x, y, valid = plan.at(step)
            held[step] = (x[0], y[0]) if valid.all() else (x[valid], y[valid])
        x, y = held[step]
        moved = b[0].clone()
        if told:
            g, loss, *seen = objective.own_loss_gradient(told[0], step, w[0], moved, x, y, told[0].rows[0])
        else:
            g, loss, *seen = objective.only_last(last).gradient(w[0], moved, x, y)
        return g[None], loss.view(1, 1), torch.full_like(loss, len(y)).view(1, 1), moved[None], *(z[None] for z in seen)

    return oracle


def train_one(problem: Problem, method: Method, s: Server, client: int, rows: dict[str, Tensor]) -> tuple[Cohort, int]:
    """One client's round; returns it with the count of numbers that it received."""
    plan = problem.plan(s.t, [client])
    k = problem.cohort(method, s, [client], rows, single_oracle(problem.objective, plan))
    with problem.drawing(s.t, client):
        down = observed_local(method, k, s)
    return k, down


def joined(
    problem: Problem, method: Method, s: Server, ids: Sequence[int], rows: dict[str, Tensor], evaluations: Tensor
) -> Cohort:
    """A cohort after training, from its clients' rows: what the server's half works on."""
    k = problem.cohort(method, s, ids, rows, _nothing)
    vars(k).update(evaluations=evaluations)
    return k


def _nothing(w: Tensor, b: Tensor, step: int, *told: OwnLoss) -> Answer:
    raise RuntimeError("the server has no data: `weigh` and `server` cannot ask for gradients")


class Loop:
    """Clients one after another. Slow, simple, and the reference for the others."""

    name = "loop"

    def __init__(self, problem: Problem) -> None:
        self.problem = problem

    def train(self, method: Method, s: Server, ids: Sequence[int], rows: dict[str, Tensor]) -> tuple[Cohort, int]:
        """All clients of a round; returns the cohort and the count of numbers that each received."""
        with arithmetic(self.problem.objective.precision):
            done = [
                train_one(self.problem, method, s, i, {name: x[c : c + 1] for name, x in rows.items()})
                for c, i in enumerate(ids)
            ]
        return self._joined(method, s, ids, done)

    def _joined(
        self, method: Method, s: Server, ids: Sequence[int], done: list[tuple[Cohort, int]]
    ) -> tuple[Cohort, int]:
        """One cohort from several that were trained apart."""
        each = [k.values(k.buffers) for k, _ in done]
        together = {name: torch.cat([own[name] for own in each]) for name in each[0]}
        counted = torch.cat([k.evaluations for k, _ in done])
        return joined(self.problem, method, s, ids, together, counted), max(down for _, down in done)

    def evaluate(self, w: Tensor, b: Tensor) -> tuple[float, float]:
        """Accuracy (in percent) and mean loss on the test set."""
        with arithmetic(self.problem.objective.precision):
            return total(self.problem, [self.problem.score(w, b, i) for i in range(self.problem.chunks())])

    def evaluate_own(self, k: Cohort) -> list[float]:
        """Accuracy of each client just trained on its own test split."""
        w, b = k.values(("w", "b")).values()
        with arithmetic(self.problem.objective.precision):
            return [self.problem.score_own(w[c], b[c], client) for c, client in enumerate(k.ids)]


def total(problem: Problem, scores: Sequence[tuple[Tensor | float, Tensor | float]]) -> tuple[float, float]:
    """Accuracy and loss from the pieces, added in the order of the test set; the device is asked once."""
    assert problem.test is not None
    n, right, loss = len(problem.test[1]), sum(right for right, _ in scores), sum(loss for _, loss in scores)
    return 100.0 * int(right) / n, float(loss) / n
