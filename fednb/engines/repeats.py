"""Traced work without repeats: what two operations would make alike is made once.

A backward pass asks again for copies of weights and images, cast and laid out anew, that the forward pass has made
already. A compiler does not notice, and makes them twice.
"""

from __future__ import annotations

from typing import Any

import torch
from torch._ops import OpOverload
from torch.fx import GraphModule, Node


def without_repeats(traced: GraphModule) -> GraphModule:
    """Give every operation that repeats an earlier one its result instead.

    Not where something was written in between to what they read, or ever to what they make; and not what is drawn at
    random.
    """
    written = {root(x) for node in traced.graph.nodes for x in _written_by(node)}
    times: dict[Node, int] = {}  # how often each was written to so far
    first: dict[str, Node] = {}
    for node in list(traced.graph.nodes):
        for x in _written_by(node):
            times[root(x)] = times.get(root(x), 0) + 1
        if not _repeatable(node) or root(node) in written:
            continue
        read = [times.get(root(x), 0) for x in node.all_input_nodes]
        earlier = first.setdefault(repr((str(node.target), node.args, node.kwargs, read)), node)
        if earlier is not node:
            node.replace_all_uses_with(earlier)
            traced.graph.erase_node(node)
    traced.recompile()
    return traced


def root(node: Node) -> Node:
    """The node whose memory a view shows; the node itself where it has its own."""
    while node.op == "call_function" and _shares(node.target):
        node = node.all_input_nodes[0]
    return node


def _shares(target: Any) -> bool:
    """True for views, and for what writes in place and gives the same back."""
    if not isinstance(target, OpOverload):
        return True  # such as the getting of an item: it may be one
    return target is torch.ops.aten._unsafe_view.default or any(x.alias_info for x in target._schema.returns)


def _written_by(node: Node) -> list[Node]:
    """The nodes that an operation writes to."""
    if node.op != "call_function" or not isinstance(node.target, OpOverload):
        return []
    given = zip(node.target._schema.arguments, node.args, strict=False)
    found = [x for argument, x in given if argument.is_write]
    found += [node.kwargs[a.name] for a in node.target._schema.arguments if a.is_write and a.name in node.kwargs]
    return [x for each in found for x in (each if isinstance(each, (list, tuple)) else [each]) if isinstance(x, Node)]


def _repeatable(node: Node) -> bool:
    if node.op != "call_function" or not isinstance(node.target, OpOverload):
        return False
    return not node.target._schema.is_mutable and torch.Tag.nondeterministic_seeded not in node.target.tags
