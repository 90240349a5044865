"""For every kind of claim a table on which it holds: {kind: (fields of the claim, rows of the table)}."""

from __future__ import annotations

from typing import Any

SEEDS = (0, 1, 2)


def rows(seen: dict[tuple[str, Any], float], column: str) -> list[dict[str, Any]]:
    """Rows from {(method, value of a column): number}, for three seeds."""
    return [
        {column: at, "method": method, "seed": seed, "measure": "accuracy", "value": float(value)}
        for (method, at), value in seen.items()
        for seed in SEEDS
    ]


def everywhere(**values: float) -> list[dict[str, Any]]:
    """The same numbers at alpha 0.1 and 0.6."""
    return rows({(method, alpha): value for method, value in values.items() for alpha in (0.1, 0.6)}, "alpha")


def scattered(**deviations: float) -> list[dict[str, Any]]:
    """Numbers around 50 that scatter over five seeds by so much, at alpha 0.1 and 0.6."""
    return [
        {"alpha": alpha, "method": method, "seed": seed, "measure": "accuracy", "value": 50.0 + sd * at}
        for alpha in (0.1, 0.6)
        for method, sd in deviations.items()
        for seed, at in enumerate((-1.0, 0.5, -0.5, 1.0, 0.0))
    ]


def swept(**lines: list[float]) -> list[dict[str, Any]]:
    """Numbers along rho = 0, 1, 2."""
    return rows({(method, at): value for method, line in lines.items() for at, value in enumerate(line)}, "rho")


def bands(curves: dict[float, list[float]]) -> list[dict[str, Any]]:
    """Curves over frequency bands, by alpha."""
    return [
        {"alpha": alpha, "method": "FedAvg", "seed": seed, "measure": "accuracy", "band": band, "value": float(value)}
        for alpha, curve in curves.items()
        for seed in SEEDS
        for band, value in enumerate(curve, 1)
    ]


PAIR = {"left": "A", "right": "B"}
SWEPT = PAIR | {"along": "rho"}
ALONE = {"left": "A", "along": "rho"}
FALLING = {0.1: [4.0, 3.0, 2.0, 1.0], 0.6: [4.0, 3.0, 2.0, 1.0]}
PLACES = {("A", "x"): 1.0, ("B", "x"): 0.0, ("A", "y"): 5.0, ("B", "y"): 1.0, ("A", "z"): 6.0, ("B", "z"): 1.0}

EVERY_KIND: dict[str, tuple[dict[str, Any], list[dict[str, Any]]]] = {
    "above": (PAIR, everywhere(A=3, B=2)),
    "each_above": (PAIR, everywhere(A=3, B=2)),
    "some_above": (PAIR, everywhere(A=3, B=2)),
    "each_not_above": (PAIR, everywhere(A=1, B=2)),
    "not_above": (PAIR, everywhere(A=1, B=2)),
    "below": (PAIR, everywhere(A=1, B=2)),
    "near": (PAIR | {"tolerance": 1.0}, everywhere(A=2, B=2)),
    "first": ({"left": "A"}, everywhere(A=3, B=2, C=1)),
    "first_on_average": ({"left": "A", "along": "alpha"}, everywhere(A=3, B=2, C=1)),
    "top": ({"left": "A", "most": 2.0}, everywhere(A=3, B=2, C=1)),
    "lowest": ({"left": "A"}, everywhere(A=1, B=2, C=3)),
    "gain_grows": (SWEPT, swept(A=[1, 2, 3], B=[0, 0, 0])),
    "gain_shrinks": (SWEPT, swept(A=[3, 2, 1], B=[0, 0, 0])),
    "gain_positive": (SWEPT, swept(A=[1, 2, 3], B=[0, 0, 0])),
    "gain_gone": (SWEPT, swept(A=[1, 2, 3], B=[4, 4, 4])),
    "gain_flat": (SWEPT | {"tolerance": 1.0}, swept(A=[1, 1, 1], B=[0, 0, 0])),
    "gain_least_at": (PAIR | {"along": "where", "at": "x"}, rows(PLACES, "where")),
    "best_at": ({"left": "A", "at": "rho 0"}, swept(A=[3, 2, 1])),
    "steadiest": (ALONE, swept(A=[1, 1, 2], B=[1, 5, 9])),
    "falls_along": (ALONE, swept(A=[3, 2, 1])),
    "rises_along": (ALONE, swept(A=[1, 2, 3])),
    "each_falls_along": (ALONE, swept(A=[3, 2, 1])),
    "peaks_inside": (ALONE, swept(A=[1, 5, 3])),
    "at_most": ({"left": "A", "tolerance": 5.0}, everywhere(A=3)),
    "at_least": ({"left": "A", "tolerance": 1.0}, everywhere(A=3)),
    "at_most_times": (PAIR | {"tolerance": 2.0}, everywhere(A=3, B=2)),
    "spread_below": (PAIR, scattered(A=1, B=9)),
    "spread_not_above": (PAIR, scattered(A=1, B=9)),
    "spread_at_most": ({"left": "A", "tolerance": 9.0}, scattered(A=1)),
    "within": ({"least": 0.0, "most": 9.0}, everywhere(A=3, B=2)),
    "lowest_band_largest": ({}, bands(FALLING)),
    "falls_with_band": ({"tolerance": 0.5}, bands(FALLING)),
    "low_band_grows_with_skew": ({}, bands({0.1: [4.0, 1.0], 0.6: [1.0, 1.0]})),
}
