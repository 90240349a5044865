"""What a paper still needs at paper scale: how many runs of each section are kept, how many are missing, their cost.

Made from the grids, the runs that are kept with the paper, and nothing of this machine: everybody gets the same page.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from fednb.base.progress import duration
from fednb.runs.cells import Cell
from fednb.runs.experiment import run_of
from fednb.runs.grid import Grid
from fednb.study.paper import Paper, shelf
from fednb.study.plan import has_grid
from fednb.study.times import GPU, Times

SCALE = "paper"
HEAD = """# What was run at paper scale, and what is missing

Made by `make evidence` from `../grids`, `../runs` and the folders beside this page.

- **runs**: those of the section's grid at paper scale, with the runs that tune it; some are other sections' runs, too.
- **kept**: those, in exactly these settings, whose numbers are in this repository.
- **missing**: what the others take on one {device}, several at a time, without compiling: seconds of a round as kept
  runs and benchmarks tell. A star: no kept run has that model, data set and precision, so that it was estimated from
  the nearest one.
"""


@dataclass(frozen=True)
class Account:
    """A section of a paper: its runs at paper scale, those that are kept, and what the others take."""

    section: str
    title: str
    runs: int
    kept: int
    seconds: float
    measured: bool  # on the device, for all that is missing

    @property
    def cost(self) -> str:
        """How many runs are missing, and what they take; a star where that was estimated."""
        left = self.runs - self.kept
        return f"{left}: {duration(self.seconds)}{'' if self.measured else ' *'}" if left else "none"

    @property
    def row(self) -> str:
        """The section as a row of a Markdown table."""
        title = self.title.replace("|", chr(92) + "|")
        return f"| {self.section} | {title} | {self.runs} | {self.kept} | {self.cost} |"


def accounts_of(paper: Paper, times: Times | None = None) -> list[Account]:
    """The sections of a paper that have runs, in its order."""
    times = times or times_of_kept_runs()
    known = kept_keys(paper)
    return [_account(paper, name, known, times) for name in paper.about["sections"] if has_grid(paper, name)]


def ledger(accounts: list[Account]) -> str:
    """The page of a paper, as Markdown. accounts: what `accounts_of` gives."""
    heads = ["| section | what | runs | kept | missing |", "| --- | --- | --- | --- | --- |"]
    whole = sum(each.seconds for each in accounts)
    total = f"\nAll that is missing: {duration(whole)}, runs of several sections counted in each.\n"
    return "\n".join([HEAD.format(device=GPU), *heads, *(each.row for each in accounts), total])


def times_of_kept_runs() -> Times:
    """What runs take on the device that benchmarks were kept of, by what came with the papers alone."""
    return Times(GPU, sorted(p for p in shelf("papers").glob("*/runs/*") if p.is_dir()), here=False)


def kept_keys(paper: Paper) -> set[str]:
    """The keys of the runs at paper scale that are kept with a paper: whole, or in the results that show them."""
    runs = {path.name for path in (paper.folder / "runs").glob("*") if path.is_dir()}
    shown = (paper.folder / "results").glob(f"*_{SCALE}/runs.json")
    return runs.union(*(_keys(path) for path in shown))


def _keys(path: Path) -> set[str]:
    return set(json.loads(path.read_text(encoding="utf-8")))


def _account(paper: Paper, section: str, known: set[str], times: Times) -> Account:
    grid = paper.grid(section, SCALE).settled(kept=paper.folder / "runs")
    cells = {_key(grid, cell): cell for part in (grid.tuning, grid) if part is not None for cell in part.cells}
    missing = [cell for key, cell in cells.items() if key not in known]
    costs = [(times.of(cell.setting, cell.method), cell.setting.rounds) for cell in missing]
    seconds = sum(estimate.round * rounds for estimate, rounds in costs)
    title = paper.about["sections"][section]["title"]
    return Account(section, title, len(cells), len(cells) - len(missing), seconds, all(e.measured for e, _ in costs))


def _key(grid: Grid, cell: Cell) -> str:
    """The key of a cell's run; of one that waits for its tuning a name that no run has."""
    if cell.waits:
        return f"{cell.label} {sorted(cell.tags.items())} {cell.seed}"
    return run_of(cell.setting, cell.method, cell.seed, grid.probe).key
