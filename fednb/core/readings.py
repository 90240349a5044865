"""Readings of a part: small classes beside it, each with what the part does differently when a field has another value.

    @when(reading="printed")
    class DynPrinted(Dyn):
        def correct(self, k, s, v): ...

`Dyn(reading="printed")` is still a `Dyn`: it has this `correct`, and every other stage as `Dyn` has it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from types import FunctionType
from typing import Any, TypeVar

Kind = TypeVar("Kind", bound=type)
nothing: Any = None  # takes the place of a stage that a reading leaves out
DECLARED = ("per_client", "this_round", "on_server", "bundled", "tunes")  # what a reading may change besides functions


@dataclass(frozen=True)
class Not:
    """Every value of a field but this one: `@when(strength=Not(1.0))`."""

    value: Any


def when(**values: Any) -> Callable[[Kind], Kind]:
    """Let a class fill in for its base, a part, when fields of the part have these values.

    The functions of the class take the place of the part's. Texts among the values become allowed values of their
    field, behind the default; the class's first line goes into the part's docstring. Where several classes fit, the
    last in the file counts, function by function.
    """

    def enter(cls: Kind) -> Kind:
        base: Any = next(each for each in cls.__mro__[1:] if is_part(each))
        if cls.__module__ != base.__module__:
            raise TypeError(f"{cls.__name__}: a reading stands in the file of its part, {base.__module__}")
        for name, value in _changes(cls, base).items():
            _enter(base, name, values, value)
        for name, value in values.items():
            if isinstance(value, str):
                _allow(base, name, value)
        written = ", ".join(f"{name}={value!r}" for name, value in values.items())
        base.__doc__ = f"{inspect.getdoc(base)}\n{written}: {(inspect.getdoc(cls) or '').splitlines()[0]}"
        cls.__new__ = _refusing(f"{cls.__name__} is a reading; write {base.__name__}({written})")  # type: ignore[method-assign]
        return cls

    return enter


@dataclass(frozen=True)
class Chosen:
    """An attribute of a part that depends on its fields: what it is by default, and what with which values."""

    name: str
    default: Any
    others: list[tuple[dict[str, Any], Any]] = field(default_factory=list)

    def __get__(self, x: Any, kind: type | None = None) -> Any:
        fitting = [other for values, other in self.others if x is not None and _fits(x, values)]
        found = fitting[-1] if fitting else self.default
        if found is nothing:
            raise AttributeError(f"{self.name} is left out")
        return found.__get__(x, kind) if hasattr(found, "__get__") else found


class in_turn:
    """A stage made of several functions of its part, run one after another; its equation is all of theirs.

    Where the stage passes a value on, such as v or p, each function gets what the one before it has returned.
    """

    def __init__(self, *names: str) -> None:
        self.names = names

    def __get__(self, x: Any, kind: type | None = None) -> Callable[..., Any]:
        owner = kind if x is None else x
        steps = [getattr(owner, name) for name in self.names if hasattr(owner, name)]

        def stage(k: Any, s: Any, *value: Any) -> Any:
            for step in steps:
                made = step(k, s, *value)
                value = (made,) if value else ()
            return value[0] if value else None

        stage.__doc__ = ";  ".join(inspect.getdoc(step) or "" for step in steps)
        return stage


def is_part(x: Any) -> bool:
    """True for a class made by `@part`; false for a reading of one, for a base class, and for any other dataclass."""
    return isinstance(x, type) and "__dataclass_params__" in vars(x) and hasattr(x, "stages")


def _changes(cls: type, base: type) -> dict[str, Any]:
    """The functions and declarations of a reading, and of the readings that it is derived from."""
    between = [each for each in reversed(cls.__mro__) if issubclass(each, base) and each is not base]
    own = {name: value for each in between for name, value in vars(each).items() if not name.startswith("__")}
    kinds = (FunctionType, in_turn, type(nothing))
    return {name: value for name, value in own.items() if isinstance(value, kinds) or name in DECLARED}


def _fits(x: Any, values: dict[str, Any]) -> bool:
    given = ((getattr(x, name), value) for name, value in values.items())
    return all(own != value.value if isinstance(value, Not) else own == value for own, value in given)


def _enter(base: Any, name: str, values: dict[str, Any], value: Any) -> None:
    """Let `base.name` be `value` where fields have these values."""
    if isinstance(value, FunctionType) and not inspect.getdoc(value):
        raise TypeError(f"{value.__qualname__} needs a docstring whose first line is its equation")
    if not isinstance(vars(base).get(name), Chosen):
        setattr(base, name, Chosen(name, inspect.getattr_static(base, name, nothing)))
    vars(base)[name].others.append((values, value))


def _allow(base: Any, name: str, value: str) -> None:
    """Add a text to the allowed values of a field: to `readings` for the field `reading`, else to `ranges`."""
    default = {f.name: f.default for f in fields(base)}[name]
    known = getattr(base, "choices", {})
    before = known.get(name, ())
    allowed = tuple(dict.fromkeys((*(before if before[:1] == (default,) else (default,)), value)))
    base.choices = {**known, name: allowed}
    if name == "reading":
        base.readings = allowed
    else:
        base.ranges = {**base.ranges, name: (f"{', '.join(allowed[:-1])} or {allowed[-1]}", lambda v: v in allowed)}


def _refusing(message: str) -> Callable[..., Any]:
    def new(*given: Any, **named: Any) -> Any:
        raise TypeError(message)

    return new
