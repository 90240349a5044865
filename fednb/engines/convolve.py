"""The convolutions of a cohort in forms that a GPU does fast.

Under vmap the clients' convolutions become one with a group for each client. Vendor libraries do these well with the
channels last, except for 1x1 kernels, which they take group by group: those are matrix products here. `FORMS` goes to
the tracer, which puts them in the place of what it meets; a form answers NotImplemented where the library is to do it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

Pair = Sequence[int]


def convolution(
    x: Tensor, w: Tensor, bias: Tensor | None, stride: Pair, padding: Pair, dilation: Pair, transposed: bool,
    output_padding: Pair, groups: int,
) -> Any:  # fmt: skip
    """x `[N, G c, H, W]`, w `[G o, c, 1, 1]` -> `[N, G o, H', W']`."""
    if not _pointwise(x, w, padding, transposed):
        return NotImplemented
    seen = x[:, :, :: stride[0], :: stride[1]]
    out = _images(_rows(seen, groups) @ _matrix(w, groups), seen)
    return out if bias is None else out + bias.view(-1, 1, 1)


def convolution_backward(
    g: Tensor, x: Tensor, w: Tensor, bias_sizes: Pair | None, stride: Pair, padding: Pair, dilation: Pair,
    transposed: bool, output_padding: Pair, groups: int, mask: Sequence[bool],
) -> Any:  # fmt: skip
    """The gradients of x, w and the bias (where the mask wants them) from that of the output, g."""
    if not _pointwise(x, w, padding, transposed):
        return NotImplemented
    seen, back = x[:, :, :: stride[0], :: stride[1]], _rows(g, groups)
    of_x = of_w = None
    if mask[0]:
        of_x = _images(back @ _matrix(w, groups).transpose(1, 2), seen)
        if max(stride) > 1:
            whole = torch.zeros_like(x)
            whole[:, :, :: stride[0], :: stride[1]] = of_x
            of_x = whole
    if mask[1]:
        of_w = (back.transpose(1, 2) @ _rows(seen, groups)).reshape(w.shape)
    return of_x, of_w, g.sum((0, 2, 3)) if mask[2] else None


def _rows(x: Tensor, groups: int) -> Tensor:
    """Images `[N, G c, H, W]` as `[G, N H W, c]`."""
    return x.permute(0, 2, 3, 1).reshape(-1, groups, x.shape[1] // groups).transpose(0, 1)


def _matrix(w: Tensor, groups: int) -> Tensor:
    """Kernels `[G o, c, 1, 1]` as `[G, c, o]`."""
    return w.reshape(groups, len(w) // groups, -1).transpose(1, 2)


def _images(rows: Tensor, like: Tensor) -> Tensor:
    """Rows `[G, N H W, c]` as images `[N, G c, H, W]`."""
    n, _, high, wide = like.shape
    return rows.transpose(0, 1).reshape(n, high, wide, -1).permute(0, 3, 1, 2).contiguous()


def _pointwise(x: Tensor, w: Tensor, padding: Pair, transposed: bool) -> bool:
    return x.dim() == 4 and w.shape[2:].numel() == 1 and max(padding) == 0 and not transposed


FORMS: dict[Any, Callable[..., Any]] = {
    torch.ops.aten.convolution.default: convolution,
    torch.ops.aten.convolution_backward.default: convolution_backward,
}
TENSORS = {torch.ops.aten.convolution.default: (0, 1), torch.ops.aten.convolution_backward.default: (0, 1, 2)}
STRIDE = {torch.ops.aten.convolution.default: 3, torch.ops.aten.convolution_backward.default: 4}  # where it stands
VIEWS = (torch.ops.aten.view.default, torch.ops.aten._unsafe_view.default)


def channels_last(traced: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """Hand the convolutions that are left their images with the channels last, twice as fast on tensor cores."""
    for node in list(traced.graph.nodes):
        if node.target in TENSORS and len(node.args[STRIDE[node.target]]) == 2:
            for at in TENSORS[node.target]:
                with traced.graph.inserting_before(node):
                    how = {"memory_format": torch.channels_last}
                    last = traced.graph.call_function(torch.ops.aten.clone.default, (node.args[at],), how)
                node.update_arg(at, last)
        if node.target in VIEWS:
            node.target = torch.ops.aten.reshape.default  # strides are no longer those that were traced
    traced.recompile()
    return traced
