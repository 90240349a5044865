"""Printed accuracies beside ours at paper scale: how many are met, which are far, and a picture of all of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from html import escape
from statistics import median
from typing import TYPE_CHECKING, Any

from fednb.study.claims.intervals import SEEDS
from fednb.study.map import MapLine, name_of
from fednb.study.measured import is_listed, read_measured
from fednb.study.page import compare
from fednb.study.paper import Paper

if TYPE_CHECKING:
    import pandas as pd

NEAR = (1.0, 3.0)  # points within which a printed number counts as met, and as nearly met
SIDE, LEFT, FOOT, EDGE = 520, 58, 46, 16  # of the picture: its square, the room beside and below it, and around it
LEGEND = 150  # room for the papers' names
COLOURS = ("#0173b2", "#de8f05", "#029e73", "#d55e00", "#cc78bc")  # that colour-blind people can tell apart
WORDS = "{} printed accuracies and ours at paper scale: on the line where they are equal"
HEADS = ("paper", "numbers run", *(f"within {near:g}" for near in NEAR), "ours − printed, median", "farthest")
INTRO = f"""## Printed accuracies beside ours, at paper scale

Every accuracy of a printed table whose setting was run with at least {SEEDS} seeds, in percent; numbers that are read
off a figure are left out, one that is printed in several tables counts once. A section that ends in -tuned is the
table with its rates or radii searched, as the paper says that it did. A claim is judged by differences between
methods; this says whether we met the numbers themselves.
"""
METHODS = ("| paper | section | setting | method | printed | ours | std | difference |", "|---" * 8 + "|")


@dataclass(frozen=True)
class Beside:
    """A printed accuracy, and ours in that setting: mean and standard deviation over n seeds."""

    paper: Paper
    section: str
    where: str
    method: str
    printed: float
    ours: float
    std: float
    n: int

    @property
    def difference(self) -> float:
        """Ours minus the printed one, in points."""
        return self.ours - self.printed

    @property
    def name(self) -> str:
        """The method and its setting in words."""
        return f"{self.method}, {self.where}" if self.where else self.method


def all_beside(every: dict[Paper, list[MapLine]]) -> list[Beside]:
    """The printed accuracies of all papers that were run at paper scale; a study of ours prints nothing."""
    return [each for paper, lines in every.items() if not paper.about.get("study") for each in _of_paper(lines)]


def _of_paper(lines: list[MapLine]) -> list[Beside]:
    """Those of one paper, in the order of its sections, each once."""
    found: dict[tuple[float, float], Beside] = {}
    for line in lines:
        folder = line.paper.kept_folder(line.notebook, "paper")
        for section in line.sections:
            file = folder / f"{section}_accuracy.csv"
            if table := _table_of(line.paper, section) if is_listed(file) else "":
                for each in _rows(line.paper, section, read_measured(file), line.paper.printed(table)):
                    found.setdefault((each.printed, each.ours), each)
    return list(found.values())


def _table_of(paper: Paper, section: str) -> str:
    """The printed table of a section: that of its name, or of the part before a hyphen; "" where there is none."""
    known = {file.stem for file in (paper.folder / "tables").glob("*.csv")}
    return next((name for name in (section, section.partition("-")[0]) if name in known), "")


def _rows(paper: Paper, section: str, scores: pd.DataFrame, printed: pd.DataFrame) -> Iterable[Beside]:
    """What is printed and run with enough seeds."""
    table = compare(scores, printed[printed["figure"].isna()] if "figure" in printed else printed)
    if "difference" not in table:
        return  # ours is of another data set or model
    for row in table[table["difference"].notna() & (table["n"] >= SEEDS)].reset_index().to_dict("records"):
        keys = [name for name in table.index.names if name != "method"]
        yield Beside(paper, section, _where(row, keys), str(row["method"]), row["paper"], row["ours"], row["std"],
                     int(row["n"]))  # fmt: skip


def _where(row: dict[str, Any], keys: list[str]) -> str:
    """A setting in words: the data set first, numbers with their names."""
    known = {key: row[key] for key in sorted(keys, key=lambda key: key != "dataset") if row[key] == row[key]}
    return ", ".join(str(value) if isinstance(value, str) else f"{key} {value:g}" for key, value in known.items())


def beside(found: list[Beside]) -> list[str]:
    """The part of the report: a line for each paper, the picture, and all numbers."""
    if not found:
        return []
    of_paper: dict[Paper, list[Beside]] = {}
    for each in found:
        of_paper.setdefault(each.paper, []).append(each)
    counts = ["| " + " | ".join(HEADS) + " |", "|---" * len(HEADS) + "|", *map(_counted, of_paper.values())]
    rows = [_told(each) for several in of_paper.values() for each in several]
    return [INTRO, *counts, "", f"![{words(found)}](printed.svg)", "", *METHODS, *rows, ""]


def words(found: list[Beside]) -> str:
    """What the picture shows, in words."""
    return WORDS.format(len(found))


def _counted(several: list[Beside]) -> str:
    """A paper's line: how many of its numbers are met, and the one that is farthest from ours."""
    gaps = [each.difference for each in several]
    far = max(several, key=lambda each: abs(each.difference))
    near = [str(sum(abs(gap) <= limit for gap in gaps)) for limit in NEAR]
    cells = [name_of(several[0].paper), str(len(several)), *near, f"{round(median(gaps), 1) + 0:+.1f}",
             f"{far.name}: {far.ours:.1f} for {far.printed:g}"]  # fmt: skip
    return "| " + " | ".join(cells) + " |"


