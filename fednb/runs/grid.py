"""Settings x methods x seeds: what a table or figure needs, what of it is there, and how to get the rest."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any

import torch

from fednb.algorithms.catalogue import method, sums
from fednb.base.checks import MOST_SEED, is_number, is_text, is_whole
from fednb.base.inputs import shown
from fednb.base.progress import bar_of
from fednb.core.cost import cost
from fednb.core.rounds import Method
from fednb.data.sources import title
from fednb.engines import device_of
from fednb.engines.setting import Setting
from fednb.runs.experiment import Run, counting, run, run_of
from fednb.runs.probes import Probe
from fednb.runs.store import DamagedRun, DamagedRuns
from fednb.runs.together import Wanted, run_all

if TYPE_CHECKING:
    import pandas as pd

SCALES = ("smoke", "laptop", "paper")


class BadGrid(ValueError):
    """A grid that cannot be made from what was given."""


class NeedsGpu(RuntimeError):
    """A paper-scale grid on a machine without a GPU."""


@dataclass(frozen=True)
class Cell:
    """One run of a grid, and the values that tell it from the others.

    label: the name that the paper's table has for the method.
    """

    setting: Setting
    method: Method
    seed: int
    tags: dict[str, Any]
    label: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "label", self.label or self.method.name)


@dataclass(frozen=True)
class Grid:
    """All runs of one table or figure at one scale."""

    name: str
    scale: str
    cells: tuple[Cell, ...]
    probe: Probe | None = None

    @classmethod
    def of(cls, name: str, scale: str, described: dict[str, Any], seeds: list[int] | None = None) -> Grid:
        """From a grid file's table for one scale: setting, vary, cases, methods, sums, sweep, seeds, probe.

        vary: settings to try, all with all. cases: tables with a `setting` (and methods or vary) of their own, told
        apart by their other entries. methods: names, or tables with `name`, parameters, `label` and `setting`. sweep: a
        parameter and its values, for all methods that have it; the others stand beside it once. sums, in place of cases
        and methods: axes of ideas, all with all that make a method (see `fednb.algorithms.catalogue.sums`).
        """
        where = f"grid {name}, {scale}"
        _check(where, described)
        described = _summed(described)
        _count(where, described, seeds or described.get("seeds", [0]))
        base = Setting().but(**described.get("setting", {}))
        cells = tuple(
            cell
            for case in described.get("cases", [{}])
            for cell in _cells(base, described | case, _own_tags(case), seeds or described.get("seeds", [0]))
        )
        probe = Probe(**described["probe"]) if "probe" in described else None
        return cls(name, scale, cells, probe)

    def only(self, chosen: dict[str, list[Any]] | None) -> Grid:
        """The part of the grid whose tags (and labels, as "method") are among the chosen ones."""
        if not chosen:
            return self
        cells = tuple(
            c for c in self.cells if all((c.tags | {"method": c.label}).get(k) in v for k, v in chosen.items())
        )
        if not cells:
            raise BadGrid(f"grid {self.name}, {self.scale}: no run fits {shown(chosen)}")
        return replace(self, cells=cells)

    def runs(self) -> list[Run]:
        return [run_of(c.setting, c.method, c.seed, self.probe) for c in self.cells]

    def status(self) -> pd.DataFrame:
        """One row per run: what it is, and how far it has come."""
        import pandas as pd

        rows = [
            {**c.tags, "method": c.label, "seed": c.seed, **_standing(c, r), "key": r.key}
            for c, r in zip(self.cells, self.runs(), strict=True)
        ]
        return pd.DataFrame(rows)

    def run(self, device: str = "auto", engine: str = "auto", workers: int | None = None) -> Results:
        """Run what is missing, with one progress bar, on a GPU several at a time; finished runs come from the store.

        Damaged runs are named at the end, when all others are made.
        """
        if self.scale == "paper" and device == "auto" and not torch.cuda.is_available() and not self._finished():
            raise NeedsGpu(
                f"{self.name} at paper scale is {len(self.cells)} runs of {self.cells[0].setting.rounds} rounds and "
                f"this machine has no GPU. Use scale='laptop', or device='cpu' to run it here all the same."
            )
        if device_of(device).type == "cuda":
            self._make_together(device, engine)
        total = sum(c.setting.rounds for c in self.cells)
        done, damaged = [], []
        with bar_of(total, self.name) as bar:
            for c, known in zip(self.cells, self.runs(), strict=True):
                bar.say(f"{c.label}, {', '.join(f'{k} {v}' for k, v in c.tags.items())}")
                start, there = bar.n, not known.entry.unfinished
                try:
                    done.append(
                        run(c.setting, c.method, c.seed, engine=engine, device=device, workers=workers,
                            probe=self.probe, progress=counting(bar, known))
                    )  # fmt: skip
                except DamagedRun as error:
                    damaged.append(error)
                bar.update(start + c.setting.rounds - bar.n, before=there)
        if damaged:
            raise DamagedRuns(damaged)
        return Results(self, tuple(done))

    def _make_together(self, device: str, engine: str) -> None:
        """Make what is missing several at a time; a run that fails is left for those who make it by itself."""
        missing = [Wanted(c.setting, c.method, c.seed, self.probe)
                   for c, r in zip(self.cells, self.runs(), strict=True) if r.entry.unfinished]  # fmt: skip
        with bar_of(sum(each.setting.rounds for each in missing), self.name) as bar:
            for _ in run_all(missing, device=device, engine=engine, on_round=lambda at, row: bar.update()):
                pass

    def _finished(self) -> bool:
        return not any(r.entry.unfinished for r in self.runs())


def _standing(c: Cell, r: Run) -> dict[str, str]:
    """How far a run has come."""
    try:
        return {"status": r.status, "rounds": f"{len(r.rows)}/{c.setting.rounds}"}
    except DamagedRun:
        return {"status": "damaged", "rounds": f"?/{c.setting.rounds}"}


PROBE = tuple(f.name for f in fields(Probe))


def _lists(value: Any) -> bool:
    return all(isinstance(each, list) and each for each in value.values())


def _is_method(value: Any) -> bool:
    """A name; or a table with a name, where label and setting are what they should be."""
    if isinstance(value, str):
        return True
    named = isinstance(value.get("name"), str | Method) and isinstance(value.get("label", ""), str)
    return named and isinstance(value.get("setting", {}), dict)


FORMS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "setting": ("a table of settings", lambda v: isinstance(v, dict)),
    "vary": ("a table of lists, none of them empty", _lists),
    "cases": ("a list of tables", lambda v: isinstance(v, list) and all(isinstance(case, dict) for case in v)),
    "methods": ("a list of names, or of tables with a name", lambda v: isinstance(v, list) and all(map(_is_method, v))),
    "sweep": ("a table of lists, none of them empty", _lists),
    "seeds": ("a list of whole numbers of at least 0",
              lambda v: isinstance(v, list) and len(v) > 0 and all(is_whole(seed, 0, MOST_SEED) for seed in v)),
    "probe": (f"a table of {', '.join(PROBE)}", lambda v: isinstance(v, dict) and set(v) <= set(PROBE)),
    "sums": ("a table of tables of texts",
             lambda v: all(isinstance(text, str) for axis in v.values() for text in axis.values())),
}  # fmt: skip
KNOWN = tuple(name for name in FORMS if name != "sums")  # sums become cases
MOST_RUNS = 100_000


def _check(where: str, described: dict[str, Any]) -> None:
    """Refuse a description that is not of the form that `Grid.of` tells, before anything is made of it."""
    if unknown := [entry for entry in described if entry not in FORMS]:
        raise BadGrid(f"{where}: unknown entry {shown(unknown[0])}; known are {', '.join(FORMS)}")
    for entry, value in described.items():
        _fit(where, entry, value)
    for number, case in enumerate(described.get("cases", []), 1):
        for entry, value in case.items():
            if entry in KNOWN:
                _fit(f"{where}, case {number}", entry, value)
            elif not (isinstance(value, bool) or is_number(value) or is_text(value)):
                raise BadGrid(f"{where}, case {number}: {shown(entry)} = {shown(value)} must be a text or a number")
    for case in described.get("cases", [{}]):
        if "sums" not in described and not (case.get("methods") or described.get("methods")):
            raise BadGrid(f"{where}: `methods` must be a list of names")


def _fit(where: str, entry: str, value: Any) -> None:
    allowed, test = FORMS[entry]
    try:
        fine = test(value)
    except (AttributeError, TypeError):
        fine = False
    if not fine:
        raise BadGrid(f"{where}: `{entry}` must be {allowed}, not {shown(value)}")


def _count(where: str, described: dict[str, Any], seeds: list[int]) -> None:
    """Refuse a grid with more runs than anybody can want, before they are made."""
    total = 0
    for case in described.get("cases", [{}]):
        own = described | case
        lists = [*own.get("vary", {}).values(), *own.get("sweep", {}).values(), own["methods"], seeds]
        total += prod(map(len, lists))
    if total > MOST_RUNS:
        raise BadGrid(f"{where}: {shown(total)} runs; a grid has at most {MOST_RUNS}")


def _summed(described: dict[str, Any]) -> dict[str, Any]:
    """Sums written out: a case for each, told apart by the names of its ideas."""
    if "sums" not in described:
        return described
    if (total := prod(map(len, described["sums"].values()))) > MOST_RUNS:
        raise BadGrid(f"`sums` make {shown(total)} methods; a grid has at most {MOST_RUNS} runs")
    cases = [{**names, "methods": [{"name": m}]} for names, m in sums(described["sums"]) if isinstance(m, Method)]
    return {entry: value for entry, value in described.items() if entry != "sums"} | {"cases": cases}


def _own_tags(case: dict[str, Any]) -> dict[str, Any]:
    return {tag: value for tag, value in case.items() if tag not in KNOWN}


def _cells(base: Setting, described: dict[str, Any], tags: dict[str, Any], seeds: list[int]) -> Iterator[Cell]:
    """The runs of one case: its settings times its methods times the seeds."""
    base, vary = base.but(**described.get("setting", {})), described.get("vary", {})
    settings = [base.but(**dict(zip(vary, values, strict=True))) for values in product(*vary.values())]
    for setting in settings:
        for label, m, own, swept in _methods(described["methods"], described.get("sweep", {})):
            found = {"dataset": title(setting.data), **tags, **_tags(setting, vary, settings), **swept}
            yield from (Cell(setting.but(**own), m, seed, found, label) for seed in seeds)


def _methods(
    listed: list[Any], sweep: dict[str, list[Any]]
) -> Iterator[tuple[str, Method, dict[str, Any], dict[str, Any]]]:
    """Each method with its label, its own settings and the values of the sweep that it stands for."""
    for entry in listed:
        about: dict[str, Any] = {"name": entry} if isinstance(entry, str) else dict(entry)
        label, own = about.pop("label", ""), about.pop("setting", {})
        made = method(**about)
        names = [name for name in sweep if name in made.parameters() and name not in about]
        for values in product(*(sweep[name] for name in names)):
            swept = dict(zip(names, values, strict=True))
            yield label or made.name, made.but(**swept), own, swept


def _tags(setting: Setting, vary: dict[str, Any], settings: list[Setting]) -> dict[str, Any]:
    """The values that vary. Partitions of one kind are told apart by alpha, others by their text."""
    tags = {name: getattr(setting, name) for name in vary}
    if "partition" in tags:
        alpha = getattr(setting.partition, "alpha", None) if len({type(s.partition) for s in settings}) == 1 else None
        tags.pop("partition")
        tags |= {"partition": str(setting.partition)} if alpha is None else {"alpha": alpha}
    return tags


@dataclass(frozen=True)
class Results:
    """The finished runs of a grid, in its order."""

    grid: Grid
    runs: tuple[Run, ...]

    def __iter__(self) -> Iterator[tuple[Cell, Run]]:
        return iter(zip(self.grid.cells, self.runs, strict=True))

    @property
    def probe(self) -> Probe:
        if self.grid.probe is None:
            raise BadGrid(f"grid {self.grid.name} keeps nothing from its rounds; give it a probe")
        return self.grid.probe

    def table(self) -> pd.DataFrame:
        """One row per run: tags, seed, accuracy in percent, what `Run.summary` has, and what the method costs."""
        import pandas as pd

        rows = [
            {**c.tags, "seed": c.seed, "accuracy": r.accuracy, **r.summary(), **_costs(c.method), "method": c.label}
            for c, r in self
        ]
        return pd.DataFrame(rows)


def _costs(m: Method) -> dict[str, float]:
    """Gradients per step, numbers down and up and kept by each client, all per parameter of the model."""
    seen = cost(m)
    return {"passes_per_step": seen.passes, "down": seen.down, "up": seen.up, "kept_per_client": seen.kept}


def histories(runs: dict[str, Run], by: str = "run") -> pd.DataFrame:
    """All rounds of some runs, one below another; the column `by` has their names.

    >>> setting = fn.Setting(samples=100, clients=4, rounds=2, epochs=1, batch=25)
    >>> runs = {name: fn.run(setting, name, progress=False) for name in ("FedAvg", "FedSAM")}
    >>> fn.histories(runs, by="method")[["method", "round"]]
       method  round
    0  FedAvg      0
    1  FedAvg      1
    2  FedSAM      0
    3  FedSAM      1
    """
    import pandas as pd

    return pd.concat([run.history.assign(**{by: name}, seed=run.seed) for name, run in runs.items()], ignore_index=True)
