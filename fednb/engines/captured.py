"""A whole local step as one CUDA graph: traced once, compiled, captured, then replayed step after step.

Everything that a step reads or writes lies in buffers that never move: a round is copied in, replayed, and copied out.
What is traced is `fednb.core.rounds.local_step` itself, so that methods know nothing of this.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from fednb.core.record import Answer, Cohort, Oracle, Server
from fednb.core.rounds import Method, local_step
from fednb.data.resident import ResidentPlan
from fednb.engines.convolve import FORMS, channels_last

BESIDE = ("steps", "n", "samples")  # what a cohort has beside its rows, one number per client
Buffers = dict[str, Tensor]
OracleOf = Callable[[ResidentPlan], Oracle]


class CapturedStep:
    """One method's step for cohorts of at most so many clients and steps, with its buffers."""

    def __init__(
        self, method: Method, k: Cohort, s: Server, plan: ResidentPlan, size: tuple[int, int], oracle_of: OracleOf,
        compiled: bool,
    ) -> None:  # fmt: skip
        began = time.perf_counter()
        self.buffers = _made(k, s, plan, *size)
        self.written: list[str] = []
        self.read: frozenset[str] = frozenset()
        self.asked = 0

        def step(b: Buffers) -> None:
            oracle = oracle_of(ResidentPlan(plan.home, b["index"], b.get("how")))
            twin, server = _twin_of(k, b, oracle), _twin(s, b)
            local_step(method, twin, server)
            new = {**twin.values(twin.buffers), "samples": twin.samples}
            self.written = [name for name, x in new.items() if x is not b[f"k.{name}"]]
            self.read, self.asked = server.heard, twin.asked
            for name in self.written:
                b[f"k.{name}"].copy_(new[name])
            b["step"].add_(1)

        self.launch, self.held = _captured(step, self.buffers, compiled)
        how, seconds = "compiled and captured" if compiled else "captured", time.perf_counter() - began
        print(f"fednb: {how} a step of {method.name} for {size[0]} clients in {seconds:.1f} s", file=sys.stderr)

    def walk(self, k: Cohort, s: Server, plan: ResidentPlan) -> None:
        """Take a cohort through all steps of a round by launching the captured step."""
        b, C = self.buffers, len(k.ids)
        for name, x in (_of_cohort(k) | _of_server(s)).items():
            (b[name] if b[name].shape == x.shape else b[name][:C]).copy_(x)
        b["k.steps"][C:] = 0
        _turn_to(b, plan)
        for _ in range(k.max_steps):
            self.launch()
        new = {name: b[f"k.{name}"][:C].clone() for name in self.written}
        vars(k).update(samples=new.pop("samples"), evaluations=k.evaluations + self.asked * k.counts)
        k.receive(new)
        s.receive({}, self.read)


class CapturedOracle:
    """The gradients of a cohort where a method looks outside of its steps: a pilot, a loss before training."""

    def __init__(
        self, w: Tensor, b: Tensor, g: Tensor, plan: ResidentPlan, size: tuple[int, int], oracle_of: OracleOf,
        last: int | None,
    ) -> None:  # fmt: skip
        began, (clients, most) = time.perf_counter(), size
        self.buffers = _batches(plan, clients, most)
        self.buffers |= {name: x.new_zeros(clients, x.shape[-1]) for name, x in (("w", w), ("b", b), ("g", g))}
        self.buffers |= {name: w.new_zeros(clients, 1) for name in ("loss", "count")}

        def ask(buffers: Buffers) -> None:
            oracle = oracle_of(ResidentPlan(plan.home, buffers["index"], buffers.get("how")))
            g, loss, count, _ = oracle(buffers["w"], buffers["b"], buffers["step"], last=last)
            for name, x in (("g", g), ("loss", loss), ("count", count)):
                buffers[name].copy_(x)

        self.launch, self.held = _captured(ask, self.buffers, compiled=False)
        seconds = time.perf_counter() - began
        print(f"fednb: captured a gradient of {clients} clients in {seconds:.1f} s", file=sys.stderr)

    def turn_to(self, plan: ResidentPlan) -> None:
        """Copy a round's batches into the buffers that the captured gradient reads."""
        _turn_to(self.buffers, plan)

    def __call__(self, w: Tensor, b: Tensor, step: int | Tensor) -> Answer:
        own, C = self.buffers, len(w)
        own["w"][:C].copy_(w)
        own["b"][:C].copy_(b)
        own["step"].fill_(step)
        self.launch()
        return own["g"][:C].clone(), own["loss"][:C].clone(), own["count"][:C].clone(), b


