"""What can be decided in the time one has: the runs that each claim lacks, what they cost, and in which order."""

from __future__ import annotations

import os
import shlex
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from math import inf
from typing import TYPE_CHECKING, Any

from fednb.base.progress import duration
from fednb.data.sources import available
from fednb.metrics.tidy import REPORTS, is_control
from fednb.runs.experiment import Run
from fednb.runs.grid import Cell, Grid
from fednb.runs.store import StoreError
from fednb.runs.together import Wanted
from fednb.study.claims import Claim
from fednb.study.claims.claim import WEIGHTS
from fednb.study.columns import in_columns
from fednb.study.paper import Paper, run_folders
from fednb.study.selection import Selection
from fednb.study.times import Times, device_name

if TYPE_CHECKING:
    import pandas as pd

HEADS = {"paper": ("paper", 14), "section": ("section", 12), "claims": ("decides", 25), "done": ("done", 4),
         "missing": ("missing", 7), "minutes": ("minutes", 7), "sum": ("sum", 7),
         "how": ("seconds are", 10)}  # fmt: skip  # heads and widths, together 100 letters

BY_RUN = {"accuracy": "accuracy", **dict.fromkeys(REPORTS.values(), "accuracy_reports")}  # measure: its measurement


@dataclass(frozen=True)
class Task:
    """A run that is missing: what it is, and what the rest of it takes.

    start: seconds before the first round, which runs of one kind share. waits: True if its parameters are chosen by
    tuning runs that come before it, so that it cannot be made yet.
    """

    key: str
    name: str
    wanted: Wanted
    kind: tuple[Any, ...]
    seconds: float
    start: float
    measured: bool
    source: str
    waits: bool = False


@dataclass(frozen=True)
class Need:
    """A claim, and the keys of the runs that decide it; `never` says why none on this machine can."""

    claim: Claim
    paper: str
    keys: frozenset[str] = frozenset()
    never: str = ""

    @property
    def section(self) -> str:
        return self.claim.section


@dataclass(frozen=True)
class Step:
    """Claims of one section that are decided together, by the runs that are made for them in this step.

    done: how many runs that they need are there by then. within: True if it ends in the time that was given.
    """

    paper: str
    section: str
    claims: tuple[Claim, ...]
    tasks: tuple[Task, ...]
    done: int
    seconds: float
    until: float
    within: bool

    def row(self) -> dict[str, Any]:
        """The step as a line of the plan's table."""
        claims = ", ".join(f"{c.id} ({c.weight})" for c in self.claims)
        return {"paper": self.paper, "section": self.section, "claims": claims, "done": self.done,
                "missing": len(self.tasks), "minutes": round(self.seconds / 60, 1), "sum": round(self.until / 60, 1),
                "how": _how(self.tasks), "in_time": self.within}  # fmt: skip


@dataclass(frozen=True)
class Plan:
    """Steps in the order in which they decide most, on one device; and the claims that nothing here can decide."""

    device: str
    steps: tuple[Step, ...]
    undecidable: tuple[Need, ...]
    seconds: float = inf

    @property
    def tasks(self) -> list[Task]:
        """The missing runs that can be made now, in order; those that wait for tuning are in a plan made after it."""
        return [task for step in self.steps for task in step.tasks if not task.waits]

    def table(self) -> pd.DataFrame:
        """One row per step; column in_time says which end in the time that was given."""
        import pandas as pd

        return pd.DataFrame([step.row() for step in self.steps], columns=[*HEADS, "in_time"])

    def __str__(self) -> str:
        within = [step for step in self.steps if step.within]
        lines = [in_columns([step.row() for step in within], HEADS)] if within else ["nothing can be decided"]
        return "\n".join([*lines, "", *self._sources(), *self._kept(), *self._undecided()])

    def _sources(self) -> list[str]:
        """Which device it is for, and where estimated seconds come from."""
        guessed = dict.fromkeys(task.source for task in self.tasks if not task.measured)
        more = f"; estimated seconds are scaled from {', '.join(guessed)}" if guessed else ""
        return [f"on one {self.device}{more}"]

    def _kept(self) -> list[str]:
        """How many of its runs came with the papers, and what brings them."""
        keys = {task.key for task in self.tasks}
        places = Counter(run.parent for run in run_folders() if run.name in keys)
        return [f"kept, {n} of these runs: `fednb store import {shlex.quote(str(path))}`" for path, n in places.items()]

    def _undecided(self) -> list[str]:
        """What stays undecided, counted by weight, and why."""
        late = [claim for step in self.steps if not step.within for claim in step.claims]
        lines = []
        if late:
            rest = sum(step.seconds for step in self.steps if not step.within)
            first = next(step for step in self.steps if not step.within)
            lines = [f"stays undecided after {duration(self.seconds)}: {_counted(late)}; {duration(rest)} more, "
                     f"next {first.paper} {first.section} with {duration(first.seconds)}"]  # fmt: skip
        for why in dict.fromkeys(need.never for need in self.undecidable):
            lines.append(f"cannot be decided here, {why}: "
                         f"{_counted([need.claim for need in self.undecidable if need.never == why])}")  # fmt: skip
        return lines or ["nothing stays undecided"]


