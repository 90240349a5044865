"""Traced steps whose long vectors are taken in pieces: a large layer is one, and all small ones in a row are one.

A gradient comes layer by layer, and a method works on vectors `[C, P]` of all layers. Put together, a gradient is
written whole, in 32 bits, with the zeros of weights that see nothing, and read whole for its norm and for the step. In
pieces a compiler makes its numbers where they are needed, of what the backward pass left, which is half as long.
"""

from __future__ import annotations

import operator
from collections.abc import Collection
from itertools import accumulate, pairwise
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.fx import Graph, GraphModule, Node

aten = torch.ops.aten
LARGE = 2**18  # numbers of a layer that is a piece by itself; what is done to smaller ones costs more to launch
SAME_NUMBERS = (aten.reshape.default, aten.view.default, aten._unsafe_view.default, aten.clone.default)
Cuts = list[tuple[int, int]]  # where pieces start in a vector, and how long they are


def in_pieces(traced: GraphModule) -> dict[int, Cuts]:
    """Rewrite a graph so; gives the inputs, by their places, that it then takes in pieces, one after another.

    Those are the vectors that it writes. One of them that is also looked at as a whole, say by a filter, stays whole.
    """
    sizes = next((found for node in traced.graph.nodes if (found := _joined(node))), ())
    if max(sizes, default=0) < LARGE:
        return {}
    cuts = _Rewriting(traced.graph, sizes).done()
    traced.graph.lint()
    traced.recompile()
    return cuts


def in_turn(inputs: list[Tensor], cuts: dict[int, Cuts]) -> list[Tensor]:
    """Inputs as a graph takes them: in the place of some, by their places, their pieces, which share their memory."""
    pieces = {i: [inputs[i].narrow(1, start, length) for start, length in each] for i, each in cuts.items()}
    return [piece for i, x in enumerate(inputs) for piece in pieces.get(i, [x])]


