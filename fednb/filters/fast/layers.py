"""The high-pass of all layers of flat vectors in a few kernels: on a GPU launches cost more than numbers.

Every layer goes through the three stages of `fednb.filters.fast.vector.Blocks`. The first and the last, which touch all
numbers, are one launch each for all layers; the one between, on a tenth of them, goes by groups of layers of a size.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from math import gcd, pi

import numpy as np
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import _disable_current_modes

from fednb.filters.fast.blocks import block_coefficients, has_kernels, subtract_blocks
from fednb.filters.fast.constants import constants
from fednb.filters.fast.mixed import Mixed, mixed_coefficients
from fednb.filters.fast.tiles import LINE, ROWS, Tile, table
from fednb.filters.fast.vector import SMALL, block, functions_inside, high_passed

SMALL_IN_TF32 = 1e-4  # what such products make of a number's last digits is several times as much
LONGEST = 256  # numbers in a block: longer ones leave fewer coefficients, and cost more products
NARROWEST = 16  # functions: tensor cores take no fewer
MOST_IN_MATRIX = 20_000_000  # numbers that a GPU reads in less time than the launches of two transforms take


def suits_kernels(x: Tensor) -> bool:
    """True if `layers_high_passed` is the fastest form for x: float32 on a GPU with kernels, no gradient wanted.

    False under `vmap` and for tensors without data, which kernels cannot read.
    """
    readable = not isinstance(x, FakeTensor) and not torch._C._functorch.is_functorch_wrapped_tensor(x)
    return readable and x.dtype == torch.float32 and not x.requires_grad and has_kernels(x.device)


def layers_high_passed(x: Tensor, sizes: tuple[int, ...], counts: tuple[int, ...]) -> Tensor:
    """x `[..., P]`, layers of these sizes, each without as many of its lowest frequencies as its count says.

    >>> layers_high_passed(torch.tensor([1.0, 2.0, 3.0, 6.0, 5.0, 4.0]), sizes=(4, 2), counts=(1, 0))
    tensor([-2., -1.,  0.,  3.,  5.,  4.])
    """
    tf32 = torch.backends.cuda.matmul.allow_tf32
    plan = planned(sizes, counts, tf32, x.device)
    flat = x.reshape(-1, x.shape[-1])
    y = _in_blocks(flat, plan, tf32) if plan.groups else flat.clone()
    for here, count in plan.rest:
        y[:, here] = high_passed(flat[:, here], count)
    return y.view(x.shape)


def _in_blocks(x: Tensor, plan: Plan, tf32: bool) -> Tensor:
    """x `[C, P]` with the layers that have blocks filtered, the others as they are."""
    numbers = [group.numbers for group in plan.groups]
    u = block_coefficients(x, plan.tiles, plan.functions, plan.width, sum(numbers), plan.aligned, tf32)
    mixes, sizes = [group.mix for group in plan.groups], [group.size for group in plan.groups]
    v = mixed_coefficients(u, mixes, sizes, [len(x) * each for each in numbers])
    return subtract_blocks(x, v, plan.tiles, plan.passing, plan.functions, plan.width, plan.aligned, tf32)


@dataclass(frozen=True, eq=False)
class Group:
    """Layers of one size: what is done to each one's coefficients, `size` in number; `numbers` for all of a client."""

    size: int
    numbers: int
    mix: Tensor  # a matrix, or that of `Mixed` where it would be large


@dataclass(frozen=True, eq=False)
class Plan:
    """What is done to vectors with layers of certain sizes; all tensors lie on the device."""

    tiles: Tensor  # of layers in blocks
    passing: Tensor  # tiles of what passes
    functions: Tensor
    width: int
    aligned: int
    groups: tuple[Group, ...]
    rest: tuple[tuple[slice, int], ...]  # layers that blocks do not suit: where they are, and their counts


@constants(8)
def planned(sizes: tuple[int, ...], counts: tuple[int, ...], tf32: bool, device: torch.device) -> Plan:
    """The plan for vectors with layers of these sizes, of which each loses its count of lowest frequencies."""
    small = SMALL_IN_TF32 if tf32 else SMALL[torch.float32]
    with _disable_current_modes(), torch.inference_mode(False):  # no part of the trace that may be the first to ask
        return _planned(sizes, counts, small, device)


