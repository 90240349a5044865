"""Runs from an archive or a folder, merged into the store: run by run, each whole or not at all.

A run that comes in is made ready in the store's transit/ and takes its place in one step, so that an interrupted import
leaves whole runs, and the same command goes on from there.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from fednb.base import files
from fednb.base.locks import Busy, lock
from fednb.base.progress import bar_of
from fednb.runs.archive import NUMBERS, Source, source_of
from fednb.runs.history_csv import ALL_DIGITS, shortened
from fednb.runs.soundness import MEASURED, STATE, checks
from fednb.runs.store import DamagedRun, Entry, StoreError, home, set_aside, writing

VECTORS = (STATE, "clients")
OF_MACHINE = ("seconds",)  # columns of a history that the machine decides and not the training


class Refused(StoreError):
    """A run that is not imported; one line says why."""


@dataclass
class Imported:
    """What became of the runs of an archive: keys, and one line for each that was refused."""

    new: list[str] = field(default_factory=list)
    completed: list[str] = field(default_factory=list)  # were there, and got weights, probes or measurements
    known: list[str] = field(default_factory=list)  # were there, and stay as they are
    refused: list[str] = field(default_factory=list)  # a line each

    def __add__(self, more: Imported) -> Imported:
        return Imported(*(getattr(self, each.name) + getattr(more, each.name) for each in fields(self)))


def import_runs(path: Path) -> Imported:
    """Check an archive and merge its runs into the store; or those of a folder of runs.

    Nothing is written before every digest of an archive was checked. A run that the store has is the same run if
    `difference` finds none: it stays as it is, but gets the weights, probes and measurements that it lacks. Another run
    under its key is refused, and so is one that is damaged or at work; all others are imported.
    """
    done = Imported()
    with source_of(path) as source:
        source.verify()
        with transit() as place, bar_of(len(source.runs), "importing", unit="run") as bar:
            for key in source.runs:
                try:
                    getattr(done, _merge(source, key, place)).append(key)
                except (Refused, DamagedRun) as error:
                    done.refused.append(str(error))
                except Busy:
                    done.refused.append(f"run {key} is at work in another process; import again when it is finished")
                bar.update()
    return done


@contextmanager
def transit() -> Iterator[Path]:
    """The store's folder for runs on their way in or out, for one process at a time; what others left is removed."""
    place = home() / "transit"
    waiting = "another process imports into this store or removes from it; waiting for it"
    with writing(place), lock(place / "lock", waiting):
        files.sweep(place)
        yield place


def difference(here: Entry, there: Entry) -> str:
    """How two runs of one key differ in what training decides; nothing where they are the same run.

    The same training on two machines takes other times: `seconds` of the history, and who made the run when and where,
    do not count. All other numbers of the history do, bit for bit, and so do the status and the digest of the weights.
    Of a run that is not finished, the rounds that both have count; of one that was exported with fewer digits, those.
    """
    ours, theirs = here.about(), there.about()
    digits = min(about.get("digits", ALL_DIGITS) for about in (ours, theirs))
    rows = list(zip(here.history(), there.history(), strict=False))
    for mine, other in rows:
        for name in (name for name in mine if name in other and name not in OF_MACHINE):
            if repr(shortened(mine[name], digits)) != repr(shortened(other[name], digits)):  # so that nan is nan
                return f"{name} of round {mine['round']} is {mine[name]} here and {other[name]} there"
    if not (here.ended and there.ended):
        return ""
    for name in ("status", "round", "weights_sha256"):
        if name in ours and name in theirs and ours[name] != theirs[name]:
            return f"{name} is {str(ours[name])[:16]} here and {str(theirs[name])[:16]} there"
    return ""


def _merge(source: Source, key: str, place: Path) -> str:
    """Merge one run; returns what became of it, by the name of `Imported`'s list."""
    entry, coming = Entry.of(key), Entry(key, files.new_folder(files.beside(place / key)))
    try:
        with incoming(source, coming):
            source.copy(key, NUMBERS, coming.folder)
            _check_numbers(source, coming)
        with entry.lock(wait=False):
            return _place(source, coming, entry)
    finally:
        shutil.rmtree(coming.folder, ignore_errors=True)  # what stays is swept by the next import


