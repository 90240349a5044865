"""The operators of `fednb.filters.fast` in Triton: products with blocks in one launch for all layers of all clients."""

from __future__ import annotations

from math import gcd

import triton
import triton.language as tl
from torch import Tensor

from fednb.filters.fast.tiles import ROWS

STEP = 64  # numbers of a block that a product takes at a time
PART = 32  # blocks of a tile that a program of `_coefficients` takes; one of `_subtract` takes all `ROWS`
WARPS = 4
COEFFICIENTS_STAGES, SUBTRACT_STAGES = 2, 3
NEAR, SUMS = 8, 256  # a program mixes so many h, of so many functions of all its series together


@triton.jit
def _tile(tiles, ALIGNED: tl.constexpr):
    """A row of the table, with what the compiler may know of it."""
    tile = tiles + 9 * tl.program_id(0)
    start, many, b = tl.load(tile), tl.load(tile + 1), tl.load(tile + 2)
    functions, R = tl.load(tile + 3), tl.load(tile + 4)
    before, stride, inside, a = tl.load(tile + 5), tl.load(tile + 6), tl.load(tile + 7), tl.load(tile + 8)
    start, many, b = tl.multiple_of(start, ALIGNED), tl.multiple_of(many, ALIGNED), tl.multiple_of(b, ALIGNED)
    return start, many, b, tl.multiple_of(functions, 16), R, before, stride, inside, a


@triton.jit
def _coefficients(
    x, tiles, functions, u, x_row, C,
    WIDTH: tl.constexpr, PART: tl.constexpr, STEP: tl.constexpr, ALIGNED: tl.constexpr, HOW: tl.constexpr,
):  # fmt: skip
    start, many, b, first, R, before, stride, inside, a = _tile(tiles, ALIGNED)
    c = tl.program_id(1).to(tl.int64)
    q, r, s = tl.arange(0, PART)[:, None], tl.arange(0, WIDTH)[None, :], tl.arange(0, STEP)
    q += PART * tl.program_id(2)
    here = x + tl.multiple_of(c * x_row, ALIGNED) + start
    sums = tl.zeros((PART, WIDTH), dtype=tl.float32)
    for k in range(0, b, STEP):
        at = q * b + (k + s)[None, :]
        numbers = tl.load(here + at, mask=(at < many) & ((k + s)[None, :] < b), other=0.0)
        waves = tl.load(functions + first + (k + s)[:, None] * WIDTH + r, mask=(k + s)[:, None] < b, other=0.0)
        sums = tl.dot(numbers, waves, sums, input_precision=HOW)
    to = u + C * before + c * stride + inside + r // 2 * 2 * a + 2 * q + r % 2
    tl.store(to, sums, mask=(r < R) & (q * b < many))


