"""Runs as one file that travels: a ZIP file of runs/KEY/... and a list of all that is in it, with sizes and digests.

The same contents give the same bytes. A run without its weights is bare: its run.json says so, and it has its numbers
and what was measured; the numbers may have fewer digits than they were written with, which it says too. Whoever reads
an archive takes only names that a run can have, and nothing that the list does not have.
"""

from __future__ import annotations

import hashlib
import io
import re
import stat
import struct
import zlib
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile, ZipInfo

from fednb.base.files import DamagedFile, as_json, digest, from_json, replacing
from fednb.base.inputs import shown
from fednb.base.progress import Bar, bar_of
from fednb.base.version import __version__
from fednb.runs.history_csv import ALL_DIGITS, Extent, as_csv, shortened
from fednb.runs.soundness import MEASURED, STATE, checks, files_in
from fednb.runs.store import ENDED, Entry, StoreError

FORMAT, LIST = "fednb runs 1", "manifest.json"
NUMBERS = ("run.json", "history.csv")
KEY = re.compile(r"[0-9a-f]{16}")
NAME = re.compile(r"run\.json|history\.csv|state\.safetensors|"
                  r"(clients|probes|measured|landscapes)/\w[^/\\\0]{0,200}\.safetensors")  # fmt: skip
PIECE = 1 << 20  # bytes that are read at once
MOST_TEXT = 256 << 20  # bytes of a list, a run.json or a history.csv; the longest run's are some megabytes
UNREADABLE = (BadZipFile, EOFError, zlib.error, struct.error, NotImplementedError, RuntimeError, ValueError, OSError)


class CannotExport(ValueError):
    """An archive that would have no run in it, or would take the place of another file."""


@dataclass
class Exported:
    """What became of the runs that were to be exported: keys, and one line for each that is left out."""

    written: list[str] = field(default_factory=list)
    unfinished: list[str] = field(default_factory=list)
    damaged: list[str] = field(default_factory=list)  # a line each
    bare: list[str] = field(default_factory=list)  # written without weights that were asked for


def export_runs(
    chosen: Sequence[Entry], path: Path, weights: bool = False, probes: bool = False, digits: int | None = None
) -> Exported:
    """Write the ended runs among `chosen` to an archive: numbers and what was measured.

    weights: the runs whole, with models, clients' rows and probes. probes: the probes, also without weights. digits: so
    many of every number in the histories, which then take half the room. Runs that are not finished or are damaged are
    left out. The file is there when all of it is written.
    """
    if digits is not None and not 1 <= digits <= ALL_DIGITS:
        raise CannotExport(f"digits = {digits}: must be from 1 to {ALL_DIGITS}, which is all of them")
    if digits is not None and weights:
        raise CannotExport("fewer digits are for runs without weights: a state knows its whole history; leave one out")
    done = Exported()
    if path.exists():
        raise CannotExport(f"{path} is there already; remove it, or name another file")
    with replacing(path) as fresh, bar_of(len(chosen), "exporting", unit="run") as bar:
        with ZipFile(fresh, "x") as archive:
            runs = {}
            for entry in sorted(chosen, key=lambda entry: entry.key):
                if names := _exportable(entry, weights, probes, done):
                    runs[entry.key] = _write_run(archive, entry, names, digits)
                bar.update()
            manifest = {"format": FORMAT, "fednb": __version__, "runs": runs}
            _write(archive, LIST, io.BytesIO(as_json(manifest)))
        if not runs:
            raise CannotExport(f"nothing to export: of {len(chosen)} runs {len(done.unfinished)} are not finished and "
                               f"{len(done.damaged)} damaged")  # fmt: skip
    done.written = list(runs)
    return done


def _exportable(entry: Entry, weights: bool, probes: bool, done: Exported) -> list[str]:
    """The files to write of a run, each looked at; nothing where the run is left out, which is noted in `done`."""
    try:
        about = entry.about()
        if about.get("status") not in ENDED:
            done.unfinished.append(entry.key)
            return []
        if "history" not in about:
            raise StoreError(f"run {entry.key}: an older version wrote it without digests; it cannot be exported")
        whole = weights and not entry.bare
        kinds = (*NUMBERS, *MEASURED, *(["probes"] * (probes or whole)), *([STATE, "clients"] * whole))
        names = [name for name in files_in(entry) if name.split("/")[0] in kinds]
        for check in checks(entry, only=names):
            check()
    except StoreError as error:
        done.damaged.append(str(error))
        return []
    done.bare += [entry.key] * (weights and not whole)
    return names


