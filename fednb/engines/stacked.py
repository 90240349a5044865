"""All clients at once: one vmapped gradient over the cohort, finished clients masked; on a GPU a captured step."""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Callable, Collection, Sequence
from contextlib import nullcontext, suppress
from dataclasses import is_dataclass
from functools import partial
from math import ceil, inf
from statistics import median

import numpy as np
import torch
from torch import Tensor
from torch.func import grad_and_value, vmap

from fednb.base.processes.ending import device_failed
from fednb.core.record import Answer, Cohort, Oracle, OwnLoss, Server, length
from fednb.core.rounds import Method, blank, observed_local, step_by_step
from fednb.core.vectors import Layout
from fednb.data.plan import Plan
from fednb.data.resident import ResidentPlan
from fednb.engines.captured import CapturedOracle, busy, give_back, launching, letting_go
from fednb.engines.lane_step import Trip, alike
from fednb.engines.lanes import Lanes
from fednb.engines.loop import Loop, total
from fednb.engines.objective import Objective, arithmetic
from fednb.engines.problem import Problem
from fednb.engines.scoring import CapturedScore

MODES = ("eager", "graph", "compiled")  # of taking a step: each launch by itself, as one graph, or compiled before that
PAYS = {"graph": 100, "compiled": 4000}  # steps of a run from which capturing (seconds) and compiling (a minute) pay
USUAL_BATCH = 50  # samples of such a step; with more of them a step takes longer, and fewer steps pay
SPARE = 0.6  # the share of free GPU memory that a wave of clients may take
SHORTEST = 64  # steps of a round that lanes have room for, or a power of two above: runs with other data fit in too
DRAWN = 200  # cohorts, to learn how much longer their longest client takes than the mean
MOST_KEPT = 8  # sets of lanes: what was captured longest ago goes first
SLACK = 1.1  # lanes for each that would be busy all the time
CAPTURED = 6  # gradients whose memory a step takes for each client: tried, recorded, compiled by another process
LOOKS = 5  # at the memory of a gradient: what other runs take or give back meanwhile counts too
AWAY = 3  # one in so many runs is between two rounds, and leaves its lanes to others


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
            rows, common = told[0].rows, told[0].common
            own_loss = partial(objective.own_loss, loss=told[0].loss)
            by_client = (0 if common.dim() == 2 else None, 0 if isinstance(step, Tensor) else None)
            own = vmap(grad_and_value(own_loss, has_aux=True), in_dims=(0,) * 6 + by_client)
            g, (loss, seen) = own(w, b, x, y, valid.to(w.dtype), rows, common, step)
            return g, loss.view(-1, 1), count, b, seen
        g, loss = vmap(grad_and_value(objective.only_last(last).masked_loss))(w, b, x, y, valid.to(w.dtype))
        g = g if last is None else g[:, -objective.layout.top(last) :]  # the rest is zero
        return g, loss.view(-1, 1), count, b

    return oracle


def mode_of(device: torch.device, steps: int, batch: int = USUAL_BATCH) -> str:
    """One of `MODES` for a run of so many steps, each with a batch of so many samples; on a CPU always "eager"."""
    if device.type != "cuda":
        return "eager"
    steps = int(steps * max(1, batch / USUAL_BATCH))
    return next((mode for mode in reversed(PAYS) if steps >= PAYS[mode]), "eager")


