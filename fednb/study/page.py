"""A page: what one notebook works with and shows, with its provenance, and the verdicts on what it measured."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

from fednb.base import files
from fednb.base.files import Contents
from fednb.engines import PrecisionNotHere
from fednb.metrics.tidy import NOT_A_SETTING, REPORTS, gains
from fednb.runs import guessing
from fednb.runs.cells import BadGrid
from fednb.runs.experiment import Run
from fednb.runs.grid import SCALES, Grid, NeedsGpu, Results
from fednb.study.claims import Claim, verdict
from fednb.study.columns import WIDTH
from fednb.study.folders import Abouts, contents_of, copy_aside, page_folder, page_lock, put_back, read_runs
from fednb.study.measured import Measured, not_run, precisions, read_measured, run_as
from fednb.study.measurements.registry import MEASUREMENTS, measurement_named

if TYPE_CHECKING:
    import pandas as pd


DPI = 150  # of figures that are saved


class NoStoredTable(RuntimeError):
    """A table that is not among the results stored with a paper."""


@dataclass(frozen=True)
class StoredResults:
    """Results of an earlier execution, stored in the paper's folder: tables and provenance, no runs."""

    folder: Path
    grid: Grid

    @property
    def listed(self) -> bool:
        """True if its files have digests, which are checked when they are read."""
        return contents_of(self.folder).listed

    @property
    def runs(self) -> Abouts:
        return read_runs(self.folder / "runs.json")

    def table(self, file: str) -> pd.DataFrame:
        try:
            return read_measured(self.folder / file)
        except FileNotFoundError:
            said = f"{file} was not kept in {self.folder.name}; run the notebook on a machine with a GPU"
            raise NoStoredTable(said) from None


