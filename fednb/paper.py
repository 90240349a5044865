"""papers/<id>: what was printed, which runs would show it, what is claimed, and how it was read."""

from __future__ import annotations

import difflib
import tomllib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fednb.grid import SCALES, Grid
from fednb.report import Claim, Page

if TYPE_CHECKING:
    import pandas as pd


class UnknownPaper(KeyError):
    """A paper, section or table that is not here."""

    def __str__(self) -> str:
        return str(self.args[0])


def shelf(name: str) -> Path:
    """The folder `papers` or `notebooks`: beside the package in a checkout, inside it where it was installed."""
    package = Path(__file__).resolve().parent
    inside = package / f"_{name}"
    return inside if inside.is_dir() else package.parent / name


def _pick(what: str, name: str, known: list[str]) -> str:
    if name not in known:
        near = difflib.get_close_matches(name, known, n=3, cutoff=0.3) or known
        raise UnknownPaper(f"no {what} {name!r}; closest: {', '.join(near)}")
    return name


def papers(id: str | None = None) -> Any:
    """One paper by its short id, or all of them as a table."""
    known = sorted(p.parent.name for p in shelf("papers").glob("*/paper.toml"))
    if id is not None:
        return Paper(shelf("papers") / _pick("paper", id.lower(), known))
    import pandas as pd

    rows = [(p.id, p.about["title"], p.about["venue"], len(p.about["sections"])) for p in map(papers, known)]
    return pd.DataFrame(rows, columns=["id", "title", "venue", "sections"]).set_index("id")


@dataclass(frozen=True)
class Paper:
    """One paper's folder."""

    folder: Path

    @property
    def id(self) -> str:
        return self.folder.name

    @cached_property
    def about(self) -> dict[str, Any]:
        return tomllib.loads((self.folder / "paper.toml").read_text(encoding="utf-8"))

    def __repr__(self) -> str:
        return f"{self.about['title']} ({self.about['venue']})\n{self.about['citation']}"

    def reported(self, table: str) -> pd.DataFrame:
        """A printed table, one row per number."""
        import pandas as pd

        known = sorted(p.stem for p in (self.folder / "tables").glob("*.csv"))
        return pd.read_csv(self.folder / "tables" / f"{_pick(f'table of {self.id}', table, known)}.csv")

    def claims(self, section: str | None = None) -> list[Claim]:
        """The paper's claims as rules, written before the runs."""
        if section is not None:
            _pick(f"section of {self.id}", section, list(self.about["sections"]))
        text = (self.folder / "claims.toml").read_text(encoding="utf-8")
        made = [Claim.of(self.id, c) for c in tomllib.loads(text)["claim"]]
        return [c for c in made if section in (None, c.section)]

    def grid(self, name: str, scale: str = "smoke", seeds: list[int] | None = None) -> Grid:
        """The runs behind a table or figure at one scale."""
        known = sorted(p.stem for p in (self.folder / "grids").glob("*.toml"))
        path = self.folder / "grids" / f"{_pick(f'grid of {self.id}', name, known)}.toml"
        described = tomllib.loads(path.read_text(encoding="utf-8"))
        if scale not in SCALES:
            raise UnknownPaper(f"no scale {scale!r}; the scales are {', '.join(SCALES)}")
        return Grid.of(f"{self.id} {name}", scale, described[scale], seeds)

    def page(self, section: str, scale: str = "smoke", seeds: list[int] | None = None) -> Page:
        """All that the notebook of one section works with."""
        about = self.about["sections"][_pick(f"section of {self.id}", section, list(self.about["sections"]))]
        return Page(about["notebook"], scale, self.grid(section, scale, seeds), tuple(self.claims(section)))

    @property
    def readings(self) -> str:
        """The reading log: printed, released, what we run, measured effect."""
        return (self.folder / "reading.md").read_text(encoding="utf-8")
