"""Traced work compiled for a GPU, and kept in a folder: a process to come loads it instead of compiling again.

A kept file is found by what was compiled: every operation, every input's shape, the arithmetic, the device and the
version of torch. It is named by its contents too, so that one that was cut short is not loaded.
"""

from __future__ import annotations

import io
import os
import pickle
import subprocess
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.fx import Graph, GraphModule, Node
from torch.fx.graph import CodeGen

from fednb.base.files import atomically, digest
from fednb.base.processes import child
from fednb.engines.pieces import in_pieces, in_turn

FOLDER = "TORCHINDUCTOR_CACHE_DIR"  # the variable that names the folder for what compilers keep
QUICK = {  # off: compiling takes a sixth less time, and a step of ResNet-20 is 2% faster (on one H200)
    "loop_ordering_after_fusion": False,  # loops in another order, so that two of them become one
    "loop_index_inversion_in_fusion": False,
}
NO_ROOM = "out of memory"  # in what a compiler says of a device that is full
Buffers = dict[str, Tensor]
Compiled = Callable[..., Any]


class Turns:
    """Who may compile: so many at a time; what can wait, only while nobody else does or wants to."""

    def __init__(self, most: int) -> None:
        self.most, self.at_work, self.pressing = most, 0, 0
        self.changed = threading.Condition()

    @contextmanager
    def one(self, can_wait: bool) -> Iterator[None]:
        with self.changed:
            self.pressing += not can_wait
            self.changed.wait_for(lambda: self.at_work < self.most and not (can_wait and self.pressing))
            self.at_work += 1
        try:
            yield
        finally:
            with self.changed:
                self.at_work -= 1
                self.pressing -= not can_wait
                self.changed.notify_all()


