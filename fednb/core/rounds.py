"""Algorithm 0: the federated round, written once. A part fills in stages; a method is a name and its parts.

start     clients, once per round, before training                 k, s
perturb   where to take the gradient: delta                        k, s, delta -> delta
gradient  clean the data's gradient: filters live here             k, s, g -> g
correct   add what others know: prox, variates, duals, momentum    k, s, v -> v
finish    clients, once per round, after training                  k, s
weigh     how much each client counts                              k, s, p -> p
server    move the server's state                                  k, s
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from math import inf
from numbers import Real
from typing import Any, ClassVar, TypeVar, dataclass_transform

from torch import Tensor

from fednb.base.checks import check_fields, passes
from fednb.base.declared import Found, address_of, changed, owners, settable, settled
from fednb.base.inputs import one_line, shown
from fednb.core.record import Cohort, Declared, Dim, Server, cohort_names, core_rows, length, server_names
from fednb.core.vectors import Layout, clip

COHORT_NAMES, SERVER_NAMES = cohort_names(), server_names()  # no part may declare them
FIRST_MODEL = "first model"  # a start value of declared state
STAGES = ("start", "perturb", "gradient", "correct", "finish", "weigh", "server")


def local_round(method: Method, k: Cohort, s: Server, walk: Walk | None = None) -> None:
    """What the clients do: receive w, take their steps, keep how far they moved."""
    start_round(method, k, s)
    (walk or step_by_step)(method, k, s)
    k.end()
    k.delta = k.w - k.w0
    method.each("finish", k, s)


def start_round(method: Method, k: Cohort, s: Server) -> None:
    """What the clients do before their first step: receive the model and its buffers, run the `start` stages."""
    k.w0 = k.w = s.w
    k.b = s.b
    method.each("start", k, s)


def local_step(method: Method, k: Cohort, s: Server) -> None:
    """One step of every client."""
    delta = method.fold("perturb", k, s, None)
    g = k.grad(k.w if delta is None else k.w + delta)
    g = method.fold("gradient", k, s, g)
    v = method.fold("correct", k, s, g)
    k.w = k.w - k.lr * (clip(v, k.clip_norm) + k.weight_decay * k.w)  # decay after the clip: FL-Simulator


def step_by_step(method: Method, k: Cohort, s: Server) -> None:
    """All steps of a round, one after another; an engine may have a faster way to the same numbers."""
    for step in range(k.max_steps):
        k.begin(step)
        local_step(method, k, s)


def server_round(method: Method, k: Cohort, s: Server) -> None:
    """What the server does with the uploads: weigh, average, move."""
    k.p = p = method.fold("weigh", k, s, k.p)
    s.delta = (p * k.delta).sum(0)
    s.step = s.lr * s.delta
    method.each("server", k, s)
    s.w = s.w + s.step
    s.b = (p * k.b).sum(0) / p.sum().clamp_min(1e-12)  # averaged and nothing else, also where weights are damped


Walk = Callable[["Method", Cohort, Server], None]  # takes a cohort through the steps of a round
Range = tuple[str, Callable[[Any], bool]]
AT_LEAST_0: Range = ("at least 0", lambda v: 0 <= v < inf)
ABOVE_0: Range = ("above 0", lambda v: 0 < v < inf)
SHARE: Range = ("between 0 and 1", lambda v: 0 <= v <= 1)


class Part:
    """One idea of one paper: the stages it fills in and the state it declares.

    A part is a class with `@fn.part` whose fields are its parameters. It fills in some of seven stages, each a method
    whose docstring begins with its equation. k is the cohort, with vectors [C, P] and numbers [C, 1] of its C clients:
    k.w (weights), k.w0 (received), k.delta (moved), k.grad(w), k.lr, k.steps, k.p, and what is declared. s is the
    server, with vectors [P]: s.w, s.delta, s.step, s.t, and what is declared.

    start(k, s)               on the clients, once per round, before training
    perturb(k, s, delta)      each step: where to take the gradient, w + delta; returns delta (None at first)
    gradient(k, s, g)         each step: clean the data's gradient; returns g
    correct(k, s, v)          each step: add what others know (proximal terms, variates, momentum); returns v
    finish(k, s)              on the clients, once per round, after training
    weigh(k, s, p)            on the server: how much each client counts, [C, 1]; returns p
    server(k, s)              on the server: move its state; s.step is the step that it is about to take

    Class variables say what a part keeps and needs. State is declared by name with its size, `fn.P` (a vector like the
    model), `fn.L` (a number for each layer) or a whole number, and is then read and assigned as k.name or s.name.

    per_client       kept by each client between rounds, zero at first: {"c_k": fn.P}
    this_round       of each client, made anew in every round
    on_server        kept by the server, zero at first; what clients read of it is counted as sent down
    ascends          True if `perturb` makes a perturbation; a method has at most one such part
    shapes_ascent    True if `perturb` changes what a part before it made
    owns_model       True if each client keeps a model of its own
    tunes            how classifiers are tuned after the last round, by field of `fn.parts.OnlyHead`
    network          what names of fitting models end with, where not every model fits: "-cr"
    readings         allowed values of a field `reading`, the default first
    ranges           what numbers may be, by field: {"rho": ("at least 0", lambda v: v >= 0)}
    shared           fields that mean one thing in all parts of a method that have them
    bundled          server state that goes down folded into another and is not counted twice

    >>> @fn.part
    ... class Sign(fn.Part):
    ...     def gradient(self, k, s, g):
    ...         "g ← sign(g)"
    ...         return g.sign()
    ...
    >>> fn.Method("signs", Sign()).parts[0].stages()
    ('gradient',)
    """

    per_client: ClassVar[Declared] = {}  # kept by each client between rounds, zero at first
    this_round: ClassVar[Declared] = {}  # made anew each round
    on_server: ClassVar[Declared] = {}
    ascends: ClassVar[bool] = False  # makes a perturbation; a method has at most one
    owns_model: ClassVar[bool] = False  # gives each client a model of its own
    tunes: ClassVar[dict[str, bool]] = {}  # fields of OnlyHead, which tunes classifiers; one True of any part counts
    network: ClassVar[str] = ""  # what the names of fitting models end with, where not every model fits
    shapes_ascent: ClassVar[bool] = False  # changes a perturbation that a part before it made
    readings: ClassVar[tuple[str, ...]] = ()  # the allowed values of `reading`, the default first
    ranges: ClassVar[dict[str, Range]] = {}  # what each number may be
    shared: ClassVar[tuple[str, ...]] = ("reading",)  # names that mean one thing in all parts that share them
    bundled: ClassVar[dict[str, str]] = {}  # server vectors that go down in place of, or folded into, another

    def private(self, layout: Layout) -> list[bool]:
        """The layers that never leave their client."""
        return [False] * len(layout)

    def initial(self) -> dict[str, float | str]:
        """Start values other than zero: a number, or FIRST_MODEL for the weights that the run starts from."""
        return {}

    def __post_init__(self) -> None:
        reading = getattr(self, "reading", None)
        if reading is not None and reading not in self.readings:
            allowed = ", ".join(self.readings)
            raise BadReading(f"{type(self).__name__}.reading = {shown(reading)}: must be one of {allowed}")
        for name, (allowed, test) in self.ranges.items():
            if not passes(test, getattr(self, name)):
                raise BadParameter(f"{type(self).__name__}.{name} = {shown(getattr(self, name))}: must be {allowed}")
        check_fields(self, BadParameter)

    @classmethod
    def stages(cls) -> tuple[str, ...]:
        return tuple(stage for stage in STAGES if hasattr(cls, stage))


OnePart = TypeVar("OnePart", bound=Part)


@dataclass_transform(frozen_default=True)
def part(cls: type[OnePart]) -> type[OnePart]:
    """Make a class a part: frozen fields, and at least one stage with an equation to print.

    >>> @fn.part
    ... class Shrink(fn.Part):
    ...     by: float = 0.5
    ...     def correct(self, k, s, v):
    ...         "v ← by · v"
    ...         return self.by * v
    ...
    >>> Shrink(by=0.1)
    Shrink(by=0.1)
    """
    made: type[OnePart] = dataclass(frozen=True)(cls)
    for stage in made.stages():
        if not inspect.getdoc(getattr(made, stage)):
            raise TypeError(f"{cls.__name__}.{stage} needs a docstring whose first line is its equation")
    if not made.stages():
        raise TypeError(f"{cls.__name__} fills in no stage; the stages are {', '.join(STAGES)}")
    return made


class BadMethod(ValueError):
    """Parts that do not make a method."""


class BadReading(ValueError):
    """A reading that a part does not have."""


class BadParameter(ValueError):
    """A parameter that a method does not have, or a value it cannot take."""


@dataclass(frozen=True, init=False, repr=False)
class Method:
    """A name and a tuple of parts; the order of parts is the order within each stage.

    >>> both = fn.Method("FedSAM", fn.parts.Sam(rho=0.05)).plus(fn.parts.Prox(mu=0.01))
    >>> both.name, both.parameters()["mu"]
    ('FedSAM + Prox', 0.01)
    """

    name: str = field(metadata={"label": True})  # two names of the same parts are one run
    parts: tuple[Part, ...]

    def __init__(self, name: str, *parts: Part) -> None:
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "parts", parts)
        ascents = [type(p).__name__ for p in parts if p.ascends]
        if len(ascents) > 1:
            several = one_line(", ".join(ascents), 100)
            raise BadMethod(f"{shown(name)} has {len(ascents)} ascents ({several}); a step looks uphill once")
        for at, p in enumerate(parts):
            if p.shapes_ascent and not any(q.ascends for q in parts[:at]):
                raise BadMethod(f"{shown(name)}: {type(p).__name__} needs an ascent such as Sam before it")
        for kind in ("per_client", "this_round", "on_server"):
            taken = SERVER_NAMES if kind == "on_server" else COHORT_NAMES
            if clash := set(self.declared(kind)) & taken:
                raise BadMethod(f"{shown(name)} declares {sorted(clash)[0]!r}, a name that the round itself uses")
        if both := set(self.declared("per_client")) & set(self.declared("this_round")):
            raise BadMethod(f"{shown(name)}: one part keeps {sorted(both)[0]!r} between rounds, another makes it anew")

    def __repr__(self) -> str:
        return f"Method({', '.join(map(repr, (self.name, *self.parts)))})"

    def __str__(self) -> str:
        return self.name

    def each(self, stage: str, k: Cohort, s: Server) -> None:
        for p in self._with(stage):
            getattr(p, stage)(k, s)

    def fold(self, stage: str, k: Cohort, s: Server, value: Any) -> Any:
        for p in self._with(stage):
            value = getattr(p, stage)(k, s, value)
        return value

    def _with(self, stage: str) -> Iterator[Part]:
        return (p for p in self.parts if hasattr(p, stage))

    def plus(self, *parts: Part, name: str | None = None) -> Method:
        """A method with these parts behind this method's own."""
        return Method(name or " + ".join([self.name, *(type(p).__name__ for p in parts)]), *self.parts, *parts)

    def declared(self, kind: str) -> Declared:
        """The state of all parts. Parts that name the same buffer share it."""
        out: dict[str, Dim] = {}
        for p in self.parts:
            for name, dim in getattr(p, kind).items():
                if out.setdefault(name, dim) != dim:
                    raise BadMethod(f"{shown(self.name)}: two parts declare {name!r} with different sizes")
        return out

    def buffers(self, kind: str, layout: Layout, like: Tensor) -> dict[str, Tensor]:
        """Start values of the declared state of one kind, `[dim]` by name; `like` is the run's first model."""
        start = {name: x for p in self.parts for name, x in p.initial().items()}
        return {
            name: like.clone() if (value := start.get(name, 0.0)) == FIRST_MODEL else _filled(like, dim, layout, value)
            for name, dim in self.declared(kind).items()
        }

    def kept_back(self, layout: Layout) -> int:
        """How many numbers of the model are private: neither sent nor received."""
        hidden = [any(flags) for flags in zip(*(p.private(layout) for p in self.parts), strict=True)]
        return sum(n for n, yes in zip(layout.sizes, hidden, strict=False) if yes)

    def parameters(self) -> dict[str, Any]:
        """Every field that can be set by name, filters inside parts included: {"rho": 0.1, "ratio": 0.01}.

        A name that several parts have stands there for each of them, as "dyn.beta"; once where they share it.
        """
        found = [(labels, x, name) for labels, x in owners(self.parts) for name in settable(x)]
        names = {name: self._fit(name) for _, _, name in found}
        return {
            name if _is_one(name, names[name]) else address_of(labels, name, names[name]): getattr(x, name)
            for labels, x, name in found
        }

    def but(self, **changes: Any) -> Method:
        """A copy of this method with other parameters, looked up by name in all parts and their filters.

        A name that several parts have is refused, unless they share it; "dyn.beta" is the one of `Dyn`.
        """
        new: list[dict[str, Any]] = [{} for _ in owners(self.parts)]
        for address, value in changes.items():
            for at, x in self._meant(address, value):
                name = address.rpartition(".")[2]
                if name in new[at]:
                    raise BadParameter(f"{one_line(self.name, 80)}: {name!r} is given twice")
                new[at][name] = _same_kind(name, getattr(x, name), value)
        each = iter(new)
        return Method(self.name, *(changed(p, each) for p in self.parts))

    def _fit(self, address: str) -> Found:
        """Where an address such as "beta" or "dyn.beta" leads: to that very part or filter, or into it."""
        whose, _, name = address.rpartition(".")
        here = [(at, *owner) for at, owner in enumerate(owners(self.parts)) if name in settable(owner[1])]
        inside = [each for each in here if not whose or whose.lower() in each[1]]
        return [each for each in inside if each[1][-1] == whose.lower()] or inside

    def _meant(self, address: str, value: Any) -> list[tuple[int, Any]]:
        """The owners that a change is for."""
        found, name = self._fit(address), address.rpartition(".")[2]
        if not found:
            has = ", ".join(f"{k}={v!r}" for k, v in self.parameters().items()) or "none"
            raise BadParameter(f"{one_line(self.name, 80)} has no parameter {shown(address)}; it has: {has}")
        if not _is_one(name, found):
            each = ", ".join(address_of(labels, name, found) for _, labels, _ in found)
            raise BadParameter(f"{one_line(self.name, 80)} has {address!r} in several places; name one of {each}")
        if name != "reading":
            return [(at, x) for at, _, x in found]
        if takers := [(at, x) for at, _, x in found if value in x.readings]:  # the others have no such reading
            return takers
        allowed = ", ".join(dict.fromkeys(r for _, _, x in found for r in x.readings))
        raise BadReading(f"{one_line(self.name, 80)}: reading = {shown(value)}, must be one of {allowed}")


