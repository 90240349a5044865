"""Fields of frozen dataclasses: numbers of the declared type, so that equal values have one key; fields by address."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import fields, is_dataclass, replace
from numbers import Real
from typing import Any

import numpy as np

Labels = tuple[str, ...]  # of a thing inside others, from the outside in: ("filtergradient", "highpass")
Found = list[tuple[int, Labels, Any]]  # which of the owners, its labels, and it itself


def settle(x: Any) -> None:
    """Give every number of a frozen dataclass the type of its field: 1 becomes 1.0 where a float is declared."""
    for f in fields(x):
        object.__setattr__(x, f.name, settled(f.type, getattr(x, f.name)))


def settled(kind: Any, value: Any) -> Any:
    """A value as a field of this type has it: numpy's numbers as Python's, no -0.0; what does not fit is left.

    >>> settled("float", 1), settled("int", 2.0), settled("float", -0.0), settled("int", 2.5), settled("str", "a")
    (1.0, 2, 0.0, 2.5, 'a')
    """
    if type(value) is kind or type(value).__name__ == kind:
        return value + 0.0 if isinstance(value, float) else value
    if isinstance(value, np.generic):
        value = value.item()
    declared = kind if isinstance(kind, str) else getattr(kind, "__name__", "")
    if not isinstance(value, Real) or isinstance(value, bool):
        return value
    if declared == "float" and abs(value) <= 1e308:  # type: ignore[operator]  # typeshed: Real has no order
        return float(value) + 0.0
    if declared == "int" and isinstance(value, float) and value.is_integer():
        return int(value)
    return value + 0.0 if isinstance(value, float) else value


def owners(things: Iterable[Any], above: Labels = (), seen: Counter[str] | None = None) -> Iterator[tuple[Labels, Any]]:
    """Dataclasses and those inside them, each with its labels: its class in small letters, numbered from the second."""
    seen = Counter() if seen is None else seen
    for x in things:
        kind = type(x).__name__.lower()
        seen[kind] += 1
        labels = (*above, kind if seen[kind] == 1 else f"{kind}{seen[kind]}")
        yield labels, x
        yield from owners(inner(x).values(), labels, seen)


def inner(x: Any) -> dict[str, Any]:
    """The fields of a dataclass that are dataclasses themselves."""
    held = {f.name: getattr(x, f.name) for f in fields(x)}
    return {name: value for name, value in held.items() if is_dataclass(value) and not isinstance(value, type)}


def settable(x: Any) -> list[str]:
    """The names of a dataclass's fields that are no dataclasses themselves."""
    held = inner(x)
    return [f.name for f in fields(x) if f.name not in held]


def address_of(labels: Labels, name: str, found: Found) -> str:
    """What tells a field from the others of its name: the outermost label, or its owner's where that fails."""
    alone = [others[0] for _, others, _ in found].count(labels[0]) == 1
    return f"{labels[0] if alone else labels[-1]}.{name}"


def changed(x: Any, new: Iterator[dict[str, Any]]) -> Any:
    """A dataclass with the next of the changes, and those inside it with the ones behind, in the order of `owners`."""
    own = dict(next(new))
    return replace(x, **own, **{name: changed(value, new) for name, value in inner(x).items()})