class _Rewriting:
    """A graph to which all is added that can be done in pieces; what then nobody needs whole is left out at the end."""

    def __init__(self, graph: Graph, sizes: tuple[int, ...]) -> None:
        self.graph, self.sizes, self.total = graph, sizes, sum(sizes)
        self.groups: list[list[int]] = []  # the layers of each piece
        for i, n in enumerate(sizes):
            if n < LARGE and i and sizes[i - 1] < LARGE:
                self.groups[-1].append(i)
            else:
                self.groups.append([i])
        lengths = [sum(sizes[i] for i in group) for group in self.groups]
        self.cuts: Cuts = list(zip([0, *accumulate(lengths)], lengths, strict=False))
        self.pieces: dict[Node, list[Node]] = {}
        self.writing: dict[Node, Node] = {}  # by input: where it is written, with something that is there in pieces
        self.at = next(iter(graph.nodes))

    def done(self) -> dict[int, Cuts]:
        inputs = [node for node in self.graph.nodes if node.op == "placeholder"]
        for node in list(self.graph.nodes):
            if node.op == "call_function":
                self.at = node
                self._add(node)
        apart = self._apart()
        for x in apart:
            self._write_apart(x)
        self._leave_out(set(self.graph.nodes) - self._alive())
        for x in apart:
            self._take_apart(x)
        return {i: self.cuts for i, x in enumerate(inputs) if x in apart}

    def _add(self, node: Node) -> None:
        """Add what a node makes, in pieces."""
        if _joined(node) == self.sizes:
            layers = [[_first(node)[i] for i in group] for group in self.groups]
            self.pieces[node] = [x[0] if len(x) == 1 else self._call(aten.cat.default, x, 1) for x in layers]
        elif node.target is aten.split_with_sizes.default and list(_args(node)[1]) == list(self.sizes):
            self._split(node)
        elif node.target is aten.linalg_vector_norm.default and self._is_over_all(node, 2):
            squares = [self._squares(x) for x in self._of(_first(node))]
            self._instead(node, self._call(aten.sqrt.default, self._sum(squares)))
        elif node.target is aten.sum.dim_IntList and self._is_over_all(node):
            sums = [self._call(aten.sum.dim_IntList, x, [1], True) for x in self._of(_first(node))]
            self._instead(node, self._sum(sums))
        elif node.target is aten.copy_.default and _args(node)[1] in self.pieces and _first(node).op == "placeholder":
            self.writing[_first(node)] = node
        elif node.target is aten.expand.default and _shape(node) == _shape(_first(node)) and self._known(_first(node)):
            self.pieces[node] = self._of(_first(node))
        elif self._is_by_number(node):
            each = [self._of(x) if self._is_long(x) else [x] * len(self.cuts) for x in _args(node)]
            self.pieces[node] = [self._call(node.target, *x, **node.kwargs) for x in zip(*each, strict=True)]

    def _is_by_number(self, node: Node) -> bool:
        """True for a long vector that is made number by number, of one at least that is there in pieces."""
        if not isinstance(node.target, OpOverload) or torch.Tag.pointwise not in node.target.tags or _writes(node):
            return False
        given = [x for x in _args(node) if isinstance(x, Node)]
        return self._is_long(node) and set(given) == set(node.all_input_nodes) and any(map(self._known, given))

    def _is_long(self, x: Any) -> bool:
        return isinstance(x, Node) and len(_shape(x)) == 2 and _shape(x)[1] == self.total

    def _known(self, x: Node) -> bool:
        return x in self.pieces or (x.op == "placeholder" and self._is_long(x))

    def _is_over_all(self, node: Node, *order: int) -> bool:
        """True for one number for each client, of all of its vector, that keeps the axis."""
        x, *how = _args(node)
        plain = how in ([*order, [-1], True], [*order, [1], True]) and not node.kwargs
        return plain and isinstance(x, Node) and self._known(x)

    def _of(self, x: Node) -> list[Node]:
        """A vector's pieces: as they were made, or cut out of it."""
        if x not in self.pieces:
            after = [n for n in self.graph.nodes if n.op == "placeholder"][-1] if x.op == "placeholder" else x
            with self.graph.inserting_before(after.next):
                bounds = [(start, start + length) for start, length in self.cuts]
                self.pieces[x] = [self.graph.call_function(aten.slice.Tensor, (x, 1, *each)) for each in bounds]
        return self.pieces[x]

    def _split(self, node: Node) -> None:
        """Give the layers of a vector out of its pieces."""
        if not self._known(_first(node)):
            return
        layers: dict[int, Node] = {}
        for piece, group in zip(self._of(_first(node)), self.groups, strict=True):
            ends = [0, *accumulate(self.sizes[i] for i in group)]
            for i, ends_at in zip(group, pairwise(ends), strict=True):
                layers[i] = piece if len(group) == 1 else self._call(aten.slice.Tensor, piece, 1, *ends_at)
        for user in list(node.users):
            assert user.target is operator.getitem
            self._instead(user, layers[_args(user)[1]])

    def _squares(self, x: Node) -> Node:
        """The sum of a piece's squares; zeros around it are not looked at."""
        bare, clients = x, (_shape(x) or (0,))[0]
        while clients and _only_wraps(bare, clients):
            bare = _first(bare)
        if bare is not x:
            long = self._call(aten.reshape.default, bare, [clients, -1])
            x = self._call(aten._to_copy.default, long, dtype=_dtype(x))
        return self._call(aten.sum.dim_IntList, self._call(aten.mul.Tensor, x, x), [1], True)

    def _sum(self, numbers: list[Node]) -> Node:
        total, *rest = numbers
        for x in rest:
            total = self._call(aten.add.Tensor, total, x)
        return total

    def _call(self, target: Any, *args: Any, **how: Any) -> Node:
        with self.graph.inserting_before(self.at):
            return self.graph.call_function(target, args, how)

    def _instead(self, node: Node, new: Node) -> None:
        node.replace_all_uses_with(new)
        self.graph.erase_node(node)

    def _apart(self) -> list[Node]:
        """The inputs that can be taken in pieces: what is needed looks at them, and writes them, in no other way."""
        apart = dict(self.writing)
        while True:
            alive = self._alive(but=apart.values())
            whole = [x for x in apart if any(user in alive and user not in self._of(x) for user in x.users)]
            if not whole:
                return list(apart)
            for x in whole:
                del apart[x]

    def _alive(self, but: Collection[Node] = ()) -> set[Node]:
        """What is needed for all that is written, or given back, and for the pieces in place of what is named."""
        alive: set[Node] = {node for node in self.graph.nodes if node.op in ("placeholder", "output") or _writes(node)}
        alive -= set(but)
        todo = [*alive, *(x for node in but for x in self.pieces[_args(node)[1]])]
        alive |= set(todo)
        while todo:
            new = set(todo.pop().all_input_nodes) - alive
            alive |= new
            todo += new
        return alive

    def _write_apart(self, x: Node) -> None:
        self.at = copy = self.writing[x]
        for to, piece in zip(self._of(x), self.pieces[_args(copy)[1]], strict=True):
            self._call(aten.copy_.default, to, piece)
        self._instead(copy, x)

    def _take_apart(self, x: Node) -> None:
        for old, (start, length) in zip(self._of(x), self.cuts, strict=True):
            with self.graph.inserting_before(x):
                self._instead(old, self.graph.placeholder(f"{x.name}_{start}_{length}"))
        self.graph.erase_node(x)

    def _leave_out(self, nodes: set[Node]) -> None:
        for node in reversed(list(self.graph.nodes)):
            if node in nodes:
                self.graph.erase_node(node)


def _joined(node: Node) -> tuple[int, ...]:
    """The lengths of the layers that a node puts together to vectors `[C, P]`; none where it does something else."""
    if node.target is not aten.cat.default or len(_shape(node)) != 2 or _args(node)[1:] not in ((1,), (-1,)):
        return ()
    shapes = [_shape(x) for x in _first(node)]
    return tuple(n for _, n in shapes) if all(len(shape) == 2 for shape in shapes) else ()


def _only_wraps(x: Node, clients: int) -> bool:
    """True if x has the numbers of what it is made of, at most with zeros around those of each client."""
    inner = _first(x) if _args(x) else None
    if not isinstance(inner, Node) or not _shape(inner):
        return False
    if x.target is aten._to_copy.default:
        return bool(torch.promote_types(_dtype(inner), _dtype(x)) == _dtype(x))
    if x.target is aten.constant_pad_nd.default:
        sides, value = _args(x)[1], _args(x)[2] if len(_args(x)) > 2 else 0
        own = _shape(inner)[0] % clients == 0 and len(sides) < 2 * len(_shape(inner))
        return own and min(sides) >= 0 and value == 0
    return x.target in SAME_NUMBERS


def _args(node: Node) -> Any:
    return node.args


def _first(node: Node) -> Any:
    return node.args[0]


def _writes(node: Node) -> bool:
    return isinstance(node.target, OpOverload) and bool(node.target._schema.is_mutable)


def _shape(node: Node) -> tuple[int, ...]:
    told: Any = node.meta.get("tensor_meta")
    return tuple(told.shape) if hasattr(told, "shape") else ()


def _dtype(node: Node) -> torch.dtype:
    told: Any = node.meta["tensor_meta"]
    return told.dtype
