"""Measurements by name: `@measurement("name")` registers a function, `measurement_named` finds it.

A measurement is a function from the results of a grid to a tidy table; one that needs no runs takes the scale instead.
A tidy table has the columns that tell settings apart, then method, seed, key, measure and value. Claims are judged on
it, figures are drawn from it, and it is what is stored of a run that was made elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

Measurement = TypeVar("Measurement", bound=Callable[..., Any])

MEASUREMENTS: dict[str, Callable[..., Any]] = {}  # by the names that `evidence` in paper.toml has for them


class UnknownEvidence(KeyError):
    """A name that no measurement has."""

    def __str__(self) -> str:
        return str(self.args[0])


def measurement(name: str) -> Callable[[Measurement], Measurement]:
    """Register a function as the measurement of this name; the function itself stays as it is."""

    def register(function: Measurement) -> Measurement:
        other = MEASUREMENTS.get(name, function)
        if (other.__module__, other.__qualname__) != (function.__module__, function.__qualname__):
            raise ValueError(f"two measurements are called {name!r}, in {other.__module__} and {function.__module__}")
        MEASUREMENTS[name] = function
        return function

    return register


def measurement_named(name: str) -> Callable[..., Any]:
    """The measurement that has this name; UnknownEvidence where there is none."""
    if name not in MEASUREMENTS:
        raise UnknownEvidence(f"no evidence {name!r}; there is {', '.join(sorted(MEASUREMENTS))}")
    return MEASUREMENTS[name]
