"""Claims and verdicts, and a page: the folder where a notebook's figure, table and verdict are kept."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

from fednb.experiment import Run
from fednb.grid import Grid
from fednb.store import atomically, home

if TYPE_CHECKING:
    import pandas as pd

RULE = "holds: true in every setting and seed; does not hold: false in some setting for every seed; else not decided"


@dataclass(frozen=True)
class Claim:
    """One sentence of a paper as a rule that a table can fail."""

    paper: str
    id: str
    section: str
    says: str
    kind: str
    measure: str
    tolerance: float = 0.0

    @classmethod
    def of(cls, paper: str, described: dict[str, Any]) -> Claim:
        claim = cls(paper, **described)
        if claim.kind not in KINDS:
            raise ValueError(f"claim {claim.id}: kind = {claim.kind!r}, must be one of {', '.join(KINDS)}")
        return claim

    @property
    def rule(self) -> str:
        """What is tested, in words, with the tolerance."""
        return (KINDS[self.kind].__doc__ or "").format(tolerance=self.tolerance)

    def judge(self, curves: pd.DataFrame) -> dict[str, tuple[bool, str]]:
        """For one seed: setting -> (true or false, the numbers). `curves` has settings down and bands across."""
        return KINDS[self.kind](curves, self.tolerance)


def _lowest_band_largest(curves: pd.DataFrame, tolerance: float) -> dict[str, tuple[bool, str]]:
    """the first band is at least (1 + {tolerance}) times every other band"""
    rest = curves.iloc[:, 1:].max(axis=1, skipna=False)
    return {
        str(i): (bool(low >= (1 + tolerance) * high), f"{low / high:.2f}x the next largest")
        for i, low, high in zip(curves.index, curves.iloc[:, 0], rest, strict=True)
    }


def _falls_with_band(curves: pd.DataFrame, tolerance: float) -> dict[str, tuple[bool, str]]:
    """the rank correlation of value and band is at most -{tolerance}"""
    ranks = curves.rank(axis=1).where(curves.notna().all(axis=1), axis=0)
    bands = ranks.columns.to_series().rank().to_numpy()
    return {str(i): (bool((r := _correlation(row.to_numpy(), bands)) <= -tolerance), f"rank correlation {r:+.2f}")
            for i, row in ranks.iterrows()}  # fmt: skip


def _low_band_grows_with_skew(curves: pd.DataFrame, tolerance: float) -> dict[str, tuple[bool, str]]:
    """from the largest alpha to the smallest the first band grows, and (1 + {tolerance}) times as much as the last"""
    skewed, even = curves.loc[curves.index.min()], curves.loc[curves.index.max()]
    growth = skewed / even
    low, high = growth.iloc[0], growth.iloc[-1]
    said = f"first band x{low:.2f}, last band x{high:.2f}"
    return {f"{curves.index.max()} to {curves.index.min()}": (bool(low >= (1 + tolerance) * high and low > 1), said)}


KINDS: dict[str, Callable[[Any, float], dict[str, tuple[bool, str]]]] = {
    "lowest_band_largest": _lowest_band_largest,
    "falls_with_band": _falls_with_band,
    "low_band_grows_with_skew": _low_band_grows_with_skew,
}


def _correlation(x: Any, y: Any) -> float:
    import numpy as np

    return float(np.corrcoef(x, y)[0, 1])


def verdict(table: pd.DataFrame, claims: tuple[Claim, ...], scale: str, by: str = "alpha") -> pd.DataFrame:
    """One row per claim: the rule, what was seen, and the outcome. At smoke scale it only says that it ran.

    `table` is tidy: the column `by` that names the setting, seed, measure, band, value; rounds are averaged. A number
    that is missing or not finite counts against the claim.
    """
    import pandas as pd

    rows = [_row(table, claim, scale, by) for claim in claims]
    return pd.DataFrame(rows).set_index("claim")


def _row(table: pd.DataFrame, claim: Claim, scale: str, by: str) -> dict[str, Any]:
    mine = table[table["measure"] == claim.measure]
    if mine.empty:
        raise ValueError(
            f"claim {claim.id} is about {claim.measure!r}; the table has {', '.join(set(table['measure']))}"
        )
    means = mine.groupby(["seed", by, "band"])["value"].mean(skipna=False).unstack("band")
    seeds = {seed: claim.judge(part.droplevel("seed")) for seed, part in means.groupby(level="seed")}
    settings = list(dict.fromkeys(setting for judged in seeds.values() for setting in judged))
    seeds = {seed: {s: judged.get(s, (False, "missing")) for s in settings} for seed, judged in seeds.items()}
    votes = {setting: [judged[setting][0] for judged in seeds.values()] for setting in settings}
    outcome = "not decided"
    if all(all(v) for v in votes.values()):
        outcome = "holds"
    elif any(not any(v) for v in votes.values()):
        outcome = "does not hold"
    seen = "; ".join(f"{s}: {', '.join(j[s][1] for j in seeds.values())}" for s in settings)
    if scale == "smoke":
        outcome = f"it ran (smoke scale decides nothing; by the rule: {outcome})"
    row = {"claim": claim.id, "says": claim.says, "rule": f"{claim.rule} ({RULE})", "seen": seen, "n": len(seeds)}
    return row | {"verdict": outcome}


@dataclass(frozen=True)
class Page:
    """What one notebook works with: its name, scale, grid and claims, and the folder of what it shows."""

    notebook: str
    scale: str
    grid: Grid | None = None
    claims: tuple[Claim, ...] = ()

    @property
    def folder(self) -> Path:
        return Path(os.environ.get("FEDNB_PAGE") or page_folder(self.notebook, self.scale))

    def keep(self, name: str, thing: Any, runs: Iterable[Run] = ()) -> Any:
        """Save a figure (PNG, with a caption that names notebook, scale and runs) or a table (CSV); give it back."""
        self.folder.mkdir(parents=True, exist_ok=True)
        runs = list(runs)
        if runs:
            self._note(runs)
        if hasattr(thing, "savefig"):
            said = f"notebooks/{self.notebook}.ipynb, scale {self.scale}. {provenance(runs)}"
            thing.supxlabel(fill(said, int(20 * thing.get_figwidth())), fontsize=6, color="0.35", x=0.01, ha="left")
            thing.savefig(self.folder / f"{name}.png", dpi=150)
        else:
            atomically(self.folder / f"{name}.csv", thing.to_csv())
            atomically(self.folder / f"{name}.txt", as_text(thing))
        return thing

    def _note(self, runs: list[Run]) -> None:
        """Write down which runs the page shows: runs.json, by key, with setting, seed, device and versions."""
        path = self.folder / "runs.json"
        seen = json.loads(path.read_text()) if path.exists() else {}
        atomically(path, json.dumps(seen | {r.key: r.about for r in runs}, indent=1, ensure_ascii=False) + "\n")


def as_text(table: pd.DataFrame) -> str:
    """A table for the terminal; one with long texts as a list."""
    grid = table.to_string(float_format="{:.3g}".format)
    if max(map(len, grid.splitlines())) <= 160:
        return grid + "\n"
    rows = table.reset_index().to_dict("records")
    blocks = ("\n".join(fill(f"{k}: {v}", 110, subsequent_indent="    ") for k, v in row.items()) for row in rows)
    return "\n\n".join(blocks) + "\n"


def provenance(runs: Iterable[Run]) -> str:
    """For captions: how many seeds, on what device, and which runs."""
    runs = list(runs)
    if not runs:
        return ""
    n = len({r.seed for r in runs})
    where = ", ".join(dict.fromkeys(r.about["device_name"] for r in runs))
    keys = list(dict.fromkeys(r.key[:8] for r in runs))
    more = f" and {len(keys) - 6} more" if len(keys) > 6 else ""
    return f"n = {n} seed{'s' * (n != 1)}, {where}, runs {', '.join(keys[:6])}{more}"


def page_folder(notebook: str, scale: str) -> Path:
    """Where what a notebook shows is kept."""
    return home() / "notebooks" / notebook / scale
