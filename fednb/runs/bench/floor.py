"""The least that a round can take: what its products must move through memory, at the speed of this device's memory.

Convolutions, their gradients and matrix products read each input and write each output once; everything else is taken
to be done on the way. Nothing that keeps its data in memory is faster, and normalisation needs one more look at most.
"""

from __future__ import annotations

import time
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from fednb.engines.objective import arithmetic, wait_for
from fednb.engines.stacked import stacked_oracle
from fednb.runs.bench.workload import Say, Workload

aten = torch.ops.aten
PRODUCTS = {aten.convolution, aten.convolution_backward, aten.mm, aten.addmm, aten.bmm, aten.baddbmm}
COPIED = {"cpu": 2**26, "cuda": 2**29}  # numbers: more than any cache holds
HEADS = {
    "model": "model", "weights": "weights", "precision": "precision", "participants": "participants",
    "steps": "steps", "batch": "batch", "gigabytes_per_round": "GB/round",
    "gigabytes_per_second": "GB/s", "seconds_per_round": "s/round", "milliseconds_per_pass": "ms/pass",
}  # fmt: skip


class Traffic(TorchDispatchMode):
    """Counts the bytes that products read and write."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if func.overloadpacket in PRODUCTS:
            tensors = [x for x in tree_leaves((args, out)) if isinstance(x, Tensor)]
            self.bytes += sum(x.numel() * x.element_size() for x in tensors)
        return out


def of_gradient(work: Workload) -> int:
    """Bytes that one gradient of one client moves."""
    problem = work.problem
    w, b = problem.objective.start(*next((p.dtype, p.device) for p in problem.objective.model.parameters()))
    oracle = stacked_oracle(problem.objective, problem.plan(0, [0]))
    with arithmetic(work.precision), Traffic() as seen:
        oracle(w[None], b[None], 0)
    return seen.bytes


def speed(device: str, tries: int = 5) -> float:
    """Bytes per second that a copy reads and writes: the best of some."""
    x = torch.ones(COPIED[torch.device(device).type], device=device)
    y, seconds = torch.empty_like(x), []
    for _ in range(tries + 1):  # the first makes the pages
        wait_for(device)
        began = time.perf_counter()
        y.copy_(x)
        wait_for(device)
        seconds.append(time.perf_counter() - began)
    return 2 * x.numel() * x.element_size() / min(seconds[1:])


def row(work: Workload, bytes_per_second: float, say: Say = lambda text: None) -> dict[str, Any]:
    """FedAvg's round; and one pass over all clients' vectors, read and written once: the least for a filter."""
    say(f"{work.model}: counting one gradient")
    moved = of_gradient(work) * work.participants * work.steps
    vectors = 2 * work.participants * work.weights * torch.finfo(torch.float32).bits // 8
    return {
        **{name: getattr(work, name) for name in ("model", "weights", "precision", "participants", "steps", "batch")},
        "gigabytes_per_round": moved / 1e9,
        "gigabytes_per_second": bytes_per_second / 1e9,
        "seconds_per_round": (moved + vectors * work.steps) / bytes_per_second,
        "milliseconds_per_pass": 1000 * vectors / bytes_per_second,
    }
