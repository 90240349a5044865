"""Tables made: all runs in this process with their progress, or on several processes of this machine, one run each."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import inf
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Lock
from typing import Any

import torch

from fednb.base.inputs import one_line
from fednb.base.processes.ending import exit_status, saving_signals
from fednb.base.processes.member import Lost, Member, Refused, heard, serve
from fednb.base.progress import Bar, bar_of, duration
from fednb.engines import device_of
from fednb.runs import together
from fednb.runs.cluster import dispatch
from fednb.runs.cluster.connection import checked
from fednb.runs.experiment import Run, run, run_of
from fednb.runs.grid import Grid
from fednb.runs.own_grid import FILE, grid_of_file
from fednb.runs.together import Wanted
from fednb.study.paper import papers
from fednb.study.plan import rounds_of
from fednb.study.selection import Selection


class JobsFailed(RuntimeError):
    """Runs of a grid that could not be made: a line for each reason."""

    def __init__(self, failed: dict[Job, str]) -> None:
        super().__init__("\n".join(reasons((job.name, why) for job, why in failed.items())))


def reasons(failed: Iterable[tuple[str, str]]) -> list[str]:
    """A line for each reason for which runs failed, with the first run that did and how many more.

    >>> reasons([("run 1", "disk full"), ("run 2", "diverged"), ("run 3", "disk full")])
    ['run 1 and 1 more: disk full', 'run 2: diverged']
    """
    names: dict[str, list[str]] = {}
    for name, why in failed:
        names.setdefault(one_line(why), []).append(name)
    return [f"{first}{f' and {len(more)} more' * bool(more)}: {why}" for why, (first, *more) in names.items()]


@dataclass(frozen=True)
class Job:
    """One cell of a grid, or of its tuning; paper: the paper's id, or the path of a file with a grid of one's own."""

    paper: str
    grid: str
    scale: str
    seeds: tuple[int, ...] | None
    cell: int
    precision: str | None = None
    tuning: bool = False

    @property
    def name(self) -> str:
        """The run for people: its grid, and its number there."""
        return f"{self.grid} {'tuning ' * self.tuning}{self.cell}"


def jobs_of(
    paper: str,
    grid: str,
    scale: str,
    seeds: list[int] | None = None,
    chosen: Selection | None = None,
    tuning: bool = False,
) -> list[Job]:
    """The runs of a grid, or of the part of it that is chosen, that can be made and are not finished.

    paper: its id, or the path of a TOML file with a grid of one's own. tuning: the runs of its tuning instead; as long
    as some of them are missing, other runs may not be known.
    """
    chosen = chosen or Selection(seeds)
    whole = whole_grid(paper, grid, scale, chosen)
    own = None if chosen.seeds is None else tuple(chosen.seeds)
    cells = chosen.tuning_cells(whole) if tuning else chosen.cells(whole)
    source = (whole.tuning or whole) if tuning else whole
    runs = source.runs()
    return [Job(paper, grid, scale, own, i, chosen.precision, tuning) for i in cells
            if runs[i].entry.unfinished and not source.cells[i].waits]  # fmt: skip


def whole_grid(paper: str, grid: str, scale: str, chosen: Selection) -> Grid:
    """All cells of a paper's grid, or of a file's, with the chosen seeds and precision; `paper` is an id or a path."""
    if not paper.endswith(FILE):
        return chosen.whole(papers(paper), grid, scale)
    found = grid_of_file(Path(paper), scale, chosen.seeds)
    return found if chosen.precision is None else found.at(precision=chosen.precision)


def done(job: Job, device: str = "auto") -> Run:
    """Make a job's run."""
    torch.set_num_threads(1)
    chosen = Selection(None if job.seeds is None else list(job.seeds), precision=job.precision)
    grid = whole_grid(job.paper, job.grid, job.scale, chosen)
    grid = grid.tuning or grid if job.tuning else grid
    cell = grid.cells[job.cell]
    engine = "auto" if device_of(device).type == "cuda" else "loop"  # a pool inside a pool would fight for the cores
    return run(cell.setting, cell.method, cell.seed, engine=engine, device=device, probe=grid.probe, progress=False)


def follow(
    wanted: Sequence[Wanted], names: Sequence[str], what: str, *, device: str = "auto", until: float | None = None,
    on: str = "", needs_gpu: bool = False, at_once: int | None = None,
) -> Iterator[tuple[int, Run | Exception]]:  # fmt: skip
    """Make runs in this process and give each with its number as it ends, or the error that ended it.

    On a terminal a bar says how many runs are done, running and missing, and how long the rest will take; elsewhere
    there is one line for each run, with its name. until: a `time.monotonic()` after which no further round is begun.
    on: the address of a Dask scheduler, or its file; the runs are made there. needs_gpu: there by workers with a GPU.
    at_once: how many runs train at the same time here; as many as the device favours, if None.
    """
    if on:
        checked(on)  # said also where no run is missing
    if not wanted:
        return
    watched = sys.stderr.isatty()
    with bar_of(sum(each.setting.rounds for each in wanted), what, show=watched) as bar:
        table = Progress(bar, wanted, until)
        if on:
            made = dispatch.run_all(wanted, on, device=device, needs_gpu=needs_gpu, until=until, on_round=table.round)
        else:
            made = together.run_all(wanted, device=device, until=until, on_round=table.round, at_once=at_once)
        for i, run in made:
            table.ended(i)
            if not watched:
                print(f"{table.done} of {len(wanted)} {names[i]}: {_outcome(run)}{table.time_left}", flush=True)
            yield i, run


class Progress:
    """How far the runs of a table are: rounds on a bar, and which runs are done, running and missing.

    Runs that are made at the same time may tell it their rounds from threads of their own.
    """

    def __init__(self, bar: Bar, wanted: Sequence[Wanted], until: float | None = None) -> None:
        self.bar, self.until, self.lock = bar, until, Lock()
        self.rounds = [each.setting.rounds for each in wanted]
        runs = [run_of(each.setting, each.method, each.seed, each.probe) for each in wanted]
        self.seen = [rounds_of(run) for run in runs]
        self.running: set[int] = set()
        self.done = 0
        bar.update(sum(self.seen), before=True)
        self._say()

    def round(self, i: int, row: dict[str, Any]) -> None:
        """Run i has finished a round, or had it finished before."""
        now = min(row["round"] + 1, self.rounds[i])
        with self.lock:
            if now > self.seen[i]:
                self.bar.update(now - self.seen[i])
                self.seen[i] = now
            if i not in self.running:
                self.running.add(i)
                self._say()

    def ended(self, i: int) -> None:
        """Run i is over; rounds that it did not make, since it diverged or failed, are no work any more."""
        with self.lock:
            self.running.discard(i)
            self.done += 1
            self.bar.expect((self.bar.total or 0) - self.rounds[i] + self.seen[i])
            self._say()

    def _say(self) -> None:
        missing = len(self.rounds) - self.done - len(self.running)
        self.bar.say(f"runs: {self.done} done, {len(self.running)} running, {missing} missing")

    @property
    def time_left(self) -> str:
        """How long the rest will take, in words; nothing where that is not known, or where there is no rest."""
        end = inf if self.until is None else max(0.0, self.until - time.monotonic())
        return f"; about {duration(min(self.bar.left, end))} left" if self.bar.left else ""


def _outcome(run: Run | Exception) -> str:
    """A run that is over, in a few words."""
    if isinstance(run, Exception):
        return f"failed, {one_line(str(run)) or type(run).__name__}"
    return run.status + (f", accuracy {run.accuracy:.2f}%" if run.accuracy is not None else "")


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