@dataclass(frozen=True)
class Page:
    """What one notebook works with: its name, scale, grids and claims, and the folder of what it shows.

    >>> page = fn.page("mine/01_first", "smoke")
    >>> page.keep("scores", pd.DataFrame({"accuracy": [80.0]}))
       accuracy
    0      80.0
    >>> (page.folder / "scores.csv").exists()
    True
    """

    notebook: str
    scale: str
    grids: dict[str, Grid] = field(default_factory=dict)
    claims: tuple[Claim, ...] = ()
    kept_folder: Path | None = None  # in papers/<id>/results, where an execution at this scale is kept
    evidence: dict[str, dict[str, dict[str, Any]]] = field(default_factory=dict)  # by section: what, with its options
    whole: dict[str, Grid] = field(default_factory=dict, compare=False, repr=False)  # the grids, none of them in part
    paper_grid: Callable[[str], Grid] | None = field(default=None, compare=False, repr=False)  # a section's as printed

    def __post_init__(self) -> None:
        page_folder(self.notebook, self.scale)  # refuses a name or a scale that no page can have

    @property
    def folder(self) -> Path:
        return Path(os.environ.get("FEDNB_PAGE") or page_folder(self.notebook, self.scale))

    @property
    def grid(self) -> Grid:
        """The first grid; most pages have one."""
        return next(iter(self.grids.values()))

    def status(self) -> pd.DataFrame:
        """One row per run of all grids: what it is, and how far it has come."""
        import pandas as pd

        return pd.concat({name: grid.status() for name, grid in self.grids.items()}, names=["grid", "run"])

    def run(self, name: str = "", device: str = "auto") -> Results | StoredResults:
        """Run what is missing of a grid. Where that needs a GPU and there is none: results that were kept, if any.

        A line says which runs learned nothing, since a mean over seeds hides them.
        """
        grid = self.grids[name] if name else self.grid
        if not grid.cells:
            raise BadGrid(self._empty(grid))
        try:
            results = grid.run(device=device)
        except (NeedsGpu, PrecisionNotHere) as error:
            kept = self.kept_folder and put_back(self.kept_folder)
            if kept is None or not (kept / "runs.json").exists():
                raise
            found = StoredResults(kept, grid)
            unchecked = "" if found.listed else "; unchecked: it has no list of its files"
            print(f"{error}\nShown instead: results/{kept.name}, {provenance(found)}{unchecked}")
            return found
        for line in guessing.told(results):
            print(line)
        return results

    def shows(self, name: str, device: str = "auto") -> bool:
        """Whether there is something of a grid to show, or it can be run here; says so in one line where not."""
        grid = self.grids[name]
        if grid.cells and not (grid.needs_gpu(device) and not self._has_kept(name)):
            return True
        print(f"{self._empty(grid)}.")
        return False

    def can_measure(self, what: str, results: Results | StoredResults) -> bool:
        """True if a measurement that needs the runs' models can be shown; says in one line why where it cannot.

        Runs that were imported may be numbers alone. Of kept results it can be shown where it was kept with them.
        """
        if isinstance(results, StoredResults):
            kept = (results.folder / f"{results.grid.name.split()[-1]}_{what}.csv").exists()
            if not kept:
                print(f"{results.grid.name}: {what} was not kept, since the runs came without their models.")
            return kept
        bare = [run.key for _, run in results if run.entry.bare]
        if bare:
            print(f"{results.grid.name}: not measured, since {len(bare)} of the runs came without their models.")
        return not bare

    def _empty(self, grid: Grid) -> str:
        """That a grid has no finished run here, and what brings those that are kept with its paper, or with others."""
        places: list[str] = []
        if self.kept_folder and self.scale == "paper":
            own = self.kept_folder.parent.parent / "runs"
            others = sorted(each.with_name("runs") for each in own.parent.parent.glob("*/paper.toml"))
            places = [str(each) for each in ([own] if own.is_dir() else others) if each.is_dir()]
        more = f"; `fednb store import {' '.join(places)}` brings the runs that are kept" if places else ""
        return f"{grid.name} at {self.scale} scale: nothing of it is run yet{more}"

    def _has_kept(self, grid: str) -> bool:
        """Whether a measurement of a grid is among the results that are kept."""
        kept = self.kept_folder and put_back(self.kept_folder)
        return kept is not None and any((kept / f"{grid}_{what}.csv").exists() for what in MEASUREMENTS)

    def measure(self, what: str, results: Results | StoredResults | str, **how: Any) -> pd.DataFrame:
        """A tidy table from the runs (see `fednb.study.measurements`), kept as CSV; or the one that was kept.

        results: what `page.run` gave, or the name of a section that needs no runs. how: options that paper.toml does
        not give.
        """
        measured = measurement_named(what)
        grid = results if isinstance(results, str) else results.grid.name.split()[-1]
        file = f"{grid}_{what}"
        if isinstance(results, StoredResults):
            table = results.table(f"{file}.csv")
        else:
            how = self.evidence.get(grid, {}).get(what, {}) | how
            table = measured(self.scale if isinstance(results, str) else results, **how).assign(grid=grid)
        with self._changing() as written:
            written.put(f"{file}.csv", table.to_csv())
            written.note(() if isinstance(results, str) else results)
        return table

    def measured(self, folder: Path | None = None) -> Measured:
        """What was measured for the claims of the page: the tables in its folder, or in another one of kept results."""
        return Measured.of(folder or self.folder, self.evidence)

    def verdict(self, measured: Measured | None = None) -> pd.DataFrame:
        """The verdicts on the claims of the page: one row per claim, judged on the tidy tables in the page's folder.

        The columns are those of `fn.verdict`. precision, tuned and protocol tell how the runs were made: in which
        precision, whether tuned, and where their settings differ from the paper's. A claim without a table is "not
        run", and says which it lacks. measured: judge these tables.

        >>> page = fn.papers("fedfft").page("fig5", scale="smoke")
        >>> table = page.measure("class_skew", "fig5")
        >>> page.verdict()["verdict"].iloc[0]
        'ran (smoke scale decides nothing)'
        """
        import pandas as pd

        measured = measured or self.measured()
        reasons = {claim.id: why for claim in self.claims if (why := measured.lacks(claim))}
        tables = [table.assign(**self._run_as(measured, section))
                  for section, several in measured.tables.items() for table in several]  # fmt: skip
        found = [
            verdict(tables, [self._planned(claim) for claim in self.claims if claim.id not in reasons], self.scale),
            not_run([claim for claim in self.claims if claim.id in reasons], reasons),
        ]
        return pd.concat([each for each in found if len(each)] or found[:1]).loc[[claim.id for claim in self.claims]]

    def _planned(self, claim: Claim) -> Claim:
        """A claim with all that is to be run for its section, where that is known."""
        import pandas as pd

        if (grid := (self.grids | self.whole).get(claim.section)) is None or claim.planned is not None:
            return claim
        return replace(claim, planned=pd.DataFrame({"method": cell.label, **cell.tags} for cell in grid.cells))

    def _run_as(self, measured: Measured, section: str) -> dict[str, str]:
        """How the runs behind a section were made; empty texts for a section that needs no runs."""
        runs = measured.runs_of(section) if section in self.grids else {}
        grid = self.paper_grid(section) if runs and self.paper_grid else None
        return run_as(runs, grid, any(claim.tuned for claim in self.claims if claim.section == section))

    def keep(self, name: str, thing: Any, shown: Results | StoredResults | Iterable[Run] = ()) -> Any:
        """Save a figure (PNG, with a caption that names notebook, scale and runs) or a table (CSV); give it back."""
        with self._changing() as written:
            written.note(shown)
            if hasattr(thing, "savefig"):
                nothing = ", which decides nothing" * (self.scale == SCALES[0] and bool(abouts(shown)))
                said = f"notebooks/{self.notebook}.ipynb, scale {self.scale}{nothing}. {provenance(shown)}"
                thing.supxlabel(fill(said, int(20 * thing.get_figwidth())), fontsize=6, color="0.35", x=0.01, ha="left")
                written.draw(f"{name}.png", thing)
            else:
                written.put(f"{name}.csv", thing.to_csv())
                written.put(f"{name}.txt", as_text(thing))
        return thing

    @contextmanager
    def _changing(self) -> Iterator[Writing]:
        """The page's folder, locked while it is written to; one that FEDNB_PAGE names is this page's own: no lock."""
        given = bool(os.environ.get("FEDNB_PAGE"))
        folder = files.new_folder(self.folder)
        with nullcontext() if given else page_lock(folder):
            files.sweep(folder)
            yield Writing(folder, contents_of(folder))


