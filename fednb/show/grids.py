"""Grids of one's own: methods compared with seeds, as a table, LaTeX and a picture; values tuned for them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fednb.base.checks import is_number
from fednb.base.files import atomically
from fednb.base.inputs import shown
from fednb.base.streams import whole_seeds
from fednb.engines.setting import Setting
from fednb.metrics.tidy import run_columns
from fednb.runs.cells import RULES, SHARED, BadGrid, Cell
from fednb.runs.experiment import Run
from fednb.runs.grid import Grid
from fednb.runs.own_grid import Methods, Values, fields_of, listed, made_grid, methods_and_tune
from fednb.runs.probes import Probe
from fednb.runs.tuning import Choice, choices_of, curves
from fednb.study.standings import LEVEL, as_latex, settings_of, standings

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

MEASURES: dict[str, Callable[[Run], float | None]] = {
    "accuracy": lambda run: run.accuracy,
    "best on test": lambda run: run.accuracy_best,
    "last": lambda run: run.accuracy_last,
    "last ten": lambda run: run.accuracy_last_ten,
    "validation": lambda run: run.validation_accuracy,
}


class NotRun(RuntimeError):
    """A table of a grid whose runs are not all there."""


@dataclass(frozen=True)
class Comparison:
    """Methods compared in some settings with some seeds, as `fn.grid` makes it. Tables and figures need `run` first."""

    grid: Grid

    def run(self, device: str = "auto", engine: str = "auto", workers: int | None = None, on: str = "") -> Comparison:
        """Make what is missing, what is tuned first, and give the comparison back; finished runs come from the store.

        A tuned value at the end of its list is said on stderr: the best may lie beyond it. on: the address of a Dask
        scheduler, such as "tcp://10.0.0.1:8786", or its file; what is missing is made there.
        """
        self.grid.run(device, engine, workers, on)
        done = Comparison(self.grid.settled())
        _warn(done.choices.values())
        return done

    def status(self, on: str = "", watch: bool = False) -> pd.DataFrame:
        """One row per run: what it is, and how far it has come; on and watch are those of `Grid.status`."""
        return self.grid.settled().status(on, watch)

    @property
    def choices(self) -> dict[str, Choice]:
        """By method, the values that tuning chose, where it is finished."""
        return choices_of(self.grid.trials)

    def runs(self) -> list[Run]:
        """The finished runs in the grid's order; NotRun where some are missing."""
        return [run for _, run in self._finished()]

    def scores(self, measure: str = "accuracy") -> pd.DataFrame:
        """One row per run, tidy: what varies, method, seed, key, tuned, measure and value, in percent.

        measure: "accuracy" is what the setting reports; "best on test", "last", "last ten" and "validation" are others;
        so is a metric of the setting, after the last round, whose values are as its function gives them.
        """
        import pandas as pd

        extra = dict.fromkeys(name for cell in self.grid.cells for name in cell.setting.metrics)
        if measure not in (*MEASURES, *extra):
            raise ValueError(f"measure = {shown(measure)}: must be one of {', '.join((*MEASURES, *extra))}")
        value = MEASURES[measure] if measure in MEASURES else lambda run: run.measured(measure)
        rows = [{**run_columns(cell, run), "measure": measure, "value": value(run)} for cell, run in self._finished()]
        return pd.DataFrame(rows).astype({"value": float})

    def table(self, base: str = "", measure: str = "accuracy", level: float = LEVEL) -> pd.DataFrame:
        """One row per setting and method: mean, std, low and high (the interval of the mean), n, diverged.

        base: a method; gain, gain_low and gain_high are what the others gain over it, paired by seed. level: of the
        intervals. measure: see `scores`. A method with a run that diverged has no mean.
        """
        return standings(self.scores(measure), base, level)

    def to_csv(self, file: str | Path, base: str = "", measure: str = "accuracy", level: float = LEVEL) -> Path:
        """Write `table` to a CSV file; gives its path."""
        return _written(file, self.table(base, measure, level).to_csv())

    def to_latex(
        self, file: str | Path = "", measure: str = "accuracy", level: float = LEVEL, digits: int = 2,
        lowest: bool = False,
    ) -> str:  # fmt: skip
        """The table for a paper, and in a file where one is named: methods down, settings across, the best in bold.

        Bold is also whoever is not told apart from the best: the interval of the differences, seed by seed, has 0 in
        it. lowest: the best is the lowest, as of a calibration error. Needs the LaTeX package booktabs.
        """
        text = as_latex(self.scores(measure), level, lowest, digits)
        if file:
            _written(file, text)
        return text

    def plot(self, what: str = "scores", base: str = "", measure: str = "accuracy", level: float = LEVEL) -> Figure:
        """A figure: "scores" or "gains" over `base` with intervals, "curves" by round, or "tuning"."""
        from fednb.show import plots

        if what == "tuning":
            return _tuning_figure(self.choices.values())
        if what == "curves":
            return plots.curves(self.histories(), ylabel="test accuracy, percent", panel=tuple(self._varied()))
        if what not in ("scores", "gains") or (what == "gains" and not base):
            raise ValueError(f"plot {shown(what)}: must be scores, curves, tuning, or gains with a base")
        return plots.intervals(self.table(base, measure, level), over=base if what == "gains" else "", label=measure)

    def histories(self) -> pd.DataFrame:
        """All rounds of all runs, one below another, with what varies, method and seed."""
        import pandas as pd

        return pd.concat([run.history.assign(**run_columns(c, run)) for c, run in self._finished()], ignore_index=True)

    def _varied(self) -> list[str]:
        return settings_of(self.scores())

    def _finished(self) -> list[tuple[Cell, Run]]:
        ready = self.grid.settled()
        runs = ready.runs()
        if missing := [run for run in runs if run.entry.unfinished]:
            raise NotRun(f"{ready.name}: {len(missing)} of {len(runs)} runs are missing; `.run()` makes them")
        return list(zip(ready.cells, runs, strict=True))


