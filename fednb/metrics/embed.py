"""Many long vectors in two dimensions, with a number for how far they spread."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


def spread(x: Tensor) -> float:
    """The trace of the covariance of vectors `[C, P]` across clients, E_k ‖x_k − E x‖²."""
    return float((x.double() - x.double().mean(0)).square().sum(-1).mean())


def principal(x: Tensor, axes: int = 2) -> np.ndarray:
    """Vectors `[C, P]` in their own principal axes, `[C, axes]`, without moving the origin.

    The origin stays where it is (the global model, if x are moves from it), so the axes are the leading right singular
    vectors of x itself. The Gram matrix is enough: it is as small as the number of clients.
    """
    values, vectors = torch.linalg.eigh(x.double() @ x.double().T)
    order = values.argsort(descending=True)[:axes]
    points = vectors[:, order] * values[order].clamp_min(0).sqrt()
    points = points * torch.where(points.sum(0) < 0, -1.0, 1.0)  # most of them to the right and up
    return np.pad(points.numpy(), ((0, 0), (0, max(0, axes - len(x)))))
