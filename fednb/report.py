"""A page: what one notebook works with and shows, with its provenance; and ours beside the paper's numbers."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

from fednb.claims import Claim
from fednb.evidence import EVIDENCE, UnknownEvidence
from fednb.experiment import Run
from fednb.grid import Grid, NeedsGpu, Results
from fednb.metrics.tidy import NOT_A_SETTING, gains
from fednb.store import atomically, home

if TYPE_CHECKING:
    import pandas as pd

Abouts = dict[str, dict[str, Any]]  # what is known of each run, by key


class NotKept(RuntimeError):
    """A page asks for results that were not kept."""


@dataclass(frozen=True)
class Kept:
    """Results of an earlier execution, kept with the paper: tables and provenance, no runs."""

    folder: Path
    grid: Grid

    @property
    def runs(self) -> Abouts:
        return json.loads((self.folder / "runs.json").read_text())

    def table(self, file: str) -> pd.DataFrame:
        import pandas as pd

        if not (self.folder / file).exists():
            raise NotKept(f"{file} was not kept in {self.folder.name}; run the notebook on a machine with a GPU")
        return pd.read_csv(self.folder / file, index_col=0)


@dataclass(frozen=True)
class Page:
    """What one notebook works with: its name, scale, grids and claims, and the folder of what it shows."""

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

    def run(self, name: str = "", device: str = "auto") -> Results | Kept:
        """Run what is missing of a grid. At paper scale without a GPU: the results that were kept, if any."""
        grid = self.grids[name] if name else self.grid
        try:
            return grid.run(device=device)
        except NeedsGpu as error:
            kept = self.kept_folder
            if kept is None or not (kept / "runs.json").exists():
                raise
            print(f"{error}\nShown instead: results/{kept.name}, {provenance(Kept(kept, grid))}")
            return Kept(kept, grid)

    def measure(self, what: str, results: Results | Kept | str, **how: Any) -> pd.DataFrame:
        """A tidy table from the runs (see `fednb.evidence`), kept as CSV; or the one that was kept.

        results: what `page.run` gave, or the name of a section that needs no runs. how: options that paper.toml does
        not give.
        """
        if what not in EVIDENCE:
            raise UnknownEvidence(f"no evidence {what!r}; there is {', '.join(EVIDENCE)}")
        grid = results if isinstance(results, str) else results.grid.name.split()[-1]
        file = f"{grid}_{what}"
        if isinstance(results, Kept):
            table = results.table(f"{file}.csv")
        else:
            how = self.evidence.get(grid, {}).get(what, {}) | how
            table = EVIDENCE[what](self.scale if isinstance(results, str) else results, **how).assign(grid=grid)
        self.folder.mkdir(parents=True, exist_ok=True)
        atomically(self.folder / f"{file}.csv", table.to_csv())
        self._note(() if isinstance(results, str) else results)
        return table

    def keep(self, name: str, thing: Any, shown: Results | Kept | Iterable[Run] = ()) -> Any:
        """Save a figure (PNG, with a caption that names notebook, scale and runs) or a table (CSV); give it back."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._note(shown)
        if hasattr(thing, "savefig"):
            said = f"notebooks/{self.notebook}.ipynb, scale {self.scale}. {provenance(shown)}"
            thing.supxlabel(fill(said, int(20 * thing.get_figwidth())), fontsize=6, color="0.35", x=0.01, ha="left")
            thing.savefig(self.folder / f"{name}.png", dpi=150)
        else:
            atomically(self.folder / f"{name}.csv", thing.to_csv())
            atomically(self.folder / f"{name}.txt", as_text(thing))
        return thing

    def _note(self, shown: Results | Kept | Iterable[Run]) -> None:
        """Write down which runs the page shows: runs.json, by key, with setting, seed, device and versions."""
        if seen := abouts(shown):
            path = self.folder / "runs.json"
            before = json.loads(path.read_text()) if path.exists() else {}
            atomically(path, json.dumps(before | seen, indent=1, ensure_ascii=False) + "\n")


def abouts(shown: Results | Kept | Iterable[Run]) -> Abouts:
    """What is known of the runs that are shown."""
    if isinstance(shown, Kept):
        return shown.runs
    runs = shown.runs if isinstance(shown, Results) else shown
    return {r.key: r.about for r in runs}


def provenance(shown: Results | Kept | Iterable[Run]) -> str:
    """For captions: how many seeds, on what device, which runs, and what is particular about their data."""
    seen = abouts(shown)
    if not seen:
        return ""
    n = len({about["seed"] for about in seen.values()})
    where = ", ".join(dict.fromkeys(about["device_name"] for about in seen.values()))
    keys = [key[:8] for key in seen]
    more = f" and {len(keys) - 6} more" if len(keys) > 6 else ""
    notes = dict.fromkeys(about["data"]["note"] for about in seen.values() if about.get("data", {}).get("note"))
    return "; ".join([f"n = {n} seed{'s' * (n != 1)}, {where}, runs {', '.join(keys[:6])}{more}", *notes])


def compare(scores: pd.DataFrame, printed: pd.DataFrame, measure: str = "accuracy", base: str = "") -> pd.DataFrame:
    """Ours beside the paper's: one row per printed number or run setting, in the paper's order.

    scores: tidy, from `page.measure`; printed: `paper.printed(table)`. Columns: paper, ours (mean over seeds), std, n,
    difference (ours − paper). A number of the paper that this scale does not run has no ours, and the other way round.
    Where ours is one data set or model that the paper does not have, it stands beside the paper's first, and two more
    columns say so. base: compare what methods gain over this one, seed by seed, which is what scales have in common.
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
    """Whether all of ours is on one thing that the paper does not have."""
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


def page_folder(notebook: str, scale: str) -> Path:
    """Where what a notebook shows is kept."""
    return home() / "notebooks" / notebook / scale
