"""The convolutions of a cohort in forms that a GPU does fast.

Under vmap the clients' convolutions become one with a group for each client. Vendor libraries do some of these well,
with the channels last, and others one group after another: 1x1 kernels, very few channels, gradients through a stride.
Those are written here as matrix products, or as another convolution. `FORMS` goes to the tracer, which puts them in the
place of what it meets; a form answers NotImplemented where the library is to do it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

FEW = 8  # channels of a group below which tensor cores are not reached; and what they want a multiple of
Pair = Sequence[int]


def convolution(
    x: Tensor, w: Tensor, bias: Tensor | None, stride: Pair, padding: Pair, dilation: Pair, transposed: bool,
    output_padding: Pair, groups: int,
) -> Any:  # fmt: skip
    """x `[N, G c, H, W]`, w `[G o, c, k, k]` -> `[N, G o, H', W']`."""
    if not _plain(x, dilation, transposed):
        return NotImplemented
    if bias is not None:
        rest = (stride, padding, dilation, transposed, output_padding, groups)
        return torch.ops.aten.convolution(x, w, None, *rest) + bias.view(-1, 1, 1)
    if not _as_product(w):
        return NotImplemented
    rows = _columns(x, w, stride, padding, groups) @ _matrix(w, groups)
    return _images(rows, len(x), _sides(x, w, stride, padding))


def convolution_backward(
    g: Tensor, x: Tensor, w: Tensor, bias_sizes: Pair | None, stride: Pair, padding: Pair, dilation: Pair,
    transposed: bool, output_padding: Pair, groups: int, mask: Sequence[bool],
) -> Any:  # fmt: skip
    """The gradients of x, w and the bias (where the mask wants them) from that of the output, g."""
    if not _plain(x, dilation, transposed) or any(p >= k for p, k in zip(padding, w.shape[2:], strict=True)):
        return NotImplemented
    turned, product = mask[0] and (_as_product(w) or max(stride) > 1), mask[1] and _as_product(w)
    if not (turned or product or mask[2]):
        return NotImplemented
    of_x = _through_stride(g, x, w, stride, padding, groups) if turned else None
    of_w = _of_kernels(g, x, w, stride, padding, groups) if product else None
    rest = (mask[0] and not turned, mask[1] and not product, False)
    if any(rest):
        how = (None, stride, padding, dilation, False, output_padding, groups, rest)
        others = torch.ops.aten.convolution_backward(g, x, w, *how)
        of_x, of_w = (ours if ours is not None else other for ours, other in zip((of_x, of_w), others[:2], strict=True))
    return of_x, of_w, g.sum((0, 2, 3)) if mask[2] else None


def _of_kernels(g: Tensor, x: Tensor, w: Tensor, stride: Pair, padding: Pair, groups: int) -> Tensor:
    """The gradient of w as a product: what each output saw, with what is wanted of it."""
    m = _columns(x, w, stride, padding, groups).transpose(1, 2) @ _rows(g, groups)
    return m[:, : w[0].numel()].transpose(1, 2).reshape(w.shape)


def _through_stride(g: Tensor, x: Tensor, w: Tensor, stride: Pair, padding: Pair, groups: int) -> Tensor:
    """The gradient of x: g, spread out to what the stride passed over, convolved with the kernels turned round."""
    k = w.shape[2:]
    spread = [x.shape[2 + i] + 2 * padding[i] - k[i] + 1 for i in range(2)]
    wide = g
    if max(stride) > 1:
        wide = g.new_zeros(*g.shape[:2], *spread)
        wide[:, :, : (g.shape[2] - 1) * stride[0] + 1 : stride[0], : (g.shape[3] - 1) * stride[1] + 1 : stride[1]] = g
    turned = w.view(groups, -1, *w.shape[1:]).transpose(1, 2).flip(3, 4).reshape(-1, len(w) // groups, *k)
    around = [k[i] - 1 - padding[i] for i in range(2)]
    return torch.ops.aten.convolution(wide, turned, None, (1, 1), around, (1, 1), False, (0, 0), groups)


def _columns(x: Tensor, w: Tensor, stride: Pair, padding: Pair, groups: int) -> Tensor:
    """What each output sees, `[G, N H' W', c k k]`, the last axis filled up with zeros."""
    high, wide = _sides(x, w, stride, padding)
    x = F.pad(x, (padding[1], padding[1], padding[0], padding[0])).permute(0, 2, 3, 1)
    taps = [
        x[:, i : i + (high - 1) * stride[0] + 1 : stride[0], j : j + (wide - 1) * stride[1] + 1 : stride[1]]
        for i in range(w.shape[2]) for j in range(w.shape[3])
    ]  # fmt: skip
    seen = torch.stack(taps, dim=-1).reshape(-1, groups, w[0].numel())
    return _filled(seen).transpose(0, 1)


def _matrix(w: Tensor, groups: int) -> Tensor:
    """The kernels as `[G, c k k, o]`."""
    return _filled(w.reshape(groups, len(w) // groups, -1)).transpose(1, 2)


def _rows(g: Tensor, groups: int) -> Tensor:
    """Images `[N, G o, H, W]` as `[G, N H W, o]`."""
    return g.permute(0, 2, 3, 1).reshape(-1, groups, g.shape[1] // groups).transpose(0, 1)


def _images(rows: Tensor, n: int, sides: tuple[int, int]) -> Tensor:
    """The other way round."""
    return rows.transpose(0, 1).reshape(n, *sides, -1).permute(0, 3, 1, 2).contiguous()


def _filled(x: Tensor) -> Tensor:
    return F.pad(x, (0, -x.shape[-1] % FEW))


def _sides(x: Tensor, w: Tensor, stride: Pair, padding: Pair) -> tuple[int, int]:
    high, wide = ((x.shape[2 + i] + 2 * padding[i] - w.shape[2 + i]) // stride[i] + 1 for i in range(2))
    return high, wide


def _as_product(w: Tensor) -> bool:
    """Whether a matrix product is the better form: 1x1 kernels, or few channels."""
    return w.shape[2] * w.shape[3] == 1 or w.shape[1] < FEW


def _plain(x: Tensor, dilation: Pair, transposed: bool) -> bool:
    return x.dim() == 4 and not transposed and max(dilation) == 1


FORMS: dict[Any, Callable[..., Any]] = {
    torch.ops.aten.convolution.default: convolution,
    torch.ops.aten.convolution_backward.default: convolution_backward,
}
TENSORS = {torch.ops.aten.convolution.default: (0, 1), torch.ops.aten.convolution_backward.default: (0, 1, 2)}
_STRIDE = {torch.ops.aten.convolution.default: 3, torch.ops.aten.convolution_backward.default: 4}
VIEWS = (torch.ops.aten.view.default, torch.ops.aten._unsafe_view.default)


def channels_last(traced: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """Hand the convolutions that are left their images with the channels last, twice as fast on tensor cores."""
    for node in list(traced.graph.nodes):
        tensors = TENSORS.get(node.target, ())
        for at in tensors if tensors and len(node.args[_STRIDE[node.target]]) == 2 else ():
            with traced.graph.inserting_before(node):
                how = {"memory_format": torch.channels_last}
                node.update_arg(at, traced.graph.call_function(torch.ops.aten.clone.default, (node.args[at],), how))
        if node.target in VIEWS:
            node.target = torch.ops.aten.reshape.default  # strides are no longer those that were traced
    traced.recompile()
    return traced