def _told(each: Beside) -> str:
    cells = [name_of(each.paper), each.section, each.where, each.method, f"{each.printed:.2f}", f"{each.ours:.2f}",
             f"{each.std:.2f}", f"{each.difference:+.2f}"]  # fmt: skip
    return "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |"


def scatter(found: list[Beside]) -> str:
    """The picture as the text of an SVG file: printed to the right, ours upwards with its deviation; "" for nothing."""
    if not found:
        return ""
    ends = [value for each in found for value in (each.printed, each.ours)]
    low, high = 10 * (min(ends) // 10), min(100.0, 10 * (max(ends) // 10 + 1))
    scale = _Scale(low, high)
    names = list(dict.fromkeys(name_of(each.paper) for each in found))
    colour = {name: COLOURS[i % len(COLOURS)] for i, name in enumerate(names)}
    width, height = LEFT + SIDE + LEGEND, EDGE + SIDE + FOOT
    dots = "\n".join(_dot(each, scale, colour[name_of(each.paper)]) for each in found)
    legend = "".join(
        f'<circle cx="{LEFT + SIDE + 18}" cy="{EDGE + 14 + 22 * i}" r="5" fill="{colour[name]}"/>'
        f'<text x="{LEFT + SIDE + 30}" y="{EDGE + 18 + 22 * i}">{escape(name)}</text>'
        for i, name in enumerate(names)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}">'
        f"<title>{words(found)}</title><style>text{{font:13px sans-serif;fill:#222}}</style>"
        f'<rect width="100%" height="100%" fill="#fff"/>\n{scale.axes}\n{dots}\n{legend}</svg>\n'
    )


@dataclass(frozen=True)
class _Scale:
    """Where percent lie in the picture."""

    low: float
    high: float

    def x(self, value: float) -> float:
        return LEFT + SIDE * self._share(value)

    def y(self, value: float) -> float:
        return EDGE + SIDE * (1 - self._share(value))

    def _share(self, value: float) -> float:
        return (min(max(value, self.low), self.high) - self.low) / (self.high - self.low)

    @property
    def axes(self) -> str:
        """The grid, its numbers, and the line on which both are equal."""
        lines = []
        for tick in range(int(self.low), int(self.high) + 1, 10):
            x, y = self.x(tick), self.y(tick)
            lines.append(
                f'<path d="M{x:.1f} {EDGE}V{EDGE + SIDE}M{LEFT} {y:.1f}H{LEFT + SIDE}" stroke="#ddd"/>'
                f'<text x="{x:.1f}" y="{EDGE + SIDE + 18}" text-anchor="middle">{tick}</text>'
                f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{tick}</text>'
            )
        middle = EDGE + SIDE / 2
        return "\n".join([
            *lines,
            f'<path d="M{LEFT} {EDGE + SIDE}L{LEFT + SIDE} {EDGE}" stroke="#666"/>',
            f'<text x="{LEFT + SIDE / 2}" y="{EDGE + SIDE + 38}" text-anchor="middle">printed accuracy, percent</text>',
            f'<text x="14" y="{middle}" text-anchor="middle" transform="rotate(-90 14 {middle})">ours, mean over seeds'
            " with its standard deviation</text>",
        ])  # fmt: skip


def _dot(each: Beside, scale: _Scale, colour: str) -> str:
    """One number: a dot, its deviation, and its name for who points at it."""
    x, y = scale.x(each.printed), scale.y(each.ours)
    low, high = scale.y(each.ours - each.std), scale.y(each.ours + each.std)
    name = f"{escape(each.name)}: {each.ours:.2f} for {each.printed:.2f}"
    return (
        f'<g stroke="{colour}" fill="{colour}"><title>{name}</title>'
        f'<path d="M{x:.1f} {low:.1f}V{high:.1f}"/><circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill-opacity="0.7"/></g>'
    )
