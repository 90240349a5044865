"""What travels between server and clients: seen by running the method on a small quadratic, not declared anew."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from fednb.core.cost import small_rounds
from fednb.core.record import Cohort, Server
from fednb.core.rounds import Method, observed_local, observed_server
from fednb.core.vectors import Layout

COHORTS = ([0, 1], [0], [0, 1])  # who takes part while names are noted: all, one alone, and one that stayed away
OF_MODEL = frozenset({"w", "w0", "delta"})  # vectors that leave out private layers


@dataclass(frozen=True)
class Wire:
    """The names of a method's values that travel, and where the rows of clients are kept.

    down: of the server, to each client of a round. up: of each client, to the server. rows_at_server: rows per client
    that the server's half writes, and so keeps; rows_down: those of them that clients read. labels: True if the server
    needs each client's samples per class. model: what goes down as the model, "w" but for methods that send another
    vector in its place.
    """

    down: tuple[str, ...]
    up: tuple[str, ...]
    rows_at_server: tuple[str, ...] = ()
    rows_down: tuple[str, ...] = ()
    labels: bool = False
    model: str = "w"

    def rows_at_client(self, method: Method) -> tuple[str, ...]:
        """The rows that a client keeps with itself between rounds."""
        return tuple(name for name in method.declared("per_client") if name not in self.rows_at_server)


class _Watched(Cohort):
    """A cohort that notes also whether the clients' class counts are read."""

    @property
    def labels(self) -> Tensor | None:
        vars(self)["labels_read"] = True
        return vars(self)["labels"]


@lru_cache(maxsize=64)
def wire_of(method: Method) -> Wire:
    """What a method sends, from three rounds of two clients on a small quadratic.

    >>> from fednb.flower.wire import wire_of
    >>> wire_of(fn.method("SCAFFOLD"))
    Wire(down=('b', 'c', 'w'), up=('b', 'dc_k', 'delta'), rows_at_server=(), rows_down=(), labels=False, model='w')
    """
    rounds = small_rounds(method)
    s, seen = rounds.s, _Seen(method, rounds.population.layout)
    for ids in COHORTS:
        k = rounds.population.cohort(method, s, ids, rounds.table.gather(ids), rounds.oracle_of(s.t, ids))
        object.__setattr__(k, "__class__", _Watched)
        seen.local_half(k, s)
        seen.server_half(k, s)
        rounds.table.scatter(ids, k.values(rounds.table.start))
    return seen.wire()


class _Seen:
    """The names that were read and written in the two halves of some rounds."""

    def __init__(self, method: Method, layout: Layout) -> None:
        self.method, self.visible = method, visible_part(method, layout)
        self.down: set[str] = set()
        self.up: set[str] = set()
        self.labels = False
        self.read_by_clients: set[str] = set()
        self.written: dict[str, set[str]] = {"clients": set(), "server": set()}
        own = {name: whole for p in method.parts for name, whole in p.bundled.items()}
        self.model = next((name for name, whole in own.items() if whole == "w"), "w")

    def local_half(self, k: Cohort, s: Server) -> None:
        before = k.values(k.buffers)
        k.listen()
        observed_local(self.method, k, s)
        self.down |= s.sent
        self.read_by_clients |= k.heard
        self._note("clients", before, k)

    def server_half(self, k: Cohort, s: Server) -> None:
        before, sent = k.values(k.buffers), s.values([self.model])[self.model]
        vars(k)["labels_read"] = False  # a client knows its own
        observed_server(self.method, k, s)
        self.up |= k.sent
        self.labels |= vars(k)["labels_read"]
        self._note("server", before, k)
        derived = {"w0": sent.expand_as(before["w0"]), "w": before["w0"] + before["delta"]}
        self.up |= {n for n, x in derived.items() if n in k.heard and not self._same(x, before[n])}
        if "lr" in k.heard and "lr" in self.written["clients"]:
            self.up.add("lr")  # a schedule changed it

    def _note(self, who: str, before: Mapping[str, Tensor], k: Cohort) -> None:
        self.written[who] |= {name for name, x in k.values(k.buffers).items() if x is not before[name]}

    def _same(self, x: Tensor, y: Tensor) -> bool:
        return torch.allclose(x[:, self.visible], y[:, self.visible])

    def wire(self) -> Wire:
        rows = set(self.method.declared("per_client"))
        kept = rows & self.written["server"]
        down = self.down - {"w"} | {self.model}
        up = self.up - (kept - self.written["clients"])
        return Wire(_in_order(down), _in_order(up), _in_order(kept), _in_order(kept & self.read_by_clients),
                    self.labels, self.model)  # fmt: skip


def _in_order(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(names))


def visible_part(method: Method, layout: Layout) -> Tensor:
    """Which numbers of the model may leave their client, `[P]`: all but those of private layers."""
    hidden = [any(flags) for flags in zip(*(p.private(layout) for p in method.parts), strict=True)]
    return ~layout.spread(torch.tensor(hidden or [False] * len(layout)))


class Parcels:
    """Packs the values of a method for one model: vectors of the model without private layers, nothing empty."""

    def __init__(self, method: Method, wire: Wire, layout: Layout) -> None:
        self.wire, self.visible = wire, visible_part(method, layout)
        self.of_model = OF_MODEL | {wire.model}

    def packed(self, values: Mapping[str, Tensor], names: Iterable[str]) -> dict[str, Tensor]:
        """The named values, `[n]` each, as they travel."""
        cut = {name: self._cut(name, values[name]) for name in names}
        return {name: x.detach().cpu().contiguous() for name, x in cut.items() if x.numel()}

    def _cut(self, name: str, x: Tensor) -> Tensor:
        return x[self.visible] if name in self.of_model and not self.visible.all() else x

    def unpacked(
        self, came: Mapping[str, Tensor], names: Iterable[str], rest: Mapping[str, Tensor]
    ) -> dict[str, Tensor]:
        """Values as they were before they were packed; private layers and empty vectors are those of `rest`."""
        return {name: self._whole(name, came[name], rest[name]) if name in came else rest[name] for name in names}

    def _whole(self, name: str, x: Tensor, rest: Tensor) -> Tensor:
        if name not in self.of_model or self.visible.all():
            return x.to(rest)
        whole = rest.clone()
        whole[self.visible] = x.to(rest)
        return whole


def fault(came: Mapping[str, Tensor], wanted: Mapping[str, Tensor], method: str) -> str | None:
    """What is wrong with values that were received, in words; None if names, shapes and numbers are right."""
    if set(came) != set(wanted):
        return f"sent {_listed(came)} where {method} sends {_listed(wanted)}"
    for name, x in came.items():
        there, needed = ((str(y.dtype).removeprefix("torch."), tuple(y.shape)) for y in (x, wanted[name]))
        if there != needed:
            return f"sent {name} as {there[0]} {there[1]}, and {needed[0]} {needed[1]} was expected"
        if bad := int((~torch.isfinite(x)).sum()):
            return f"sent {name} with {bad} of {x.numel()} numbers that are NaN or infinite"
    return None


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "nothing"
