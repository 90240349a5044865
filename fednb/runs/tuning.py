"""Tuning: the runs that try values for methods' parameters, the values that they choose, and the curves they make."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from math import inf, nan
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fednb.base.checks import is_number
from fednb.base.inputs import shown
from fednb.runs.cells import MOST_RUNS, SHARED, BadGrid, Cell
from fednb.runs.experiment import run_of
from fednb.runs.store import DamagedRun, Entry

if TYPE_CHECKING:
    import pandas as pd

HELD_OUT = 0.1  # of the training data, where values are not chosen on the test set and the setting does not say


@dataclass(frozen=True)
class Trial:
    """One run that tries values for a method's parameters; by: the accuracy that counts, one of `RULES`."""

    cell: Cell
    values: dict[str, Any]
    by: str

    def at(self, **changes: Any) -> Trial:
        """This trial with other values in some fields of its setting."""
        return replace(self, cell=replace(self.cell, setting=self.cell.setting.but(**changes)))


def trials_of(where: str, cells: tuple[Cell, ...], described: dict[str, Any]) -> tuple[Trial, ...]:
    """The runs that choose the values of a grid's tuned methods: all values with all, in the settings of `tune_where`.

    described: the grid's description, whose own first seed is tried where it has no `tune_seeds`.
    """
    if idle := [name for name in described.get("tune", {}) if not any(name in cell.tune for cell in cells)]:
        raise BadGrid(f"{where}: no method has a {shown(idle[0])} that could be tuned, or it is given")
    tuned = [cell for cell in cells if cell.tune and cell.seed == cells[0].seed]
    chosen = [cell for cell in tuned if _fits(cell.tags, described.get("tune_where", {}))]
    if lost := {cell.label for cell in tuned} - {cell.label for cell in chosen}:
        raise BadGrid(f"{where}: `tune_where` leaves no setting to tune {shown(min(lost))} in")
    lists = {cell.label: cell.tune for cell in tuned}
    if mixed := [cell.label for cell in tuned if cell.tune != lists[cell.label]]:
        raise BadGrid(f"{where}: {shown(mixed[0])} is tuned in two ways; a label has one")
    by, seeds = described.get("tune_by", "test"), described.get("tune_seeds", described.get("seeds", [0])[:1])
    if (total := sum(np.prod([len(v) for v in c.tune.values()]) for c in chosen) * len(seeds)) > MOST_RUNS:
        raise BadGrid(f"{where}: {shown(int(total))} runs to tune it; a grid has at most {MOST_RUNS}")
    return tuple(_trial(cell, dict(zip(cell.tune, values, strict=True)), seed, by)
                 for cell in chosen for values in product(*cell.tune.values()) for seed in seeds)  # fmt: skip


def _fits(tags: dict[str, Any], where: dict[str, Any]) -> bool:
    return all(tags.get(name) in (v if isinstance(v, list) else [v]) for name, v in where.items())


def _trial(cell: Cell, values: dict[str, Any], seed: int, by: str) -> Trial:
    made = with_values(replace(cell, seed=seed, tags=cell.tags | values), values)
    trial = Trial(made, values, by)
    if by == "validation":
        return trial.at(validation=cell.setting.validation or HELD_OUT)
    return trial.at(held_out=HELD_OUT) if by == "held-out" else trial


def with_values(cell: Cell, values: dict[str, Any]) -> Cell:
    """The cell with these values in its setting, or in its method where the setting has no such field."""
    shared = {name: value for name, value in values.items() if name in SHARED}
    own = {name: value for name, value in values.items() if name not in SHARED}
    return replace(cell, setting=cell.setting.but(**shared), method=cell.method.but(**own))


