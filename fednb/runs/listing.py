"""What the store has: its runs as a table, its bytes by kind; and how a run is removed from it."""

from __future__ import annotations

import os
import shutil
import time
from calendar import timegm
from collections.abc import Iterator, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fednb.base import files
from fednb.base.inputs import shown
from fednb.base.progress import bar_of
from fednb.core.rounds import Method
from fednb.engines.setting import Setting
from fednb.runs.experiment import Run
from fednb.runs.merging import transit
from fednb.runs.store import ENDED, Entry, StoreError, entries, home, writing

if TYPE_CHECKING:
    import pandas as pd

STATUSES = (*ENDED, "running", "damaged")
COLUMNS = ("method", "data", "model", "partition", "seed", "rounds", "planned", "status", "accuracy", "weights",
           "bytes", "days")  # fmt: skip
OF_RUN = {"state.safetensors": "weights", "clients": "clients' rows", "probes": "probes",
          "measured": "measurements", "landscapes": "measurements"}  # fmt: skip
OF_STORE = {"set-aside": "set aside", "notebooks": "notebooks' pages", "compiled": "compiled steps"}
NUMBERS, OTHER = "histories", "everything else"

Several = str | Sequence[str] | None


def list_runs(
    method: Several = None,
    data: Several = None,
    seed: int | Sequence[int] | None = None,
    status: Several = None,
    older_than: float = 0.0,
) -> pd.DataFrame:
    """The runs of the store as a table, one row for each, by key.

    method, data: names, with * for any letters; capital letters do not matter. seed: one or several. status: finished,
    diverged, running (also where it was interrupted) or damaged. older_than: only runs that ended so many days ago.
    Accuracy is in percent, as the run's setting reports it; `days` counts from when the run ended, or was last saved.

    >>> setting = fn.Setting(samples=100, clients=4, rounds=2, epochs=1, batch=25)
    >>> run = fn.run(setting, "FedSAM", progress=False)
    >>> fn.list_runs(method="fedsam", status="finished").loc[run.key, ["method", "data", "status"]].tolist()
    ['FedSAM', 'digits', 'finished']
    """
    return table_of(entries(), method=method, data=data, seed=seed, status=status, older_than=older_than)


def table_of(
    chosen: Sequence[Entry],
    method: Several = None,
    data: Several = None,
    seed: int | Sequence[int] | None = None,
    status: Several = None,
    older_than: float = 0.0,
) -> pd.DataFrame:
    """Some runs as a table; the filters are those of `list_runs`."""
    import pandas as pd

    if unknown := [each for each in _several(status) if each not in STATUSES]:
        raise ValueError(f"status = {shown(unknown[0])}: must be one of {', '.join(STATUSES)}")
    wanted = {"method": _several(method), "data": _several(data), "seed": _several(seed), "status": _several(status)}
    rows = {}
    with bar_of(len(chosen), "listing", unit="run") as bar:
        for entry in chosen:
            row = _row(entry)
            if row["days"] >= older_than and all(_fits(row[name], of) for name, of in wanted.items()):
                rows[entry.key] = row
            bar.update()
    table = pd.DataFrame(rows.values(), index=pd.Index(rows, name="key", dtype=object), columns=list(COLUMNS))
    return table.astype({"seed": "Int64", "rounds": "Int64", "planned": "Int64"})


def _several(value: Any) -> list[Any]:
    return [] if value is None else [value] if isinstance(value, str | int) else list(value)


def _fits(value: Any, wanted: list[Any]) -> bool:
    """Whether a value is among the wanted ones; everything is where nothing is wanted."""
    if isinstance(value, str):
        return not wanted or any(fnmatchcase(value.lower(), str(each).lower()) for each in wanted)
    return not wanted or value in wanted


