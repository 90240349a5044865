"""Grids on several processes of this machine, one run each at a time: for a GPU that one run leaves idle."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from fednb.engines import device_of
from fednb.experiment import Run, run
from fednb.paper import papers
from fednb.progress import bar_of


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
    with bar_of(len(jobs), f"{processes} at a time", unit="run") as bar, _pool(processes) as pool:
        with _deaf():
            waiting = {pool.submit(_stoppable, job, device): job for job in jobs}
        for future in as_completed(waiting):
            bar.update()
            yield waiting[future], future.result().status


@contextmanager
def _pool(processes: int) -> Iterator[ProcessPoolExecutor]:
    """Processes that end with this block; where it is left by an interrupt or an error, as soon as they have saved."""
    pool = ProcessPoolExecutor(processes, mp_context=multiprocessing.get_context("spawn"), initializer=_listen)
    try:
        yield pool
    except BaseException:
        for process in list((pool._processes or {}).values()):
            process.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


@contextmanager
def _deaf() -> Iterator[None]:
    """Processes started in here never hear Ctrl-C: this one does, and decides what it means. It is not lost, but late.

    A terminal sends the signal to all of them, also to one that is still loading its modules.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class _Stopped(SystemExit):
    """The parent wants this process to end, or has ended itself."""


def _listen() -> None:
    """In a process of the pool: let SIGTERM stop a run in such a way that it saves its last finished round."""
    signal.signal(signal.SIGTERM, _stop)
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    os.kill(os.getpid(), signal.SIGTERM)


def _stop(*_: Any) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # once is enough: the next would fall into the saving
    raise _Stopped


def _stoppable(job: Job, device: str) -> Run:
    try:
        return done(job, device)
    except _Stopped:
        os._exit(1)  # not to the pool, which would take the next job
