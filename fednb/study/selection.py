"""The part of a paper's grids that somebody asks for: some settings, some methods, other seeds, another precision."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from fednb.algorithms.catalogue import method
from fednb.base.inputs import closest, shown
from fednb.engines.setting import checked
from fednb.runs.grid import BadGrid, Cell, Grid
from fednb.study.paper import Paper


@dataclass(frozen=True)
class Selection:
    """Which runs of a grid are wanted; every field that is left empty leaves the grid as its file has it.

    seeds: in place of the grid's. only: values of tags, as in `Grid.only`, such as {"dataset": ["CIFAR-10"]}. methods:
    labels of the table or names of methods, in any letter case; a method's other names count where no run is called so,
    such as "FedSAM-D" for FedSpeed. Runs come in the order in which their methods are named. precision: in place of the
    settings', such as "bf16".
    """

    seeds: list[int] | None = None
    only: dict[str, list[Any]] = field(default_factory=dict)
    methods: tuple[str, ...] = ()
    precision: str | None = None

    def __post_init__(self) -> None:
        if self.precision is not None:
            checked(precision=self.precision)

    def whole(self, paper: Paper, name: str, scale: str) -> Grid:
        """All cells of a paper's grid, with the seeds and the precision that are asked for."""
        grid = paper.grid(name, scale, self.seeds)
        return grid if self.precision is None else grid.at(precision=self.precision)

    def grid(self, paper: Paper, name: str, scale: str) -> Grid:
        """The wanted part of a paper's grid; BadGrid where no run of it is wanted."""
        return self.part(self.whole(paper, name, scale))

    def part(self, whole: Grid) -> Grid:
        """The wanted cells of a grid; BadGrid where there are none."""
        cells = tuple(whole.cells[i] for i in self.cells(whole))
        if not cells:
            raise BadGrid(f"grid {whole.name}, {whole.scale}: no run fits {self}")
        return replace(whole, cells=cells)

    def cells(self, grid: Grid) -> list[int]:
        """The numbers of a grid's wanted cells."""
        try:
            fits = {id(cell) for cell in grid.only(self.only).cells}
        except BadGrid:
            return []
        fitting = [i for i, cell in enumerate(grid.cells) if id(cell) in fits]
        if not self.methods:
            return fitting
        wanted = self._called({name for cell in grid.cells for name in _names(cell)})
        places = {i: [at for at, name in enumerate(wanted) if name in _names(grid.cells[i])] for i in fitting}
        return sorted((i for i in fitting if places[i]), key=lambda i: places[i][0])

    def tuning_cells(self, grid: Grid) -> list[int]:
        """The numbers of the cells of a grid's tuning that choose parameters for its wanted cells."""
        labels = {grid.cells[i].label for i in self.cells(grid)}
        return [i for i, cell in enumerate(grid.tuning.cells) if cell.label in labels] if grid.tuning else []

    def _called(self, known: set[str]) -> list[str]:
        """What the wanted methods are called among known names, in the order in which they are wanted."""
        called = [name.lower() if name.lower() in known else _in_catalogue(name) for name in self.methods]
        return [name for name in called if name in known]

    def check(self, grids: Iterable[Grid]) -> None:
        """Refuse a method or a tag that none of some grids has, and a choice that leaves no run of them."""
        grids = list(grids)
        cells = [cell for grid in grids for cell in grid.cells]
        known = set().union(*(_names(cell) for cell in cells))
        for name in (name for name in self.methods if not {name.lower(), _in_catalogue(name)} & known):
            labels = dict.fromkeys(cell.label for cell in cells)
            raise BadGrid(f"no method {shown(name)} in what was asked for; closest: {closest(name, labels)}")
        tags = dict.fromkeys(["method", *(tag for cell in cells for tag in cell.tags)])
        for tag in (tag for tag in self.only if tag not in tags):
            raise BadGrid(f"no run has a {shown(tag)}; runs are told apart by {', '.join(tags)}")
        if grids and not any(map(self.cells, grids)):
            raise BadGrid(f"no run fits {self}")

    def __str__(self) -> str:
        asked = {"only": self.only, "methods": self.methods}
        return ", ".join(f"{name} = {shown(value)}" for name, value in asked.items() if value) or "all"


def _in_catalogue(name: str) -> str:
    """The first of a method's names, in lower case; an empty text for what is none."""
    try:
        return method(name).name.lower()
    except (LookupError, ValueError):
        return ""


def _names(cell: Cell) -> set[str]:
    """What a cell's method may be called: its label in the table, or its name in the catalogue."""
    return {cell.label.lower(), cell.method.name.lower()}
