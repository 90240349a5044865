"""Seconds and memory per round as clients, participants and weights grow; a new process for every point.

A process of its own makes the peak of its memory that of one point, and lets a point fail alone.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import product
from pathlib import Path
from typing import Any

import torch

from fednb.algorithms.catalogue import method
from fednb.base.processes import child
from fednb.engines.pool import Pool
from fednb.runs.bench.engines import EngineRun, Timed
from fednb.runs.bench.workload import Say, Workload

CLIENTS = (10, 100, 1000)
MODELS = (  # 10 thousand, 23 thousand, 207 thousand, 0.8, 2.8 and 11 million weights
    ("1x4x4", "cnn-small"), ("digits", "cnn-small"), ("fashion-mnist", "cnn-small"), ("cifar10", "lenet"),
    ("cifar10", "cnn5"), ("cifar10", "resnet18-gn"),
)  # fmt: skip
MIDDLE = ("fashion-mnist", "cnn-small")
HEADS = {
    "data": "shapes", "model": "model", "weights": "weights", "clients": "clients", "participants": "participants",
    "label": "engine", "seconds_per_round": "s/round", "min": "min", "max": "max", "n": "n",
    "milliseconds_per_step": "ms/step", "times_first": "x first row", "first_round": "first round",
    "memory": "MB", "memory_before": "MB before", "memory_gpu": "MB GPU", "status": "",
}  # fmt: skip
NAMES = ("data", "model", "clients", "participants")
Point = tuple[str, str, int, int]


def sweep(quick: bool) -> list[Point]:
    """One thing grows at a time: clients, then participants, then weights."""
    clients = [(*MIDDLE, n, 10) for n in CLIENTS]
    some = [(*MIDDLE, 1000, n) for n in ((100,) if quick else (100, 1000))]
    weights = [(*each, 100, 10) for each in MODELS]
    return list(dict.fromkeys([*clients, *some, *weights]))


def lattice(models: Sequence[tuple[str, str]], clients: Sequence[int], participants: Sequence[int]) -> list[Point]:
    """Everything with everything, as far as there are clients enough."""
    return [(*each, n, p) for each, n, p in product(models, clients, participants) if p <= n]


def measured(work: Workload, name: str, chosen: str, rounds: int, workers: int | None = None) -> dict[str, Any]:
    """One point, in this process."""
    before = peak()
    timed = Timed(name, work, method(chosen), workers)
    for _ in range(rounds):
        timed.turn()
    row = timed.row()
    gpu = torch.device(work.device).type == "cuda"
    return {
        **{each: getattr(work, each) for each in (*NAMES, "weights")},
        **row,
        "milliseconds_per_step": 1000 * row["seconds_per_round"] / (work.participants * work.steps),
        "memory": peak() + sum(map(peak, workers_of(timed))),
        "memory_before": before,
        "memory_gpu": torch.cuda.max_memory_allocated() / 1e6 if gpu else None,
        "status": "",
    }


def peak(process: int | str = "self") -> float:
    """The most memory, in MB, that a process has had. Shared pages count in every process that has them.

    The kernel's own count where there is one: getrusage's begins, in a process that another has started, with the
    other's.
    """
    status = Path(f"/proc/{process}/status")
    if status.exists():
        return next(int(line.split()[1]) for line in status.read_text().splitlines() if line.startswith("VmHWM")) / 1e3
    import resource

    unit = 1e6 if sys.platform == "darwin" else 1e3
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit if process == "self" else 0.0


def workers_of(timed: Timed) -> list[int]:
    """The worker processes of a pool."""
    run = timed.runner
    if isinstance(run, EngineRun) and isinstance(run.engine, Pool):
        return run.engine.crew.pids
    return []


def rows(
    works: Sequence[Workload], names: Sequence[str], methods: Sequence[str], rounds: int, workers: int | None = None,
    limit: float = float("inf"), say: Say = lambda text: None,
) -> list[dict[str, Any]]:  # fmt: skip
    """All points one after another; those that come after the limit (in seconds) are named and not run."""
    end = time.monotonic() + limit
    points = list(product(works, names, methods))
    found = []
    for i, (work, name, chosen) in enumerate(points, start=1):
        say(f"{i} of {len(points)}: {work.model}, {work.participants} of {work.clients} clients, {name}")
        found.append(_apart(work, (name, chosen, rounds, workers), end - time.monotonic()))
    first = next((row["seconds_per_round"] for row in found if "seconds_per_round" in row), None)
    return [row | {"times_first": row["seconds_per_round"] / first if "n" in row else None} for row in found]


def _apart(work: Workload, how: tuple[Any, ...], left: float) -> dict[str, Any]:
    """One point in a process of its own."""
    kind, _, mode = how[0].partition(":")
    named = {each: getattr(work, each) for each in NAMES}
    failed = {**named, "engine": kind, "mode": mode, "method": how[1]}
    if left <= 0:
        return failed | {"status": "not run: out of time"}
    ask = child.python("-m", "fednb.runs.bench.scale", json.dumps([asdict(work), *how]))
    try:
        done = subprocess.run(ask, capture_output=True, text=True, check=False, timeout=min(left, 1e6))
    except subprocess.TimeoutExpired:
        return failed | {"status": "stopped: out of time"}
    if done.returncode:
        return failed | {"status": f"failed: {next(_last(done.stderr), f'exit status {done.returncode}')}"}
    return json.loads(done.stdout.splitlines()[-1])


def _last(text: str) -> Iterator[str]:
    return (line.strip() for line in reversed(text.splitlines()) if line.strip())


if __name__ == "__main__":
    about, *how = json.loads(sys.argv[1])
    print(json.dumps(measured(Workload(**about), *how)))
