"""A convolution in strides as one without: of an image in tiles as large as a stride, a tile's places as channels.

A GPU's libraries are slow where many groups are crossed in strides, and slowest at the gradients. Four times the
channels on images of half the side are nothing special to them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch.nn.functional as F
from torch import Tensor

WITHOUT_STRIDES: tuple[Any, ...] = ([1, 1], [0, 0], [1, 1], False, [0, 0])


class Tiles:
    """How images `[N, G c, H, W]` and kernels `[G o, c, kh, kw]` lie in tiles; all there and back again."""

    def __init__(self, x: Tensor, w: Tensor, stride: Sequence[int], padding: Sequence[int], groups: int) -> None:
        self.image, self.kernel, self.stride, self.groups = x.shape, w.shape, tuple(stride), groups
        self.taps = [-(-w.shape[2 + i] // stride[i]) for i in (0, 1)]  # tiles that a kernel sees at a time
        places = [(x.shape[2 + i] + 2 * padding[i] - w.shape[2 + i]) // stride[i] + 1 for i in (0, 1)]
        self.many = [places[i] + self.taps[i] - 1 for i in (0, 1)]
        after = [self.many[i] * stride[i] - padding[i] - x.shape[2 + i] for i in (0, 1)]
        self.rim = (padding[1], after[1], padding[0], after[0])  # zeros around an image; below zero: so much is cut

    def of_image(self, x: Tensor) -> Tensor:
        """An image as `[N, G sh sw c, tiles, tiles]`."""
        (high, wide), (sh, sw) = self.many, self.stride
        parts = F.pad(x, self.rim).reshape(len(x), self.groups, -1, high, sh, wide, sw)
        return parts.permute(0, 1, 4, 6, 2, 3, 5).reshape(len(x), -1, high, wide)

    def of_kernels(self, w: Tensor) -> Tensor:
        """Kernels as `[G o, sh sw c, taps, taps]`, zeros where they do not fill a tile."""
        (th, tw), (sh, sw) = self.taps, self.stride
        parts = F.pad(w, (0, tw * sw - w.shape[3], 0, th * sh - w.shape[2])).reshape(*w.shape[:2], th, sh, tw, sw)
        return parts.permute(0, 3, 5, 1, 2, 4).reshape(len(w), -1, th, tw)

    def to_image(self, tiles: Tensor) -> Tensor:
        """What `of_image` makes, or its gradient, as the image that it was."""
        (high, wide), (sh, sw) = self.many, self.stride
        parts = tiles.reshape(len(tiles), self.groups, sh, sw, -1, high, wide).permute(0, 1, 4, 5, 2, 6, 3)
        return F.pad(parts.reshape(*self.image[:2], high * sh, wide * sw), [-n for n in self.rim])

    def to_kernels(self, tiles: Tensor) -> Tensor:
        """What `of_kernels` makes, or its gradient, as the kernels that it was."""
        (th, tw), (sh, sw), (kh, kw) = self.taps, self.stride, self.kernel[2:]
        parts = tiles.reshape(len(tiles), sh, sw, -1, th, tw).permute(0, 3, 4, 1, 5, 2)
        return parts.reshape(*self.kernel[:2], th * sh, tw * sw)[:, :, :kh, :kw]


def spread(x: Tensor, stride: Sequence[int], sides: Sequence[int]) -> Tensor:
    """An image's places so far apart, zeros between them, to an image with such sides."""
    high, wide = x.shape[2:]
    parts = F.pad(x.reshape(*x.shape[:2], high, 1, wide, 1), (0, stride[1] - 1, 0, 0, 0, stride[0] - 1))
    whole = parts.reshape(*x.shape[:2], high * stride[0], wide * stride[1])
    return F.pad(whole, (0, sides[1] - whole.shape[3], 0, sides[0] - whole.shape[2]))
