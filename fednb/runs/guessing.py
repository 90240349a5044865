"""Runs that never got beyond guessing: their training loss stays where every class is as likely as every other."""

from __future__ import annotations

from math import log
from typing import TYPE_CHECKING

from fednb.data.sources import find
from fednb.runs.result import Run

if TYPE_CHECKING:
    from fednb.runs.grid import Results

BELOW = 0.98  # of the loss of guessing: who never gets there has learned nothing
FEW = 10  # rounds after which nobody needs to have learned anything


def only_guesses(run: Run) -> bool:
    """True if a run of several rounds never trained to a loss clearly below that of guessing, the logarithm of classes.

    >>> setting = fn.Setting(samples=100, clients=4, rounds=12, epochs=1, batch=25, lr=1e-6)
    >>> fn.runs.guessing.only_guesses(fn.run(setting, "FedAvg", progress=False))
    True
    """
    classes = find(run.setting.data).classes
    losses = [row["train_loss"] for row in run.rows if row.get("train_loss") is not None]
    if len(losses) <= FEW or classes < 2 or run.setting.loss != "cross-entropy":
        return False
    return min(losses) >= BELOW * log(classes)


def told(results: Results) -> list[str]:
    """A line for each method and setting with runs that only guess: which seeds these are."""
    seeds: dict[tuple[str, ...], list[int]] = {}
    counts: dict[tuple[str, ...], int] = {}
    for cell, run in results:
        what = (cell.label, *(f"{name} {value}" for name, value in cell.tags.items()))
        counts[what] = counts.get(what, 0) + 1
        if only_guesses(run):
            seeds.setdefault(what, []).append(cell.seed)
    return [f"{', '.join(what)}: {len(stuck)} of {counts[what]} seeds ({', '.join(map(str, stuck))}) learned nothing, "
            "their training loss never fell below that of guessing; look at each seed, not at the mean."
            for what, stuck in seeds.items()]  # fmt: skip