def _write_run(archive: ZipFile, entry: Entry, names: Sequence[str], digits: int | None) -> dict[str, Any]:
    """Write a run's files and return their sizes and digests. Its run.json says if it is bare, or has fewer digits."""
    listed, about, changed = {}, entry.about(), dict[str, bytes]()
    if digits is not None and digits < about.get("digits", ALL_DIGITS):
        rows = [{name: shortened(x, digits) for name, x in row.items()} for row in entry.history()]
        changed["history.csv"] = data = as_csv(rows) if rows else b""
        about |= {"history": Extent(len(rows), len(data), digest(data)).as_json(), "digits": digits}
    if STATE not in names:
        about |= {"weights": "left out"}
    if changed or STATE not in names:
        changed["run.json"] = as_json(about)
    for name in names:
        with io.BytesIO(changed[name]) if name in changed else open(entry.folder / name, "rb") as source:
            listed[name] = _write(archive, f"runs/{entry.key}/{name}", source)
    return listed


def _write(archive: ZipFile, name: str, source: IO[bytes]) -> dict[str, Any]:
    info = ZipInfo(name)  # its time is that of no machine: 1980
    info.create_system, info.external_attr = 3, (stat.S_IFREG | 0o644) << 16
    info.compress_type = ZIP_STORED if name.endswith(".safetensors") else ZIP_DEFLATED  # floats hardly get smaller
    running, size = hashlib.sha256(), 0
    with archive.open(info, "w", force_zip64=True) as target:
        while piece := source.read(PIECE):
            target.write(piece)
            running.update(piece)
            size += len(piece)
    return {"bytes": size, "sha256": running.hexdigest()}


@dataclass(frozen=True)
class Archive:
    """An archive that is open for reading; its list is checked, and so is every file when it is read."""

    path: Path
    zip: ZipFile
    listed: dict[str, dict[str, dict[str, Any]]]

    @property
    def runs(self) -> dict[str, dict[str, int]]:
        """By key: the files of a run and their sizes."""
        return {key: {name: told["bytes"] for name, told in of.items()} for key, of in self.listed.items()}

    def verify(self) -> None:
        """Read every file; DamagedFile where one is not what the list says."""
        total = sum(size for of in self.runs.values() for size in of.values())
        with bar_of(total, f"checking {self.path.name}", unit="B") as bar:
            for key, of in self.listed.items():
                for name in of:
                    self._read(key, name, None, bar)

    def copy(self, key: str, names: Collection[str], folder: Path) -> None:
        """Copy files of a run into a folder."""
        for name in names:
            (folder / name).parent.mkdir(exist_ok=True)
            with open(folder / name, "xb") as target:
                self._read(key, name, target)

    def _read(self, key: str, name: str, target: IO[bytes] | None, bar: Bar | None = None) -> None:
        """Read a file to its end, and refuse it where it is not the listed one."""
        inside, told, running = f"runs/{key}/{name}", self.listed[key][name], hashlib.sha256()
        for piece in self._pieces(inside):
            running.update(piece)
            if target:
                target.write(piece)
            if bar:
                bar.update(len(piece))
        if running.hexdigest() != told["sha256"]:
            raise _damaged(self.path, f"{inside} does not fit its digest")

    def _pieces(self, inside: str) -> Iterator[bytes]:
        with _reading(self.path), self.zip.open(inside) as source:
            while piece := source.read(PIECE):
                yield piece


@dataclass(frozen=True)
class RunFolders:
    """A folder of run folders, such as runs that are kept with a paper, or another store."""

    path: Path
    runs: dict[str, dict[str, int]]  # by key: the files of a run and their sizes

    def verify(self) -> None:
        """Nothing: a folder has no list, and each run's own digests are checked when it is merged."""

    def copy(self, key: str, names: Collection[str], folder: Path) -> None:
        """Copy files of a run into a folder."""
        for name in names:
            (folder / name).parent.mkdir(exist_ok=True)
            with open(folder / name, "xb") as target:
                for piece in self._pieces(Entry(key, self.path / key), name):
                    target.write(piece)

    def _pieces(self, entry: Entry, name: str) -> Iterator[bytes]:
        with entry.reading(entry.folder / name), open(entry.folder / name, "rb") as source:
            while piece := source.read(PIECE):
                yield piece


