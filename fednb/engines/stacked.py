"""All clients at once: one vmapped gradient over the cohort, finished clients masked; on a GPU a captured step."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from math import inf
from typing import TypeVar

import torch
from torch import Tensor
from torch.func import grad_and_value, vmap

from fednb.core.record import Answer, Cohort, Oracle, OwnLoss, Server
from fednb.core.rounds import Method, blank, observed_local, step_by_step
from fednb.data.plan import Plan
from fednb.data.resident import ResidentPlan
from fednb.engines.captured import CapturedOracle, CapturedStep, OracleOf
from fednb.engines.loop import Loop
from fednb.engines.objective import Objective, arithmetic
from fednb.engines.problem import Problem

MODES = ("eager", "graph", "compiled")  # of taking a step: each launch by itself, as one graph, or compiled before that
PAYS = {"graph": 100, "compiled": 4000}  # steps of a run from which capturing (seconds) and compiling (a minute) pay
T = TypeVar("T")
SPARE = 0.6  # the share of free GPU memory that a wave of clients may take


class NeedsGroupNorm(ValueError):
    """A model with BatchNorm cannot be stacked."""


def stacked_oracle(objective: Objective, plan: Plan):
    """The gradients of all clients: w `[C, P]`, batches padded to one size and masked."""
    held: dict[int | Tensor, tuple[Tensor, Tensor, Tensor]] = {}

    def oracle(w: Tensor, b: Tensor, step: int | Tensor, *told: OwnLoss, last: int | None = None) -> Answer:
        if step not in held:
            held.clear()
            held[step] = plan.at(step)
        x, y, valid = held[step]
        count = valid.sum(-1, keepdim=True).to(w.dtype)
        if told:
            assert isinstance(step, int)  # a told loss draws by it
            own = vmap(grad_and_value(partial(objective.own_loss, told[0], step), has_aux=True))
            g, (loss, seen) = own(w, b, x, y, valid.to(w.dtype), told[0].rows)
            return g, loss.view(-1, 1), count, b, seen
        g, loss = vmap(grad_and_value(objective.only_last(last).masked_loss))(w, b, x, y, valid.to(w.dtype))
        g = g if last is None else g[:, -objective.layout.top(last) :]  # the rest is zero
        return g, loss.view(-1, 1), count, b

    return oracle


def mode_of(device: torch.device, steps: int) -> str:
    """How to take that many steps: on a CPU nothing is captured."""
    if device.type != "cuda":
        return "eager"
    return next((mode for mode in reversed(PAYS) if steps >= PAYS[mode]), "eager")


class Stacked(Loop):
    """The whole cohort as one batch of models; in waves, where a GPU has no room for all.

    mode: how steps are taken, see `MODES`. A captured step is kept, and taken again for every round of that method.
    room: clients of a wave, at most; 0 for as many as there are. A captured step always works on so many.
    """

    name = "stacked"

    def __init__(self, problem: Problem, mode: str = "eager", room: int = 0) -> None:
        if len(problem.objective.buffers):
            raise NeedsGroupNorm(
                "this model has BatchNorm: clients cannot be stacked. Use its -gn form, or engine='loop' or 'pool'."
            )
        super().__init__(problem)
        self.mode, self.wanted = mode, room
        self.room = 0  # not known before the first round
        self.taken = 0  # bytes of a GPU for one gradient of one client
        self.steps: dict[tuple[object, ...], CapturedStep | None] = {}
        self.looks: dict[tuple[object, ...], CapturedOracle | None] = {}  # for all methods; by their last layers

    def train(self, method: Method, s: Server, ids: Sequence[int], rows: dict[str, Tensor]) -> tuple[Cohort, int]:
        with arithmetic(self.problem.objective.precision):
            self.room = self.room or min(self.wanted or len(ids), self._fitting(method, s, ids))
            waves = [slice(at, at + self.room) for at in range(0, len(ids), self.room)]
            done = [self._wave(method, s, ids[now], {name: x[now] for name, x in rows.items()}) for now in waves]
        return done[0] if len(done) == 1 else self._joined(method, s, ids, done)

    def _wave(self, method: Method, s: Server, ids: Sequence[int], rows: dict[str, Tensor]) -> tuple[Cohort, int]:
        plan = self.problem.plan(s.t, list(ids))
        if self.mode != "eager" and isinstance(plan, ResidentPlan):
            k = self.problem.cohort(method, s, ids, rows, self._oracle(plan))
            return k, observed_local(method, k, s, partial(self._walk, plan))
        k = self.problem.cohort(method, s, ids, rows, stacked_oracle(self.problem.objective, plan))
        return k, observed_local(method, k, s)

    def _oracle(self, plan: ResidentPlan) -> Oracle:
        """Gradients outside of captured steps: by a captured one too, which is made when a method first asks for it."""
        own, turned = stacked_oracle(self.problem.objective, plan), set[int | None]()

        def oracle(w: Tensor, b: Tensor, step: int | Tensor, *told: OwnLoss, last: int | None = None) -> Answer:
            look = None if told else self._look(plan, w, b, last)
            if look is None:
                return own(w, b, step, *told, last=last)
            if last not in turned:
                look.turn_to(plan)
                turned.add(last)
            return look(w, b, step)

        return oracle

    def _look(self, plan: ResidentPlan, w: Tensor, b: Tensor, last: int | None) -> CapturedOracle | None:
        def make() -> CapturedOracle:
            if 2 * self.room * self.taken > _free(w.device):  # as much as this takes the step will take too
                raise RuntimeError("the GPU has no room for another graph beside that of the steps")
            g = w if last is None else w[:, -self.problem.objective.layout.top(last) :]  # one like it
            return CapturedOracle(w, b, g, plan, self._size, self._oracle_of, last)

        return _kept(self.looks, (last,), make, "a gradient")

    def _walk(self, plan: ResidentPlan, method: Method, k: Cohort, s: Server) -> None:
        """The steps of a round by a captured one; launch by launch where that cannot be."""
        step = None if k.told else self._step(plan, method, k, s)  # a told loss draws by the step's number, in Python
        if step is None:
            step_by_step(method, k, s)
        else:
            step.walk(k, s, plan)

    def _step(self, plan: ResidentPlan, method: Method, k: Cohort, s: Server) -> CapturedStep | None:
        key = (method, *(x for x in k.values(k.names).values() if not isinstance(x, Tensor)))
        make = partial(CapturedStep, method, k, s, plan, self._size, self._oracle_of, self.mode == "compiled")
        return _kept(self.steps, key, make, f"a step of {method.name}")

    @property
    def _size(self) -> tuple[int, int]:
        """The most clients of a wave and the most steps of a round."""
        return self.room, int(self.problem.steps.max())

    @property
    def _oracle_of(self) -> OracleOf:
        return partial(stacked_oracle, self.problem.objective)

    def _fitting(self, method: Method, s: Server, ids: Sequence[int]) -> int:
        """How many clients a GPU has room for: one gradient tells what a client takes."""
        w, b = s.values(("w", "b")).values()
        if w.device.type != "cuda":
            return len(ids)
        torch.cuda.reset_peak_memory_stats(w.device)
        before, free = torch.cuda.memory_allocated(w.device), _free(w.device)
        stacked_oracle(self.problem.objective, self.problem.plan(s.t, [ids[0]]))(w[None], b[None], 0)
        self.taken = torch.cuda.max_memory_allocated(w.device) - before
        rows = len(blank(method, self.problem.objective.layout, w, b, 1)) + len(method.declared("per_client"))
        return max(1, int(SPARE * free / (self.taken + 2 * rows * w.numel() * w.element_size())))


def _free(device: torch.device) -> float:
    """Free bytes of a GPU, torch's cache of freed memory included."""
    if device.type != "cuda":
        return inf
    kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return torch.cuda.mem_get_info(device)[0] + kept


def _kept(
    kept: dict[tuple[object, ...], T | None], key: tuple[object, ...], make: Callable[[], T], what: str
) -> T | None:
    """What was captured before, or is now; nothing where that cannot be, and it is said once."""
    if key not in kept:
        try:
            kept[key] = make()
        except RuntimeError as error:
            why = str(error).splitlines()[0]
            print(f"fednb: {what} cannot be captured, and is slower: {why}", file=sys.stderr)
            kept[key] = None
    return kept[key]