@dataclass(frozen=True)
class Choice:
    """What tuning found for one method.

    tried: the list of each parameter. reached: the accuracy, in percent, of each combination of values, in the order of
    the parameters: the mean over `n` runs, which are settings and seeds. by: on which data.
    """

    label: str
    tried: dict[str, list[Any]]
    reached: dict[tuple[Any, ...], float]
    n: int
    by: str

    @cached_property
    def values(self) -> dict[str, Any]:
        """The combination with the highest accuracy, the first of several; one that is not a number is behind all."""
        best = max(self.reached, key=lambda values: self.reached[values] if self.reached[values] > -inf else -inf)
        return dict(zip(self.tried, best, strict=True))

    @property
    def all_diverged(self) -> bool:
        """True if no combination of values has an accuracy: then the first stands for all."""
        return not any(accuracy > -inf for accuracy in self.reached.values())

    def at_edge(self, name: str) -> bool:
        """True if a parameter's chosen value is the least or the largest of its list, so that the best may lie beyond.

        Values that are no numbers have no order, and no edge.
        """
        tried = self.tried[name]
        return not self.all_diverged and all(map(is_number, tried)) and self.values[name] in (min(tried), max(tried))

    @property
    def words(self) -> str:
        """The choice as a text: "lr 0.05 of 0.01, 0.05, 0.1 by test"."""
        said = ", ".join(f"{name} {self.values[name]} of {', '.join(map(str, tried))}"
                         for name, tried in self.tried.items())  # fmt: skip
        if self.all_diverged:
            return f"{said} by {self.by}; all diverged"
        edges = [name for name in self.tried if self.at_edge(name)]
        return f"{said} by {self.by}" + (f"; {' and '.join(edges)} at the edge" if edges else "")

    def rows(self) -> list[dict[str, Any]]:
        """One row for each value of each parameter, the others being at their chosen values."""
        return [
            {"method": self.label, "parameter": name, "at": value, "seed": "all", "measure": "accuracy in tuning",
             "value": self.reached[tuple((self.values | {name: value}).values())], "n": self.n,
             "chosen": value == self.values[name], "edge": value == self.values[name] and self.at_edge(name)}
            for name, tried in self.tried.items() for value in tried
        ]  # fmt: skip


def choices_of(trials: Iterable[Trial], kept: Path | None = None) -> dict[str, Choice]:
    """By label, what was chosen for each method of which all trials are finished.

    kept: a folder of runs by their keys, which is looked into instead of the store.
    """
    by_label: dict[str, list[Trial]] = {}
    for trial in trials:
        by_label.setdefault(trial.cell.label, []).append(trial)
    return {label: choice for label, mine in by_label.items() if (choice := _choice(label, mine, kept))}


def _choice(label: str, trials: list[Trial], kept: Path | None) -> Choice | None:
    """The choice for one method; None where a trial is missing, or cannot be read."""
    seen: dict[tuple[Any, ...], list[float]] = {}
    for trial in trials:
        run = run_of(trial.cell.setting, trial.cell.method, trial.cell.seed)
        if kept is not None:
            run = replace(run, entry=Entry(run.key, kept / run.key))
        try:
            if run.entry.unfinished:
                return None
            accuracy = run.validation_accuracy if trial.by == "validation" else run.accuracy
        except DamagedRun:
            return None
        seen.setdefault(tuple(trial.values.values()), []).append(nan if accuracy is None else accuracy)
    means = {values: float(np.mean(each)) for values, each in seen.items()}
    return Choice(label, trials[0].cell.tune, means, len(trials) // len(means), trials[0].by)


def settled(cells: tuple[Cell, ...], trials: tuple[Trial, ...], kept: Path | None = None) -> tuple[Cell, ...]:
    """The cells with the values that tuning chose; those whose tuning is not finished wait. kept: see `choices_of`."""
    found = choices_of(trials, kept)
    return tuple(_settled(cell, found.get(cell.label)) if cell.tune else cell for cell in cells)


def _settled(cell: Cell, choice: Choice | None) -> Cell:
    if choice is None:
        return replace(cell, tuned="", waits=True)
    return replace(with_values(cell, choice.values), tuned=choice.words, waits=False)


def curves(choices: Iterable[Choice]) -> pd.DataFrame:
    """Tuning curves as a tidy table: method, parameter, at (a value of it), value (the accuracy), n, chosen, edge."""
    import pandas as pd

    heads = ["method", "parameter", "at", "seed", "measure", "value", "n", "chosen", "edge"]
    return pd.DataFrame([row for choice in choices for row in choice.rows()], columns=heads)