def _planned(sizes: tuple[int, ...], counts: tuple[int, ...], small: float, device: torch.device) -> Plan:
    alike: dict[tuple[int, int], list[int]] = {}  # where layers of one size and count begin
    for start, n, count in zip(accumulate((0, *sizes[:-1])), sizes, counts, strict=True):
        alike.setdefault((n, count), []).append(start)
    inside = {key: found for key in alike if (found := pairs_inside(*key, small)) is not None}
    widest = max((2 * even.shape[1] for even, _ in inside.values()), default=0)
    width = max(NARROWEST, 1 << (widest - 1).bit_length())
    tiles: list[Tile] = []
    passing: list[Tile] = []
    functions: list[np.ndarray] = []
    groups: list[Group] = []
    for (n, count), at in alike.items():
        if (n, count) not in inside:
            passing += (tile for start in at for tile in _passing(start, n))
            continue
        even, odd = inside[n, count]
        group = _group(n, count, even, odd, len(at), device)
        tiles += _tiles(at, n, even, group, sum(f.size for f in functions), sum(g.numbers for g in groups))
        groups.append(group)
        both = np.stack([even, odd], axis=2).reshape(len(even), -1)
        functions.append(np.pad(both, [(0, 0), (0, width - both.shape[1])]))
    flat = np.concatenate([f.reshape(-1) for f in functions] or [np.zeros(0)])
    return Plan(
        table(tiles).to(device),
        table(passing).to(device),
        torch.from_numpy(flat).to(device, torch.float32),
        width,
        gcd(LINE, *(number for tile in tiles for number in (tile.start, tile.b))),
        tuple(groups),
        tuple((slice(i, i + n), c) for (n, c), at in alike.items() if c and (n, c) not in inside for i in at),
    )


def _group(n: int, count: int, even: np.ndarray, odd: np.ndarray, layers: int, device: torch.device) -> Group:
    """The group of so many layers of n numbers, with its mix, or the matrix of it where that is small."""
    mixed = Mixed.of(n, count, even, odd)
    size = mixed.a * 2 * even.shape[1]
    if size**2 <= MOST_IN_MATRIX:
        return Group(size, layers * size, mixed.matrix().to(device, torch.float32))
    return Group(size, layers * size, mixed.mix.to(device, torch.float32))


def _tiles(at: list[int], n: int, even: np.ndarray, group: Group, first: int, before: int) -> Iterator[Tile]:
    """The tiles of a group's layers, which begin at the places `at` of a vector."""
    (b, pairs), a = even.shape, n // len(even)
    for i, start in enumerate(at):
        for q in range(0, a, ROWS):
            many = min(ROWS, a - q) * b
            yield Tile(start + q * b, many, b, first, 2 * pairs, before, group.numbers, i * group.size + 2 * q, a)


def pairs_inside(n: int, count: int, small: float) -> tuple[np.ndarray, np.ndarray] | None:
    """As many even as odd functions inside the blocks of a layer, zeros among them; None if no blocks suit the layer.

    Blocks suit if their length divides n, and if they need at most half as many functions as they have numbers.
    """
    b = block(n, LONGEST, most=LONGEST)
    if not 1 <= count <= n // 2 or b == 1:
        return None
    both = functions_inside(b, 2 * pi * (count - 1) / n, small)
    most = max(f.shape[1] for f in both)
    most += most % 2  # pairs by twos: a GPU's fast products want rows of whole 16 bytes
    even, odd = (np.pad(f, [(0, 0), (0, most - f.shape[1])]) for f in both)
    return (even, odd) if 4 * most <= b else None


def _passing(start: int, n: int) -> Iterator[Tile]:
    """Tiles of n numbers that pass as they are, from the place `start` of a vector on."""
    for at in range(start, start + n, ROWS * LONGEST):
        yield Tile(at, min(ROWS * LONGEST, start + n - at), LONGEST)
