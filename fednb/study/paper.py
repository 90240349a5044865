"""papers/<id>: what was printed, which runs would show it, what is claimed, and how it was read."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from inspect import signature
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fednb.algorithms.catalogue import UnknownMethod
from fednb.base.checks import is_text, is_whole, passes
from fednb.base.inputs import BadFile, closest, one_line, parsed_toml, read_rows, read_text, read_toml, shown
from fednb.base.streams import whole_seeds
from fednb.runs.cells import FORMS, BadGrid
from fednb.runs.grid import SCALES, Grid
from fednb.runs.store import home
from fednb.study.claims import BadClaim, Claim
from fednb.study.folders import put_back
from fednb.study.measurements.registry import MEASUREMENTS
from fednb.study.page import Page

if TYPE_CHECKING:
    import pandas as pd


FINISHED = "finished"  # in place of a part of a grid: the runs that the store has
Evidence = dict[str, dict[str, Any]]  # measurements by name, with their options
REMARK = r" \((?:not printed; )?implied\)$| \(repository default\)$"  # of a data set or model that a table leaves open


class UnknownPaper(KeyError):
    """A paper, section or table that is not here."""

    def __str__(self) -> str:
        return str(self.args[0])


class NoShelf(ValueError):
    """A folder of papers or notebooks that is not there."""


PACKAGE = Path(__file__).resolve().parents[1]


def shelf(name: str) -> Path:
    """The folder `papers` or `notebooks`: beside the package in a checkout, inside it where it was installed.

    FEDNB_PAPERS and FEDNB_NOTEBOOKS name other folders, such as the one that `fednb lab` copied the notebooks to.
    """
    if given := os.environ.get(variable := f"FEDNB_{name.upper()}"):
        if not Path(given).is_dir():
            raise NoShelf(f"{variable} = {shown(given)}: there is no such folder")
        return Path(given).resolve()
    inside = PACKAGE / f"_{name}"
    return inside if inside.is_dir() else PACKAGE.parent / name


def run_folders() -> list[Path]:
    """The folders of all runs that are kept whole with the papers, `papers/<id>/runs/<key>`."""
    return sorted(path for path in shelf("papers").glob("*/runs/*") if path.is_dir())


def _pick(what: str, name: str, known: list[str]) -> str:
    if name not in known:
        raise UnknownPaper(f"no {what} {shown(name)}; closest: {closest(str(name), known, ', '.join(known))}")
    return name


Form = tuple[str, Callable[[Any], bool]]
ANY: Form = ("anything", lambda v: True)
TEXT: Form = ("a text", lambda v: is_text(v, 5000))
TABLE: Form = ("a table", lambda v: isinstance(v, dict))
TEXTS: Form = ("a table of texts", lambda v: isinstance(v, dict) and all(is_text(x, 5000) for x in v.values()))
TABLES: Form = ("a table of tables", lambda v: isinstance(v, dict) and all(isinstance(x, dict) for x in v.values()))
LIST_OF_TABLES: Form = ("a list of tables", lambda v: isinstance(v, list) and all(isinstance(x, dict) for x in v))
SWITCH: Form = ("true or false", lambda v: isinstance(v, bool))
NOTEBOOK: Form = ("folder/name", lambda v: re.fullmatch(r"[\w-]+/[\w-]+", v) is not None)
ABOUT: dict[str, Form] = {
    "title": TEXT, "authors": TEXT, "venue": TEXT, "citation": TEXT, "code": TEXT, "year": ("a year", is_whole),
    "study": SWITCH, "setting": TABLE, "smoke": TABLE, "laptop": TABLE, "paper": TABLE, "sections": TABLES,
    "found": TEXTS,
}  # fmt: skip
SECTION: dict[str, Form] = {"title": TEXT, "notebook": NOTEBOOK, "grid": SWITCH, "evidence": TABLES}
REQUIRED = {"title", "notebook"}  # of a paper and of a section
COLUMNS = ("method", "dataset", "model", "setting", "metric", "value", "std", "note")  # of a printed table


def _check(path: Path, where: str, described: Any, forms: dict[str, Form]) -> None:
    """Refuse entries of a file that are unknown, lacking, or of another kind than they should be."""
    if not isinstance(described, dict):
        raise BadFile(path, f"{where}must be a table, not {shown(described)}")
    for name, value in described.items():
        if name not in forms:
            near = closest(name, forms, ", ".join(forms))
            raise BadFile(path, f"{where}unknown entry {shown(name)}; closest: {near}")
        allowed, test = forms[name]
        if not passes(test, value):
            raise BadFile(path, f"{where}{name} = {shown(value)}, must be {allowed}")
    for name in forms:
        if name in REQUIRED and name not in described:
            raise BadFile(path, f"{where}`{name}` is not there; it must be {forms[name][0]}")


def papers(id: str | None = None) -> Any:
    """One paper by its short id, or all of them as a table. "across", our study of them, is found and not listed.

    >>> fn.papers("fedfft").about["title"]
    'FedFFT: Taming Client Drift in Federated SAM via Spectral Perturbation Filtering'
    >>> fn.papers("fedfft").grid("fig1", "smoke").scale
    'smoke'
    >>> list(fn.papers().columns)
    ['title', 'venue', 'sections']
    """
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
        path = self.folder / "paper.toml"
        about = read_toml(path)
        _check(path, "", about, ABOUT)
        for name, section in about.setdefault("sections", {}).items():
            _check(path, f"section {one_line(name, 80)}: ", section, SECTION)
        return dict.fromkeys(("authors", "venue", "citation"), "") | about

    def __repr__(self) -> str:
        return f"{self.about['title']} ({self.about['venue']})\n{self.about['citation']}"

    def reported(self, table: str) -> pd.DataFrame:
        """A printed table, one row per number."""
        return self._read(table, _as_told)

    def _tables(self) -> list[str]:
        return sorted(p.stem for p in (self.folder / "tables").glob("*.csv"))

    def printed(self, table: str) -> pd.DataFrame:
        """A printed table as our tables are: a column for each thing that varies, then method, measure, value.

        Fractions become percent, "CIFAR-10 (implied)" is CIFAR-10, and a number from a figure says which in `figure`.
        """
        return self._read(table, _tidy)

    def _read(self, table: str, made: Callable[[str], pd.DataFrame]) -> pd.DataFrame:
        """A table of the folder `tables`, made of the text of its file."""
        path = self.folder / "tables" / f"{_pick(f'table of {self.id}', table, self._tables())}.csv"
        try:
            return made(read_rows(path, COLUMNS)).copy()
        except (ValueError, OverflowError) as error:
            raise error if isinstance(error, BadFile) else BadFile(path, str(error)) from None

    def claims(self, section: str | None = None) -> list[Claim]:
        """The paper's claims as rules, written before the runs, each with the printed table that it is read from."""
        if section is not None:
            _pick(f"section of {self.id}", section, list(self.about["sections"]))
        path = self.folder / "claims.toml"
        claims = _claims(path, read_text(path), tuple(self.about["sections"]))
        wanted = [claim for claim in claims if section in (None, claim.section)]
        return [replace(claim, printed=self._table_of(claim)) for claim in wanted]

    def _table_of(self, claim: Claim) -> pd.DataFrame | None:
        """The printed table that a claim names, or that has its section's name."""
        table = claim.table or claim.section
        return self.printed(table) if table in self._tables() else None

    def grid(self, name: str, scale: str = "smoke", seeds: list[int] | None = None) -> Grid:
        """The runs behind a table or figure at one scale.

        A grid file's entries outside [smoke], [laptop] and [paper] are for all three. What neither names is taken from
        paper.toml: at smoke and laptop scale from its table of that name, at paper scale from [setting], as printed,
        and [paper], for what is not printed.
        """
        known = sorted(p.stem for p in (self.folder / "grids").glob("*.toml"))
        path = self.folder / "grids" / f"{_pick(f'grid of {self.id}', name, known)}.toml"
        described = read_toml(path)
        if scale not in SCALES:
            raise UnknownPaper(f"no scale {shown(scale)}; the scales are {', '.join(SCALES)}")
        for part in ("", *SCALES):
            own = described.get(part, {}) if part else described
            _check(path, f"{part}: " if part else "", own, dict.fromkeys((*FORMS, *SCALES), ANY) | {"setting": TABLE})
        for_all = {entry: value for entry, value in described.items() if entry not in SCALES}
        own = described.get(scale, {})
        base = (self.about.get("setting", {}) if scale == "paper" else {}) | self.about.get(scale, {})
        setting = base | for_all.get("setting", {}) | own.get("setting", {})
        if seeds is not None:
            seeds = whole_seeds(seeds)
        try:
            return Grid.of(f"{self.id} {name}", scale, for_all | own | {"setting": setting}, seeds)
        except (ValueError, UnknownMethod) as error:
            raise BadFile(path, str(error)) from error

    def page(
        self, *sections: str, scale: str = "smoke", seeds: list[int] | None = None,
        only: dict[str, Any] | str | None = None,
    ) -> Page:  # fmt: skip
        """All that the notebook of some sections works with.

        only: a part of the grids, such as {"dataset": ["CIFAR-10"], "method": ["FedAvg", "FedSAM"]}, and of the data
        sets on which a section measures without runs; or "finished" for the runs that the store has.
        """
        if isinstance(only, str) and only != FINISHED:
            raise BadGrid(f"only = {only!r}: must be {FINISHED!r}, or a table such as {{'dataset': ['CIFAR-10']}}")
        about = {name: self._section(name) for name in sections}
        (notebook,) = {section["notebook"] for section in about.values()}
        whole = {n: self.grid(n, scale, seeds) for n, section in about.items() if section.get("grid", True)}
        grids = {n: grid.finished() if isinstance(only, str) else grid.only(only) for n, grid in whole.items()}
        claims = tuple(claim for name in sections for claim in self.claims(name))
        evidence = {n: self.evidence(n) for n in sections}
        evidence |= {n: _on(only, scale, evidence[n], alone=not grids) for n in sections if n not in grids}
        kept = self.kept_folder(notebook, scale)
        return Page(notebook, scale, grids, claims, kept, evidence, whole, self._as_printed)

    def _as_printed(self, section: str) -> Grid:
        """The grid of a section at paper scale."""
        return self.grid(section, "paper")

    @property
    def own_results(self) -> Path:
        """Where `--keep` writes: papers/<id>/results in a checkout, a folder of the user's where fednb was installed.

        The user's folder is FEDNB_RESULTS/<id>, also in a checkout, or else results/<id> in the store.
        """
        if given := os.environ.get("FEDNB_RESULTS"):
            return Path(given) / self.id
        return home() / "results" / self.id if self.folder.is_relative_to(PACKAGE) else self.folder / "results"

    def own_folder(self, notebook: str, scale: str) -> Path:
        """Where `--keep` writes what an execution of one of its notebooks shows."""
        return self.own_results / f"{notebook.partition('/')[2]}_{scale}"

    def kept_folder(self, notebook: str, scale: str) -> Path:
        """Where kept results of one of its notebooks are read: the user's own, or those that came with the paper."""
        own = put_back(self.own_folder(notebook, scale))
        return own if own.exists() else self.folder / "results" / own.name

    def evidence(self, section: str) -> Evidence:
        """The measurements that a section's claims are judged on, by name, with their options; accuracy by default."""
        found = self._section(section).get("evidence", {"accuracy": {}})
        for what, how in found.items():
            try:
                signature(MEASUREMENTS[what]).bind(None, **how)
            except (KeyError, TypeError) as error:
                wrong = f"{error}" if what in MEASUREMENTS else f"there is only {', '.join(sorted(MEASUREMENTS))}"
                said = f"section {section}: evidence {shown(what)}: {wrong}"
                raise BadFile(self.folder / "paper.toml", said) from None
        return found

    def _section(self, name: str) -> dict[str, Any]:
        return self.about["sections"][_pick(f"section of {self.id}", name, list(self.about["sections"]))]

    @property
    def readings(self) -> str:
        """The reading log: printed, released, what we run, measured effect."""
        return (self.folder / "reading.md").read_text(encoding="utf-8")


