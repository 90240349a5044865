"""Grids on several processes of this machine, one run each at a time: for a GPU that one run leaves idle."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass

import torch

from fednb.engines import device_of
from fednb.experiment import Run, bar_of, run
from fednb.paper import papers


@dataclass(frozen=True)
class Job:
    """One cell of a paper's grid."""

    paper: str
    grid: str
    scale: str
    seeds: tuple[int, ...] | None
    cell: int


def jobs_of(paper: str, grid: str, scale: str, seeds: list[int] | None = None) -> list[Job]:
    """The runs of a grid that are not finished."""
    runs = papers(paper).grid(grid, scale, seeds).runs()
    own = None if seeds is None else tuple(seeds)
    return [Job(paper, grid, scale, own, i) for i, r in enumerate(runs) if not r.entry.ended]


def done(job: Job, device: str = "auto") -> Run:
    """Make a job's run."""
    torch.set_num_threads(1)
    grid = papers(job.paper).grid(job.grid, job.scale, None if job.seeds is None else list(job.seeds))
    cell = grid.cells[job.cell]
    engine = "auto" if device_of(device).type == "cuda" else "loop"  # a pool inside a pool would fight for the cores
    return run(cell.setting, cell.method, cell.seed, engine=engine, device=device, probe=grid.probe, progress=False)


def run_all(jobs: list[Job], processes: int, device: str = "auto") -> Iterator[tuple[Job, str]]:
    """Make all runs, `processes` at a time; yields each with its status as it ends. An interrupt loses no round."""
    with bar_of(len(jobs), f"{processes} at a time") as bar, _pool(processes) as pool:
        waiting = {pool.submit(done, job, device): job for job in jobs}
        try:
            for future in as_completed(waiting):
                bar.update()
                yield waiting[future], future.result().status
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _pool(processes: int) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(processes, mp_context=multiprocessing.get_context("spawn"))
