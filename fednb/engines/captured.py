"""Work on a GPU that is launched again and again: captured as one CUDA graph, and compiled before that where it pays.

Everything that such work reads or writes lies in buffers that never move.
"""

from __future__ import annotations

import gc
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from fednb.core.record import Answer, Oracle
from fednb.data.resident import ResidentPlan
from fednb.engines.convolve import FORMS, channels_last
from fednb.engines.objective import arithmetic

Buffers = dict[str, Tensor]
OracleOf = Callable[[ResidentPlan], Oracle]
Work = Callable[[Buffers], None]
FIXED = "data."  # names of buffers that are only read begin with it

_one_at_a_time = threading.Lock()  # tracing has a global flag, and a capture ends where another thread compiles


class Launched:
    """A function of buffers as something to launch: call by call ("eager"), as a graph, or "compiled" before that."""

    def __init__(self, work: Work, buffers: Buffers, mode: str, what: str, precision: str) -> None:
        self.work, self.buffers = work, buffers
        self.launch: Callable[[], None] = lambda: work(buffers)
        if mode == "eager":
            return
        with _one_at_a_time, arithmetic(precision):
            began = time.perf_counter()
            self.launch = self._captured(mode == "compiled")
            how, seconds = "compiled and captured" if mode == "compiled" else "captured", time.perf_counter() - began
        print(f"fednb: {how} {what} in {seconds:.1f} s", file=sys.stderr)

    def __call__(self) -> None:
        self.launch()

    def _captured(self, compiled: bool) -> Callable[[], None]:
        trial = {name: x if name.startswith(FIXED) else x.clone() for name, x in self.buffers.items()}
        self.work(trial)  # what is made once and kept is made now, not inside the graph
        if compiled:
            self.work = torch.compile(traced(self.work, trial), dynamic=False)
        _warm(self.work, trial)
        graph = torch.cuda.CUDAGraph()
        with fastest_convolutions(), nothing_collected(), torch.cuda.graph(graph, capture_error_mode="thread_local"):
            self.work(self.buffers)
        return graph.replay


class CapturedOracle:
    """The gradients of a cohort where a method looks outside of its steps: a pilot, a loss before training."""

    def __init__(
        self, w: Tensor, b: Tensor, g: Tensor, plan: ResidentPlan, size: tuple[int, int], oracle_of: OracleOf,
        last: int | None, precision: str,
    ) -> None:  # fmt: skip
        clients, most = size
        self.buffers = room_for_batches(plan, clients, most)
        self.buffers |= {name: x.new_zeros(clients, x.shape[-1]) for name, x in (("w", w), ("b", b), ("g", g))}
        self.buffers |= {name: w.new_zeros(clients, 1) for name in ("loss", "count")}

        def ask(buffers: Buffers) -> None:
            oracle = oracle_of(plan_of(plan, buffers))
            g, loss, count, _ = oracle(buffers["w"], buffers["b"], buffers["step"], last=last)
            for name, x in (("g", g), ("loss", loss), ("count", count)):
                buffers[name].copy_(x)

        self.launch = Launched(ask, self.buffers, "graph", f"a gradient of {clients} clients", precision)

    def turn_to(self, plan: ResidentPlan) -> None:
        """Copy a round's batches into the buffers that the captured gradient reads."""
        C, S, _ = plan.index.shape
        self.buffers["index"].fill_(-1)
        self.buffers["index"][:C, :S].copy_(plan.index)
        if plan.how is not None:
            self.buffers["how"][:C, :S].copy_(plan.how)

    def __call__(self, w: Tensor, b: Tensor, step: int | Tensor) -> Answer:
        own, C = self.buffers, len(w)
        own["w"][:C].copy_(w)
        own["b"][:C].copy_(b)
        own["step"].fill_(step)
        self.launch()
        return own["g"][:C].clone(), own["loss"][:C].clone(), own["count"][:C].clone(), b


def room_for_batches(plan: ResidentPlan, clients: int, most: int) -> Buffers:
    """Buffers for the batches of so many clients and steps, the number of a step, and the samples themselves."""
    b = {"index": plan.index.new_full((clients, most, plan.index.shape[2]), -1)}
    if plan.how is not None:
        b["how"] = plan.how.new_zeros((*b["index"].shape, 3))
    b["step"] = torch.zeros((), dtype=torch.int64, device=plan.index.device)
    return b | {f"{FIXED}x": plan.home.data.x, f"{FIXED}y": plan.home.data.y}


def plan_of(plan: ResidentPlan, b: Buffers) -> ResidentPlan:
    """The batches that lie in buffers."""
    return ResidentPlan(plan.home.holding(b[f"{FIXED}x"], b[f"{FIXED}y"]), b["index"], b.get("how"))


def traced(work: Work, buffers: Buffers) -> torch.fx.GraphModule:
    """The work as a list of operations, its convolutions in the forms that suit a GPU."""
    return channels_last(make_fx(work, decomposition_table=FORMS)(buffers))


def _warm(work: Work, trial: Buffers) -> None:
    """Let the work compile, try algorithms and make plans of transforms: none of it may be captured."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side), fastest_convolutions():
        for _ in range(3):
            if "step" in trial:
                trial["step"].zero_()
            work(trial)
    torch.cuda.current_stream().wait_stream(side)


@contextmanager
def nothing_collected() -> Iterator[None]:
    """Collect garbage now, not while a graph is captured: an old graph that goes then takes the new one with it."""
    was = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


@contextmanager
def fastest_convolutions() -> Iterator[None]:
    """Let the library try all its algorithms once for every shape, and keep the fastest."""
    cudnn = torch.backends.cudnn
    was = cudnn.benchmark, cudnn.benchmark_limit
    cudnn.benchmark, cudnn.benchmark_limit = True, 0
    try:
        yield
    finally:
        cudnn.benchmark, cudnn.benchmark_limit = was