@dataclass
class Writing:
    """A page's folder while it is written to.

    A file leaves the list before it changes and comes back when it is whole: a kill in between leaves a file without a
    digest, not one that seems damaged.
    """

    folder: Path
    contents: Contents

    def put(self, name: str, data: str | bytes) -> None:
        """Write a file and list it."""
        with self._replacing(name):
            files.atomically(self.folder / name, data)

    def draw(self, name: str, figure: Any) -> None:
        """Save a figure as PNG and list it, in few colours: a third of the bytes or less, and it looks the same."""
        from PIL import Image

        drawn = io.BytesIO()
        figure.savefig(drawn, dpi=DPI, format="png")
        few = Image.open(drawn).convert("RGB").quantize(colours_of(figure), kmeans=2, dither=Image.Dither.NONE)
        with self._replacing(name), files.replacing(self.folder / name) as fresh:
            few.save(fresh, format="png", optimize=True, dpi=(DPI, DPI))

    def note(self, shown: Results | StoredResults | Iterable[Run]) -> None:
        """Write down which runs the page shows: runs.json, by key, with setting, seed, device and versions."""
        if seen := abouts(shown):
            path = self.folder / "runs.json"
            before = read_runs(path) if path.exists() else {}
            self.put("runs.json", json.dumps(before | seen, indent=1, ensure_ascii=False) + "\n")

    @contextmanager
    def _replacing(self, name: str) -> Iterator[None]:
        path = self.folder / name
        if self.contents.files.pop(name, None):
            self.contents.save()
        elif path.exists():  # not by fednb, as far as its list tells
            copy_aside(path)
        yield
        self.contents.add(name)
        self.contents.save()


def colours_of(figure: Any) -> int:
    """In how many colours a figure looks as it was drawn: lines, dots and bars in 64; shades, as of a map, in 256.

    A picture without axes counts as shaded.
    """
    if not hasattr(figure, "axes"):
        return 256
    marks = [mark for ax in figure.axes for mark in (*ax.images, *ax.collections)]
    return 256 if any(mark.get_array() is not None for mark in marks) else 64


def abouts(shown: Results | StoredResults | Iterable[Run]) -> Abouts:
    """By key, what is known of the runs that are shown: setting, seed, device, versions, what was tuned for them."""
    if isinstance(shown, StoredResults):
        return shown.runs
    if isinstance(shown, Results):
        chosen = [{"tuned": cell.tuned} if cell.tuned else {} for cell in shown.grid.cells]
        return {run.key: run.about | tuned for run, tuned in zip(shown.runs, chosen, strict=True)}
    return {run.key: run.about for run in shown}


def provenance(shown: Results | StoredResults | Iterable[Run]) -> str:
    """For captions: how many seeds, which precision, device and runs, what is particular about their data.

    Methods that were tuned stand there with the values that were chosen and those that were tried.
    """
    seen = abouts(shown)
    if not seen:
        return ""
    devices = dict.fromkeys(about["device_name"] for about in seen.values())
    where = ", ".join([*precisions(seen), *devices])
    keys = [key[:8] for key in seen]
    more = f" and {len(keys) - 6} more" if len(keys) > 6 else ""
    notes = dict.fromkeys(about["data"]["note"] for about in seen.values() if about.get("data", {}).get("note"))
    tuned = dict.fromkeys(f"{about['method']} tuned: {about['tuned']}" for about in seen.values() if about.get("tuned"))
    return "; ".join([f"{_seeds(seen)}, {where}, runs {', '.join(keys[:6])}{more}", *notes, *tuned])


