"""The convolutions of a cohort in forms that a GPU does fast.

Under vmap the clients' convolutions become one with a group for each client. Vendor libraries do these well with the
channels last, except for 1x1 kernels and for images of few channels, which they take group by group: those are matrix
products here, of what the kernel sees at each place. Kernels that cross an image in strides see it in tiles instead,
see `fednb.engines.tiles`. Images may be smaller than kernels, down to 1x1 in the last stage of ResNet-18 on CIFAR-10:
places of a kernel that see nothing but the rim are left out, eight of nine there, and a kernel as large as its image is
a matrix product too. `FORMS` goes to the tracer, which puts them in the place of what it meets; a form answers
NotImplemented where the library is to do it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from fednb.engines.tiles import WITHOUT_STRIDES, Tiles, spread

aten = torch.ops.aten
Pair = Sequence[int]
FEW, MANY = 4, 8  # channels: so few of an image at most, and so many of what is made of it at least
ALIGNED = 8  # numbers: tensor cores want rows of whole 16 bytes
PIECES = 64  # of a long sum, at most: as many as keep a GPU busy


def convolution(
    x: Tensor, w: Tensor, bias: Tensor | None, stride: Pair, padding: Pair, dilation: Pair, transposed: bool,
    output_padding: Pair, groups: int,
) -> Any:  # fmt: skip
    """x `[N, G c, H, W]`, w `[G o, c, kh, kw]` -> `[N, G o, H', W']`."""
    if not transposed and (seeing := _seeing(x, w, stride, padding, dilation)):
        w, padding = _part(w, seeing), _rim(padding, dilation, seeing)
        return aten.convolution(x, w, bias, stride, padding, dilation, transposed, output_padding, groups)
    if not _is_product(x, w, padding, transposed, groups):
        if not _is_tiled(w, stride, dilation, transposed, groups):
            return NotImplemented
        tiles = Tiles(x, w, stride, padding, groups)
        return aten.convolution(tiles.of_image(x), tiles.of_kernels(w), bias, *WITHOUT_STRIDES, groups)
    seen = _seen(x, w, stride, padding, dilation, groups)
    kernels, more = _matrix(w, groups), seen.shape[-1] - w.shape[1:].numel()
    kernels = F.pad(kernels, (0, 0, 0, more)) if more else kernels
    out = _images(seen @ kernels, _sides(x, w, stride, padding, dilation))
    return out if bias is None else out + bias.view(-1, 1, 1)


def convolution_backward(
    g: Tensor, x: Tensor, w: Tensor, bias_sizes: Pair | None, stride: Pair, padding: Pair, dilation: Pair,
    transposed: bool, output_padding: Pair, groups: int, mask: Sequence[bool],
) -> Any:  # fmt: skip
    """The gradients of x, w and the bias (where the mask wants them) from that of the output, g."""
    if not transposed and (seeing := _seeing(x, w, stride, padding, dilation)):
        less = (_part(w, seeing), bias_sizes, stride, _rim(padding, dilation, seeing))
        of_x, of_w, of_bias = aten.convolution_backward(g, x, *less, dilation, transposed, output_padding, groups, mask)
        return of_x, _among_zeros(of_w, w, seeing) if mask[1] else None, of_bias
    if not _is_product(x, w, padding, transposed, groups) or (mask[0] and not _once(x, w, padding)):
        if not _is_tiled(w, stride, dilation, transposed, groups):
            return NotImplemented
        tiles = Tiles(x, w, stride, padding, groups)
        given = (tiles.of_image(x), tiles.of_kernels(w), bias_sizes)
        of_x, of_w, of_bias = aten.convolution_backward(g, *given, *WITHOUT_STRIDES, groups, mask)
        return tiles.to_image(of_x) if mask[0] else None, tiles.to_kernels(of_w) if mask[1] else None, of_bias
    back = _rows(g, groups)
    of_x = of_w = None
    if mask[0]:
        rows = back @ _matrix(w, groups).transpose(1, 2)
        seen_whole = _whole(x, w, padding)
        of_x = rows.transpose(0, 1).reshape(x.shape) if seen_whole else _images(rows, (len(g), *g.shape[2:]))
        of_x = of_x if of_x.shape == x.shape else spread(of_x, stride, x.shape[2:])
    if mask[1]:
        seen = _seen(x, w, stride, padding, dilation, groups)
        of_w = _summed(back, seen)[..., : w.shape[1:].numel()].reshape(w.shape)
    return of_x, of_w, g.sum((0, 2, 3)) if mask[2] else None


@torch.library.custom_op("fednb::held", mutates_args=(), tags=[torch.Tag.flexible_layout])
def held(x: Tensor) -> Tensor:
    """x in memory: a compiler would make it anew, with all that made it, for each of the places that see it."""
    return x.clone(memory_format=torch.contiguous_format)


@held.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


def _is_product(x: Tensor, w: Tensor, padding: Pair, transposed: bool, groups: int) -> bool:
    if x.dim() != 4 or transposed:
        return False
    return _once(x, w, padding) or (w.shape[1] <= FEW and len(w) >= MANY * groups)


def _is_tiled(w: Tensor, stride: Pair, dilation: Pair, transposed: bool, groups: int) -> bool:
    return w.dim() == 4 and groups > 1 and not transposed and max(stride) > 1 and max(dilation) == 1


def _once(x: Tensor, w: Tensor, padding: Pair) -> bool:
    """True where kernels see a number of the image once at most, and no rim."""
    return _pointwise(w, padding) or _whole(x, w, padding)


def _whole(x: Tensor, w: Tensor, padding: Pair) -> bool:
    """True where a kernel is as large as the image, which it sees once as a whole."""
    return w.shape[2:] == x.shape[2:] and max(padding) == 0


def _pointwise(w: Tensor, padding: Pair) -> bool:
    return w.shape[2:].numel() == 1 and max(padding) == 0


def _seen(x: Tensor, w: Tensor, stride: Pair, padding: Pair, dilation: Pair, groups: int) -> Tensor:
    """What a kernel sees at each place of each image, `[G, N H' W', c kh kw]`, and zeros to a whole number of 8."""
    if _pointwise(w, padding):
        return _rows(x[:, :, :: stride[0], :: stride[1]], groups)
    if _whole(x, w, padding):
        return _aligned(x.reshape(len(x), groups, -1).transpose(0, 1))
    patches = F.unfold(
        held(x), tuple(w.shape[2:]), tuple(dilation), tuple(padding), tuple(stride)
    )  # [N, G c kh kw, H' W']
    rows = patches.view(len(x), groups, -1, patches.shape[-1]).permute(1, 0, 3, 2).flatten(1, 2)
    return _aligned(rows)


def _aligned(rows: Tensor) -> Tensor:
    return F.pad(rows, (0, -rows.shape[-1] % ALIGNED))


def _seeing(x: Tensor, w: Tensor, stride: Pair, padding: Pair, dilation: Pair) -> tuple[range, range] | None:
    """The rows and columns of a kernel that ever see the image, not only its rim; None where the whole kernel stays."""
    if x.dim() != 4:
        return None
    found, places = [], _sides(x, w, stride, padding, dilation)[1:]
    for i in (0, 1):
        starts = range(-padding[i], -padding[i] + places[i] * stride[i], stride[i])
        see = [k for k in range(w.shape[2 + i]) if any(0 <= at + k * dilation[i] < x.shape[2 + i] for at in starts)]
        found.append(range(see[0], see[-1] + 1) if see else range(w.shape[2 + i]))
    seeing = (found[0], found[1])
    if (len(found[0]), len(found[1])) == w.shape[2:]:
        return None
    rim = _rim(padding, dilation, seeing)
    part = w[:, :, : len(found[0]), : len(found[1])]
    fits = min(rim) >= 0 and _sides(x, part, stride, rim, dilation)[1:] == places
    return seeing if fits else None


def _part(w: Tensor, seeing: tuple[range, range]) -> Tensor:
    """So much of a kernel, in one piece: nothing reads the rest again."""
    rows, columns = seeing
    part = w[:, :, rows.start : rows.stop, columns.start : columns.stop]
    return part.clone(memory_format=torch.contiguous_format)


def _rim(padding: Pair, dilation: Pair, seeing: tuple[range, range]) -> list[int]:
    """The zeros around the image that a part of a kernel needs."""
    return [padding[i] - dilation[i] * seeing[i].start for i in (0, 1)]


def _among_zeros(part: Tensor, w: Tensor, seeing: tuple[range, range]) -> Tensor:
    """The gradient of kernels w: that of their part that sees the image, and zeros around it."""
    rows, columns = seeing
    return F.pad(part, (columns.start, w.shape[3] - columns.stop, rows.start, w.shape[2] - rows.stop))


def _sides(x: Tensor, w: Tensor, stride: Pair, padding: Pair, dilation: Pair) -> tuple[int, int, int]:
    """How many images the output has, how high and how wide."""
    high, wide = (
        (x.shape[2 + i] + 2 * padding[i] - dilation[i] * (w.shape[2 + i] - 1) - 1) // stride[i] + 1 for i in (0, 1)
    )
    return len(x), high, wide


def _rows(x: Tensor, groups: int) -> Tensor:
    """Images `[N, G c, H, W]` as `[G, N H W, c]`."""
    return x.permute(0, 2, 3, 1).reshape(-1, groups, x.shape[1] // groups).transpose(0, 1)


def _matrix(w: Tensor, groups: int) -> Tensor:
    """Kernels `[G o, c, kh, kw]` as `[G, c kh kw, o]`."""
    return w.reshape(groups, len(w) // groups, -1).transpose(1, 2)


def _images(rows: Tensor, sides: tuple[int, int, int]) -> Tensor:
    """Rows `[G, N H W, c]` as images `[N, G c, H, W]`."""
    return rows.transpose(0, 1).reshape(*sides, -1).permute(0, 3, 1, 2).contiguous()


def _summed(x: Tensor, y: Tensor) -> Tensor:
    """xᵀ y of `[G, M, o]` and `[G, M, c]`, for large M in pieces that are summed afterwards."""
    (groups, many, o), c = x.shape, y.shape[-1]
    worth = min(PIECES, many * (o + c) // (4 * o * c))  # they may add a quarter to what is read
    pieces = max(p for p in range(1, max(worth, 1) + 1) if many % p == 0)
    parts = x.reshape(groups * pieces, -1, o).transpose(1, 2) @ y.reshape(groups * pieces, -1, c)
    return parts.view(groups, pieces, o, c).sum(1)


FORMS: dict[Any, Callable[..., Any]] = {
    aten.convolution.default: convolution,
    aten.convolution_backward.default: convolution_backward,
}
TENSORS = {aten.convolution.default: (0, 1), aten.convolution_backward.default: (0, 1, 2)}
STRIDE = {aten.convolution.default: 3, aten.convolution_backward.default: 4}  # where it stands
VIEWS = (aten.view.default, aten._unsafe_view.default)


def channels_last(traced: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """Hand the convolutions that are left their images with the channels last, twice as fast on tensor cores."""
    for node in list(traced.graph.nodes):
        if node.target in TENSORS and len(node.args[STRIDE[node.target]]) == 2:
            for at in TENSORS[node.target]:
                with traced.graph.inserting_before(node):
                    how: dict[str, Any] = {"memory_format": torch.channels_last}
                    last = traced.graph.call_function(aten.clone.default, (node.args[at],), how)
                node.update_arg(at, last)
        if node.target in VIEWS:
            node.target = aten.reshape.default  # strides are no longer those that were traced
    traced.recompile()
    return traced