def _check_numbers(source: Source, coming: Entry) -> None:
    """Refuse a run that is not finished, or without what its run.json says that it has."""
    if not coming.ended:
        raise Refused(f"run {coming.key} of {source.path} is not finished; not imported")
    if "history" not in coming.about():
        raise Refused(f"run {coming.key} of {source.path}: an older version wrote it without digests; not imported")
    coming.history()
    if not coming.bare and STATE not in source.runs[coming.key]:
        raise Refused(f"run {coming.key} of {source.path}: {STATE} is missing; not imported")


@contextmanager
def incoming(source: Source, coming: Entry) -> Iterator[None]:
    """Damage of a run that comes in is said of where it comes from."""
    try:
        yield
    except DamagedRun as error:
        raise Refused(f"run {coming.key} of {source.path}: {error.path.name} {error.what}; not imported") from error


def _place(source: Source, coming: Entry, entry: Entry) -> str:
    """Put a run where it belongs, under its lock."""
    if not entry.started:
        return _put(source, coming, entry)
    if why := difference(entry, coming):
        raise Refused(
            f"run {entry.key}: {source.path} ({_maker(coming.about())}) has another one than {entry.folder} "
            f"({_maker(entry.about())}): {why}. Not imported; `fednb store rm {entry.key}` makes room for it"
        )
    if not coming.bare and "digits" in entry.about():  # a state knows its whole history
        raise Refused(
            f"run {entry.key} is here without weights and with {entry.about()['digits']} digits of its numbers; "
            f"`fednb store rm {entry.key}` makes room for the whole one of {source.path}"
        )
    return _complete(source, coming, entry) if entry.ended else _put(source, coming, entry)


def _maker(about: dict[str, Any]) -> str:
    """Where and when a run was made."""
    return f"{about.get('device_name', 'unknown device')}, {about.get('ended') or about.get('started', 'unknown time')}"


def _put(source: Source, coming: Entry, entry: Entry) -> str:
    """Let a run take the place of nothing, or of the same run unfinished, which is set aside."""
    kinds = (*MEASURED, "probes", *VECTORS * (not coming.bare))
    _fetch(source, coming, [name for name in source.runs[entry.key] if name.split("/")[0] in kinds])
    empty = files.beside(coming.folder.parent / entry.key)
    if entry.started:
        set_aside(entry.folder, entry.key)
    else:
        os.rename(entry.folder, empty)  # it holds a lock and nothing more
    try:
        os.rename(coming.folder, entry.folder)
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST):  # somebody has begun this run between the two lines
            raise Busy(str(entry.folder)) from None
        raise
    files.sync_folder(entry.folder.parent)
    shutil.rmtree(empty, ignore_errors=True)
    return "new"


def _complete(source: Source, coming: Entry, entry: Entry) -> str:
    """Give a run what it lacks. Its run.json comes last: until then a bare run is bare, whatever lies beside it."""
    whole = entry.bare and not coming.bare
    together = (*VECTORS, "probes") * whole  # these belong to one state
    single = (*MEASURED, *("probes",) * entry.bare)
    kind_of = {name: name.split("/")[0] for name in source.runs[entry.key]}
    lacking = [name for name, kind in kind_of.items()
               if kind in together or (kind in single and not (entry.folder / name).exists())]  # fmt: skip
    _fetch(source, coming, lacking)
    for name in lacking:
        files.new_folder((entry.folder / name).parent)
        os.replace(coming.folder / name, entry.folder / name)
    for folder in {(entry.folder / name).parent for name in lacking}:
        files.sync_folder(folder)
    if whole:
        entry.describe({name: value for name, value in entry.about().items() if name != "weights"})
    return "completed" if lacking else "known"


def _fetch(source: Source, coming: Entry, names: list[str]) -> None:
    """Copy files of a run that comes in, look at each, and put them on the disk."""
    needed = sum(source.runs[coming.key][name] for name in names)
    if (free := shutil.disk_usage(coming.folder).free) < needed:
        raise StoreError(f"{coming.folder.parent}: run {coming.key} needs {needed} bytes, and {free} are free")
    with incoming(source, coming):
        source.copy(coming.key, names, coming.folder)
        for check in checks(coming, only=names):
            check()
    files.sync_below(coming.folder)
