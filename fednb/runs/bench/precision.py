"""One experiment in every precision, on real data: the same clients, batches and first model, seed by seed."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean, stdev
from typing import Any

import torch

from fednb.core.rounds import Method
from fednb.engines.setting import Setting
from fednb.runs.bench.workload import Say
from fednb.runs.experiment import Run, run

LAST = 3  # rounds whose accuracy is averaged: one round's jumps about under skew
ON = {"cpu": ("fp64", "fp32"), "cuda": ("fp32", "tf32", "bf16")}  # where each can be had, the most exact first
HEADS = {
    "precision": "precision", "n": "n", "accuracy": "accuracy", "std": "std", "difference": "against first",
    "difference_std": "std", "loss": "training loss", "seconds_per_round": "s/round", "status": "",
}  # fmt: skip


def rows(
    settings: Sequence[Setting], method: Method, seeds: Sequence[int], engine: str, device: str,
    say: Say = lambda text: None,
) -> list[dict[str, Any]]:  # fmt: skip
    """One row for each setting; differences are those of each seed from the first setting, then their mean."""
    out: list[dict[str, Any]] = []
    for setting in settings:
        runs = []
        for seed in seeds:
            say(f"{setting.precision}, seed {seed}")
            runs.append(run(setting, method, seed, engine=engine, device=device, progress=False))
        out.append(row(setting.precision, runs, out[0]["accuracies"] if out else None))
    return out


def row(precision: str, runs: Sequence[Run], first: Sequence[float | None] | None) -> dict[str, Any]:
    """What the seeds of one precision came to, beside the first precision's."""
    seen = [settled(each) for each in runs]
    there = [x for x in seen if x is not None]
    apart = [x - y for x, y in zip(seen, first or (), strict=first is not None) if x is not None and y is not None]
    return {
        "precision": precision,
        "n": len(there),
        "accuracy": mean(there) if there else None,
        "std": _std(there),
        "difference": mean(apart) if apart else None,
        "difference_std": _std(apart),
        "accuracies": seen,
        "loss": mean(each.rows[-1]["train_loss"] for each in runs),
        "seconds_per_round": mean(each.summary()["seconds_per_round"] for each in runs),
        "status": ", ".join(sorted({each.status for each in runs} - {"finished"})),
    }


def settled(finished: Run) -> float | None:
    """The mean accuracy of the last rounds; nothing where the run diverged."""
    return None if finished.accuracy_last is None else mean(finished.accuracies[-LAST:])


def usual(device: str) -> Sequence[str]:
    return ON[torch.device(device).type]


def _std(x: Sequence[float]) -> float | None:
    return stdev(x) if len(x) > 1 else None
