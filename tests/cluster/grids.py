"""Small grids, a client in a thread that makes them on a cluster, and the weights that one process gives them."""

from __future__ import annotations

import os
import threading
from collections import Counter

import torch
from small_grid import SETTING

from fednb.runs.cluster.dispatch import run_all
from fednb.runs.experiment import run
from fednb.runs.grid import Grid
from fednb.runs.store import Entry, home
from fednb.runs.together import Wanted


def grid_of(methods, seeds, rounds=6, **changes) -> Grid:
    described = dict(setting=SETTING | dict(rounds=rounds) | changes, methods=methods, seeds=seeds)
    return Grid.of("small", "smoke", described)


def wanted(grid: Grid) -> list[Wanted]:
    return [Wanted(cell.setting, cell.method, cell.seed) for cell in grid.cells]


def keys(grid: Grid) -> list[str]:
    return [run.key for run in grid.runs()]


class Asking(threading.Thread):
    """A client in a thread: what it was given, and the lines that it said."""

    def __init__(self, grid: Grid, on: str) -> None:
        super().__init__(daemon=True)
        self.grid, self.on = grid, on
        self.ended: list[tuple[int, object]] = []
        self.said: list[str] = []
        self.error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            for each in run_all(wanted(self.grid), self.on, device="cpu", say=self.said.append):
                self.ended.append(each)
        except BaseException as error:
            self.error = error

    def all(self, patience: float = 120) -> list[object]:
        """What became of each run, in the grid's order; each was given once."""
        self.join(patience)
        assert not self.is_alive(), f"not done: {self.ended}, {self.said}"
        assert self.error is None, self.error
        assert Counter(i for i, _ in self.ended) == Counter(range(len(self.grid.cells)))
        return [made for _, made in sorted(self.ended, key=lambda each: each[0])]


def weights(grid: Grid) -> list[str]:
    """The digests of the models in the store, each read and checked."""
    for run_ in grid.runs():
        run_.entry.load_state()
    return [run_.entry.weights_sha256() for run_ in grid.runs()]


def weights_of_one_process(grid: Grid, monkeypatch, folder) -> list[str]:
    """The digests of the models when all runs are made in this process, in a store of their own."""
    torch.set_num_threads(1)
    with monkeypatch.context() as patch:
        patch.setenv("FEDNB_STORE", str(folder / "alone"))
        for each in wanted(grid):
            run(each.setting, each.method, each.seed, device="cpu", engine="loop", progress=False)
        return weights(grid)


def assert_free(grid: Grid) -> None:
    """No process holds the lock of a run of the grid, and no client or worker has left anything in the store."""
    for key in keys(grid):
        with Entry.of(key).lock(wait=False):
            pass
    assert [name for name in os.listdir(home() / "cluster") if name != "failed"] == []
