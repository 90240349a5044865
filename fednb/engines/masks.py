"""Traced work whose ReLUs are masked, backward, by the short copies of their outputs that lie in memory anyway.

Where a convolution reads a ReLU's output in bf16, that copy says as well as the 32 bits which numbers were above zero
(those above 5e-41, since both have the same exponents), and takes half as long to read; where nothing else asks for the
32 bits, they are never written.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

aten = torch.ops.aten
IMAGE = {aten.convolution.default: 0, aten.convolution_backward.default: 1}  # where it stands among the arguments
SWAPPED = [1, 0, 2, 3, 4]  # clients' images [G, N, c, H, W] to [N, G, c, H, W], which are [N, G c, H, W], and back


def short_masks(traced: GraphModule) -> GraphModule:
    """Let the gradient of a ReLU look at the image that a convolution was given of it, where that is a short one."""
    images: dict[Node, Node] = {}
    for node in traced.graph.nodes:
        image = node.args[IMAGE[node.target]] if node.target in IMAGE else None
        if image is not None and (output := _shown_by(image)):
            images.setdefault(output, image)
    for node in list(traced.graph.nodes):
        if node.target is aten.threshold_backward.default and node.args[2] == 0 and node.args[1] in images:
            _mask(traced.graph, node, images[node.args[1]])
    traced.recompile()
    return traced


def _shown_by(image: Any) -> Node | None:
    """The output of a ReLU that a convolution reads as this image, cast and laid out anew; None for other images."""
    groups = _made_of(image, aten.clone.default)
    clients = _made_of(groups, aten.reshape.default)
    swapped: Any = _made_of(clients, aten.clone.default) or clients
    if swapped is None or swapped.target is not aten.permute.default or list(swapped.args[1]) != SWAPPED:
        return None
    cast: Any = swapped.args[0]
    output = _made_of(cast, aten._to_copy.default)
    relu = output is not None and output.target is aten.relu.default
    return output if relu and cast.kwargs.get("dtype") is torch.bfloat16 else None


def _made_of(node: Any, target: Any) -> Node | None:
    """What a node that is of this kind was made of."""
    found = node.args[0] if isinstance(node, Node) and node.target is target else None
    return found if isinstance(found, Node) else None


def _mask(graph: Graph, node: Node, image: Node) -> None:
    """A gradient where an image `[N, G c, H, W]` is above zero, in the place of the ReLU's own."""
    g: Any = node.args[0]
    G, N, *sides = node.meta["val"].shape
    with graph.inserting_before(node):
        apart = graph.call_function(aten.reshape.default, (image, [N, G, *sides]))
        off = graph.call_function(aten.le.Scalar, (graph.call_function(aten.permute.default, (apart, SWAPPED)), 0))
        masked = graph.call_function(aten.where.self, (off, graph.call_function(aten.zeros_like.default, (g,)), g))
    node.replace_all_uses_with(masked)
    graph.erase_node(node)