def _of_cohort(k: Cohort) -> Buffers:
    """Every tensor that a step may read or write of the clients."""
    own = {name: x for name, x in k.values(k.names).items() if isinstance(x, Tensor)}
    return {f"k.{name}": x for name, x in (own | {name: vars(k)[name] for name in BESIDE}).items()}


def _of_server(s: Server) -> Buffers:
    return {f"s.{name}": x for name, x in s.values(s.names).items() if isinstance(x, Tensor)}


def _made(k: Cohort, s: Server, plan: ResidentPlan, clients: int, most: int) -> Buffers:
    """Buffers with room for the largest cohort and the longest round."""
    C = len(k.ids)
    b = {name: x.new_zeros((clients, *x.shape[1:]) if len(x) == C else x.shape) for name, x in _of_cohort(k).items()}
    b |= {name: torch.zeros_like(x) for name, x in _of_server(s).items()}
    return b | _batches(plan, clients, most)


def _batches(plan: ResidentPlan, clients: int, most: int) -> Buffers:
    """Room for the batches of a round, and for the number of a step."""
    b = {"index": plan.index.new_full((clients, most, plan.index.shape[2]), -1)}
    if plan.how is not None:
        b["how"] = plan.how.new_zeros((*b["index"].shape, 3))
    b["step"] = torch.zeros((), dtype=torch.int64, device=plan.index.device)
    return b


def _turn_to(b: Buffers, plan: ResidentPlan) -> None:
    """A round's batches, from its first step on."""
    C, S, _ = plan.index.shape
    b["index"].fill_(-1)
    b["index"][:C, :S].copy_(plan.index)
    if plan.how is not None:
        b["how"][:C, :S].copy_(plan.how)
    b["step"].zero_()


def _twin_of(k: Cohort, b: Buffers, oracle: Oracle) -> Cohort:
    """The cohort at a step, on the buffers."""
    values = {name: b[f"k.{name}"] for name in k.names if f"k.{name}" in b}
    beside = {name: b[f"k.{name}"] for name in BESIDE}
    active = beside["steps"] > b["step"]
    return k.borrowing(values, **beside, oracle=oracle, step=b["step"], active=active, fresh=True, asked=0)


def _twin(s: Server, b: Buffers) -> Server:
    return s.borrowing({name: b[f"s.{name}"] for name in s.names if f"s.{name}" in b})


def traced(step: Callable[[Buffers], None], buffers: Buffers) -> torch.fx.GraphModule:
    """The step as a list of operations, its convolutions in the forms that suit a GPU."""
    return channels_last(make_fx(step, decomposition_table=FORMS)(buffers))


def _captured(step: Callable[[Buffers], None], buffers: Buffers, compiled: bool) -> tuple[Callable[[], None], object]:
    """The step as something that can be launched again and again; and what must live as long as that."""
    before = {name: x.clone() for name, x in buffers.items()}
    step(buffers)  # what is made once and kept is made now, not inside the graph
    run: Callable[[Buffers], None] = torch.compile(traced(step, buffers), dynamic=False) if compiled else step
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side), fastest_convolutions():
        for _ in range(3):  # compiles, tries algorithms, makes plans of transforms: none of it may be captured
            buffers["step"].zero_()
            run(buffers)
    torch.cuda.current_stream().wait_stream(side)
    for name, x in buffers.items():
        x.copy_(before[name])
    graph = torch.cuda.CUDAGraph()
    with fastest_convolutions(), nothing_collected(), torch.cuda.graph(graph):
        run(buffers)
    return graph.replay, run


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
