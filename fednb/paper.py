"""papers/<id>: what was printed, which runs would show it, what is claimed, and how it was read."""

from __future__ import annotations

import difflib
import re
import tomllib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fednb.claims import Claim
from fednb.grid import SCALES, Grid
from fednb.report import Page

if TYPE_CHECKING:
    import pandas as pd


REMARK = r" \((?:not printed; )?implied\)$| \(repository default\)$"  # of a data set or model that a table leaves open


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
    """One paper by its short id, or all of them as a table. "across", our study of them, is found and not listed."""
    known = sorted(p.parent.name for p in shelf("papers").glob("*/paper.toml"))
    if id is not None:
        return Paper(shelf("papers") / _pick("paper", id.lower(), known))
    import pandas as pd

    listed = [p for p in map(papers, known) if not p.about.get("study")]
    rows = [(p.id, p.about["title"], p.about["venue"], len(p.about.get("sections", {}))) for p in listed]
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

    def printed(self, table: str) -> pd.DataFrame:
        """A printed table as our tables are: a column for each thing that varies, then method, measure, value.

        Fractions become percent, "CIFAR-10 (implied)" is CIFAR-10, and a number from a figure says which in `figure`.
        """
        told = self.reported(table).rename(columns={"metric": "measure"})
        rows = [_parsed(str(text)) if text == text else {} for text in told.pop("setting")]
        varied = told.iloc[:, :0].assign(**{name: [row.get(name) for row in rows] for name in _names(rows)})
        value = told["value"].astype(str).str.strip()
        tidy = _in_percent(varied.join(told).assign(value=_numbers(value), seed="printed"))
        tidy["figure"] = tidy["note"].astype(str).str.extract(r"^(Fig \w+(?: left| right)?)")[0]
        named = tidy[["dataset", "model"]].replace(REMARK, "", regex=True)
        tidy[["dataset", "model"]] = named.mask(named == "not printed")
        return tidy[tidy["value"].notna()].dropna(axis=1, how="all")

    def claims(self, section: str | None = None) -> list[Claim]:
        """The paper's claims as rules, written before the runs, each with the printed table that it is read from."""
        if section is not None:
            _pick(f"section of {self.id}", section, list(self.about["sections"]))
        text = (self.folder / "claims.toml").read_text(encoding="utf-8")
        described = [c for c in tomllib.loads(text).get("claim", []) if section in (None, c["section"])]
        return [Claim.of(self.id, c, self._table_of(c)) for c in described]

    def _table_of(self, claim: dict[str, Any]) -> pd.DataFrame | None:
        """The printed table that a claim names, or that has its section's name."""
        table = claim.get("table", claim["section"])
        return self.printed(table) if (self.folder / "tables" / f"{table}.csv").exists() else None

    def grid(self, name: str, scale: str = "smoke", seeds: list[int] | None = None) -> Grid:
        """The runs behind a table or figure at one scale.

        A grid file's entries outside [smoke], [laptop] and [paper] are for all three. Settings that neither names are
        the paper's for that scale: [smoke] and [laptop] in paper.toml, and [setting], which is as printed.
        """
        known = sorted(p.stem for p in (self.folder / "grids").glob("*.toml"))
        path = self.folder / "grids" / f"{_pick(f'grid of {self.id}', name, known)}.toml"
        described = tomllib.loads(path.read_text(encoding="utf-8"))
        if scale not in SCALES:
            raise UnknownPaper(f"no scale {scale!r}; the scales are {', '.join(SCALES)}")
        for_all = {entry: value for entry, value in described.items() if entry not in SCALES}
        own = described.get(scale, {})
        base = self.about.get("setting" if scale == "paper" else scale, {})
        setting = base | for_all.get("setting", {}) | own.get("setting", {})
        return Grid.of(f"{self.id} {name}", scale, for_all | own | {"setting": setting}, seeds)

    def page(
        self, *sections: str, scale: str = "smoke", seeds: list[int] | None = None, only: dict[str, Any] | None = None
    ) -> Page:
        """All that the notebook of some sections works with.

        only: a part of the grids, such as {"dataset": ["CIFAR-10"], "method": ["FedAvg", "FedSAM"]}.
        """
        about = {name: self._section(name) for name in sections}
        (notebook,) = {section["notebook"] for section in about.values()}
        grids = {n: self.grid(n, scale, seeds).only(only) for n, section in about.items() if section.get("grid", True)}
        claims = tuple(claim for name in sections for claim in self.claims(name))
        evidence = {name: self.evidence(name) for name in sections}
        return Page(notebook, scale, grids, claims, self.kept_folder(notebook, scale), evidence)

    def kept_folder(self, notebook: str, scale: str) -> Path:
        """Where an execution of one of its notebooks is kept with the paper."""
        return self.folder / "results" / f"{notebook.partition('/')[2]}_{scale}"

    def evidence(self, section: str) -> dict[str, dict[str, Any]]:
        """What a section's claims are judged on, by name (see `fednb.evidence`), with its options: accuracy, mostly."""
        return self._section(section).get("evidence", {"accuracy": {}})

    def _section(self, name: str) -> dict[str, Any]:
        return self.about["sections"][_pick(f"section of {self.id}", name, list(self.about["sections"]))]

    @property
    def readings(self) -> str:
        """The reading log: printed, released, what we run, measured effect."""
        return (self.folder / "reading.md").read_text(encoding="utf-8")


def _parsed(text: str) -> dict[str, Any]:
    """The `name=number` pairs of a printed setting, 5% being 0.05, its split (Dir(0.3)), its domain; else its text."""
    pairs = re.findall(r"(\w+)=([-+.\de]+)(%?)", text)
    numbers = {name: float(number) / (100 if percent else 1) for name, number, percent in pairs}
    split = re.match(r"(?:Dir|Pat)\([.\d]+\)", text)
    domain = re.search(r"domain=([^;]+)", text)
    words = ({"partition": split[0]} if split else {}) | ({"domain": domain[1]} if domain else {})
    return words | numbers or {"setting": text}


def _names(rows: list[dict[str, Any]]) -> list[str]:
    return list(dict.fromkeys(name for row in rows for name in row))


def _in_percent(told: pd.DataFrame) -> pd.DataFrame:
    """Accuracies between 0 and 1 as ours are; to as many digits as are printed."""
    fractions = told["measure"] == "accuracy_fraction"
    percent = {column: told[column].mask(fractions, (told[column] * 100).round(6)) for column in ("value", "std")}
    return told.assign(**percent, measure=told["measure"].mask(fractions, "accuracy"))


def _numbers(texts: pd.Series) -> pd.Series:
    """Numbers, and nothing where the paper has words."""
    import pandas as pd

    return pd.to_numeric(texts, errors="coerce")
