"""Runs by content key: a folder each, its files whole and with digests, locked at work, set aside where damaged."""

from __future__ import annotations

import hashlib
import itertools
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from fednb.base import locks
from fednb.base.files import (
    LEFTOVER,
    DamagedFile,
    load_tensors,
    metadata,
    new_folder,
    read_json,
    sync_folder,
    write_json,
)
from fednb.base.locks import Held
from fednb.runs.history_csv import Extent, rows_of, written

ENDED = ("finished", "diverged")


class UnknownRun(KeyError):
    """A key that the store does not have, or that fits several runs."""

    def __str__(self) -> str:
        return str(self.args[0])


class StoreError(RuntimeError):
    """The store cannot be read or written; one line says which file, why, and what helps."""


class DamagedRun(StoreError):
    """A file of a run is not what was written: which, what is wrong with it, what is lost, how to repair it."""

    def __init__(self, key: str, path: Path, what: str, lost: str) -> None:
        super().__init__(key, path, what, lost)
        self.key, self.path, self.what, self.lost = key, path, what, lost

    def __str__(self) -> str:
        return f"{self.path}: {self.what}; lost: {self.lost}. `fednb store check --repair {self.key}` sets it aside"


class DamagedRuns(StoreError):
    """Several runs of a grid are damaged; all others were made."""

    def __init__(self, errors: list[DamagedRun]) -> None:
        super().__init__(errors)
        self.errors = errors

    def __str__(self) -> str:
        each = "; ".join(f"{e.path}: {e.what}" for e in self.errors)
        keys = " ".join(dict.fromkeys(e.key for e in self.errors))
        return f"{len(self.errors)} damaged, all others are made: {each}. `fednb store check --repair {keys}` helps"


class OtherWriter(StoreError):
    """Another process has written into a run that this one is at work on."""


class NoWeights(StoreError):
    """A run whose numbers are there and whose weights are not."""


def home() -> Path:
    """The store's folder: FEDNB_STORE, or a cache folder of the user's."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(os.environ.get("FEDNB_STORE") or cache / "fednb")


def weights_digest(w: Tensor, b: Tensor) -> str:
    """SHA-256 of a model: the bits of its weights and buffers."""
    running = hashlib.sha256()
    for x in (w, b):
        bits: Any = x.detach().cpu().contiguous().numpy()
        running.update(memoryview(bits).cast("B") if x.numel() else b"")
    return running.hexdigest()


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Errors of the disk in this block become one line: which file, why, and how to go on."""
    try:
        yield
    except OSError as error:
        path = Path(error.filename or folder)
        if match := LEFTOVER.fullmatch(path.name):  # a temporary name says nothing to anybody
            path = path.with_name(match["name"])
        why = error.strerror or error if folder.is_dir() else "the run's folder is gone"
        raise StoreError(
            f"{path}: cannot be written ({why}); the same command goes on after the last saved round"
        ) from error


