"""Runs that were made twice, here and elsewhere: which are the same, and how far apart the others end."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from fednb.base import files
from fednb.base.progress import bar_of
from fednb.runs.archive import NUMBERS, Source, source_of
from fednb.runs.listing import table_of
from fednb.runs.merging import difference, incoming
from fednb.runs.store import Entry

if TYPE_CHECKING:
    import pandas as pd


def made_twice(path: Path) -> pd.DataFrame:
    """One row for each finished run that both the store and an archive, a folder of runs or another store have, by key.

    here and there: its accuracy in percent, as its setting reports it, in the store and in `path`; difference: there
    less here; same: whether all that training decides is, in every digit that both have; "made here" and "made there":
    the devices.
    """
    with source_of(path) as source, TemporaryDirectory() as place:
        source.verify()
        ours: list[Entry] = []
        theirs: list[Entry] = []
        same: list[bool] = []
        with bar_of(len(source.runs), "comparing", unit="run") as bar:
            for key in source.runs:
                here = Entry.of(key)
                if here.started and here.ended and (there := _copied(source, key, Path(place))).ended:
                    with incoming(source, there):
                        same.append(not difference(here, there))
                    ours.append(here)
                    theirs.append(there)
                bar.update()
        one, other = table_of(ours), table_of(theirs)
        devices = {"made here": _devices(ours), "made there": _devices(theirs)}
    found = one[["method", "data", "model", "seed"]].assign(
        here=one["accuracy"].astype(float), there=other["accuracy"].astype(float), same=same, **devices
    )
    return found.assign(difference=found["there"] - found["here"])


def _devices(chosen: list[Entry]) -> list[str]:
    return [entry.about().get("device_name", "unknown") for entry in chosen]


def _copied(source: Source, key: str, place: Path) -> Entry:
    """A run's numbers in a folder of their own."""
    coming = Entry(key, files.new_folder(place / key))
    with incoming(source, coming):
        source.copy(key, NUMBERS, coming.folder)
    return coming