@triton.jit
def _subtract(
    x, v, tiles, functions, y, x_row, y_row, C,
    WIDTH: tl.constexpr, ROWS: tl.constexpr, STEP: tl.constexpr, ALIGNED: tl.constexpr, HOW: tl.constexpr,
):  # fmt: skip
    start, many, b, first, R, before, stride, inside, a = _tile(tiles, ALIGNED)
    c = tl.program_id(1).to(tl.int64)
    q, r, s = tl.arange(0, ROWS)[:, None], tl.arange(0, WIDTH), tl.arange(0, STEP)[None, :]
    own = v + C * before + c * stride + inside + (r // 2 * 2 * a + r % 2)[None, :] + 2 * q
    share = tl.load(own, mask=(r[None, :] < R) & (q * b < many), other=0.0)
    here = x + tl.multiple_of(c * x_row, ALIGNED) + start
    to = y + tl.multiple_of(c * y_row, ALIGNED) + start
    for k in range(0, b, STEP):
        inner = (k + s < b) & (r[:, None] < R)
        waves = tl.load(functions + first + (k + s) * WIDTH + r[:, None], mask=inner, other=0.0)
        low = tl.dot(share, waves, input_precision=HOW)
        at = q * b + k + s
        there = (at < many) & (k + s < b)
        tl.store(to + at, tl.load(here + at, mask=there, other=0.0) - low, mask=there)


@triton.jit
def _mix(
    z, mix, y, N, a, H,
    PAIRS: tl.constexpr, WIDTH: tl.constexpr, SERIES: tl.constexpr, NEAR: tl.constexpr,
):  # fmt: skip
    side = tl.arange(0, 2 * NEAR)
    h, i = tl.program_id(0) * NEAR + side // 2, side % 2  # both parts of a number side by side
    n = tl.program_id(1).to(tl.int64) * SERIES + tl.arange(0, SERIES)
    first, sign = n[:, None] * PAIRS * 2 * a + i, 1.0 - 2.0 * i
    r = tl.arange(0, WIDTH)[:, None]
    known, there = (r < 2 * PAIRS) & (h < H), (n[:, None] < N) & (2 * h <= a)
    sums = tl.zeros((SERIES, WIDTH, 2 * NEAR), dtype=tl.float32)
    for k in range(PAIRS):
        here = z + first + k * 2 * a
        plus = tl.load(here + 2 * h, mask=there, other=0.0)
        minus = tl.load(here + 2 * ((a - h) % a), mask=there, other=0.0) * sign
        of_plus = tl.load(mix + (k * 2 * PAIRS + r) * H + h, mask=known, other=0.0)
        of_minus = tl.load(mix + ((PAIRS + k) * 2 * PAIRS + r) * H + h, mask=known, other=0.0)
        sums += of_plus[None, :, :] * plus[:, None, :] + of_minus[None, :, :] * minus[:, None, :]
    own = r < PAIRS
    to = tl.where(own, r * a + h, (r - PAIRS) * a + a - h)
    wanted = (r < 2 * PAIRS) & (own | ((h > 0) & (2 * h < a)))
    new = sums * tl.where(own, 1.0, sign)[None, :, :]
    tl.store(y + first[:, None, :] + 2 * to[None, :, :], new, mask=there[:, None, :] & wanted[None, :, :])


def mix_into(z: Tensor, mix: Tensor, y: Tensor) -> None:
    """y ← the mix of z, as `fednb.filters.fast.mixed.mixed` has it."""
    (N, pairs, a, _), H = z.shape, mix.shape[2]
    width = triton.next_power_of_2(2 * pairs)
    series = max(1, SUMS // width)
    grid = (triton.cdiv(a // 2 + 1, NEAR), triton.cdiv(N, series))
    _mix[grid](z, mix, y, N, a, H, pairs, width, series, NEAR, num_warps=WARPS)


def coefficients(x: Tensor, tiles: Tensor, functions: Tensor, u: Tensor, width: int, aligned: int, tf32: bool) -> None:
    """u ← x B, as `fednb.filters.fast.blocks.block_coefficients` has it."""
    how, aligned = "tf32" if tf32 else "ieee", gcd(aligned, x.stride(0))
    _coefficients[(len(tiles), len(x), ROWS // PART)](
        x, tiles, functions, u, x.stride(0), len(x), width, PART, STEP, aligned, how,
        num_warps=WARPS, num_stages=COEFFICIENTS_STAGES,
    )  # fmt: skip


def subtract(
    x: Tensor, v: Tensor, tiles: Tensor, functions: Tensor, y: Tensor, width: int, aligned: int, tf32: bool
) -> None:
    """y ← x − v Bᵀ, as `fednb.filters.fast.blocks.subtract_blocks` has it."""
    how, aligned = "tf32" if tf32 else "ieee", gcd(aligned, x.stride(0), y.stride(0))
    _subtract[(len(tiles), len(x))](
        x, v, tiles, functions, y, x.stride(0), y.stride(0), len(x), width, ROWS, STEP, aligned, how,
        num_warps=WARPS, num_stages=SUBTRACT_STAGES,
    )  # fmt: skip
