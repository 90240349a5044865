"""Gaussian smoothing of long vectors by products of matrices: convolutions of one channel are slow."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from fednb.filters.fast.constants import constants

PIECES = 32, 1024  # numbers that one product smooths: at least, at most


def bell(sigma: float, reach: int, dtype: torch.dtype) -> Tensor:
    """Weights `[2 reach + 1]` of a Gaussian kernel, exp(−j² / 2σ²) for |j| ≤ reach over their sum."""
    at = torch.arange(-reach, reach + 1, dtype=dtype)
    return torch.softmax(-0.5 * (at / sigma) ** 2, dim=0)


def gaussian_smoothed(x: Tensor, sigma: float, reach: int) -> Tensor:
    """x `[..., n]` convolved with a Gaussian kernel that ends after `reach` numbers, the ends of x repeated.

    >>> gaussian_smoothed(torch.tensor([0.0, 0.0, 1.0, 0.0, 0.0]), sigma=1.0, reach=1)
    tensor([0.0000, 0.2741, 0.4519, 0.2741, 0.0000])
    """
    n = x.shape[-1]
    piece = min(max(reach, PIECES[0]), PIECES[1])
    padded = F.pad(x.reshape(-1, 1, n), (reach, reach + -n % piece), mode="replicate")
    around = padded.squeeze(1).unfold(-1, piece + 2 * reach, piece)  # pieces, and what lies within reach of each
    smooth = around @ _bells(sigma, reach, piece, x.dtype, x.device)
    return smooth.flatten(-2)[:, :n].reshape(x.shape)


@constants(16)
def _bells(sigma: float, reach: int, piece: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """The kernel around each number of a piece as columns, `[piece + 2 reach, piece]`."""
    weights = bell(sigma, reach, dtype)
    return torch.stack([F.pad(weights, (i, piece - 1 - i)) for i in range(piece)], dim=1).to(device)