def _row(entry: Entry) -> dict[str, Any]:
    """What is known of a run; of a damaged one as much as can be read."""
    row: dict[str, Any] = dict.fromkeys(COLUMNS) | {"bytes": bytes_of(entry.folder), "days": _age(entry, {})}
    try:
        row |= _described(entry)
        row |= _numbers(entry)
    except (StoreError, KeyError, TypeError, ValueError, AttributeError):
        row |= {"status": "damaged"}
    return row


def _described(entry: Entry) -> dict[str, Any]:
    """What run.json says of a run."""
    about = entry.about()
    setting = about["setting"]
    named = {name: setting.get(name) for name in ("data", "model", "partition")}
    weights = "left out" if entry.bare else "yes" if entry.state.exists() else "none"
    told = {"method": about["method"], "seed": about["seed"], "planned": setting["rounds"], "weights": weights}
    return named | told | {"days": _age(entry, about)}


def _numbers(entry: Entry) -> dict[str, Any]:
    """How far a run has come, and its accuracy."""
    about = entry.about()
    known = {name: about["setting"].get(name, getattr(Setting, name)) for name in ("report", "validation")}
    setting = Setting(**known)  # an older version's others may not read
    run = Run(entry, setting, Method(about["method"]), about["seed"])
    return {"rounds": run.rounds_done, "accuracy": run.accuracy, "status": run.status}


def _age(entry: Entry, about: dict[str, Any]) -> float:
    """Days since a run ended; of one that has not, since its folder was last written to."""
    with suppress(KeyError, TypeError, ValueError):
        return max(0.0, time.time() - timegm(time.strptime(about["ended"], "%Y-%m-%dT%H:%M:%SZ"))) / 86400
    seen = [path.stat().st_mtime for path in (entry.folder, entry.state, entry.folder / "run.json") if path.exists()]
    return max(0.0, time.time() - max(seen, default=time.time())) / 86400


def bytes_of(folder: Path) -> int:
    """The bytes of all files below a folder."""
    return sum(size for _, size in _sizes(folder))


def _sizes(folder: Path) -> Iterator[tuple[Path, int]]:
    """Every file below a folder and its bytes; links are not followed."""
    for place, _, names in os.walk(folder):
        for path in (Path(place, name) for name in names):
            with suppress(FileNotFoundError):  # a run at work replaces files
                yield path, path.lstat().st_size


def size_by_kind() -> pd.DataFrame:
    """The files and bytes of the store by what they are: weights, probes, histories, notebooks' pages, ..."""
    import pandas as pd

    kinds = dict.fromkeys((NUMBERS, *OF_RUN.values(), *OF_STORE.values(), OTHER))
    found = {kind: [0, 0] for kind in kinds}
    for path, size in _sizes(home()):
        seen = found[_kind(path.relative_to(home()).parts)]
        seen[0] += 1
        seen[1] += size
    return pd.DataFrame(found.values(), index=pd.Index(found, name="kind"), columns=["files", "bytes"])


def _kind(parts: tuple[str, ...]) -> str:
    """What a file is, from its path in the store."""
    if parts[0] == "runs" and len(parts) > 2:
        return OF_RUN.get(parts[2], NUMBERS)
    return OF_STORE.get(parts[0], OTHER)


def remove(entry: Entry) -> int:
    """Remove a run from the store and return the bytes that it had; Busy where another process works on it.

    The run is gone in one step; its files are removed after that.
    """
    size = bytes_of(entry.folder)
    with transit() as place:
        going = files.beside(place / entry.key)
        with entry.lock(wait=False):
            os.rename(entry.folder, going)
            files.sync_folder(entry.folder.parent)
        shutil.rmtree(going, ignore_errors=True)  # what stays is swept by the next one that comes here
    return size


def remove_set_aside() -> int:
    """Remove everything that was set aside and return the bytes that it had."""
    place = home() / "set-aside"
    size = bytes_of(place)
    with writing(place):
        for folder in place.glob("*"):
            shutil.rmtree(folder)
    return size
