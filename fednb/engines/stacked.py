"""All clients at once: one vmapped gradient over the cohort, finished clients masked."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from torch import Tensor
from torch.func import grad_and_value, vmap

from fednb.data.plan import Plan
from fednb.engines.loop import Loop
from fednb.engines.objective import Objective, one_thread
from fednb.engines.problem import Problem
from fednb.record import Answer, Cohort, Server, Told
from fednb.rounds import Method, observed_local


class NeedsGroupNorm(ValueError):
    """A model with BatchNorm cannot be stacked."""


def stacked_oracle(objective: Objective, plan: Plan):
    """The gradients of all clients: w `[C, P]`, batches padded to one size and masked."""
    both = vmap(grad_and_value(objective.masked_loss))
    held: dict[int, tuple[Tensor, Tensor, Tensor]] = {}

    def oracle(w: Tensor, b: Tensor, step: int, *told: Told) -> Answer:
        if step not in held:
            held.clear()
            held[step] = plan.at(step)
        x, y, valid = held[step]
        count = valid.sum(-1, keepdim=True).to(w.dtype)
        if told:
            own = vmap(grad_and_value(partial(objective.told_loss, told[0], step), has_aux=True))
            g, (loss, seen) = own(w, b, x, y, valid.to(w.dtype), told[0].rows)
            return g, loss.view(-1, 1), count, b, seen
        g, loss = both(w, b, x, y, valid.to(w.dtype))
        return g, loss.view(-1, 1), count, b

    return oracle


class Stacked(Loop):
    """The whole cohort as one batch of models."""

    name = "stacked"

    def __init__(self, problem: Problem, how: str = "eager") -> None:
        self.how, self.captured = how, {}
        if len(problem.objective.buffers):
            raise NeedsGroupNorm(
                "this model has BatchNorm: clients cannot be stacked. Use its -gn form, or engine='loop' or 'pool'."
            )
        super().__init__(problem)

    def train(self, method: Method, s: Server, ids: Sequence[int], rows: dict[str, Tensor]) -> tuple[Cohort, int]:
        with one_thread():
            plan = self.problem.plan(s.t, list(ids))
            oracle = stacked_oracle(self.problem.objective, plan)
            k = self.problem.cohort(method, s, ids, rows, oracle)
            walk = None if self.how == "eager" else lambda m, k, s: self._walk(m, k, s, plan)
            return k, observed_local(method, k, s, walk)

    def _walk(self, method, k, s, plan):
        from fednb.engines.captured import CapturedStep
        from functools import partial
        key = (method, k.weight_decay, k.clip_norm)
        if key not in self.captured:
            room = len(k.ids), int(self.problem.steps.max())
            of = partial(stacked_oracle, self.problem.objective)
            self.captured[key] = CapturedStep(method, k, s, plan, room, of, self.how == "compiled")
        self.captured[key].walk(k, s, plan)