Source = Archive | RunFolders


@contextmanager
def source_of(path: Path) -> Iterator[Source]:
    """The runs in an archive, a folder of runs or a store; DamagedFile where there is no such thing."""
    if path.is_dir():
        yield _run_folders(path)
        return
    with _reading(path):
        archive = ZipFile(path)
    with archive:
        yield Archive(path, archive, _listed(path, archive))


def _run_folders(path: Path) -> RunFolders:
    inside = path / "runs" if (path / "runs").is_dir() else path
    entries = [Entry(p.name, p) for p in sorted(inside.iterdir()) if KEY.fullmatch(p.name) and not p.is_symlink()]
    runs = {e.key: {name: (e.folder / name).stat().st_size for name in files_in(e)} for e in entries if e.started}
    if not runs:
        raise DamagedFile(path, "has no runs in it; they are folders with a run.json, named by their keys")
    return RunFolders(inside, runs)


def _listed(path: Path, archive: ZipFile) -> dict[str, dict[str, dict[str, Any]]]:
    """The files of each run by the archive's own list, which must be all that is in it."""
    infos = archive.infolist()
    named = {info.filename: info for info in infos}
    if LIST not in named:
        raise DamagedFile(path, f"is no archive of runs: it has no {LIST}")
    if len(named) < len(infos):
        raise _damaged(path, "a name is in it twice")
    for info in infos:
        if stat.S_IFMT(info.external_attr >> 16) not in (0, stat.S_IFREG) or info.flag_bits & 1:
            raise _damaged(path, f"{shown(info.filename)} is not a plain file")
    if named[LIST].file_size > MOST_TEXT:
        raise _damaged(path, f"{LIST} has {named[LIST].file_size} bytes")
    with _reading(path):
        data = archive.read(LIST)
    runs = _runs_in(path, data)
    sizes = {f"runs/{key}/{name}": told["bytes"] for key, of in runs.items() for name, told in of.items()}
    if wrong := {*sizes, LIST} ^ {*named}:
        raise _damaged(path, f"{shown(min(wrong))} is in the archive or in its list, not in both")
    for name, size in sizes.items():
        if named[name].file_size != size or (size > MOST_TEXT and not name.endswith(".safetensors")):
            raise _damaged(path, f"{name} has {named[name].file_size} bytes")
    return runs


def _runs_in(path: Path, data: bytes) -> dict[str, dict[str, dict[str, Any]]]:
    """The runs and files that a list names; refused where one could not be a run's."""
    about = from_json(path, data)
    if about.get("format") != FORMAT:
        raise DamagedFile(path, f"is of the form {shown(about.get('format'))}; this version of fednb reads {FORMAT!r}")
    runs = about.get("runs")
    if "unchecked" in about or not isinstance(runs, dict) or not all(isinstance(of, dict) for of in runs.values()):
        raise _damaged(path, f"{LIST} is not a list of runs")
    for key, of in runs.items():
        if not KEY.fullmatch(key):
            raise _damaged(path, f"{shown(key)} is not the key of a run")
        if wrong := [name for name, told in of.items() if not NAME.fullmatch(name) or not _is_told(told)]:
            raise _damaged(path, f"{shown(wrong[0])} is not a file of a run")
        if not set(NUMBERS) <= set(of):
            raise _damaged(path, f"run {key} has no run.json or no history.csv")
    return runs


def _is_told(told: Any) -> bool:
    """Whether a list tells a file's size and digest."""
    return isinstance(told, dict) and type(told.get("bytes")) is int and isinstance(told.get("sha256"), str)


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """What is wrong with an archive becomes one line."""
    try:
        yield
    except FileNotFoundError:
        raise DamagedFile(path, "is missing") from None
    except UNREADABLE as error:
        raise _damaged(path, str(error) or type(error).__name__) from error


def _damaged(path: Path, what: str) -> DamagedFile:
    return DamagedFile(
        path, f"is damaged or no archive of runs ({what}); nothing was imported. Export or copy it again"
    )
