"""A step of local training for clients of any runs, as a function of buffers: what lanes launch again and again.

What is called is `fednb.core.rounds.local_step` itself, on records whose rows lie in the buffers, a row for each lane.
The numbers of a method's parts, such as a radius, are rows too where the parts can take them so: runs with other
numbers then share a step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor

from fednb.core.record import Cohort, Oracle, Record, Server
from fednb.core.rounds import Method, local_step
from fednb.data.resident import ResidentPlan
from fednb.engines.captured import FIXED, Buffers, plan_of
from fednb.engines.objective import Objective

BESIDE = ("steps", "n", "samples")  # what a cohort has beside its rows, one number per client
OF_RUN = {"k": ("nominal_steps", "epochs", "lr_decay", "first_lr"), "s": ("N", "samples", "seed")}  # stay for a run
OF_ROUND = {"k": ("ids", "labels", "min_steps", "max_steps", "counts"), "s": ("t",)}  # differ from round to round
TOLD_ROWS, TOLD_COMMON = "k.told.rows", "s.told.common"  # of a part's own loss; no state has a dot in its name
OracleOf = Callable[[Objective, ResidentPlan], Oracle]
NEAR = 1e-3  # of how far a row goes in a step: rounding is less, the number of another lane far more


@dataclass(eq=False)
class Trip:
    """The clients of one run in one round, on their way through the lanes."""

    method: Method
    k: Cohort
    s: Server
    plan: ResidentPlan
    out: Buffers = field(default_factory=dict)  # what they have in the end, `[C, D]` by name
    failure: BaseException | None = None

    def __post_init__(self) -> None:
        self.steps: list[int] = self.k.counts.view(-1).tolist()
        self.waiting = sorted(range(len(self.steps)), key=lambda row: (self.steps[row], -row))  # the longest last
        self.left = len(self.steps)  # clients that are not out again
        self.over = False
        self.rows = _of_cohort(self.k) | _of_server(self.s) | _of_method(self.method, self.k.n) | _of_told(self.k)
        self.ready: torch.cuda.Event | None = None  # when the device may read the rows and write to `out`
        self.done: torch.cuda.Event | None = None  # when it has written the last of `out`


@dataclass(frozen=True)
class Tried:
    """What a first step has shown: which numbers of its run or round it reads, and if parts take theirs by lane."""

    noted: frozenset[str]
    numbers: bool


class Step:
    """A step of a method as a function of buffers: the rows of those in the lanes, their servers, numbers, batches."""

    def __init__(self, trip: Trip, objective: Objective, oracle_of: OracleOf) -> None:
        self.method, self.plan = trip.method, trip.plan
        self.k, self.s = _without_rows(trip.k), _without_rows(trip.s)
        self.loss = loss_of(trip.k)
        self.oracle_of = partial(oracle_of, objective)
        self.written: list[str] = []
        self.read: frozenset[str] = frozenset()
        self.asked = 0

    def __call__(self, b: Buffers) -> None:
        self._take(b, None)

    def _take(self, b: Buffers, noted: set[str] | None) -> None:
        twin, server = _twin_of(self.k, b, self.oracle_of(plan_of(self.plan, b))), _twin(self.s, b)
        if self.loss is not None:
            twin.tell(self.loss, b[TOLD_ROWS], b[TOLD_COMMON])
        if noted is not None:
            _note_reads("k", twin, noted)
            _note_reads("s", server, noted)
        local_step(with_numbers(self.method, b), twin, server)
        new = {**twin.values(twin.buffers), "samples": vars(twin)["samples"]}
        self.written = [name for name, x in new.items() if x is not b[f"k.{name}"]]
        self.read, self.asked = server.heard, twin.asked
        for name in self.written:
            b[f"k.{name}"].copy_(new[name])
        b["step"].add_(1)

    def tried(self, trip: Trip, buffers: Buffers) -> Tried:
        """Take a first step: with the trip's first client in all lanes, which are like these buffers."""
        count, noted = len(buffers["step"]), set[str]()
        numbers = {name: x.expand(count, -1) for name, x in trip.rows.items() if name[0] == "m"}
        apart = 1 + torch.arange(count, device=buffers["step"].device).view(-1, 1) / 8  # by lane, and 1 for the first
        by_lane = count > 1 and bool(numbers)
        found = self._first_lane(trip, buffers, {name: x * apart for name, x in numbers.items()}) if by_lane else None
        wanted = self._first_lane(trip, buffers, {}, noted)
        assert wanted is not None
        return Tried(frozenset(noted), found is not None and _agree(found, wanted))

    def _first_lane(
        self, trip: Trip, like: Buffers, numbers: Buffers, noted: set[str] | None = None
    ) -> dict[str, Tensor] | None:
        """How far the first lane's rows go in a step; None where parts cannot take these numbers."""
        count, b = len(like["step"]), {name: x for name, x in like.items() if name.startswith(FIXED)}
        first = {name: x[:1] if name[0] == "k" else x for name, x in trip.rows.items()}
        start = {name: _shaken(x, trip.k.layout.total, i) for i, (name, x) in enumerate(first.items())}
        b |= {name: x.expand(count, -1).clone() for name, x in start.items() if name[0] == "k"}
        b |= {name: x.expand(count, -1) for name, x in start.items() if name[0] == "s"}
        b |= {"index": trip.plan.index[:1].expand(count, -1, -1), "step": torch.zeros_like(like["step"])} | numbers
        if trip.plan.how is not None:
            b["how"] = trip.plan.how[:1].expand(count, -1, -1, -1)
        try:
            self._take(b, noted)
        except Exception:
            if numbers:  # such as a comparison in Python
                return None
            raise
        return {name: b[f"k.{name}"][0] - start[f"k.{name}"][0] for name in self.written}