@dataclass(frozen=True)
class Entry:
    """One run's folder: run.json, history.csv, state.safetensors, clients/, probes/, measured/, landscapes/."""

    key: str
    folder: Path

    @classmethod
    def of(cls, key: str) -> Entry:
        return cls(key, home() / "runs" / key)

    @property
    def state(self) -> Path:
        return self.folder / "state.safetensors"

    @property
    def started(self) -> bool:
        """True if anything of the run is there."""
        return any((self.folder / name).exists() for name in ("run.json", "state.safetensors", "history.csv"))

    def about(self) -> dict[str, Any]:
        """run.json, checked; nothing where the run has never started. One without a digest is "unchecked"."""
        path = self.folder / "run.json"
        with self.reading(path):
            if not path.exists() and not self.started:
                return {}
            about = read_json(path)
            if about.get("key", self.key) != self.key:
                raise DamagedFile(path, f"belongs to run {about['key']}")
            return about

    @property
    def ended(self) -> bool:
        return self.about().get("status") in ENDED

    @property
    def unfinished(self) -> bool:
        """True if the run is still to be made, or is damaged, which is said when it is."""
        try:
            return not self.ended
        except DamagedRun:
            return True

    @property
    def bare(self) -> bool:
        """True if the run's weights were left out when it was copied here: its numbers are all there is."""
        return self.about().get("weights") == "left out"

    def describe(self, about: dict[str, Any]) -> None:
        """Write run.json."""
        with writing(self.folder):
            write_json(self.folder / "run.json", about)

    @contextmanager
    def lock(self, wait: bool = True) -> Iterator[Held]:
        """Hold the run's lock; wait while another process works on the same key, or raise Busy.

        The lock falls with the process.
        """
        waiting = f"run {self.key} is at work in another process; waiting for it"
        with ExitStack() as stack:
            with writing(self.folder):
                held = stack.enter_context(locks.lock(self.folder / "lock", waiting, wait))
            yield held

    @contextmanager
    def reading(self, path: Path, lost: str = "") -> Iterator[None]:
        """What is wrong with a file of the run becomes one line. lost: what the file held; the run's rounds if ''."""
        try:
            yield
        except DamagedFile as error:
            raise DamagedRun(self.key, error.path, error.what, lost or self._rounds()) from error
        except FileNotFoundError as error:
            raise DamagedRun(self.key, path, "is missing", lost or self._rounds()) from error
        except OSError as error:
            raise StoreError(f"{path}: cannot be read ({error.strerror or error})") from error

    def read(self, path: Path, lost: str = "") -> tuple[dict[str, Tensor], dict[str, str]]:
        """Tensors of the run and the words about them, checked: whole, with a digest, and of this run."""
        with self.reading(path, lost):
            tensors, about = load_tensors(path, self.key)
            if "unchecked" in about and "unchecked" not in self.about():
                raise DamagedFile(path, "has lost its digest")
            if "unchecked" not in about and "key" not in about:
                raise DamagedFile(path, "does not say which run it belongs to")
            return tensors, about

    def load_state(self) -> tuple[dict[str, Tensor], dict[str, str]]:
        """The last saved round's state and the words about it; of an ended run the model must be the recorded one."""
        about = self.about()
        if not about:
            raise NoWeights(f"run {self.key} has no finished round in {home()}")
        if self.bare:
            raise NoWeights(f"run {self.key}: its weights were left out; {self.folder} has its numbers alone")
        if not self.state.exists() and not about.get("saved"):
            raise NoWeights(f"run {self.key} has no finished round yet")
        state, words = self.read(self.state)
        with self.reading(self.state):
            if not {"w", "b"} <= set(state):
                raise DamagedFile(self.state, "has no model in it")
            recorded = about.get("weights_sha256") if about.get("status") in ENDED else None
            if recorded and recorded != weights_digest(state["w"], state["b"]):
                raise DamagedFile(self.state, "has other weights than were recorded when the run ended")
        return state, words

    def weights(self) -> dict[str, Tensor]:
        """The last saved round's state by name; `w` is the model."""
        return self.load_state()[0]

    def weights_sha256(self) -> str:
        """The digest of the model, as recorded when it was written; of an older store's run that of what is there."""
        about = self.about()
        if about.get("status") in ENDED and "weights_sha256" in about:
            return about["weights_sha256"]
        state, words = self.load_state()
        return words.get("weights_sha256") or weights_digest(state["w"], state["b"])

    def extent(self) -> tuple[Extent, int] | None:
        """How much of history.csv belongs to the run, and its rounds; None where an older version wrote it."""
        about, words = self.about(), {}
        source = self.folder / "run.json"
        if about.get("status") not in ENDED or "history" not in about:
            source = self.state
            if not source.exists():
                if about.get("saved"):
                    raise DamagedFile(source, "is missing")
                return Extent(), 0
            words = metadata(source)
            if words.get("key", self.key) != self.key:
                raise DamagedFile(source, f"belongs to run {words['key']}")
        if "unchecked" in about and "history" not in words:
            return None
        told = words or about
        try:
            return Extent.of(source, told.get("history")), int(told["round"])
        except (KeyError, ValueError):
            raise DamagedFile(source, "does not say how many rounds are finished") from None

    def history(self) -> list[dict[str, Any]]:
        """One row per saved round, checked; a personalised run has one more, of the tuned classifiers."""
        path = self.folder / "history.csv"
        with self.reading(path):
            if (known := self.extent()) is None:
                return rows_of(path, path.read_bytes())
            try:
                return _rows(path, *known)
            except DamagedFile:
                if self.about().get("status") not in ENDED:  # a damaged state tells wrong things about the history
                    load_tensors(self.state)
                raise

    def set_aside(self) -> Path | None:
        """Move the run's folder out of the way, under its lock, and return where it is; nothing where there is none."""
        if not self.folder.is_dir():
            return None
        with self.lock(), writing(self.folder):
            return set_aside(self.folder, self.key)

    def _rounds(self) -> str:
        """How much was finished, as far as it can be told from what is left."""
        with suppress(OSError):
            if lines := (self.folder / "history.csv").read_bytes().count(b"\n") - 1:
                return f"the run's {lines} finished round{'s' * (lines != 1)}"
        return "the run's finished rounds"