def grid(
    setting: Setting | Mapping[str, Any],
    methods: Methods,
    vary: Mapping[str, Sequence[Any]] | None = None,
    seeds: int | Sequence[int] = 3,
    tune: Values | None = None,
    *,
    tune_by: str = "validation",
    probe: Probe | None = None,
    name: str = "grid",
) -> Comparison:
    """Methods compared in one setting or several, with several seeds each.

    methods: names, `Method` objects, parts, functions without arguments that return one of these, or a dictionary from
    labels to them. vary: fields of the setting or parameters of methods, and the values to try, all with all. seeds: a
    list, or how many. tune: values of which each method gets the best for all of its runs; tune_by: by the accuracy on
    "validation" data, on "held-out" ones or on the "test" set (see `fn.tune`).

    >>> setting = fn.Setting(samples=200, clients=4, rounds=2, epochs=1, batch=25)
    >>> grid = fn.grid(setting, ["FedAvg", fn.method("FedSAM", rho=0.05)], seeds=2).run()
    >>> grid.table(base="FedAvg")[["n", "diverged"]]
            n  diverged
    method
    FedAvg  2         0
    FedSAM  2         0
    >>> print(grid.to_latex().splitlines()[1])
    \\begin{tabular}{lc}
    """
    vary = {name: listed(values) for name, values in dict(vary or {}).items()}
    if wrong := [k for k, v in vary.items() if isinstance(v, str) or not isinstance(v, Sequence) or not v]:
        raise BadGrid(f"{name}: vary {wrong[0]} = {shown(vary[wrong[0]])}: must be a list of values")
    described: dict[str, Any] = {
        "setting": fields_of(setting),
        **methods_and_tune(methods, tune),
        "vary": {k: list(v) for k, v in vary.items() if k in SHARED},
        "sweep": {k: list(v) for k, v in vary.items() if k not in SHARED},
        "seeds": whole_seeds(range(seeds) if isinstance(seeds, int) else list(seeds)),
        "tune_by": tune_by,
    }
    made = made_grid(name, described, probe)
    swept = {tag for cell in made.cells for tag in cell.tags}
    if idle := [k for k in described["sweep"] if k not in swept]:
        raise BadGrid(f"{name}: vary {shown(idle[0])}: neither a field of the setting nor a parameter of a method")
    return Comparison(made)


@dataclass(frozen=True)
class Tuning:
    """Values tried for parameters of some methods, as many for each; `fn.tune` makes it."""

    grid: Grid

    def run(self, device: str = "auto", engine: str = "auto", workers: int | None = None, on: str = "") -> Tuning:
        """Make the runs that are missing and give the tuning back; what is chosen at an end is said on stderr.

        on: the address of a Dask scheduler, or its file; what is missing is made there.
        """
        if self.grid.tuning is not None:
            self.grid.tuning.run(device, engine, workers, on)
        _warn(self.choices.values())
        return self

    @property
    def choices(self) -> dict[str, Choice]:
        """By method, what was tried, what it reached and what was chosen, where all its runs are finished."""
        return choices_of(self.grid.trials)

    @property
    def best(self) -> dict[str, dict[str, Any]]:
        """By method, the chosen values; NotRun where runs are missing."""
        found = {label: choice.values for label, choice in self.choices.items()}
        if lacking := {cell.label for cell in self.grid.cells} - set(found):
            raise NotRun(f"the tuning of {', '.join(sorted(lacking))} is not finished; `.run()` makes its runs")
        return found

    @property
    def methods(self) -> dict[str, dict[str, Any]]:
        """The methods with their chosen values, for `fn.grid(setting, tuning.methods)`."""
        best, cells = self.best, {cell.label: cell for cell in self.grid.cells}
        return {label: {"name": cells[label].method.but(**{k: v for k, v in values.items() if k not in SHARED}),
                        "setting": {k: v for k, v in values.items() if k in SHARED}}
                for label, values in best.items()}  # fmt: skip

    def at_edge(self) -> dict[str, list[str]]:
        """By method, the parameters whose chosen value is the least or largest of those tried: try further."""
        found = {label: [name for name in each.tried if each.at_edge(name)] for label, each in self.choices.items()}
        return {label: names for label, names in found.items() if names}

    def table(self) -> pd.DataFrame:
        """The tuning curves: a row for each method, parameter and value (column `at`): value, n, chosen, edge."""
        return self.grid.tuning_curves()

    def plot(self) -> Figure:
        """The tuning curves: the accuracy of each method against each parameter, the others at their chosen values."""
        return _tuning_figure(self.choices.values())