def _filled(like: Tensor, dim: Dim, layout: Layout, value: float | str) -> Tensor:
    return like.new_full((length(dim, layout),), float(value))


def _is_one(name: str, found: Found) -> bool:
    """Whether a name means one parameter: of one owner, or shared by all that have it."""
    return len(found) == 1 or all(name in getattr(x, "shared", ()) for _, _, x in found)


def _same_kind(name: str, old: Any, value: Any) -> Any:
    number = isinstance(old, int | float) and not isinstance(old, bool)
    if number and (not isinstance(value, Real) or isinstance(value, bool)):
        raise BadParameter(f"{name} = {shown(value)}: must be a number")
    if isinstance(old, bool | str) and type(value) is not type(old):
        raise BadParameter(f"{name} = {shown(value)}: must be a {type(old).__name__}")
    return settled(type(old), value)


def numbers(names: frozenset[str], record: Server | Cohort, bundled: dict[str, str] | None = None) -> int:
    """How many numbers one client sends or receives under these names; a bundle counts once."""
    whole = bundled or {}
    return sum({whole.get(name, name): x.shape[-1] for name, x in record.values(names).items()}.values())


def observed_round(method: Method, k: Cohort, s: Server) -> tuple[int, int]:
    """Both halves of a round in one place; returns the numbers sent down to and up from each client."""
    down = observed_local(method, k, s)
    return down, observed_server(method, k, s)


def observed_local(method: Method, k: Cohort, s: Server, walk: Walk | None = None) -> int:
    """The clients' half, with the server locked; returns how many numbers each client received."""
    s.listen()
    s.locked = True
    try:
        local_round(method, k, s, walk)
    finally:
        s.locked = False
    bundled = {name: whole for p in method.parts for name, whole in p.bundled.items()}
    return numbers(s.sent, s, bundled) - method.kept_back(k.layout)


def observed_server(method: Method, k: Cohort, s: Server) -> int:
    """The server's half; returns how many numbers each client sent."""
    k.listen()
    server_round(method, k, s)
    s.t += 1
    return numbers(k.sent, k) - method.kept_back(k.layout)


def blank(method: Method, layout: Layout, w: Tensor, b: Tensor, clients: int) -> dict[str, Tensor]:
    """Empty rows of a cohort: the model's vectors, the loss, and what parts declare for one round."""
    own = method.buffers("this_round", layout, w)
    return core_rows(layout, w, b, clients) | {name: x.expand(clients, -1) for name, x in own.items()}