def _shaken(x: Tensor, P: int, i: int) -> Tensor:
    """A vector of P numbers moved a little, others as they are: models, variates, duals then differ from each other."""
    return x + 0.1 * torch.sin(torch.arange(i, P + i, device=x.device)).to(x) if x.shape[-1] == P else x


def _agree(found: dict[str, Tensor], wanted: dict[str, Tensor]) -> bool:
    """True if the same rows went the same way, but for rounding."""
    return set(found) == set(wanted) and all(
        bool((found[name] - x).double().norm() <= NEAR * x.double().norm()) for name, x in wanted.items()
    )


def numbers_of(method: Method) -> dict[str, float]:
    """The numbers of a method's parts by the names of their buffers, "m.0.rho"; those of filters are none of them."""
    parts = enumerate(method.parts)
    return {f"m.{i}.{name}": x for i, p in parts for name, x in vars(p).items() if type(x) is float}


def with_numbers(method: Method, values: Mapping[str, Any]) -> Method:
    """A method whose parts have other numbers, or tensors of them, where there are any under their names."""
    given = {name: values[name] for name in numbers_of(method) if name in values}
    twin, parts = copy(method), [copy(p) for p in method.parts]
    for name, value in given.items():
        _, i, field_name = name.split(".")
        object.__setattr__(parts[int(i)], field_name, value)
    object.__setattr__(twin, "parts", tuple(parts))
    return twin if given else method


def alike(method: Method) -> Method:
    """What methods have in common that differ in the numbers of their parts alone."""
    return with_numbers(method, dict.fromkeys(numbers_of(method), 0.0))


def moment(device: torch.device) -> torch.cuda.Event | None:
    """A CUDA event that has passed when the GPU has done all that this thread gave it so far; None on a CPU."""
    if device.type != "cuda":
        return None
    event = torch.cuda.Event(blocking=True)
    event.record(torch.cuda.current_stream(device))
    return event


def _of_cohort(k: Cohort) -> Buffers:
    """Every tensor of the clients that a step may read or write, with one row per client."""
    own = {name: _by_client(x, len(k.n)) for name, x in k.values(k.names).items() if isinstance(x, Tensor)}
    return {f"k.{name}": x for name, x in (own | {name: vars(k)[name] for name in BESIDE}).items()}


def _by_client(x: Tensor, clients: int) -> Tensor:
    """One row per client, `[C, D]`; a vector `[D]` that all share, such as a weight decay, is repeated for each."""
    return (x.view(1, -1) if x.dim() < 2 else x).expand(clients, -1)


def _of_told(k: Cohort) -> Buffers:
    """The numbers that a part's own loss needs; nothing where clients train on the data's loss."""
    return {name: x for told in k.told for name, x in ((TOLD_ROWS, told.rows), (TOLD_COMMON, told.common))}


def loss_of(k: Cohort) -> Callable[..., tuple[Tensor, Tensor]] | None:
    """The loss that a part has brought for a cohort to train on; None where it trains on the data's loss."""
    return k.told[0].loss if k.told else None


def _of_method(method: Method, like: Tensor) -> Buffers:
    """The numbers of a method's parts as tensors of one number."""
    return {name: like.new_full((1,), value) for name, value in numbers_of(method).items()}


def _of_server(s: Server) -> Buffers:
    """Every tensor that a step may read of the server."""
    return {f"s.{name}": x for name, x in s.values(s.names).items() if isinstance(x, Tensor)}


def _without_rows(record: Any) -> Any:
    """A copy whose tensors are one number each: what is kept of a round must not keep its memory."""
    rows = {name: x for name, x in record.values(record.names).items() if isinstance(x, Tensor)}
    beside = {name: x.new_zeros(1, 1) for name in BESIDE if isinstance(x := vars(record).get(name), Tensor)}
    gone: dict[str, Any] = {"oracle": None, "told": ()} if isinstance(record, Cohort) else {}
    return record.borrowing({name: x.new_zeros(1, 1) for name, x in rows.items()}, **beside, **gone)


def _twin_of(k: Cohort, b: Buffers, oracle: Oracle) -> Cohort:
    """The cohort of those who are in the lanes, each at its own step."""
    values = {name: b[f"k.{name}"] for name in k.names if f"k.{name}" in b}
    beside = {name: b[f"k.{name}"] for name in BESIDE}
    active = beside["steps"] > b["step"]
    return k.borrowing(values, **beside, oracle=oracle, step=b["step"], active=active, fresh=True, asked=0)


def _twin(s: Server, b: Buffers) -> Server:
    """The servers of those who are in the lanes, a row for each."""
    return s.borrowing({name: b[f"s.{name}"] for name in s.names if f"s.{name}" in b})


def named(names: dict[str, tuple[str, ...]]) -> set[str]:
    """Names of a cohort ("k") and a server ("s") as texts: {"k": ("ids",), "s": ("t",)} gives "k.ids" and "s.t"."""
    return {f"{whose}.{name}" for whose in names for name in names[whose]}


def _note_reads(whose: str, record: Record, noted: set[str]) -> None:
    """Note as "k.NAME" or "s.NAME" which numbers of its run or round are read on a record."""

    def read(self: Record, name: str) -> Any:
        if name in OF_RUN[whose] or name in OF_ROUND[whose]:
            noted.add(f"{whose}.{name}")
        return object.__getattribute__(self, name)

    watched = type(type(record).__name__, (type(record),), {"__getattribute__": read})
    object.__setattr__(record, "__class__", watched)
