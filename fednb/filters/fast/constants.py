"""Constants of filters on a device, made once: a copy from the host at every step would cost more than the step."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial, update_wrapper
from typing import Generic, TypeVar

import torch

T = TypeVar("T")


class Constants(Generic[T]):
    """A function that makes constants, and the latest so many that it has made.

    What is read while a CUDA graph is captured is kept for good: each launch of the graph reads it where it lies.
    """

    def __init__(self, make: Callable[..., T], most: int) -> None:
        self.latest, self.in_graphs = lru_cache(maxsize=most)(make), dict[tuple[object, ...], T]()
        self.cache_clear = self.latest.cache_clear
        update_wrapper(self, make)

    def __call__(self, *asked: object) -> T:
        if asked in self.in_graphs:
            return self.in_graphs[asked]
        made = self.latest(*asked)
        if torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing():
            self.in_graphs[asked] = made
        return made


def constants(most: int) -> Callable[[Callable[..., T]], Constants[T]]:
    """A decorator: of what the function makes the latest so many are kept, and for good what a CUDA graph reads."""
    return partial(Constants, most=most)
