"""A whole local step as one CUDA graph: traced once, compiled, captured, then replayed step after step.

Everything that a step reads or writes lies in buffers that never move: a round is copied in, replayed, and copied out.
What is traced is `fednb.rounds.local_step` itself, so that methods know nothing of this.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from fednb.data.resident import ResidentPlan
from fednb.record import Cohort, Oracle, Server
from fednb.rounds import Method, local_step

BESIDE = ("steps", "n", "samples")  # what a cohort has beside its rows, one number per client
OPTIONS: dict[str, str | int | bool] = {"force_layout_optimization": True}  # channels last: grouped convolutions twice as fast
Buffers = dict[str, Tensor]
OracleOf = Callable[[ResidentPlan], Oracle]


class CapturedStep:
    """One method's step for cohorts of at most so many clients and steps, with its buffers."""

    def __init__(
        self, method: Method, k: Cohort, s: Server, plan: ResidentPlan, room: tuple[int, int], oracle_of: OracleOf,
        compiled: bool,
    ) -> None:  # fmt: skip
        began = time.perf_counter()
        self.clients, self.most = room
        self.buffers = self._made(k, s, plan)
        self.written: list[str] = []
        self.read: frozenset[str] = frozenset()
        self.asked = 0

        def step(b: Buffers) -> None:
            twin, server = self._twin(k, b, oracle_of(ResidentPlan(plan.home, b["index"], b.get("how")))), _twin(s, b)
            local_step(method, twin, server)
            new = {**twin.values(twin.buffers), "samples": twin.samples}
            self.written = [name for name, x in new.items() if x is not b[f"k.{name}"]]
            self.read, self.asked = server.heard, twin.asked
            for name in self.written:
                b[f"k.{name}"].copy_(new[name])
            b["step"].add_(1)

        self.graph = _captured(step, self.buffers, compiled)
        how = "compiled and captured" if compiled else "captured"
        seconds = time.perf_counter() - began
        print(f"fednb: {how} a step of {method.name} for {self.clients} clients: {seconds:.1f} s", file=sys.stderr)

    def _made(self, k: Cohort, s: Server, plan: ResidentPlan) -> Buffers:
        """Buffers with room for the largest cohort."""
        rows = {**k.values((*k.buffers, "p")), **{name: vars(k)[name] for name in BESIDE}}
        b = {f"k.{name}": x.new_zeros((self.clients, *x.shape[1:])) for name, x in rows.items()}
        b |= {f"s.{name}": torch.empty_like(x) for name, x in s.values(s.names).items() if isinstance(x, Tensor)}
        b["index"] = plan.index.new_full((self.clients, self.most, plan.index.shape[2]), -1)
        if plan.how is not None:
            b["how"] = plan.how.new_zeros((*b["index"].shape, 3))
        b["step"] = torch.zeros((), dtype=torch.int64, device=plan.index.device)
        return b

    def _twin(self, k: Cohort, b: Buffers, oracle: Oracle) -> Cohort:
        """The cohort at a step, on the buffers."""
        rows = {name: b[f"k.{name}"] for name in (*k.buffers, "p")}
        beside = {name: b[f"k.{name}"] for name in BESIDE}
        active = beside["steps"] > b["step"]
        return k.borrowing(rows, **beside, oracle=oracle, step=b["step"], active=active, fresh=True, asked=0)

    def walk(self, k: Cohort, s: Server, plan: ResidentPlan) -> None:
        """All steps of a round."""
        b, C, S = self.buffers, len(k.ids), plan.index.shape[1]
        rows = {**k.values((*k.buffers, "p")), **{name: vars(k)[name] for name in BESIDE}}
        for name, x in rows.items():
            b[f"k.{name}"][:C].copy_(x)
        for name, x in s.values(s.names).items():
            if isinstance(x, Tensor):
                b[f"s.{name}"].copy_(x)
        b["k.steps"][C:] = 0
        b["index"].fill_(-1)
        b["index"][:C, :S].copy_(plan.index)
        if plan.how is not None:
            b["how"][:C, :S].copy_(plan.how)
        b["step"].zero_()
        for _ in range(k.max_steps):
            self.graph()
        new = {name: b[f"k.{name}"][:C].clone() for name in self.written}
        vars(k).update(samples=new.pop("samples"), evaluations=k.evaluations + self.asked * k.counts)
        k.receive(new)
        s.receive({}, self.read)


def _twin(s: Server, b: Buffers) -> Server:
    return s.borrowing({name: b[f"s.{name}"] for name in s.names if f"s.{name}" in b})


def _captured(step: Callable[[Buffers], None], buffers: Buffers, compiled: bool) -> Callable[[], None]:
    """The step as something that can be launched again and again."""
    before = {name: x.clone() for name, x in buffers.items()}
    run = step
    if compiled:
        import os
        gm = make_fx(step)(buffers)
        if os.environ.get("FX"):
            gm = channels_last(gm)
        run = torch.compile(gm, dynamic=False, options={"force_layout_optimization": bool(os.environ.get("FORCE"))})
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):  # compiles, chooses algorithms, makes plans of transforms: none of it may be captured
            run(buffers)
    torch.cuda.current_stream().wait_stream(side)
    for name, x in buffers.items():
        x.copy_(before[name])
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run(buffers)
    return graph.replay


CONVOLUTIONS = {torch.ops.aten.convolution.default: (0, 1), torch.ops.aten.convolution_backward.default: (0, 1, 2)}


def channels_last(gm: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """Hand every convolution its images with the channels last, which is what the hardware multiplies."""
    for node in list(gm.graph.nodes):
        for at in CONVOLUTIONS.get(node.target, ()):
            with gm.graph.inserting_before(node):
                how = {"memory_format": torch.channels_last}
                node.update_arg(at, gm.graph.call_function(torch.ops.aten.clone.default, (node.args[at],), how))
        if node.target in (torch.ops.aten.view.default, torch.ops.aten._unsafe_view.default):
            node.target = torch.ops.aten.reshape.default  # strides are no longer those that were traced
    gm.recompile()
    return gm