def _rows(path: Path, extent: Extent, rounds: int) -> list[dict[str, Any]]:
    """The rows of a history of so many rounds, checked."""
    rows = rows_of(path, written(path, extent), extent.rows)
    if [row["round"] for row in rows if not row.get("tuned")] != list(range(rounds)):
        raise DamagedFile(path, f"has not one row for each of the {rounds} finished rounds")
    return rows


def load_measurement(
    entry: Entry, path: Path, words: dict[str, str], shapes: dict[str, tuple[int, ...]] | None = None
) -> tuple[dict[str, Tensor], dict[str, str]] | None:
    """A measurement that was kept under these words, checked; None where there is none.

    A damaged one is as good as none, since it can be made again; that it is lost is said on stderr.
    """
    if not path.exists():
        return None
    try:
        tensors, about = entry.read(path, "one measurement")
        fits = all(name in tensors and tuple(tensors[name].shape) == shape for name, shape in (shapes or {}).items())
        if not fits or any(about.get(name) != value for name, value in words.items()):
            raise DamagedRun(entry.key, path, "has another measurement in it", "one measurement")
        return tensors, about
    except DamagedRun as error:
        print(f"fednb: {path}: {error.what}; lost: {error.lost}, which is made again", file=sys.stderr)
        return None


def place_aside(name: str) -> Path:
    """A new, empty folder set-aside/NAME-N of the store."""
    place = new_folder(home() / "set-aside")
    for n in itertools.count(1):
        with suppress(FileExistsError):
            (place / f"{name}-{n}").mkdir()
            break
    return place / f"{name}-{n}"


def set_aside(path: Path, key: str) -> Path:
    """Move a run's folder, or a file of it, to set-aside/KEY-N of the store. Nothing is overwritten or removed."""
    target = place_aside(key)
    place = target.parent
    if path.is_dir():
        os.rename(path, target)  # over the empty folder that was made for it
    else:
        target = target / path.name
        os.rename(path, target)
        sync_folder(target.parent)
    sync_folder(place)
    sync_folder(path.parent)
    return target


def find(key: str) -> Entry:
    """A run by its key or the beginning of it."""
    fits = [entry.key for entry in entries() if entry.key.startswith(key)]
    if len(fits) != 1 and key not in fits:
        what = f"several runs begin with {key!r}: {', '.join(fits[:5])}" if fits else (
            f"no run {key!r} among {len(entries())}"
        )  # fmt: skip
        raise UnknownRun(f"{what}. The store is {home()}; set FEDNB_STORE for another.")
    return Entry.of(key if key in fits else fits[0])


def entries() -> list[Entry]:
    """Every run of the store that was started, by key."""
    folders = sorted((home() / "runs").glob("*"))
    return [entry for folder in folders if (entry := Entry(folder.name, folder)).started]
