"""What each filter costs: milliseconds for the clients' vectors, and the share of one gradient that this is."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from math import ceil
from statistics import median
from typing import Any

import torch

from fednb.engines.loop import single_oracle
from fednb.engines.objective import arithmetic, wait_for
from fednb.engines.stacked import stacked_oracle
from fednb.filters import (
    Centralize,
    ClipToMedian,
    Filter,
    GaussianDetrend,
    HighPass,
    LocalAverage,
    LowPass,
    MeanOnly,
    NormMatched,
    Permuted,
    Plane,
    RandomBand,
    Rescale,
)
from fednb.runs.bench.workload import Say, Workload

FILTERS: tuple[Filter, ...] = (
    HighPass(0.01), HighPass(0.05), LowPass(0.05), RandomBand(0.05), LocalAverage(), GaussianDetrend(), Plane(0.05),
    Permuted(order="3210"), Permuted(order="random"), Rescale(), ClipToMedian(), Centralize(), MeanOnly(0.05),
    NormMatched(),
)  # fmt: skip
BLOCK = 0.02  # seconds: shorter calls are timed many at once
HEADS = {
    "model": "model", "filter": "filter", "milliseconds": "ms", "min": "min", "max": "max", "n": "n",
    "percent": "of a gradient",
}  # fmt: skip
Call = Callable[[], Any]


def cohort(work: Workload) -> int:
    """Clients whose vectors are filtered in one call: one on a CPU, all of a round on a GPU."""
    return work.participants if torch.device(work.device).type == "cuda" else 1


def gradient(work: Workload) -> Call:
    """One gradient of so many clients on batches that are loaded already; not compiled."""
    problem, C = work.problem, cohort(work)
    w, b = problem.objective.start(*next((p.dtype, p.device) for p in problem.objective.model.parameters()))
    oracle_of = single_oracle if C == 1 else stacked_oracle
    oracle = oracle_of(problem.objective, problem.plan(0, list(range(C))))
    return partial(oracle, w.repeat(C, 1), b.repeat(C, 1), 0)


def filtered(work: Workload, filter: Filter) -> Call:
    """One application of a filter to so many vectors of the model's size."""
    like = next(work.problem.objective.model.parameters())
    x = torch.randn(cohort(work), work.weights, dtype=like.dtype, device=like.device)
    return partial(work.problem.objective.layout.map, filter, x)


def clocked(do: Call, times: int, device: str) -> float:
    """Seconds of one call, the mean over some in a row."""
    wait_for(device)
    began = time.perf_counter()
    for _ in range(times):
        do()
    wait_for(device)
    return (time.perf_counter() - began) / times


def rows(
    work: Workload, rounds: int, filters: Sequence[Filter] = FILTERS, say: Say = lambda text: None
) -> list[dict[str, Any]]:
    """One row per filter; filters and the gradient take turns, on one thread."""
    say(f"{work.model}: {len(filters)} filters")
    calls = [gradient(work), *(filtered(work, each) for each in filters)]
    with arithmetic(work.precision):
        for do in calls:
            do()
        times = [ceil(BLOCK / max(clocked(do, 1, work.device), 1e-7)) for do in calls]
        turns = [[clocked(do, n, work.device) for do, n in zip(calls, times, strict=True)] for _ in range(rounds)]
    step, *own = ([1000 * seconds for seconds in each] for each in zip(*turns, strict=True))
    return [
        {
            "model": work.model,
            "weights": work.weights,
            "clients": cohort(work),
            "filter": each.short,
            "milliseconds": median(spent),
            "min": min(spent),
            "max": max(spent),
            "n": rounds,
            "gradient_milliseconds": median(step),
            "share": median(a / b for a, b in zip(spent, step, strict=True)),
        }
        for each, spent in zip(filters, own, strict=True)
    ]