class SharedSteps:
    """What runs of one process share on a device: lanes for steps of one shape and one method, and captured tests."""

    def __init__(self) -> None:
        self.known: deque[Lanes] = deque(maxlen=MOST_KEPT)
        self.refused: set[tuple[Method, str]] = set()  # whose steps cannot be captured, with this form of objective
        self.scores: deque[CapturedScore] = deque(maxlen=MOST_KEPT)
        self.untested: set[str] = set()  # forms of objectives whose tests cannot be captured
        self.making = threading.Lock()  # lanes, which can take a minute: who finds what is known does not wait
        self.scoring = threading.Lock()
        self.bytes: dict[tuple[object, ...], int] = {}  # for one gradient of one client
        self.measuring = threading.Lock()

    def lanes_for(self, trip: Trip, most: int, form: str, make: Callable[[], Lanes]) -> Lanes | None:
        """Lanes that a trip fits in (see `Lanes.fits`): some that are there, or new; None where they cannot be made."""
        if (found := self.known_lanes(trip, most, form)) is not None:
            return found
        with self.making:
            if (found := self.known_lanes(trip, most, form)) is not None or (trip.method, form) in self.refused:
                return found
            try:
                made = self._made(make)
            except RuntimeError as error:
                _slower(f"a step of {trip.method.name}", error)
                self.refused.add((trip.method, form))
                return None
            self.known.append(made)
            return made

    def known_lanes(self, trip: Trip, most: int, form: str) -> Lanes | None:
        """Lanes that were made before and that this trip fits in; None where there are none."""
        return next((lanes for lanes in tuple(self.known) if lanes.fits(trip, most, form)), None)

    def _made(self, make: Callable[[], Lanes]) -> Lanes:
        """New lanes; where the device has no room for them, in the place of all others that are kept."""
        try:
            return make()
        except torch.OutOfMemoryError:
            if not self.known:
                raise
            self.keep_only(())
            return make()

    def keep_only(self, methods: Collection[Method]) -> None:
        """Forget the lanes of all but these methods, each as `alike` gives it."""
        if self._others(methods):
            with letting_go():
                self._forget(methods)

    def _forget(self, methods: Collection[Method]) -> None:
        for lanes in self._others(methods):
            lanes.launch.over = True
            self.known.remove(lanes)

    def _others(self, methods: Collection[Method]) -> list[Lanes]:
        return [lanes for lanes in tuple(self.known) if alike(lanes.step.method) not in methods]

    def settled(self) -> bool:
        """True if there are lanes, and nothing is being made of them or compiled for them."""
        return bool(self.known) and not self.making.locked() and not any(x.launch.coming for x in tuple(self.known))

    def bytes_of(self, shape: tuple[object, ...], measured: Callable[[], int]) -> int:
        """What a gradient of this shape takes; measured once, since gradients of other runs would count too."""
        with self.measuring:
            if shape not in self.bytes:
                self.bytes[shape] = measured()
            return self.bytes[shape]

    def score_for(self, problem: Problem, w: Tensor, b: Tensor, mode: str) -> CapturedScore | None:
        """The captured test of a problem; None where it cannot be captured, or not yet: others are being made."""
        with self.scoring:
            for score in self.scores:
                if score.fits(problem):
                    return score
            if problem.objective.form in self.untested or busy():
                return None
            try:
                self.scores.append(CapturedScore(problem, w, b, mode))
            except RuntimeError as error:
                _slower("a test", error)
                self.untested.add(problem.objective.form)
                return None
            return self.scores[-1]


