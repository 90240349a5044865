"""Checks of values that users give: numbers that are finite, whole and in bounds, texts, and the fields of a part."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from math import isfinite
from numbers import Integral, Real
from typing import Any

from fednb.base.declared import settle
from fednb.base.inputs import shown

MOST_WHOLE = 1_000_000  # of a field that counts something: what is counted is gone through or held in memory
MOST_SEED = 2**63 - 1
MOST_TEXT = 500


def is_number(value: Any) -> bool:
    """True for a finite number; true and false are none.

    >>> is_number(0.1), is_number(float("nan")), is_number(True), is_number("1"), is_number(10**400)
    (True, False, False, False, False)
    """
    try:
        return isinstance(value, Real) and not isinstance(value, bool) and isfinite(value)
    except OverflowError:  # a whole number that no float can be
        return False


def is_whole(value: Any, least: int = 0, most: int = MOST_WHOLE) -> bool:
    """True for a whole number in bounds; true and false are none."""
    return isinstance(value, Integral) and not isinstance(value, bool) and least <= int(value) <= most


def is_text(value: Any, most: int = MOST_TEXT) -> bool:
    """True for a text on one line that is not too long."""
    return isinstance(value, str) and len(value) <= most and (value.isprintable() or not value)


def passes(test: Callable[[Any], bool], value: Any) -> bool:
    """Whether a value passes a test; what the test cannot even be asked about does not pass."""
    try:
        return bool(test(value))
    except (TypeError, ValueError, AttributeError, OverflowError):
        return False


def check_fields(x: Any, error: type[ValueError]) -> None:
    """Give the numbers of a frozen dataclass the kind of their fields, and refuse what is of another kind.

    Refused are numbers that are not finite, fractions and immense numbers where something is counted, and texts of
    more than a line. A field's default always fits: it is what its author wanted.
    """
    settle(x)
    for field in fields(x):
        given = getattr(x, field.name)
        kind = getattr(field.type, "__name__", field.type)
        if kind in KINDS and given is not field.default:
            allowed, test = KINDS["seed" if field.name == "seed" else kind]
            if not passes(test, given):
                raise error(f"{type(x).__name__}.{field.name} = {shown(given)}: must be {allowed}")


KINDS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "float": ("a finite number", is_number),
    "int": (f"a whole number of at most {MOST_WHOLE}", lambda v: is_whole(v, -MOST_WHOLE)),
    "seed": (f"a whole number from 0 to {MOST_SEED}", lambda v: is_whole(v, 0, MOST_SEED)),
    "bool": ("true or false", lambda v: isinstance(v, bool)),
    "str": (f"a text of one line and at most {MOST_TEXT} letters", is_text),
}