def planned(
    papers: Iterable[Paper],
    scale: str,
    seconds: float = inf,
    device: str = "auto",
    chosen: Selection | None = None,
    section: str | None = None,
    claims: Collection[str] = (),
) -> Plan:
    """The plan for the claims of some papers, or of one section, at one scale, in so many seconds on a device.

    claims: the ids of those that are asked for; all if empty.
    """
    chosen = chosen or Selection()
    found = sections(papers, scale, chosen, section, claims)
    name = device_name(device, scale)
    times = Times(name, run_folders())
    tasks: dict[str, Task] = {}
    for task in (task for each in found for task in _missing(each, times)):
        tasks.setdefault(task.key, task)
    return ordered(name, [need for each in found for need in each.needs], tasks, seconds)


@dataclass(frozen=True)
class Section:
    """A section of a paper at one scale: its claims with what they need, and the wanted runs of its grid."""

    paper: Paper
    name: str
    needs: tuple[Need, ...]
    grid: Grid | None = None
    runs: tuple[Run, ...] = ()


def sections(
    papers: Iterable[Paper], scale: str, chosen: Selection, section: str | None = None, ids: Collection[str] = ()
) -> list[Section]:
    """The sections that have claims, paper by paper; section: this one only, ids: these claims only.

    BadGrid where nothing fits in any.
    """
    out: list[Section] = []
    grids: list[Grid] = []
    for paper in papers:
        claims = paper.claims(section)
        for name in [section] if section else paper.about["sections"]:
            if own := [claim for claim in claims if claim.section == name and (claim.id in ids or not ids)]:
                whole = chosen.whole(paper, name, scale) if has_grid(paper, name) else None
                out.append(_section(paper, name, own, whole, chosen))
                grids += [whole] if whole else []
    chosen.check(grids)
    return out


def _section(paper: Paper, name: str, claims: list[Claim], whole: Grid | None, chosen: Selection) -> Section:
    if whole is None:
        return Section(paper, name, tuple(Need(claim, paper.id) for claim in claims))
    grid = replace(whole, cells=tuple(whole.cells[i] for i in chosen.cells(whole)))
    if not grid.cells:
        never = f"no run fits {chosen}"
        return Section(paper, name, tuple(Need(claim, paper.id, never=never) for claim in claims))
    runs, evidence = tuple(grid.runs()), paper.evidence(name)
    keys = [run.key for run in runs]
    tuning = _tuning_keys(grid)
    found = [(claim, needed(claim, grid, evidence)) for claim in claims]
    needs = [_need(paper, claim, grid, cells, {keys[i] for i in cells} | {key for i in cells for key in tuning[i]})
             for claim, cells in found]  # fmt: skip
    return Section(paper, name, tuple(needs), grid, runs)


def _tuning_keys(grid: Grid) -> list[set[str]]:
    """For each cell of a grid the keys of the tuning runs that it waits for."""
    found: dict[str, set[str]] = {}
    if grid.waiting and grid.tuning is not None:
        for cell, run in zip(grid.tuning.cells, grid.tuning.runs(), strict=True):
            found.setdefault(cell.label, set()).add(run.key)
    return [found.get(cell.label, set()) if cell.waits else set() for cell in grid.cells]


