"""What claims are judged on: the tidy tables of a page, and how the runs behind them were made."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import nan
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fednb.base.files import DamagedFile
from fednb.runs.grid import Grid
from fednb.study.claims import Claim
from fednb.study.claims.claim import COLUMNS
from fednb.study.claims.judging import SHOWN as JUDGED
from fednb.study.folders import Abouts, contents_of, read_runs, read_table, remedy
from fednb.study.protocol import protocol_differences

if TYPE_CHECKING:
    import pandas as pd

NUMBERS = ("effect", "low", "high", "bound", "printed", "ratio")  # of a verdict, nan where it has none


@dataclass(frozen=True)
class Measured:
    """What the claims of some sections are judged on: their tidy tables, and what is known of the runs behind them.

    tables: by section. lacking: by section, the names of tables that are not there.
    """

    tables: dict[str, list[pd.DataFrame]]
    runs: Abouts = field(default_factory=dict)
    lacking: dict[str, list[str]] = field(default_factory=dict)

    @classmethod
    def of(cls, folder: Path, evidence: dict[str, dict[str, Any]]) -> Measured:
        """The tables and runs.json in a folder, checked. evidence: by section, the measurements that it should have."""
        named = {section: [folder / f"{section}_{what}.csv" for what in wanted] for section, wanted in evidence.items()}
        tables = {name: [_tidy(f) for f in paths if is_listed(f)] for name, paths in named.items()}
        lacking = {name: [f.name for f in paths if not is_listed(f)] for name, paths in named.items()}
        return cls(tables, read_runs(runs) if is_listed(runs := folder / "runs.json") else {}, lacking)

    def runs_of(self, section: str) -> Abouts:
        """The runs that the tables of a section name; all where they name none."""
        keys = {key for table in self.tables.get(section, []) if "key" in table for key in table["key"]}
        return {key: about for key, about in self.runs.items() if key in keys} or self.runs

    def lacks(self, claim: Claim) -> str:
        """Why a claim cannot be judged; an empty text where its section has a table with its measure."""
        tables, lacking = self.tables.get(claim.section, []), self.lacking.get(claim.section, [])
        if not lacking or any(table["measure"].isin(claim.measures).any() for table in tables):
            return ""
        return f"{' and '.join(lacking)} {'is' if len(lacking) == 1 else 'are'} not there"


def precisions(seen: Abouts) -> list[str]:
    """The precisions of some runs, such as bf16, each once; without those of runs that do not say.

    A run whose GPU computed in another precision than its setting names has it as `computed_in`: fp32 runs of early
    versions used TF32 convolutions, which was torch's default.
    """
    settings = [about["setting"] | about for about in seen.values() if isinstance(about.get("setting"), dict)]
    said = (str(told.get("computed_in") or told.get("precision") or "") for told in settings)
    return list(dict.fromkeys(filter(None, said)))


def run_as(runs: Abouts, grid: Grid | None, asked: bool = False) -> dict[str, str]:
    """How some runs were made: their precision, whether tuned, and what differs from the paper's protocol.

    grid: the same table at paper scale; without one nothing is compared. asked: the paper tuned its methods, so that
    it is said where nothing was tuned.
    """
    settings = [setting for about in runs.values() if isinstance(setting := about.get("setting"), dict)]
    tuned = "tuned" if any(about.get("tuned") for about in runs.values()) else "untuned" if asked and runs else ""
    differs = protocol_differences(settings, [cell.setting for cell in grid.cells]) if grid else ""
    return {"precision": ", ".join(precisions(runs)), "tuned": tuned, "protocol": differs}


def read_measured(path: Path) -> pd.DataFrame:
    """A tidy table that `page.measure` wrote, checked; a method or a value that is called None stays a text."""
    return read_table(path, index_col=0, keep_default_na=False, na_values=[""])


def _tidy(path: Path) -> pd.DataFrame:
    """A table that claims can be judged on; DamagedFile where it lacks a column that all of them look at."""
    table = read_measured(path)
    if missing := [name for name in COLUMNS if name not in table]:
        raise DamagedFile(path, f"has no column {missing[0]!r}; {remedy(path.parent)}")
    return table


def is_listed(path: Path) -> bool:
    """True if a file of a page or of kept results is there, or should be: one that is gone is damage, not absence."""
    return path.exists() or path.name in contents_of(path.parent).files


def not_run(claims: Iterable[Claim], reasons: dict[str, str]) -> pd.DataFrame:
    """Rows of a table of verdicts for claims that were not judged. reasons: by a claim's id, why."""
    import pandas as pd

    empty: dict[str, Any] = dict.fromkeys(JUDGED, "") | dict.fromkeys(NUMBERS, nan)
    counts = {"n": 0, "settings_run": 0, "settings_claimed": 0}
    rows = [empty | counts | {"claim": claim.id, "says": claim.says, "rule": claim.rule, "ours": reasons[claim.id],
                              "verdict": "not run"} for claim in claims]  # fmt: skip
    return pd.DataFrame(rows, columns=list(JUDGED)).set_index("claim")