def _on(only: dict[str, Any] | str | None, scale: str, evidence: Evidence, alone: bool) -> Evidence:
    """How a section without runs is measured, on wanted data sets only.

    Where it has none of these it stays as it is; on a page with no runs at all (`alone`) that is an error.
    """
    wanted = only.get("dataset") if isinstance(only, dict) else None
    if wanted is None:
        return evidence
    chosen = {}
    for what, how in evidence.items():
        cases = how[scale] if isinstance(how.get(scale), list) else []
        found = [case for case in cases if case["dataset"] in wanted]
        if cases and not found and alone:
            known = ", ".join(case["dataset"] for case in cases)
            raise BadGrid(f"only: no data set is called {shown(wanted)}; there are {known}")
        chosen[what] = how | {scale: found} if found else how
    return chosen


@lru_cache(maxsize=32)  # asked for section by section, and again for each scale
def _claims(path: Path, text: str, sections: tuple[str, ...]) -> tuple[Claim, ...]:
    """The claims in the text of a paper's file, without printed tables. sections: those of the paper."""
    described = parsed_toml(path, text)
    _check(path, "", described, {"claim": LIST_OF_TABLES})
    id = path.parent.name
    try:
        claims = tuple(Claim.of(id, each) for each in described.get("claim", []))
        for claim in claims:
            claim.check()
            _pick(f"section of {id}", claim.section, list(sections))
    except (BadClaim, UnknownPaper) as error:
        raise BadFile(path, str(error)) from None
    if twice := [claim.id for claim in claims if sum(other.id == claim.id for other in claims) > 1]:
        raise BadFile(path, f"claim {one_line(twice[0], 80)}: two claims have this id")
    return claims