def needed(claim: Claim, grid: Grid, evidence: Collection[str]) -> list[int]:
    """The cells of a section's grid that a claim is about; all of them where that cannot be told.

    Accuracies are measured run by run, so the settings and methods that the claim names are enough; a name that no cell
    has may stand for several methods, and then all count but our controls, which no sentence of a paper is about. Other
    measurements may look at any run of the grid.
    """
    if any(BY_RUN.get(measure) not in evidence for measure in claim.measures):
        return list(range(len(grid.cells)))
    labels = [cell.label for cell in grid.cells]
    named, fits = {*claim.left, *claim.right}, _about(claim, grid, set(labels))
    if claim.rule_kind.of_all or not named or not named <= set(labels):
        return [i for i in fits if labels[i] in named or not is_control(labels[i])]
    return [i for i in fits if labels[i] in named]


def _about(claim: Claim, grid: Grid, labels: set[str]) -> list[int]:
    """The cells that fit all that a claim's `where` names, as rows of a table: one without a value does not fit.

    What no cell is told apart by is a column of its evidence alone.
    """
    rows = [{"method": cell.label, **cell.tags} for cell in grid.cells]
    told = {name for row in rows for name in row}
    several = {name: value if isinstance(value, list) else [value] for name, value in claim.where.items()}
    asked = {name: values for name, values in several.items() if name in told}
    if not set(asked.get("method", ())) <= labels:
        del asked["method"]
    return [i for i, row in enumerate(rows) if all(row.get(name) in values for name, values in asked.items())]


def _need(paper: Paper, claim: Claim, grid: Grid, cells: list[int], keys: set[str]) -> Need:
    offline = os.environ.get("FEDNB_OFFLINE", "") not in ("", "0")
    data = dict.fromkeys(grid.cells[i].setting.data for i in cells)
    absent = [name for name in data if offline and not available(name)]
    never = f"{' and '.join(absent)} not here" if absent else "" if cells else "no run of this scale is about it"
    return Need(claim, paper.id, frozenset(keys), never)


def has_grid(paper: Paper, section: str) -> bool:
    """False for a section whose evidence needs no runs."""
    return bool(paper.about["sections"].get(section, {}).get("grid", True))


def name_of(grid: Grid, cell: Cell) -> str:
    """A run of a grid for people: the grid, the method, the values that tell it from others."""
    return ", ".join([f"{grid.name} {cell.label}", *(f"{tag} {value}" for tag, value in cell.tags.items()),
                      f"seed {cell.seed}"])  # fmt: skip


def _missing(section: Section, times: Times) -> list[Task]:
    """The runs of a section that are not finished, each with what is left of it."""
    if section.grid is None:
        return []
    first = section.grid.tuning if section.grid.waiting else None
    several = [(first, cell, run) for cell, run in zip(first.cells, first.runs(), strict=True)] if first else []
    several += [(section.grid, cell, run) for cell, run in zip(section.grid.cells, section.runs, strict=True)]
    return [_task(grid, cell, run, times) for grid, cell, run in several if run.entry.unfinished]


def _task(grid: Grid, cell: Cell, run: Run, times: Times) -> Task:
    setting = run.setting
    takes = times.of(setting, cell.method)
    return Task(
        run.key, name_of(grid, cell), Wanted(cell.setting, cell.method, cell.seed, grid.probe),
        (setting.model, setting.data, setting.precision, setting.batch, cell.method),
        (setting.rounds - rounds_of(run)) * takes.round, takes.start, takes.measured, takes.source, cell.waits,
    )  # fmt: skip


def rounds_of(run: Run) -> int:
    """How many rounds of a run are saved; none where they cannot be read."""
    try:
        return sum(not row.get("tuned") for row in run.rows)
    except StoreError:
        return 0


