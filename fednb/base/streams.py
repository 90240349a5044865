"""Randomness as a function: every draw names its purpose, so nothing depends on the order of draws."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from numbers import Integral
from typing import Any

import numpy as np

from fednb.base.inputs import shown


class BadSeed(ValueError):
    """A seed that is not a whole number of at least 0."""


def whole_seed(value: Any) -> int:
    """A seed as Python's int.

    >>> whole_seed(np.int64(3))
    3
    """
    if not isinstance(value, Integral) or isinstance(value, bool) or value < 0:
        raise BadSeed(f"seed = {shown(value)}: must be a whole number of at least 0")
    return int(value)


def whole_seeds(values: Any) -> list[int]:
    """Several seeds, at least one, each of them once."""
    if isinstance(values, str | bytes) or not hasattr(values, "__iter__"):
        raise BadSeed(f"seeds = {shown(values)}: must be a list of whole numbers such as [0, 1, 2]")
    seeds = [whole_seed(each) for each in values]
    if not seeds or len(set(seeds)) < len(seeds):
        raise BadSeed(f"seeds = {shown(seeds)}: must be at least one, and none twice")
    return seeds


@lru_cache
def joint_seed(run: int, own: int) -> int:
    """One seed for a choice that has a number of its own inside a run; with the run's seed 0 it is that number.

    >>> joint_seed(0, 3), joint_seed(1, 3) == joint_seed(3, 1)
    (3, False)
    """
    return int(stream(run, "joint seed", own).integers(2**63)) if run else own


def stream(seed: int, *names: str | int) -> np.random.Generator:
    """An independent generator for one purpose, the same on every machine and in every process.

    >>> int(stream(0, "batches", 3, 7).integers(1000)) == int(stream(0, "batches", 3, 7).integers(1000))
    True
    """
    text = "/".join(map(str, (whole_seed(seed), *names)))
    return np.random.default_rng(int.from_bytes(hashlib.sha256(text.encode()).digest()[:16], "little"))
