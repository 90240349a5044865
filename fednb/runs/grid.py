"""Settings x methods x seeds: what a table or figure needs, what of it is there, and how to get the rest."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from fednb.base.inputs import shown
from fednb.base.processes.ending import DeviceFailed
from fednb.base.progress import bar_of
from fednb.core.cost import cost
from fednb.core.rounds import Method
from fednb.engines import device_of
from fednb.runs.cells import SCALES as SCALES  # where everybody looks for them
from fednb.runs.cells import BadGrid, Cell, cells_of
from fednb.runs.cluster import dispatch
from fednb.runs.cluster.status import look_at
from fednb.runs.experiment import Run, counting, run, run_of
from fednb.runs.keys import key_of
from fednb.runs.probes import Probe
from fednb.runs.store import DamagedRun, DamagedRuns, Entry
from fednb.runs.together import Wanted, run_all
from fednb.runs.tuning import Trial, choices_of, curves, settled, trials_of

if TYPE_CHECKING:
    import pandas as pd


class NeedsGpu(RuntimeError):
    """A paper-scale grid on a machine without a GPU."""


class NotTuned(RuntimeError):
    """A grid whose tuning runs are not all there, so that the parameters of its own runs are not known."""


@dataclass(frozen=True)
class Grid:
    """All runs of one table or figure at one scale.

    trials: runs that choose parameters for the methods that are tuned. Cells have what was chosen when the grid was
    made, and wait where it was not chosen yet; `settled` looks again.
    """

    name: str
    scale: str
    cells: tuple[Cell, ...]
    probe: Probe | None = None
    trials: tuple[Trial, ...] = ()

    @classmethod
    def of(cls, name: str, scale: str, described: dict[str, Any], seeds: list[int] | None = None) -> Grid:
        """From a grid file's table for one scale: setting, vary, cases, methods, sums, sweep, tune, seeds, probe.

        vary: settings to try, all with all. cases: tables with a `setting` (and methods or vary) of their own, told
        apart by their other entries. methods: names, or tables with `name`, parameters, `label`, `setting`, `scales`
        (those that have it; all without it) and `tune` in place of the grid's. sweep: a parameter and its values, for
        all methods that have it; the others stand beside it once. sums, in place of cases and methods: axes of ideas,
        all with all that make a method (see `fednb.algorithms.catalogue.sums`).

        tune: fields of the setting or parameters of methods, and values of which each method that does not give them
        gets the best, all with all, for all of its runs. tune_where: tags of the settings in which they are tried; all
        without it. tune_seeds: the seeds; the first of the grid's without it. tune_by: the accuracy that counts, on the
        "test" set as set by `report`, or on training data: "held-out" ones in place of the test set, or "validation".
        """
        where = f"grid {name}, {scale}"
        cells = cells_of(where, scale, described, seeds)
        probe = Probe(**described["probe"]) if "probe" in described else None
        return cls(name, scale, cells, probe, trials_of(where, cells, described)).settled()

    def settled(self, kept: Path | None = None) -> Grid:
        """The grid with the parameters that its tuning chose, as far as its trials are finished by now.

        kept: a folder of runs by their keys, which is looked into instead of the store.
        """
        return replace(self, cells=settled(self.cells, self.trials, kept)) if self.trials else self

    def at(self, **changes: Any) -> Grid:
        """The grid with other values in some fields of all settings, in its tuning too."""
        cells = tuple(replace(c, setting=c.setting.but(**changes)) for c in self.cells)
        return replace(self, cells=cells, trials=tuple(trial.at(**changes) for trial in self.trials)).settled()

    @property
    def tuning(self) -> Grid | None:
        """The runs that choose parameters for the methods of this grid; None where nothing is tuned."""
        labels = {c.label for c in self.cells if c.tune}
        cells = tuple(trial.cell for trial in self.trials if trial.cell.label in labels)
        return Grid(f"{self.name} tuning", self.scale, cells) if cells else None

    def tuning_curves(self) -> pd.DataFrame:
        """What each value reached that was tried: a row for each method, parameter and value (column `at`).

        Columns value (accuracy in percent, the mean over n runs, the other parameters at their chosen values), chosen,
        and edge, which is true where the chosen value is the first or last of its list. Methods whose tuning is not
        finished are left out.
        """
        labels = {c.label for c in self.cells if c.tune}
        return curves(choices_of(trial for trial in self.trials if trial.cell.label in labels).values())

    @property
    def waiting(self) -> bool:
        """True if a run of the grid waits for its tuning."""
        return any(c.waits for c in self.cells)

    @property
    def tuned(self) -> str:
        """The chosen parameters of all methods that are tuned, for a caption; an empty text where none is."""
        return "; ".join(dict.fromkeys(f"{c.label}: {c.tuned}" for c in self.cells if c.tuned))

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

    def finished(self) -> Grid:
        """The part of the grid whose runs the store has; it may be empty."""
        there = (not r.entry.unfinished for r in self.runs())
        return replace(self, cells=tuple(c for c, known in zip(self.cells, there, strict=True) if known))

    def runs(self) -> list[Run]:
        """The runs of the cells; one that waits for its tuning has a key that no run in the store has."""
        return [_run_of(c, self.probe) for c in self.cells]

    def status(self, on: str = "", watch: bool = False) -> pd.DataFrame:
        """One row per run: what it is, and how far it has come. Runs that tune come first.

        on: the address of a Dask scheduler, or its file: the columns `where` and `why` say which worker is at a run,
        and why one failed. watch: renew what is shown until nothing is running or missing.
        """
        if on:
            return look_at(lambda: self.settled().status(), on, watch)
        import pandas as pd

        rows = [
            {**c.tags, "method": c.label, "seed": c.seed, **_standing(c, r), "key": r.key}
            for c, r in zip(self.cells, self.runs(), strict=True)
        ]
        if self.tuning is None:
            return pd.DataFrame(rows)
        table = pd.DataFrame(rows).assign(tuned=[c.tuned for c in self.cells])
        return pd.concat([self.tuning.status().assign(tuned="is tried"), table], ignore_index=True)

    def run(self, device: str = "auto", engine: str = "auto", workers: int | None = None, on: str = "") -> Results:
        """Run what is missing, with one progress bar, on a GPU several at a time; finished runs come from the store.

        Damaged runs are named at the end, when all others are made. What is tuned is tuned first. on: the address of a
        Dask scheduler, such as "tcp://10.0.0.1:8786", or its file; what is missing is made there.
        """
        if self.waiting:
            return self._run_tuned(device, engine, workers, on)
        if on:
            return self._run_on(on, device, engine)
        if self.needs_gpu(device):
            raise NeedsGpu(
                f"{self.name} at paper scale is {len(self.cells)} runs of {self.cells[0].setting.rounds} rounds and "
                f"this machine has no GPU. Use scale='laptop', or device='cpu' in fp32 to run it here all the same."
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

    def needs_gpu(self, device: str = "auto") -> bool:
        """True if runs at paper scale are missing, on a machine without a GPU that was not told to use its CPU."""
        return self.scale == "paper" and device == "auto" and not torch.cuda.is_available() and not self._finished()

    def _run_on(self, on: str, device: str, engine: str) -> Results:
        """Make what is missing on a cluster; RunsFailed names those that failed when all others are made."""
        wanted, failed = [Wanted(c.setting, c.method, c.seed, self.probe) for c in self.cells], {}
        with bar_of(len(wanted), f"{self.name} on {on}", unit="run") as bar:
            gpu = self.scale == "paper" and device == "auto"
            for i, made in dispatch.run_all(wanted, on, device=device, engine=engine, needs_gpu=gpu):
                bar.update()
                if isinstance(made, Exception):
                    failed[i] = f"{self.cells[i].label}, seed {self.cells[i].seed}: {made}"
        if failed:
            raise dispatch.RunsFailed(f"{len(failed)} runs failed, all others are made: {'; '.join(failed.values())}")
        return Results(self, tuple(self.runs()))

    def _run_tuned(self, device: str, engine: str, workers: int | None, on: str) -> Results:
        """Run the tuning, then the grid with the parameters that it chose."""
        if self.tuning is not None:
            self.tuning.run(device, engine, workers, on)
        ready = self.settled()
        if ready.waiting:
            raise NotTuned(f"{self.name} at {self.scale} scale: its tuning is not finished")
        return ready.run(device, engine, workers, on)

    def _make_together(self, device: str, engine: str) -> None:
        """Make what is missing several at a time; a run that fails is left for those who make it by itself."""
        missing = [Wanted(c.setting, c.method, c.seed, self.probe)
                   for c, r in zip(self.cells, self.runs(), strict=True) if r.entry.unfinished]  # fmt: skip
        with bar_of(sum(each.setting.rounds for each in missing), self.name) as bar:
            for _, made in run_all(missing, device=device, engine=engine, on_round=lambda at, row: bar.update()):
                if isinstance(made, DeviceFailed):
                    raise made

    def _finished(self) -> bool:
        return not any(r.entry.unfinished for r in self.runs())


def _run_of(c: Cell, probe: Probe | None) -> Run:
    """The run of a cell, whether or not it has been started."""
    found = run_of(c.setting, c.method, c.seed, probe)
    return replace(found, entry=Entry.of(key_of([found.key, c.label, "waits"]))) if c.waits else found


def _standing(c: Cell, r: Run) -> dict[str, str]:
    """How far a run has come."""
    if c.waits:
        return {"status": "waits for tuning", "rounds": f"0/{c.setting.rounds}"}
    try:
        return {"status": r.status, "rounds": f"{r.rounds_done}/{c.setting.rounds}"}
    except DamagedRun:
        return {"status": "damaged", "rounds": f"?/{c.setting.rounds}"}


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
        """One row per run: tags, seed, accuracy in percent, what `Run.summary` has, what the method costs, and `tuned`.

        tuned: the parameters that were chosen by tuning, in words; an empty text where none was.
        """
        import pandas as pd

        rows = [
            {**c.tags, "seed": c.seed, "accuracy": r.accuracy, **r.summary(), "accuracy_last_ten": r.accuracy_last_ten,
             **_costs(c.method), "method": c.label, "tuned": c.tuned}
            for c, r in self
        ]  # fmt: skip
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
