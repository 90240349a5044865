"""Products with blocks that lie scattered in flat vectors: two operators, kernels on a GPU, torch elsewhere.

Tracers and compilers take each as one operation, and leave it as it is.
"""

from __future__ import annotations

from functools import lru_cache
from importlib.util import find_spec

import torch
from torch import Tensor

from fednb.filters.fast.tiles import LINE, Tile, tiles_of


@lru_cache(maxsize=8)
def has_kernels(device: torch.device) -> bool:
    """True if the operators have kernels on this device: a CUDA device, with Triton installed."""
    return device.type == "cuda" and find_spec("triton") is not None


@torch.library.custom_op("fednb::block_coefficients", mutates_args=(), tags=[torch.Tag.flexible_layout])
def block_coefficients(
    x: Tensor, tiles: Tensor, functions: Tensor, width: int, numbers: int, aligned: int, tf32: bool
) -> Tensor:
    """u = x B, block by block: C · `numbers` coefficients of vectors x `[C, P]`, B the functions of each block.

    aligned: divides every start, length and block of the tiles. tf32: products may have 10 bits after the point.
    """
    u = x.new_zeros(len(x) * numbers)
    for tile in tiles_of(tiles):
        blocks = x[:, tile.start : tile.start + tile.many].reshape(len(x), -1, tile.b)
        _coefficients(u, tile, len(x)).copy_((blocks @ _functions(functions, tile, width)).unflatten(-1, (-1, 2)))
    return u


@torch.library.custom_op("fednb::subtract_blocks", mutates_args=(), tags=[torch.Tag.flexible_layout])
def subtract_blocks(
    x: Tensor, v: Tensor, tiles: Tensor, passing: Tensor, functions: Tensor, width: int, aligned: int, tf32: bool
) -> Tensor:
    """x − v Bᵀ, block by block; `tiles` and the tiles that are `passing` cover all of x `[C, P]`."""
    y = _in_lines(x)
    for tile in [*tiles_of(tiles), *tiles_of(passing)]:
        here = slice(tile.start, tile.start + tile.many)
        y[:, here] = x[:, here]
        if tile.R:
            low = _coefficients(v, tile, len(x)).flatten(2) @ _functions(functions, tile, width).mT
            y[:, here] -= low.flatten(1)
    return y


def _in_lines(x: Tensor) -> Tensor:
    """An empty tensor of the shape of x, every row of which begins at a multiple of `LINE` numbers."""
    C, P = x.shape
    return x.new_empty_strided((C, P), (-(-P // LINE) * LINE, 1))


@block_coefficients.register_fake
def _(x: Tensor, tiles: Tensor, functions: Tensor, width: int, numbers: int, aligned: int, tf32: bool) -> Tensor:
    return x.new_empty(len(x) * numbers)


@subtract_blocks.register_fake
def _(
    x: Tensor, v: Tensor, tiles: Tensor, passing: Tensor, functions: Tensor, width: int, aligned: int, tf32: bool
) -> Tensor:
    return _in_lines(x)


@block_coefficients.register_kernel("cuda")
def _(x: Tensor, tiles: Tensor, functions: Tensor, width: int, numbers: int, aligned: int, tf32: bool) -> Tensor:
    from fednb.filters.fast.kernels import coefficients  # Triton takes a second to import, and is not everywhere

    u = x.new_empty(len(x) * numbers)
    coefficients(_rows(x), tiles, functions, u, width, aligned, tf32)
    return u


@subtract_blocks.register_kernel("cuda")
def _(
    x: Tensor, v: Tensor, tiles: Tensor, passing: Tensor, functions: Tensor, width: int, aligned: int, tf32: bool
) -> Tensor:
    from fednb.filters.fast.kernels import subtract

    x, v, y = _rows(x), v.contiguous(), _in_lines(x)
    subtract(x, v, tiles, functions, y, width, aligned, tf32)
    if len(passing):
        subtract(x, v, passing, functions, y, width, 1, tf32)
    return y


def _rows(x: Tensor) -> Tensor:
    """x with the numbers of each row side by side; there may be gaps between rows, as compilers leave them."""
    return x if x.stride(1) == 1 else x.contiguous()


def _coefficients(u: Tensor, tile: Tile, C: int) -> Tensor:
    """The coefficients of a tile among all u, `[C, blocks, R / 2, 2]` (a view)."""
    shape = (C, tile.many // tile.b, tile.R // 2, 2)
    return u.as_strided(shape, (tile.stride, 2, 2 * tile.a, 1), C * tile.before + tile.inside)


def _functions(functions: Tensor, tile: Tile, width: int) -> Tensor:
    """The functions of a tile's blocks among all, `[b, R]` (a view)."""
    return functions[tile.functions : tile.functions + tile.b * width].view(tile.b, width)[:, : tile.R]
