"""Parameters given to a notebook, checked against its defaults before anything is executed or written."""

from __future__ import annotations

import math
import re
from typing import Any

from fednb.base.streams import BadSeed, whole_seed, whole_seeds
from fednb.runs.grid import SCALES

DEVICE = re.compile(r"auto|cpu|cuda(:\d{1,3})?")


class BadNotebookParameter(ValueError):
    """A parameter that the notebook does not have, or a value that it cannot take."""


def checked(notebook: str, known: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """The given parameters, each like its default in `known`; BadNotebookParameter where one is not."""
    for wrong in (p for p in given if p not in known):
        raise BadNotebookParameter(f"{notebook} has no parameter {wrong!r}; it has: {', '.join(known)}")
    out = {}
    for name, value in given.items():
        try:
            out[name] = _value(name, value, known[name])
        except BadSeed as error:
            raise BadNotebookParameter(f"{notebook}, {name}: {error}") from None
        except ValueError as error:
            raise BadNotebookParameter(f"{notebook}: {name} = {_short(value)}: {error}") from None
    return out


def _value(name: str, value: Any, default: Any) -> Any:
    """A parameter's value; lists for tuples, as `-p seeds 0,1` gives one."""
    if name == "scale":
        _must(value in SCALES, f"must be one of {', '.join(SCALES)}")
    elif name == "device":
        _must(isinstance(value, str) and DEVICE.fullmatch(value), "must be auto, cpu, cuda or such as cuda:1")
    elif name == "seed":
        return whole_seed(value)
    elif name == "seeds":
        return None if value is None and default is None else whole_seeds(value)
    elif isinstance(default, list):
        return [_like(x, default[0]) if default else _as_python(x) for x in _list(value)]
    else:
        return _like(value, default)
    return value


def _like(value: Any, default: Any) -> Any:
    """A value of the kind of a default."""
    if isinstance(default, bool):
        _must(isinstance(value, bool), "must be true or false")
    elif isinstance(default, int):
        _must(isinstance(value, int) and not isinstance(value, bool), "must be a whole number")
    elif isinstance(default, float):
        number = isinstance(value, int | float) and not isinstance(value, bool)
        _must(number and abs(value) < 1e300 and math.isfinite(value), "must be a number")
    elif isinstance(default, str):
        _must(isinstance(value, str), "must be a text")
    elif isinstance(default, dict):
        _must(isinstance(value, dict), "must be a dictionary")
    return _as_python(value)


def _list(value: Any) -> list[Any]:
    _must(isinstance(value, list | tuple) and len(value) > 0, "must be a list, such as [1, 2]")
    return list(value)


def _as_python(value: Any) -> Any:
    """A value that a notebook's cell can spell: numbers, texts, lists and dictionaries of them."""
    if isinstance(value, dict):
        _must(all(isinstance(name, str) for name in value), "must have texts as names")
        return {name: _as_python(x) for name, x in value.items()}
    if isinstance(value, list | tuple):
        return [_as_python(x) for x in value]
    _must(value is None or isinstance(value, bool | int | float | str), "must be numbers, texts or lists of them")
    _must(not isinstance(value, float) or math.isfinite(value), "must be finite")
    return value


def _must(holds: Any, said: str) -> None:
    if not holds:
        raise ValueError(said)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
