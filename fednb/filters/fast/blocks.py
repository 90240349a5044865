"""Products with blocks that lie scattered in flat vectors: two operators, kernels on a GPU, plain torch elsewhere.

Tracers and compilers take each as one operation, and leave it as it is.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass
from functools import lru_cache
from importlib.util import find_spec

import torch
from torch import Tensor

ROWS = 64  # blocks in a tile
LINE = 16  # numbers: rows that begin at multiples of it are read and written in the widest pieces


@dataclass(frozen=True)
class Tile:
    """Up to `ROWS` blocks of one layer; or, without functions, numbers that pass as they are.

    start: where they begin in a vector. many: numbers in all. b: in a block. functions: where the block's functions
    begin, `[b, width]`, of which R count. Coefficients of functions come in pairs, 2 p and 2 p + 1, side by side, as
    parts of complex numbers do: those of block q of client c, of C in all, are numbers
    C · before + c · stride + inside + p · 2 a + 2 q and the next.
    """

    start: int
    many: int
    b: int
    functions: int = 0
    R: int = 0
    before: int = 0
    stride: int = 0
    inside: int = 0
    a: int = 0


def table(tiles: list[Tile]) -> Tensor:
    """One row for each."""
    return torch.tensor([astuple(tile) for tile in tiles], dtype=torch.int64).view(-1, 9)


@lru_cache(maxsize=8)
def has_kernels(device: torch.device) -> bool:
    """Whether the operators are worth taking there."""
    return device.type == "cuda" and find_spec("triton") is not None


@torch.library.custom_op("fednb::seen_in_blocks", mutates_args=(), tags=[torch.Tag.flexible_layout])
def seen_in_blocks(
    x: Tensor, tiles: Tensor, functions: Tensor, width: int, numbers: int, aligned: int, tf32: bool
) -> Tensor:
    """u = x B, block by block: of x `[C, P]` C · `numbers` coefficients.

    aligned: divides every start, length and block of the tiles. tf32: products may have 10 bits after the point.
    """
    u = x.new_zeros(len(x) * numbers)
    for tile in _tiles(tiles):
        blocks = x[:, tile.start : tile.start + tile.many].reshape(len(x), -1, tile.b)
        _coefficients(u, tile, len(x)).copy_((blocks @ _functions(functions, tile, width)).unflatten(-1, (-1, 2)))
    return u


@torch.library.custom_op("fednb::less_in_blocks", mutates_args=(), tags=[torch.Tag.flexible_layout])
def less_in_blocks(
    x: Tensor, v: Tensor, tiles: Tensor, passing: Tensor, functions: Tensor, width: int, aligned: int, tf32: bool
) -> Tensor:
    """x − v Bᵀ, block by block; tiles and those that pass cover all of x."""
    y = _in_lines(x)
    for tile in [*_tiles(tiles), *_tiles(passing)]:
        here = slice(tile.start, tile.start + tile.many)
        y[:, here] = x[:, here]
        if tile.R:
            low = _coefficients(v, tile, len(x)).flatten(2) @ _functions(functions, tile, width).mT
            y[:, here] -= low.flatten(1)
    return y


def _in_lines(x: Tensor) -> Tensor:
    """Room for as many numbers as x has, its rows in whole lines."""
    C, P = x.shape
    return x.new_empty_strided((C, P), (-(-P // LINE) * LINE, 1))


@seen_in_blocks.register_fake
def _(x: Tensor, tiles: Tensor, functions: Tensor, width: int, numbers: int, aligned: int, tf32: bool) -> Tensor:
    return x.new_empty(len(x) * numbers)


@less_in_blocks.register_fake
def _(
    x: Tensor, v: Tensor, tiles: Tensor, passing: Tensor, functions: Tensor, width: int, aligned: int, tf32: bool
) -> Tensor:
    return _in_lines(x)


@seen_in_blocks.register_kernel("cuda")
def _(x: Tensor, tiles: Tensor, functions: Tensor, width: int, numbers: int, aligned: int, tf32: bool) -> Tensor:
    from fednb.filters.fast.kernels import seen  # Triton takes a second to import, and is not everywhere

    u = x.new_empty(len(x) * numbers)
    seen(_rows(x), tiles, functions, u, width, aligned, tf32)
    return u


@less_in_blocks.register_kernel("cuda")
def _(
    x: Tensor, v: Tensor, tiles: Tensor, passing: Tensor, functions: Tensor, width: int, aligned: int, tf32: bool
) -> Tensor:
    from fednb.filters.fast.kernels import less

    x, v, y = _rows(x), v.contiguous(), _in_lines(x)
    less(x, v, tiles, functions, y, width, aligned, tf32)
    if len(passing):
        less(x, v, passing, functions, y, width, 1, tf32)
    return y


def _rows(x: Tensor) -> Tensor:
    """x, the numbers of a row side by side; compilers may leave gaps between rows."""
    return x if x.stride(1) == 1 else x.contiguous()


def _tiles(tiles: Tensor) -> list[Tile]:
    return [Tile(*row) for row in tiles.tolist()]


def _coefficients(u: Tensor, tile: Tile, C: int) -> Tensor:
    """Those of a tile, `[C, blocks, R / 2, 2]` (a view)."""
    shape = (C, tile.many // tile.b, tile.R // 2, 2)
    return u.as_strided(shape, (tile.stride, 2, 2 * tile.a, 1), C * tile.before + tile.inside)


def _functions(functions: Tensor, tile: Tile, width: int) -> Tensor:
    return functions[tile.functions : tile.functions + tile.b * width].view(tile.b, width)[:, : tile.R]
