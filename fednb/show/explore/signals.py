"""Signals to try filters on: made ones, and one drawn by hand through a few points."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from fednb.base.streams import stream

N = 576  # 8 · 8 · 3 · 3 = 24 · 24: a vector, a matrix and a convolution of one length
SHAPES: dict[str, tuple[int, ...]] = {
    "vector of 576": (N,),
    "matrix 24 x 24": (24, 24),
    "kernels 8 x 8 x 3 x 3": (8, 8, 3, 3),
}
HAND = "drawn by hand"


def step(t: np.ndarray) -> np.ndarray:
    """−1, then 1."""
    return np.where(t < 0.5, -1.0, 1.0)


def sines(t: np.ndarray) -> np.ndarray:
    """A slow, a middling and a quick wave: 2, 12 and 80 periods."""
    return np.sin(4 * np.pi * t) + 0.5 * np.sin(24 * np.pi * t) + 0.25 * np.sin(160 * np.pi * t)


def noise(t: np.ndarray) -> np.ndarray:
    """White: every frequency alike."""
    return stream(0, "made noise").standard_normal(len(t))


def spike(t: np.ndarray) -> np.ndarray:
    """A single one, in the middle: what comes out is the filter's own response."""
    return (np.arange(len(t)) == len(t) // 2).astype(float)


def ramp(t: np.ndarray) -> np.ndarray:
    """From −1 to 1: a trend, and a jump where the end meets the beginning."""
    return 2 * t - 1


def noisy_trend(t: np.ndarray) -> np.ndarray:
    """A trend that clients might share, under noise."""
    return np.sin(2 * np.pi * t) + ramp(t) + 0.4 * noise(t)


PRESETS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "trend and noise": noisy_trend, "step": step, "sine mix": sines, "noise": noise, "spike": spike, "ramp": ramp,
}  # fmt: skip


def preset(name: str) -> np.ndarray:
    """A made signal of N numbers."""
    return PRESETS[name](np.arange(N) / N)


def drawn(points: Sequence[float]) -> np.ndarray:
    """A signal of N numbers through points at equal distances, straight between them.

    >>> drawn([0.0, 1.0])[[0, -1]].tolist(), round(float(drawn([0.0, 1.0, 0.0]).max()), 2)
    ([0.0, 1.0], 1.0)
    """
    return np.interp(np.linspace(0, 1, N), np.linspace(0, 1, len(points)), points)