class Stacked(Loop):
    """The whole cohort as one batch of models; in waves, where a GPU has no room for all.

    mode: how steps are taken, see `MODES`. Captured steps are `shared` with other runs of this process.
    room: clients of a wave, at most; 0 for as many as there are. usual: those of a mean round, for whom lanes are made;
    0 for as many as the first has. runs: those that will train in the same lanes.
    kinds, turn: see `fednb.engines.Company`.
    """

    name = "stacked"

    def __init__(
        self, problem: Problem, mode: str = "eager", room: int = 0, shared: SharedSteps | None = None, runs: int = 1,
        kinds: int = 1, turn: Callable[[], None] = lambda: None, usual: int = 0,
    ) -> None:  # fmt: skip
        if len(problem.objective.buffers):
            raise NeedsGroupNorm(
                "this model has BatchNorm: clients cannot be stacked. Use its -gn form, or engine='loop' or 'pool'."
            )
        super().__init__(problem)
        self.mode, self.wanted, self.usual, self.runs, self.kinds, self.turn = mode, room, usual, runs, kinds, turn
        self.shared, self.beside_others = shared or SharedSteps(), shared is not None
        self.room = 0  # not known before the first round
        self.taken = 0  # bytes of a GPU for one gradient of one client
        self.looks: dict[tuple[object, ...], CapturedOracle | None] = {}  # for all methods; by their last layers

    def train(self, method: Method, s: Server, ids: Sequence[int], rows: dict[str, Tensor]) -> tuple[Cohort, int]:
        with arithmetic(self.problem.objective.precision):
            self.room = self.room or min(self.wanted or len(ids), self._fitting(method, s, ids))
            waves = [slice(at, at + self.room) for at in range(0, len(ids), self.room)]
            done = [self._wave(method, s, ids[now], {name: x[now] for name, x in rows.items()}) for now in waves]
        return done[0] if len(done) == 1 else self._joined(method, s, ids, done)

    def _wave(self, method: Method, s: Server, ids: Sequence[int], rows: dict[str, Tensor]) -> tuple[Cohort, int]:
        plan = self.problem.plan(s.t, list(ids))
        if isinstance(plan, ResidentPlan) and (self.beside_others or self.mode != "eager"):
            k = self.problem.cohort(method, s, ids, rows, self._oracle(plan))
            return k, observed_local(method, k, s, partial(self._walk, plan))
        k = self.problem.cohort(method, s, ids, rows, stacked_oracle(self.problem.objective, plan))
        return k, observed_local(method, k, s)

    def _oracle(self, plan: ResidentPlan) -> Oracle:
        """Gradients outside of captured steps: by a captured one too, which is made when a method first asks for it."""
        own, turned = stacked_oracle(self.problem.objective, plan), set[int | None]()

        def oracle(w: Tensor, b: Tensor, step: int | Tensor, *told: OwnLoss, last: int | None = None) -> Answer:
            look = None if told or self.mode == "eager" else self._look(plan, w, b, last)
            if look is None:
                with launching():
                    return own(w, b, step, *told, last=last)
            if last not in turned:
                look.turn_to(plan)
                turned.add(last)
            return look(w, b, step)

        return oracle

    def _look(self, plan: ResidentPlan, w: Tensor, b: Tensor, last: int | None) -> CapturedOracle | None:
        if (last,) not in self.looks:
            try:
                if 2 * self.room * self.taken > free_bytes(w.device):  # as much as this takes the step will take too
                    raise RuntimeError("the GPU has no room for another graph beside that of the steps")
                g = w if last is None else w[:, -self.problem.objective.layout.top(last) :]  # one like it
                size = self.room, int(self.problem.steps.max())
                oracle_of = partial(stacked_oracle, self.problem.objective)
                made = CapturedOracle(w, b, g, plan, size, oracle_of, last, self.problem.objective.precision)
                self.looks[(last,)] = made
            except RuntimeError as error:
                _slower("a gradient", error)
                self.looks[(last,)] = None
        return self.looks[(last,)]

    def _walk(self, plan: ResidentPlan, method: Method, k: Cohort, s: Server) -> None:
        """The steps of a round through lanes; launch by launch where that cannot be."""
        new_each_round = bool(k.told) and not is_dataclass(k.told[0].loss)  # no two functions are known to be the same
        trip = None if new_each_round else Trip(method, k, s, plan)
        lanes = None if trip is None else self._lanes_for(trip)
        self.turn()
        return step_by_step(method, k, s) if trip is None or lanes is None else lanes.travel(trip)

    def _lanes_for(self, trip: Trip) -> Lanes | None:
        """The lanes for a trip's clients, shared with other runs; None where there can be none."""
        method, k, s, objective = trip.method, trip.k, trip.s, self.problem.objective
        most = max(SHORTEST, 1 << (int(self.problem.steps.max()) - 1).bit_length())

        def make() -> Lanes:
            room = self._fitting(method, s, k.ids, CAPTURED) if self.beside_others else self.room
            count = min(self._lanes(self.usual or len(k.ids)), room)
            while True:
                with suppress(torch.OutOfMemoryError) if count > 1 else nullcontext():
                    return Lanes(trip, count, most, objective.by_itself(), stacked_oracle, self.mode)
                count = ceil(count / 2)  # what a client takes is an estimate
                give_back()

        if (found := self.shared.known_lanes(trip, most, objective.form)) is not None:
            return found
        if 2 * free_bytes(device := trip.plan.index.device) < self._share(device):
            self.turn()  # lanes stay as few as they are made: runs that end before give back what they take
        return self.shared.lanes_for(trip, most, objective.form, make)

    def _share(self, device: torch.device) -> float:
        """The memory of a GPU in bytes, divided by how many kinds of steps are taken at a time."""
        return torch.cuda.mem_get_info(device)[1] / self.kinds if device.type == "cuda" else inf

    def _lanes(self, clients: int) -> int:
        """As many lanes as clients keep busy while the longest of a round is on its way.

        Runs that all train at once would all test at once too, with no step under way.
        """
        runs = self.runs - self.runs // AWAY
        rng, steps = np.random.default_rng(0), self.problem.steps.numpy()
        drawn = np.stack([rng.choice(steps, min(clients, len(steps)), replace=False) for _ in range(DRAWN)])
        return min(clients * runs, ceil(SLACK * runs * drawn.sum() / drawn.max(1).sum()))

    def evaluate(self, w: Tensor, b: Tensor) -> tuple[float, float]:
        with arithmetic(self.problem.objective.precision):
            score = None if self.mode == "eager" else self.shared.score_for(self.problem, w, b, self.mode)
            if score is not None:
                return total(self.problem, [score(w, b)])
            with launching():
                return super().evaluate(w, b)

    def evaluate_own(self, k: Cohort) -> list[float]:
        with launching():
            return super().evaluate_own(k)

    def _fitting(self, method: Method, s: Server, ids: Sequence[int], times: int = 1) -> int:
        """How many clients a GPU has room for, which leave as much to other kinds of steps.

        One gradient tells what a client takes, or several times as much.
        """
        w, b = s.values(("w", "b")).values()
        if w.device.type != "cuda":
            return max(len(ids), self.usual) * self.runs
        plan, objective = self.problem.plan(s.t, [ids[0]]), self.problem.objective

        def gradient() -> None:
            with launching():
                stacked_oracle(objective, plan)(w[None], b[None], 0)

        self.taken = self.shared.bytes_of((objective.form, plan.at(0)[0].shape), lambda: taken(gradient, w.device))
        free = min(free_bytes(w.device), self._share(w.device))
        rows = numbers_of_rows(method, objective.layout, w, b) * w.element_size()
        return max(1, int(SPARE * free / (times * self.taken + 2 * rows)))


def numbers_of_rows(method: Method, layout: Layout, w: Tensor, b: Tensor) -> int:
    """How many numbers a client has in a round, those that it keeps between rounds included."""
    kept = sum(length(dim, layout) for dim in method.declared("per_client").values())
    return kept + sum(x.shape[-1] for x in blank(method, layout, w, b, 1).values())


def taken(work: Callable[[], None], device: torch.device) -> int:
    """Bytes of a GPU that some work takes at most: the median of a few looks, as other runs take and give some, too."""

    def look() -> int:
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        work()
        return torch.cuda.max_memory_allocated(device) - before

    return int(median(look() for _ in range(LOOKS)))


def free_bytes(device: torch.device) -> float:
    """Free bytes of a GPU, torch's cache of freed memory included."""
    if device.type != "cuda":
        return inf
    kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return torch.cuda.mem_get_info(device)[0] + kept


def _slower(what: str, error: RuntimeError) -> None:
    """Go on launch by launch with what cannot be captured, and say so; raises where the device itself has failed."""
    if device_failed(error):
        raise error
    print(f"fednb: {what} cannot be captured, and is slower: {str(error).splitlines()[0]}", file=sys.stderr)
