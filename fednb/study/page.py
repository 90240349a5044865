"""A page: what one notebook works with and shows, with its provenance; and ours beside the paper's numbers."""

from __future__ import annotations

import glob
import json
import os
import re
import shutil
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

from fednb.base import files
from fednb.base.files import Contents, DamagedFile
from fednb.base.locks import Held, lock
from fednb.metrics.tidy import NOT_A_SETTING, gains
from fednb.runs.experiment import Run
from fednb.runs.grid import SCALES, Grid, NeedsGpu, Results
from fednb.runs.store import home, place_aside
from fednb.study.claims import Claim
from fednb.study.measurements.registry import measurement_named

if TYPE_CHECKING:
    import pandas as pd

Abouts = dict[str, dict[str, Any]]  # what is known of each run, by key


class NoStoredTable(RuntimeError):
    """A table that is not among the results stored with a paper."""


class BadPage(ValueError):
    """A name or a scale that no page can have."""


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
            return read_table(self.folder / file, index_col=0)
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
        """Run what is missing of a grid. At paper scale without a GPU: the results that were kept, if any."""
        grid = self.grids[name] if name else self.grid
        try:
            return grid.run(device=device)
        except NeedsGpu as error:
            kept = self.kept_folder and put_back(self.kept_folder)
            if kept is None or not (kept / "runs.json").exists():
                raise
            found = StoredResults(kept, grid)
            unchecked = "" if found.listed else "; unchecked: it has no list of its files"
            print(f"{error}\nShown instead: results/{kept.name}, {provenance(found)}{unchecked}")
            return found

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

    def keep(self, name: str, thing: Any, shown: Results | StoredResults | Iterable[Run] = ()) -> Any:
        """Save a figure (PNG, with a caption that names notebook, scale and runs) or a table (CSV); give it back."""
        with self._changing() as written:
            written.note(shown)
            if hasattr(thing, "savefig"):
                said = f"notebooks/{self.notebook}.ipynb, scale {self.scale}. {provenance(shown)}"
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
        """Save a figure as PNG and list it."""
        with self._replacing(name), files.replacing(self.folder / name) as fresh:
            figure.savefig(fresh, dpi=150, format="png")

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


def abouts(shown: Results | StoredResults | Iterable[Run]) -> Abouts:
    """By key, what is known of the runs that are shown: setting, seed, device, versions."""
    if isinstance(shown, StoredResults):
        return shown.runs
    runs = shown.runs if isinstance(shown, Results) else shown
    return {r.key: r.about for r in runs}


def provenance(shown: Results | StoredResults | Iterable[Run]) -> str:
    """For captions: how many seeds, which precision and device, which runs, and what is particular about their data."""
    seen = abouts(shown)
    if not seen:
        return ""
    n = len({about["seed"] for about in seen.values()})
    devices = dict.fromkeys(about["device_name"] for about in seen.values())
    where = ", ".join([*precisions(seen), *devices])
    keys = [key[:8] for key in seen]
    more = f" and {len(keys) - 6} more" if len(keys) > 6 else ""
    notes = dict.fromkeys(about["data"]["note"] for about in seen.values() if about.get("data", {}).get("note"))
    return "; ".join([f"n = {n} seed{'s' * (n != 1)}, {where}, runs {', '.join(keys[:6])}{more}", *notes])


def precisions(seen: Abouts) -> list[str]:
    """The precisions of some runs, such as bf16, each once; without those of runs that do not say."""
    settings = [setting for about in seen.values() if isinstance(setting := about.get("setting"), dict)]
    return list(dict.fromkeys(str(setting["precision"]) for setting in settings if setting.get("precision")))


