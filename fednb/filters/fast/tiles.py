"""Tiles: which numbers of flat vectors one program of a kernel works on, and where their coefficients lie."""

from __future__ import annotations

from dataclasses import astuple, dataclass

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
    """Tiles as integers `[tiles, 9]`, one row each, as kernels read them."""
    return torch.tensor([astuple(tile) for tile in tiles], dtype=torch.int64).view(-1, 9)


def tiles_of(table: Tensor) -> list[Tile]:
    """The tiles of a table."""
    return [Tile(*row) for row in table.tolist()]
