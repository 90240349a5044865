"""Which samples a client sees in which order, and how they are augmented: pure functions of (seed, round, client)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from fednb.base.streams import stream


class Plan(Protocol):
    """The batches of one round for some clients. `at(step)` gives x `[C, B, ...]`, y `[C, B]`, valid `[C, B]`."""

    def at(self, step: int | Tensor) -> tuple[Tensor, Tensor, Tensor]: ...


def step_count(n: int, epochs: int, size: int) -> int:
    """K: the local steps of a client with n samples; the last batch of an epoch may be short."""
    return epochs * -(-n // size)


def batches(seed: int, round: int, client: int, n: int, epochs: int, size: int) -> Tensor:
    """Sample indices `[steps, size]` of one client in one round, −1 where the last batch is short."""
    rng = stream(seed, "batches", round, client)
    per_epoch = -(-n // size)
    out = np.full((epochs, per_epoch * size), -1, dtype=np.int64)
    for epoch in range(epochs):
        out[epoch, :n] = rng.permutation(n)
    return torch.from_numpy(out.reshape(epochs * per_epoch, size))


def changes(
    seed: int, round: int, client: int, steps: int, size: int, pad: int, mirror: bool = True, every: bool = False
) -> Tensor:
    """How each sample is augmented, `[steps, size, 3]`: flip (0 or 1), and the crop's corner in the padded image.

    FL-Simulator's: half of the images are flipped, and half (drawn apart) are cropped from a border of `pad` zeros;
    the corner (pad, pad) is the image itself. Without `mirror` nothing is flipped; with `every` all are cropped.
    """
    rng = stream(seed, "augment", round, client)
    flip = (rng.random((steps, size)) < 0.5) & mirror
    moved = (rng.random((steps, size)) < 0.5) | every
    corner = np.where(moved[..., None], rng.integers(0, 2 * pad + 1, (steps, size, 2)), pad)
    return torch.from_numpy(np.concatenate([flip[..., None].astype(np.int64), corner], axis=-1))


def augment(x: Tensor, how: Tensor, pad: int) -> Tensor:
    """Flip and crop images `[n, c, h, w]` as `how` `[n, 3]` says; zeros come in from outside the (normalised) image."""
    n, _, h, w = x.shape
    columns = torch.arange(w, device=x.device).expand(n, w)
    columns = torch.where(how[:, :1] == 1, w - 1 - columns, columns)
    x = x.gather(3, columns[:, None, None, :].expand_as(x))
    padded = F.pad(x, (pad,) * 4)
    top = how[:, 1, None] + torch.arange(h, device=x.device)
    left = how[:, 2, None] + torch.arange(w, device=x.device)
    rows = padded.gather(2, top[:, None, :, None].expand(n, x.shape[1], h, w + 2 * pad))
    return rows.gather(3, left[:, None, None, :].expand(n, x.shape[1], h, w))


@dataclass(frozen=True)
class ExplicitPlan:
    """Batches given as they are: x `[C, S, B, ...]`, y `[C, S, B]`."""

    x: Tensor
    y: Tensor

    def at(self, step: int | Tensor) -> tuple[Tensor, Tensor, Tensor]:
        y = self.y[:, step]
        return self.x[:, step], y, torch.ones_like(y, dtype=torch.bool)