def _as_told(text: str) -> pd.DataFrame:
    import pandas as pd

    return pd.read_csv(io.StringIO(text))


@lru_cache(maxsize=256)  # every claim comes with its printed table, and several are read from one
def _tidy(text: str) -> pd.DataFrame:
    """What `Paper.printed` gives, of the text of a printed table's file."""
    told = _as_told(text).rename(columns={"metric": "measure"})
    rows = [_parsed(str(text)) if text == text else {} for text in told.pop("setting")]
    varied = told.iloc[:, :0].assign(**{name: [row.get(name) for row in rows] for name in _names(rows)})
    numbers = {name: _numbers(told[name].astype(str).str.strip()) for name in ("value", "std")}
    tidy = _in_percent(varied.join(told).assign(**numbers, seed="printed"))
    tidy["figure"] = tidy["note"].astype(str).str.extract(r"^(Fig \w+(?: left| right)?)")[0]
    named = tidy[["dataset", "model"]].replace(REMARK, "", regex=True)
    tidy[["dataset", "model"]] = named.mask(named == "not printed")
    return tidy[tidy["value"].notna()].dropna(axis=1, how="all")


def _parsed(text: str) -> dict[str, Any]:
    """The `name=number` pairs of a printed setting, 5% being 0.05, its split (Dir(0.3)), its domain; else its text."""
    pairs = re.findall(r"(\w+)=([-+.\de]+)(%?)", text)
    known = [(name, _number(text), percent) for name, text, percent in pairs]
    numbers = {name: number / (100 if percent else 1) for name, number, percent in known if number is not None}
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
    """Finite numbers, and nothing where the paper has words."""
    return texts.map(_number).astype(float)


def _number(text: str) -> float | None:
    """The finite number that a text is, or nothing."""
    try:
        return number if isfinite(number := float(text)) else None
    except ValueError:
        return None