def _seeds(seen: Abouts) -> str:
    """How many seeds are behind a number: "n = 2 to 3 seeds" where some methods or settings have fewer than others."""
    settings = [about.get("setting", {}) for about in seen.values()]
    said = [name for name in settings[0] if all(name in each for each in settings)]  # an older version's has fewer
    same: dict[str, set[int]] = {}
    for about, setting in zip(seen.values(), settings, strict=True):
        values = [setting[name] for name in said if name != "precision"]
        same.setdefault(f"{about.get('method')} {about.get('parts')} {values}", set()).add(about["seed"])
    few, many = min(map(len, same.values())), max(map(len, same.values()))
    return f"n = {few} to {many} seeds" if few < many else f"n = {many} seed{'s' * (many != 1)}"


def compare(scores: pd.DataFrame, printed: pd.DataFrame, measure: str = "accuracy", base: str = "") -> pd.DataFrame:
    """Ours beside the paper's: one row per printed number or run setting, in the paper's order.

    scores: tidy, from `page.measure`; printed: `paper.printed(table)`. Columns: paper, ours (mean over seeds), std, n,
    difference (ours − paper), and best, last and last_ten (means over seeds) where scores have them. A number of the
    paper that this scale does not run has no ours, and the other way round. Where ours is one data set or model that
    the paper does not have, it stands beside the paper's first, and two more columns say so instead of a difference,
    which would be one of data sets or models. base: compare what methods gain over this one, seed by seed: that is what
    scales have in common.

    >>> ours = pd.DataFrame({"method": "FedAvg", "seed": [0, 1], "measure": "accuracy", "value": [79.0, 81.0]})
    >>> printed = pd.DataFrame({"method": ["FedAvg"], "measure": ["accuracy"], "value": [82.0]})
    >>> fn.compare(ours, printed)[["paper", "ours", "difference"]]
            paper  ours  difference
    method
    FedAvg   82.0  80.0        -2.0
    """
    import pandas as pd

    if base:
        scores, printed = (
            gains(t, {m: base for m in dict.fromkeys(t["method"]) if m != base}, measure) for t in (scores, printed)
        )
        measure = "gain"
    ours = scores[scores["measure"] == measure]
    others = {c: (printed[c].iloc[0], ours[c].iloc[0]) for c in ("dataset", "model") if _stands_in(ours, printed, c)}
    for column, (first, _) in others.items():
        ours, printed = ours.assign(**{column: first}), printed[printed[column] == first]
    keys = [c for c in printed if c in ours and c not in NOT_A_SETTING and printed[c].notna().any()] + ["method"]
    theirs = printed[printed["measure"] == measure]  # nothing, where the paper did not count it
    reports = [c for c in REPORTS if c in ours]
    means = {"ours": ("value", "mean"), "std": ("value", "std"), "n": ("value", "count")}
    seen = ours.groupby(keys, sort=False, dropna=False).agg(**means, **{c: (c, "mean") for c in reports}).reset_index()
    paper = theirs.drop_duplicates(keys)[[*keys, "value"]].rename(columns={"value": "paper"})
    here = seen.merge(paper, on=keys, how="left")  # merged, not joined: a setting without an alpha is still one
    both = pd.concat([paper.merge(seen, on=keys, how="left"), here[here["paper"].isna()]]).set_index(keys)
    both = both.assign(difference=both["ours"] - both["paper"])[["paper", "ours", "std", "n", "difference", *reports]]
    told = {"paper on": ", ".join(a for a, _ in others.values()), "ours on": ", ".join(b for _, b in others.values())}
    return both.drop(columns="difference").assign(**told) if others else both


def _stands_in(ours: pd.DataFrame, theirs: pd.DataFrame, column: str) -> bool:
    """True if all of our runs have one value in a column (a data set, a model) that the paper does not have."""
    known = column in ours and column in theirs and len(theirs) > 0
    return known and ours[column].nunique() == 1 and ours[column].iloc[0] not in set(theirs[column])


def as_text(table: pd.DataFrame) -> str:
    """A table for the terminal in lines of 100 letters: a wide one in blocks of columns, one of long texts a list."""
    grid = table.to_string(float_format="{:.4g}".format)
    if max(map(len, grid.splitlines())) <= 160:
        return table.to_string(float_format="{:.4g}".format, line_width=WIDTH) + "\n"
    rows = table.reset_index().to_dict("records")
    blocks = ("\n".join(fill(f"{k}: {v}", WIDTH, subsequent_indent="    ") for k, v in row.items()) for row in rows)
    return "\n\n".join(blocks) + "\n"