def compare(scores: pd.DataFrame, printed: pd.DataFrame, measure: str = "accuracy", base: str = "") -> pd.DataFrame:
    """Ours beside the paper's: one row per printed number or run setting, in the paper's order.

    scores: tidy, from `page.measure`; printed: `paper.printed(table)`. Columns: paper, ours (mean over seeds), std, n,
    difference (ours − paper). A number of the paper that this scale does not run has no ours, and the other way round.
    Where ours is one data set or model that the paper does not have, it stands beside the paper's first, and two more
    columns say so. base: compare what methods gain over this one, seed by seed, which is what scales have in common.

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
    seen = ours.groupby(keys, sort=False, dropna=False)["value"].agg(ours="mean", std="std", n="count").reset_index()
    paper = theirs.drop_duplicates(keys)[[*keys, "value"]].rename(columns={"value": "paper"})
    here = seen.merge(paper, on=keys, how="left")  # merged, not joined: a setting without an alpha is still one
    both = pd.concat([paper.merge(seen, on=keys, how="left"), here[here["paper"].isna()]]).set_index(keys)
    both = both.assign(difference=both["ours"] - both["paper"])[["paper", "ours", "std", "n", "difference"]]
    told = {"paper on": ", ".join(a for a, _ in others.values()), "ours on": ", ".join(b for _, b in others.values())}
    return both.assign(**told) if others else both


def _stands_in(ours: pd.DataFrame, theirs: pd.DataFrame, column: str) -> bool:
    """True if all of our runs have one value in a column (a data set, a model) that the paper does not have."""
    known = column in ours and column in theirs and len(theirs) > 0
    return known and ours[column].nunique() == 1 and ours[column].iloc[0] not in set(theirs[column])


def as_text(table: pd.DataFrame) -> str:
    """A table for the terminal; one with long texts as a list."""
    grid = table.to_string(float_format="{:.4g}".format)
    if max(map(len, grid.splitlines())) <= 160:
        return grid + "\n"
    rows = table.reset_index().to_dict("records")
    blocks = ("\n".join(fill(f"{k}: {v}", 110, subsequent_indent="    ") for k, v in row.items()) for row in rows)
    return "\n\n".join(blocks) + "\n"


PART = re.compile(r"[\w-][\w. -]*")  # of a page's name: it leads neither up nor elsewhere


def page_folder(notebook: str, scale: str) -> Path:
    """The folder in the store for what a notebook shows at a scale."""
    if scale not in SCALES:
        raise BadPage(f"no scale {scale!r}; the scales are {', '.join(SCALES)}")
    if not isinstance(notebook, str) or not all(PART.fullmatch(part) for part in notebook.split("/")):
        raise BadPage(f"no notebook can be called {notebook!r}; a name is such as fedfft/01_fig1")
    return home() / "notebooks" / notebook / scale


def page_lock(folder: Path) -> AbstractContextManager[Held]:
    """Held while files of a page or of kept results change, or while new ones take their place.

    Its file lies beside a page, and in the store for any other folder.
    """
    path = folder.with_name(f".{folder.name}.lock")
    if not folder.is_relative_to(home()):
        path = home() / "locks" / f"{folder.name}-{files.digest(os.fsencode(folder.absolute()))[:16]}.lock"
    return lock(path, f"{folder} is being written by another process; waiting for it")


def put_back(folder: Path) -> Path:
    """A page or kept results, put back where a kill left them without their name; where the disk can be written to."""
    if not folder.exists() and any(folder.parent.glob(f".{glob.escape(folder.name)}.*.old")):
        with suppress(OSError, RuntimeError), page_lock(folder):
            files.restore(folder)
    return folder


def read_table(path: Path, **how: Any) -> pd.DataFrame:
    """A CSV file of a page or of kept results, checked."""
    import pandas as pd

    check(path)
    try:
        return pd.read_csv(path, **how)
    except ValueError:
        raise DamagedFile(path, f"is not a table; {remedy(path.parent)}") from None


def read_runs(path: Path) -> Abouts:
    """A runs.json of a page or of kept results, checked."""
    check(path)
    try:
        runs = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        raise DamagedFile(path, f"is not JSON; {remedy(path.parent)}") from None
    if not isinstance(runs, dict) or not all(isinstance(about, dict) for about in runs.values()):
        raise DamagedFile(path, f"is not an object of runs by key; {remedy(path.parent)}")
    return runs


def check(path: Path) -> None:
    """Raise DamagedFile where a file of a page or of kept results is not what was written; an older one passes."""
    contents = contents_of(path.parent)
    try:
        contents.check_file(path.name)
    except DamagedFile as error:
        raise DamagedFile(error.path, f"{error.what}; {remedy(path.parent)}") from None


def contents_of(folder: Path) -> Contents:
    """The list of the files of a page or of stored results; DamagedFile names the command that makes it again."""
    try:
        return Contents.of(folder)
    except DamagedFile as error:
        raise DamagedFile(error.path, f"{error.what}; {remedy(folder)}") from None


def remedy(folder: Path) -> str:
    """The advice in an error about a damaged page or stored results: which command makes it again."""
    told = folder / "command.txt"
    if told.is_file():
        command = told.read_text(encoding="utf-8", errors="replace").partition("\n")[0]
    elif folder.is_relative_to(home() / "notebooks"):
        command = f"fednb notebook {folder.parent.relative_to(home() / 'notebooks')} --scale {folder.name}"
    else:
        return "execute its notebook again"
    return f"`{command}` makes it again"


def copy_aside(path: Path) -> Path:
    """Copy a file or folder, whose place something else will take, to set-aside/NAME-N of the store."""
    target = place_aside("-".join(path.parts[-3:]))
    if path.is_dir():
        shutil.copytree(path, target, symlinks=True, dirs_exist_ok=True)
    else:
        shutil.copyfile(path, target / path.name)
    files.sync_below(target)
    return target
