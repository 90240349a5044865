"""Runs that are kept with the papers, found by the keys that stand in captions; the store need not have them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fednb.base.files import DamagedFile
from fednb.runs.store import Entry, UnknownRun
from fednb.study.execution import results_folders
from fednb.study.folders import read_runs
from fednb.study.measured import read_measured
from fednb.study.paper import run_folders

if TYPE_CHECKING:
    import pandas as pd

TOLD = ["measure", "value", "round", "band"]  # columns of a tidy table that say what was measured of a run


@dataclass(frozen=True)
class KeptRun:
    """A run that is kept with a paper, whole in a folder of its own or described in the runs.json of some results.

    place: that folder, or that of the results. more: how many other results show the run.
    """

    key: str
    place: Path
    more: int = 0

    @property
    def entry(self) -> Entry | None:
        """The run's own folder; None where only what it is and what was measured of it were kept."""
        return Entry(self.key, self.place) if self.place.name == self.key else None

    def about(self) -> dict[str, Any]:
        """Setting, method, seed, device and versions."""
        return self.entry.about() if self.entry else read_runs(self.place / "runs.json")[self.key]

    def measured(self) -> pd.DataFrame:
        """What was measured of the run in the results that show it: the rows of their tables that name its key."""
        import pandas as pd

        found = []
        for path in sorted(self.place.glob("*.csv")):
            try:
                table = read_measured(path)
            except DamagedFile:
                continue
            if "key" in table and "measure" in table:
                found.append(table[table["key"] == self.key].reindex(columns=TOLD).assign(table=path.stem))
        return pd.concat(found).dropna(axis="columns", how="all") if found else pd.DataFrame()


def find_kept(key: str) -> KeptRun | None:
    """A run that is kept with a paper, by its key or the beginning of it; None where none is."""
    places: dict[str, list[Path]] = {}
    for each, place in _kept(key):
        places.setdefault(each, []).append(place)
    if len(places) > 1 and key not in places:
        raise UnknownRun(f"several runs begin with {key!r}: {', '.join(list(places)[:5])}")
    if not places:
        return None
    fits = key if key in places else next(iter(places))
    return KeptRun(fits, places[fits][0], len(places[fits]) - 1)


def _kept(begin: str) -> Iterator[tuple[str, Path]]:
    """The keys that begin so, with the folders of runs and then of results that have them."""
    yield from ((folder.name, folder) for folder in run_folders() if folder.name.startswith(begin))
    for path in (path for results in results_folders() for path in sorted(results.glob("*/runs.json"))):
        try:
            keys = list(json.loads(path.read_bytes()))
        except (OSError, ValueError, RecursionError):  # `fednb store check` names it
            continue
        yield from ((key, path.parent) for key in keys if isinstance(key, str) and key.startswith(begin))
