"""Lanes: one step for several clients at once, of one run or of many; a lane that is free takes the next client.

Clients differ in how many steps they take, so that a cohort that trains abreast waits for its longest. Here each lane
holds one client: its rows, those of its run's server, its batches, the number of its next step, in buffers that never
move. Methods know nothing of lanes, and nothing that a client computes depends on who is beside it.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor

from fednb.core.record import Record
from fednb.engines.captured import FIXED, Launched, launching, room_for_batches
from fednb.engines.lane_step import OF_ROUND, OF_RUN, TOLD_COMMON, OracleOf, Step, Trip, alike, loss_of, moment, named
from fednb.engines.objective import Objective

STEPS = 4  # taken at a time, before clients that wait are let in
AHEAD = 2  # times so many steps may be under way on the device before the host waits


class Lanes:
    """A method's step for `count` clients at once, and the clients in them. Runs may share it, a thread each.

    trip: the first that goes through it; its shapes and numbers decide which others can.
    most: the steps of a round that there is room for. objective: one with a model that nobody else calls.
    mode: see `fednb.engines.stacked.MODES`.
    """

    def __init__(self, trip: Trip, count: int, most: int, objective: Objective, oracle_of: OracleOf, mode: str) -> None:
        self.count, self.most, self.form = count, most, objective.form
        self.buffers = {name: x.new_zeros(count, x.shape[-1]) for name, x in trip.rows.items() if name[0] == "k"}
        self.buffers |= room_for_batches(trip.plan, count, most)
        self.buffers["step"] = self.buffers["step"].expand(count, 1).clone()
        step = Step(trip, objective, oracle_of)
        tried = step.tried(trip, self.buffers)
        if changing := sorted(tried.noted & named(OF_ROUND)):
            raise RuntimeError(f"its steps read {changing[0]}, which differs from round to round")
        self.method, self.takes_numbers = alike(trip.method) if tried.numbers else trip.method, tried.numbers
        wanted = {f"s.{name}" for name in step.read} | {name for name in trip.rows if name[0] == "m" and tried.numbers}
        wanted.add(TOLD_COMMON)
        self.buffers |= {name: x.expand(count, -1).clone() for name, x in trip.rows.items() if name in wanted}
        self.step, self.constants = step, sorted(tried.noted & named(OF_RUN))
        self.numbers = self._numbers(trip)
        what = f"a step of {trip.method.name} for {count} clients"
        self.launch = Launched(step, self.buffers, mode, what, objective.precision)
        self.inside: dict[int, tuple[Trip, int, int]] = {}  # by lane: whose client, its row, the steps it has left
        self.trips: deque[Trip] = deque()  # some of whose clients wait to be let in
        self.changed = threading.Condition()
        self.driven = False
        device = trip.plan.index.device
        self.stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self.under_way: deque[torch.cuda.Event] = deque()
        if self.stream is not None:
            self.stream.wait_stream(torch.cuda.current_stream(device))

    def _numbers(self, trip: Trip) -> list[Any]:
        """A trip's values of all that is a constant of the step."""
        records: dict[str, Record] = {"k": trip.k, "s": trip.s}
        given = [x for record in records.values() for x in record.values(record.names).values()]
        told = [vars(records[name[0]])[name[2:]] for name in self.constants]
        return [x for x in given if not isinstance(x, Tensor)] + told + [loss_of(trip.k)]

    def fits(self, trip: Trip, most: int, form: str) -> bool:
        """True if the clients of a trip can go through these lanes; its run has rounds of at most so many steps.

        form: that of the run's objective.
        """
        b, plan = self.buffers, trip.plan
        return (
            (alike(trip.method) if self.takes_numbers else trip.method) == self.method
            and form == self.form
            and most <= self.most
            and plan.home.data.x is b[f"{FIXED}x"]
            and (plan.how is None) == ("how" not in b)
            and plan.index.shape[2] == b["index"].shape[2]
            and all(x.shape[-1] == b[name].shape[-1] for name, x in trip.rows.items() if name in b)
            and self._numbers(trip) == self.numbers
        )

    def travel(self, trip: Trip) -> None:
        """Take a trip's clients through all their steps, and give them what they then have.

        Whoever waits drives for all: lets clients in, launches steps, lets clients out, until its own are done.
        """
        trip.out = {name: torch.empty_like(trip.rows[f"k.{name}"]) for name in self.step.written}
        trip.ready = moment(trip.plan.index.device)
        with self.changed:
            self.trips.append(trip)
            while not trip.over:
                if self.driven:
                    self.changed.wait()
                    continue
                self.driven = True
                self.changed.release()
                try:
                    self._drive(trip)
                finally:
                    self.changed.acquire()
                    self.driven = False
                    self.changed.notify_all()
        if trip.failure is not None:
            raise trip.failure
        if trip.done is not None:
            torch.cuda.current_stream().wait_event(trip.done)
        self._give(trip)

    def _give(self, trip: Trip) -> None:
        """Put what came out of the lanes into the trip's cohort."""
        k, own = trip.k, dict(trip.out)
        vars(k).update(samples=own.pop("samples"), evaluations=k.evaluations + self.step.asked * k.counts)
        k.receive(own)
        trip.s.receive({}, self.step.read)

    def _drive(self, trip: Trip) -> None:
        """Move all clients until those of one trip are done; an error on the way is every trip's."""
        try:
            with nullcontext() if self.stream is None else torch.cuda.stream(self.stream):
                while not trip.over:
                    self.launch.renew()
                    with launching():
                        self._turn()
        except BaseException as error:
            with self.changed:  # what lies in the lanes is lost, for everyone
                for each in {*self.trips, *(whose for whose, _, _ in self.inside.values())}:
                    each.failure, each.over = error, True
                self.trips.clear()
                self.inside.clear()
            raise

    def _turn(self) -> None:
        """Let clients in, take a few steps, let those out who are done."""
        with self.changed:
            free = [lane for lane in range(self.count) if lane not in self.inside]
            entering = [(lane, *next_one) for lane in free if (next_one := self._next()) is not None]
        for lane, trip, row in entering:
            self._enter(lane, trip, row)
        steps = min(STEPS, *(left for _, _, left in self.inside.values()))
        for _ in range(steps):
            self.launch()
        over = []
        for lane, (trip, row, left) in list(self.inside.items()):
            self.inside[lane] = trip, row, left - steps
            if left == steps:
                self._leave(lane, trip, row)
                over += [trip] * (trip.left == 0)
        self._say_over(over)
        self._keep_pace()

    def _next(self) -> tuple[Trip, int] | None:
        """The client that is next: of the trip that came first its longest."""
        while self.trips and not self.trips[0].waiting:
            self.trips.popleft()
        return (self.trips[0], self.trips[0].waiting.pop()) if self.trips else None

    def _enter(self, lane: int, trip: Trip, row: int) -> None:
        """Copy one client of a trip, with its server's vectors and its batches, into a lane."""
        if trip.ready is not None:
            torch.cuda.current_stream().wait_event(trip.ready)
        b, plan = self.buffers, trip.plan
        pairs = [(b[name][lane], x[row] if name[0] == "k" else x) for name, x in trip.rows.items() if name in b]
        pairs.append((b["index"][lane, : plan.index.shape[1]], plan.index[row]))
        if plan.how is not None:
            pairs.append((b["how"][lane, : plan.how.shape[1]], plan.how[row]))
        to, what = zip(*pairs, strict=True)
        torch._foreach_copy_(to, what)
        b["step"][lane].zero_()
        self.inside[lane] = trip, row, trip.steps[row]

    def _leave(self, lane: int, trip: Trip, row: int) -> None:
        """Copy a client that has taken its last step out of its lane."""
        del self.inside[lane]
        to = [x[row] for x in trip.out.values()]
        torch._foreach_copy_(to, [self.buffers[f"k.{name}"][lane] for name in trip.out])
        trip.left -= 1

    def _say_over(self, trips: Iterable[Trip]) -> None:
        with self.changed:
            for trip in trips:
                trip.done = moment(self.buffers["step"].device)
                trip.over = True
            self.changed.notify_all()

    def _keep_pace(self) -> None:
        """Wait until no more than a few steps are under way: clients could not be let in between them."""
        if (now := moment(self.buffers["step"].device)) is not None:
            self.under_way.append(now)
            if len(self.under_way) > AHEAD:
                self.under_way.popleft().synchronize()