def tune(
    methods: Methods,
    values: Values,
    setting: Setting | Mapping[str, Any] | None = None,
    *,
    by: str = "validation",
    seeds: int | Sequence[int] = 1,
    name: str = "tuning",
) -> Tuning:
    """Try values for fields of the setting and for parameters of methods, all with all, as many for each method.

    values: such as {"lr": [0.03, 0.1, 0.3]}, or by method: {"FedAvg": {"lr": [...]}, "FedSAM": {"rho": [...]}}. by: the
    accuracy that counts, on "validation" data (a tenth of the training data where the setting does not say), or on the
    "test" set. setting: that of all methods; fn.Setting() without it. seeds: over which the accuracy is averaged.

    >>> setting = fn.Setting(samples=200, clients=1, partition="iid", rounds=1, epochs=5, validation=0.4)
    >>> tuning = fn.tune(["FedAvg", "FedProx"], {"lr": [0.0001, 0.1, 100.0]}, setting).run()
    >>> tuning.best, tuning.at_edge()
    ({'FedAvg': {'lr': 0.1}, 'FedProx': {'lr': 0.1}}, {})
    >>> fn.grid(setting, tuning.methods, seeds=1).status()["status"].tolist()      # the trials that were chosen
    ['finished', 'finished']
    """
    if by not in RULES:
        raise BadGrid(f"{name}: by = {shown(by)}: must be one of {', '.join(RULES)}")
    known = whole_seeds(range(seeds) if isinstance(seeds, int) else list(seeds))
    described = {"setting": fields_of(setting or Setting()), **methods_and_tune(methods, values), "seeds": known[:1],
                 "tune_by": by, "tune_seeds": known}  # fmt: skip
    made = made_grid(name, described)
    if not made.trials:
        raise BadGrid(f'{name}: nothing to try; say what, such as {{"lr": [0.03, 0.1, 0.3]}}')
    if idle := [cell.label for cell in made.cells if not cell.tune]:
        raise BadGrid(f"{name}: nothing to try for {idle[0]}; leave it out, or give values by method: "
                      f"{{{idle[0]!r}: {{...}}, ...}}")  # fmt: skip
    return Tuning(made)


def _warn(choices: Iterable[Choice]) -> None:
    for choice in choices:
        if choice.all_diverged:
            tried = ", ".join(f"{name} {shown(values)}" for name, values in choice.tried.items())
            print(f"fednb: {choice.label}: every run diverged that tried {tried}; try others", file=sys.stderr)
        for name in (name for name in choice.tried if choice.at_edge(name)):
            print(f"fednb: {choice.label}: {name} = {choice.values[name]} is at the end of what was tried; "
                  f"the best may lie beyond", file=sys.stderr)  # fmt: skip


def _tuning_figure(choices: Iterable[Choice]) -> Figure:
    from fednb.show import plots

    table = curves(choices)
    if not len(table):
        raise NotRun("nothing is tuned, or its runs are missing; `.run()` makes them")
    names, ylabel = list(dict.fromkeys(table["parameter"])), "accuracy in tuning, percent"
    wide = all(is_number(value) and value > 0 for value in table["at"]) and max(table["at"]) >= 10 * min(table["at"])
    xlabel = names[0] if len(names) == 1 else "value tried"
    return plots.sweep(table, x="at", panel="parameter", xlabel=xlabel, ylabel=ylabel, log=wide)


def _written(file: str | Path, text: str) -> Path:
    path = Path(file)
    try:
        atomically(path, text)
    except OSError as error:
        raise ValueError(f"{path}: cannot be written ({error.strerror or error})") from error
    return path
