"""The loss on a plane around a stored run's last model: computed once, row by row, and kept beside the run."""

from __future__ import annotations

from dataclasses import dataclass
from math import nan
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor

from fednb.base.codetext import describe
from fednb.base.files import new_folder, save_tensors
from fednb.data import sources
from fednb.engines.objective import one_thread
from fednb.metrics.landscape import line, random_direction, steps
from fednb.metrics.sample import sample_of
from fednb.runs.keys import key_of
from fednb.runs.store import load_measurement, writing
from fednb.show.explore.stored import OnDisk, on_disk
from fednb.show.explore.waiting import Tick

if TYPE_CHECKING:
    from pathlib import Path

    from fednb.runs.experiment import Run


@dataclass(frozen=True)
class Finished(OnDisk):
    """A finished run of the store."""

    ended: str

    @property
    def kin(self) -> tuple[str, str]:
        """Data and model: runs that share them can be compared point by point."""
        return self.setting.data, self.setting.model

    @property
    def short(self) -> str:
        return f"{self.method}, run {self.key[:6]}"

    @property
    def long(self) -> str:
        """What tells it from its kin, the most telling first: a list that is closed shows no more."""
        s = self.setting
        return f"{self.method} {self.key[:6]}, seed {self.seed}, {s.partition}, {s.clients} clients, {s.rounds} rounds"


def finished() -> list[Finished]:
    """Every finished run whose data is on this machine, the newest first."""
    here = [
        Finished(r.entry, r.setting, r.method, r.seed, about.get("ended", ""))
        for r, about in on_disk("run.json")
        if about["status"] == "finished" and sources.available(r.setting.data)
    ]
    return sorted(here, key=lambda each: (each.ended, each.key), reverse=True)


@dataclass(frozen=True)
class Plane:
    """Where to look: L(w + a d + b e) for a, b from −radius to radius, d and e drawn by `seed`, on some test samples.

    The directions are random and filter-normalised: the same draw for all models of one shape.
    """

    seed: int = 0
    radius: float = 1.0
    points: int = 13
    samples: int = 200

    @property
    def axis(self) -> Tensor:
        return steps(self.radius, self.points)

    def file(self, run: Finished) -> Path:
        return run.entry.folder / "landscapes" / f"{key_of(['plane', describe(self)])}.safetensors"

    def load(self, run: Finished) -> tuple[Tensor, int]:
        """The losses `[a, b]` as far as they are known, and how many rows are."""
        shape = self.points, self.points
        if known := load_measurement(run.entry, self.file(run), {"plane": repr(self)}, {"losses": shape}):
            return known[0]["losses"], int(known[1]["rows"])
        return torch.full(shape, nan, dtype=torch.float64), 0

    def known(self, run: Finished) -> bool:
        return self.load(run)[1] == self.points

    def losses(self, run: Finished, tick: Tick = lambda: None, device: str = "auto") -> Tensor:
        """All of them, `[a, b]`. `tick` is called after each row; what it raises ends the work, and rows are kept."""
        losses, rows = self.load(run)
        if rows == self.points:
            return losses
        try:
            for at, row in self._rows(run, rows, device):
                losses[at], rows = row, at + 1
                tick()
        finally:
            self._save(run, losses, rows)
        return losses

    def _rows(self, run: Finished, start: int, device: str) -> Any:
        """The rows from `start` on, one after another."""
        with one_thread():
            sample = sample_of(cast("Run", run), self.samples, device=device)
            w = sample.place(run.entry.weights()["w"])
            d, e = (random_direction(w, sample.objective.layout, seed=2 * self.seed + i) for i in (0, 1))
        for at in range(start, self.points):
            with one_thread():
                row = line(sample, w + float(self.axis[at]) * d, e, self.axis)
            yield at, row

    def _save(self, run: Finished, losses: Tensor, rows: int) -> None:
        about = {"key": run.key, "rows": str(rows), "plane": repr(self)}
        with run.entry.lock(), writing(run.entry.folder):  # two processes may look at the same run
            new_folder(self.file(run).parent)
            save_tensors(self.file(run), {"losses": losses}, about)