_turns = Turns(max(1, (os.cpu_count() or 1) // 4))  # compilers have several processes each


class Traced:
    """Operations on buffers, in a list; tensors from outside are inputs too, not constants.

    precision: the arithmetic that the operations are done in, see `fednb.engines.objective.arithmetic`.
    cuts: the buffers, by their places, that are several inputs, see `fednb.engines.pieces`.
    """

    def __init__(self, graph: GraphModule, precision: str) -> None:
        self.precision = precision
        self.cuts = in_pieces(graph)
        self.graph, self.held = flattened(graph)

    def __call__(self, buffers: Buffers) -> None:
        self.graph(*self.inputs(buffers))

    def inputs(self, buffers: Buffers) -> list[Tensor]:
        """What the operations read and write, in their order."""
        return in_turn([*buffers.values(), *self.held], self.cuts)

    def key(self, buffers: Buffers) -> str:
        """What decides what a compiler makes of this."""
        like = [(x.shape, x.stride(), x.dtype, x.device.type) for x in self.inputs(buffers)]
        device = next(iter(buffers.values())).device
        where = torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
        told = f"{torch.__version__} {where} {self.precision} {like}\n{self.graph.code}"
        return digest(told.encode())[:32]

    def compiled(self, buffers: Buffers) -> Callable[[Buffers], None]:
        """This work by a compiler, here and now, which takes up to a minute."""
        return self._by(compiled(self.graph, self.inputs(buffers)))

    def compiled_elsewhere(self, buffers: Buffers, can_wait: bool = False) -> Callable[[Buffers], None]:
        """This work by a compiler in a process of its own, which keeps it; this thread waits, and others do not.

        can_wait: others come first. Raises `torch.OutOfMemoryError` where the device has no room for it now.
        """
        folder, key = kept_in(), self.key(buffers)
        assert folder is not None
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder, prefix=".") as place, _turns.one(can_wait):
            order = Path(place) / "order"
            order.write_bytes(as_order(self, buffers, str(folder / key)))
            command = child.python("-m", "fednb.engines.compiler", str(order))
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        if (made := self.loaded(buffers)) is None:
            why = (done.stderr.strip() or f"exit status {done.returncode}").splitlines()[-1]
            raise torch.OutOfMemoryError(why) if NO_ROOM in done.stderr else RuntimeError(why)
        return made

    def loaded(self, buffers: Buffers) -> Callable[[Buffers], None] | None:
        """What an earlier process has compiled of this; None where there is nothing, or nothing that can be read."""
        folder = kept_in()
        for path in sorted(folder.glob(f"{self.key(buffers)}-*.bin")) if folder else []:
            try:
                if _short(path.read_bytes()) == path.stem.rpartition("-")[2]:
                    return self._by(_read(path))
            except Exception as error:  # whatever a compiler of another make thinks of it
                warnings.warn(f"{path.name} cannot be loaded, and is compiled again: {error}", stacklevel=2)
            path.unlink(missing_ok=True)
        return None

    def _by(self, made: Compiled) -> Callable[[Buffers], None]:
        def work(buffers: Buffers) -> None:
            with torch.no_grad():
                made(*self.inputs(buffers))

        return work


def flattened(graph: GraphModule) -> tuple[GraphModule, list[Tensor]]:
    """A graph that takes tensors one after another and gives nothing back, and the tensors it held within."""
    graph.graph.set_codegen(CodeGen())
    held: dict[str, Tensor] = {}
    places = {}
    last = [node for node in graph.graph.nodes if node.op == "placeholder"][-1]
    for node in list(graph.graph.nodes):
        if node.op == "get_attr":
            name = str(node.target)
            if name not in held:
                held[name] = getattr(graph, name)
                with graph.graph.inserting_after(last):
                    last = places[name] = graph.graph.placeholder(f"constant_{len(held)}")
                last.meta = node.meta
            node.replace_all_uses_with(places[name])
            graph.graph.erase_node(node)
        if node.op == "output":
            node.args = ((),)
    for name in held:
        delattr(graph, name)
    graph.recompile()
    return graph, list(held.values())


def compiled(graph: GraphModule, inputs: Sequence[Tensor]) -> Any:
    """What a compiler makes of a graph: to be called with such inputs."""
    from torch._inductor import config, standalone_compile

    known = {name: value for name, value in QUICK.items() if hasattr(config, name)}  # by the installed version
    with torch.no_grad(), config.patch(known):
        return standalone_compile(graph, list(inputs), dynamic_shapes="from_example_inputs")


def kept_in() -> Path | None:
    """The folder for compiled work; None where none was named."""
    return Path(os.environ[FOLDER]) / "steps" if FOLDER in os.environ else None


def keep(made: Any, path: str) -> None:
    """Keep what was compiled in a file whose name begins so, and ends with a digest of its contents."""
    with tempfile.TemporaryDirectory(dir=Path(path).parent, prefix=".") as place:
        made.save(path=str(Path(place) / "whole"), format="binary")
        contents = (Path(place) / "whole").read_bytes()
    atomically(Path(f"{path}-{_short(contents)}.bin"), contents)


class _Writer(pickle.Pickler):
    """Nodes by their names, operators by theirs."""

    def persistent_id(self, x: Any) -> Any:
        if isinstance(x, Node):
            return "node", x.name
        return ("operator", *x.name().partition("::")[::2]) if isinstance(x, OpOverload) else None


class _Reader(pickle.Unpickler):
    """The reverse of `_Writer`, with the nodes that there are so far."""

    def __init__(self, file: Any, nodes: dict[str, Node]) -> None:
        super().__init__(file)
        self.nodes = nodes

    def persistent_load(self, told: Any) -> Any:
        if told[0] == "node":
            return self.nodes[told[1]]
        found, (name, _, overload) = getattr(torch.ops, told[1]), told[2].partition(".")
        return getattr(getattr(found, name), overload or "default")


def as_order(work: Traced, buffers: Buffers, path: str) -> bytes:
    """A graph, what its inputs are like, the arithmetic and where to keep it, for a process that compiles it."""
    whole, nodes = [*buffers.values(), *work.held], work.graph.graph.nodes
    like = [(tuple(x.shape), x.stride(), x.dtype, str(x.device)) for x in whole]
    order = io.BytesIO()
    writer = _Writer(order)
    writer.dump((like, work.cuts, work.precision, path, len(nodes)))
    for node in nodes:
        writer.dump((node.op, node.name, node.target, node.args, node.kwargs))
    return order.getvalue()


def ordered(order: bytes) -> tuple[GraphModule, list[Tensor], str, str]:
    """The graph of an order, inputs like its own that are all zeros, the arithmetic, and where to keep it."""
    file, graph, nodes = io.BytesIO(order), Graph(), dict[str, Node]()
    reader = _Reader(file, nodes)
    like, cuts, precision, path, count = reader.load()
    for _ in range(count):
        op, name, target, args, kwargs = reader.load()
        nodes[name] = graph.create_node(op, target, args, kwargs, name)
    whole = [
        torch.empty_strided(shape, stride, dtype=dtype, device=device).zero_() for shape, stride, dtype, device in like
    ]
    return GraphModule(torch.nn.Module(), graph), in_turn(whole, cuts), precision, path


def _read(path: Path) -> Compiled:
    from torch._inductor import CompiledArtifact

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of classes that torch itself has written
        return CompiledArtifact.load(path=str(path), format="binary")


def _short(contents: bytes) -> str:
    return digest(contents)[:16]
