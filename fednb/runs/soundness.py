"""A run is sound if every file of it can be read and is what was recorded: the checks, one after another."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from functools import partial
from typing import Any

from fednb.runs import checkpoints, probes
from fednb.runs.store import Entry

MEASUREMENT, MEASURED = "one measurement", ("measured", "landscapes")
STATE = "state.safetensors"


def checks(entry: Entry, only: Collection[str] | None = None) -> Iterator[Callable[[], Any]]:
    """Functions that raise a StoreError where something is wrong with the run.

    only: the files to look at beside run.json and history.csv, as paths in the run's folder; all of them if None.
    """
    yield entry.about
    yield entry.history
    about = entry.about()
    names = files_in(entry) if only is None else only
    whole = not entry.bare and (only is None or STATE in only)
    if whole and (about.get("saved") or entry.state.exists()):
        yield partial(checkpoints.check_saved, entry)
    finished = _finished_rounds(entry) if whole else 0
    kept = (t for t in about.get("probe", {}).get("rounds", []) if t < finished)
    matches = (re.fullmatch(r"probes/round-(\d{6,}).safetensors", name) for name in names)
    for t in sorted({*kept, *(int(match[1]) for match in matches if match)}):
        yield partial(probes.read_probe, entry, t)
    for name in sorted(name for name in names if name.startswith(MEASURED) and name.endswith(".safetensors")):
        yield partial(entry.read, entry.folder / name, MEASUREMENT)


def files_in(entry: Entry) -> list[str]:
    """The files of a run, as paths in its folder; locks, marks and what interrupted writing left are not among them."""
    found = [name for name in ("run.json", "history.csv", STATE) if (entry.folder / name).is_file()]
    for name in ("clients", "probes", *MEASURED):
        inside = (p for p in (entry.folder / name).glob("[!.]*.safetensors") if p.is_file())
        found += sorted(f"{name}/{p.name}" for p in inside)
    return found


def _finished_rounds(entry: Entry) -> int:
    try:
        known = entry.extent()
    except (RuntimeError, OSError):
        return 0  # said already
    return known[1] if known else 0