def ordered(device: str, needs: list[Need], tasks: dict[str, Task], seconds: float = inf) -> Plan:
    """The plan that decides the most headline claims soonest, then those of the tables, then details.

    What needs no further run comes first. Then, of the claims of the highest weight that fit in what is left of the
    time, those that decide most of their weight per second, with what is there by then. When none fits any more, the
    others follow in the same manner.
    """
    having = Having({key for need in needs for key in need.keys} - set(tasks), tasks)
    left = [need for need in needs if not need.never]
    steps: list[Step] = []
    limit = seconds
    while left:
        best = _next(left, having, limit)
        if best is None:
            limit = inf
            continue
        steps += _steps(best, left, having, limit < inf or seconds == inf)
        left = [need for need in left if not need.keys <= having.keys]
    return Plan(device, tuple(steps), tuple(need for need in needs if need.never), seconds)


class Having:
    """The runs that are there at some moment of a plan, and the seconds that it took to make them."""

    def __init__(self, keys: set[str], tasks: dict[str, Task]) -> None:
        self.keys, self.tasks, self.kinds, self.spent = keys, tasks, set[Any](), 0.0

    def cost(self, keys: Iterable[str]) -> float:
        """Seconds that these runs would take now: what is left of each, and one start for each new kind."""
        lacking = [self.tasks[key] for key in keys if key not in self.keys]
        starts = {task.kind: task.start for task in lacking if task.kind not in self.kinds}
        return sum(task.seconds for task in lacking) + sum(starts.values())

    def make(self, keys: Iterable[str]) -> list[Task]:
        """Make the runs that are lacking among these; gives them in the order of their grids."""
        lacking = {key for key in keys if key not in self.keys}
        self.spent += self.cost(lacking)
        made = [task for key, task in self.tasks.items() if key in lacking]
        self.keys = self.keys | lacking
        self.kinds |= {task.kind for task in made}
        return made


def _next(left: list[Need], having: Having, limit: float) -> Need | None:
    """The claim to be decided next, at once where it needs nothing more; None where none fits in the time."""
    if there := [need for need in left if need.keys <= having.keys]:
        return there[0]
    costs = {keys: having.cost(keys) for keys in dict.fromkeys(need.keys for need in left)}
    fits = {keys for keys, cost in costs.items() if having.spent + cost <= limit}
    for weight in WEIGHTS:
        alike = [need for need in left if need.claim.weight == weight]
        if candidates := [need for need in alike if need.keys in fits]:
            worth = {keys: _worth(keys, costs[keys], alike, having) for keys in {need.keys for need in candidates}}
            return max(candidates, key=lambda need: worth[need.keys])
    return None


def _worth(keys: frozenset[str], cost: float, alike: list[Need], having: Having) -> float:
    """Claims of one weight that are decided per second, if these runs are made."""
    decided = sum(need.keys <= keys | having.keys for need in alike)
    return decided / max(cost, 1e-9)


def _steps(best: Need, left: list[Need], having: Having, within: bool) -> list[Step]:
    """The steps in which a claim is decided: its own section with all that it takes, then others that need no more."""
    before, spent = set(having.keys), having.spent
    made = having.make(best.keys)
    decided = [need for need in left if need.keys <= having.keys]
    places = dict.fromkeys([(best.paper, best.section), *((need.paper, need.section) for need in decided)])
    steps = []
    for i, place in enumerate(places):
        own = [need for need in decided if (need.paper, need.section) == place]
        keys = frozenset().union(*(need.keys for need in own))
        tasks, there = (made, len(keys & before)) if i == 0 else ([], len(keys))
        took = having.spent - spent if i == 0 else 0.0
        steps.append(Step(*place, tuple(n.claim for n in own), tuple(tasks), there, took, having.spent, within))
    return steps


def _how(tasks: tuple[Task, ...]) -> str:
    """Where the seconds of some runs come from, in words."""
    measured = sum(task.measured for task in tasks)
    if not tasks:
        return ""
    if measured in (0, len(tasks)):
        return "measured" if measured else "estimated"
    return f"{measured} measured, {len(tasks) - measured} estimated"


def _counted(claims: list[Claim]) -> str:
    """How many claims there are of each weight: "2 headline, 5 table"."""
    counts = {weight: sum(claim.weight == weight for claim in claims) for weight in WEIGHTS}
    return ", ".join(f"{count} {weight}" for weight, count in counts.items() if count)
