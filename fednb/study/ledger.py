"""What a paper still needs at paper scale: how many runs of each section are kept, how many are missing, their cost.

Made from the grids, the runs that are kept with the papers, and nothing of this machine: everybody gets the same page.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Set
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from fednb.base.progress import duration
from fednb.runs.cells import Cell
from fednb.runs.experiment import run_of
from fednb.runs.grid import Grid
from fednb.study.claims import Claim
from fednb.study.paper import Paper, run_folders
from fednb.study.plan import has_grid, needed
from fednb.study.times import GPU, Times

SCALE = "paper"
HEAD = """# What was run at paper scale, and what is missing

Made by `make evidence` from `../grids`, the folders beside this page, and the runs that are kept with all papers.

- **runs**: those of the section's grid at paper scale, with the runs that tune it; some are other sections' runs, too.
- **kept**: those, in exactly these settings, whose numbers are in this repository.
- **missing**: what the others take on one {device}, several at a time, without compiling: seconds of a round as kept
  runs and benchmarks tell. A star: no kept run has that model, data set and precision, so that it was estimated from
  the nearest one.
"""


class Price(NamedTuple):
    """What a run takes, and whether that was measured on the device or estimated."""

    seconds: float
    measured: bool


@dataclass(frozen=True)
class Bill:
    """The keys of runs at paper scale that are wanted for something, and what those take that are not kept."""

    wanted: Set[str]
    missing: dict[str, Price]

    @property
    def seconds(self) -> float:
        """What all that is missing takes."""
        return sum(each.seconds for each in self.missing.values())

    @property
    def cost(self) -> str:
        """How many runs are missing, and what they take; a star where that was estimated."""
        star = "" if all(each.measured for each in self.missing.values()) else " *"
        return f"{len(self.missing)}: {duration(self.seconds)}{star}" if self.missing else "none"

    @classmethod
    def of_all(cls, bills: Iterable[Bill]) -> Bill:
        """What several things lack together, a run that many of them need counted once."""
        wanted, missing = set[str](), dict[str, Price]()
        for bill in bills:
            wanted |= bill.wanted
            missing |= bill.missing
        return cls(wanted, missing)


@dataclass(frozen=True)
class Account:
    """A section of a paper: what all its runs at paper scale take, and what those that each of its claims is about."""

    section: str
    title: str
    bill: Bill
    claims: dict[str, Bill]

    @property
    def row(self) -> str:
        """The section as a row of a Markdown table."""
        title, bill = self.title.replace("|", chr(92) + "|"), self.bill
        runs, kept = len(bill.wanted), len(bill.wanted) - len(bill.missing)
        return f"| {self.section} | {title} | {runs} | {kept} | {bill.cost} |"


def accounts_of(paper: Paper, times: Times | None = None) -> list[Account]:
    """The sections of a paper that have runs, in its order."""
    times = times or times_of_kept_runs()
    known = kept_keys(paper)
    return [_account(paper, name, known, times) for name in paper.about["sections"] if has_grid(paper, name)]


def ledger(accounts: list[Account]) -> str:
    """The page of a paper, as Markdown. accounts: what `accounts_of` gives."""
    heads = ["| section | what | runs | kept | missing |", "| --- | --- | --- | --- | --- |"]
    whole = Bill.of_all(each.bill for each in accounts)
    total = f"\nAll that is missing: {len(whole.missing)} runs, {duration(whole.seconds)}, each counted once.\n"
    return "\n".join([HEAD.format(device=GPU), *heads, *(each.row for each in accounts), total])


def times_of_kept_runs() -> Times:
    """What runs take on the device that benchmarks were kept of, by what came with the papers alone."""
    return Times(GPU, run_folders(), here=False)


def kept_keys(paper: Paper) -> set[str]:
    """The keys of the runs at paper scale that are kept: whole, with any paper, or in the results of this one."""
    runs = {path.name for path in run_folders()}
    shown = (paper.folder / "results").glob(f"*_{SCALE}/runs.json")
    return runs.union(*(_keys(path) for path in shown))


def _keys(path: Path) -> set[str]:
    return set(json.loads(path.read_text(encoding="utf-8")))


def _account(paper: Paper, section: str, known: set[str], times: Times) -> Account:
    grid = paper.grid(section, SCALE).settled(kept=paper.folder / "runs")
    keys = [_key(grid, cell) for cell in grid.cells]
    trials = {_key(grid, cell): cell for cell in grid.tuning.cells} if grid.tuning else {}
    cells = trials | dict(zip(keys, grid.cells, strict=True))
    missing = {key: _price(cell, times) for key, cell in cells.items() if key not in known}

    def bill(wanted: Iterable[str]) -> Bill:
        wanted = set(wanted)
        return Bill(wanted, {key: price for key, price in missing.items() if key in wanted})

    def keys_of(claim: Claim) -> set[str]:
        about = needed(claim, grid, paper.evidence(section))
        waiting = {grid.cells[i].label for i in about if grid.cells[i].waits}
        return {keys[i] for i in about} | {key for key, cell in trials.items() if cell.label in waiting}

    claims = {claim.id: bill(keys_of(claim)) for claim in paper.claims(section)}
    return Account(section, paper.about["sections"][section]["title"], bill(cells), claims)


def _price(cell: Cell, times: Times) -> Price:
    found = times.of(cell.setting, cell.method)
    return Price(found.round * cell.setting.rounds, found.measured)


def _key(grid: Grid, cell: Cell) -> str:
    """The key of a cell's run; of one that waits for its tuning a name that no run has."""
    if cell.waits:
        return f"{grid.name} {cell.label} {sorted(cell.tags.items())} {cell.seed}"
    return run_of(cell.setting, cell.method, cell.seed, grid.probe).key
