"""Grids on several processes of this machine, one run each at a time: for a GPU that one run leaves idle."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection

import torch

from fednb.base.processes.ending import exit_status, saving_signals
from fednb.base.processes.member import Lost, Member, Refused, heard, serve
from fednb.base.progress import bar_of
from fednb.engines import device_of
from fednb.runs.experiment import Run, run
from fednb.study.paper import papers


class JobsFailed(RuntimeError):
    """Runs of a grid that could not be made: one line each."""

    def __init__(self, failed: dict[Job, str]) -> None:
        super().__init__("\n".join(f"{job.grid} {job.cell}: {why}" for job, why in failed.items()))


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
    return [Job(paper, grid, scale, own, i) for i, r in enumerate(runs) if r.entry.unfinished]


def done(job: Job, device: str = "auto") -> Run:
    """Make a job's run."""
    torch.set_num_threads(1)
    grid = papers(job.paper).grid(job.grid, job.scale, None if job.seeds is None else list(job.seeds))
    cell = grid.cells[job.cell]
    engine = "auto" if device_of(device).type == "cuda" else "loop"  # a pool inside a pool would fight for the cores
    return run(cell.setting, cell.method, cell.seed, engine=engine, device=device, probe=grid.probe, progress=False)


def run_all(jobs: list[Job], processes: int, device: str = "auto") -> Iterator[tuple[Job, str]]:
    """Make all runs, `processes` at a time; yields each with its status as it ends. An interrupt loses no round.

    A run that fails does not end the others: JobsFailed names them all when the rest is made. A process that is lost is
    replaced, and its run goes on after its last saved round; a run that loses two has failed.
    """
    failed: dict[Job, str] = {}
    with bar_of(len(jobs), f"{processes} at a time", unit="run") as bar, _staff(min(processes, len(jobs))) as members:
        for job, status, why in _made(jobs, members, device):
            bar.update()
            if why:
                failed[job] = why
            else:
                yield job, status
    if failed:
        raise JobsFailed(failed)


def _made(jobs: list[Job], members: list[Member], device: str) -> Iterator[tuple[Job, str, str]]:
    """Each job when it is over: with its status, or with the reason why it failed."""
    todo, free, busy, lost = jobs[::-1], list(members), dict[Member, Job](), set[Job]()
    while todo or busy:
        while todo and free:
            member = free.pop()
            busy[member] = todo.pop()
            member.send(("make", busy[member], device))
        for member in heard(busy):
            job = busy.pop(member)
            try:
                yield job, member.answer(), ""
            except Refused as error:
                yield job, "", error.reason
            except Lost as error:
                if job in lost:
                    yield job, "", f"its process {member.process.pid} {error}; {error.likely}"
                else:
                    lost.add(job)
                    todo.append(job)
                member = _replaced(members, member)
            free.append(member)


@contextmanager
def _staff(count: int) -> Iterator[list[Member]]:
    """Processes that end with this block; where it is left by an interrupt or an error, as soon as they have saved."""
    members: list[Member] = []
    try:
        for _ in range(count):
            members.append(_hire())
        yield members
    finally:
        for member in members:  # all save at the same time
            member.process.terminate()
        for member in members:
            member.end(signal.SIGTERM)


def _hire() -> Member:
    """A process that makes runs. SIGTERM stops it; what a terminal sends is for this process to decide."""
    return Member("fednb.study.jobs", signal.SIGTERM, (signal.SIGINT, signal.SIGHUP))


def _replaced(members: list[Member], lost: Member) -> Member:
    lost.end()
    fresh = members[members.index(lost)] = _hire()
    return fresh


class Maker:
    """In a process of its own: makes the runs that it is asked for, and answers with their status."""

    def make(self, job: Job, device: str) -> str:
        return done(job, device).status


def make_runs(line: Connection) -> int:
    """Answer messages until the parent hangs up; SIGTERM stops a run in such a way that its last round is saved."""
    try:
        with saving_signals():
            serve(line, Maker())
    except KeyboardInterrupt as error:
        return exit_status(error)
    return 0


if __name__ == "__main__":
    from fednb.study import jobs  # the parent's jobs are of that module, not of this program

    sys.exit(jobs.make_runs(Connection(int(sys.argv[1]))))
