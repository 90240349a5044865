"""A run at work: its last saved round is loaded, finished rounds are saved, as long as nobody else writes there."""

from __future__ import annotations

import json
import os
import secrets
import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor

from fednb.base.files import DamagedFile, atomically, metadata, new_folder, save_tensors, sweep
from fednb.base.locks import Held
from fednb.core.record import Server, Table
from fednb.runs.history_csv import Extent, Growing, cut, written
from fednb.runs.store import Entry, OtherWriter, StoreError, weights_digest, writing

NOT_KEPT = ("delta", "step", "lr")  # of the server: made anew in every round
Version = tuple[int, str]  # the round in which a client's row was saved, and its file's digest
Versions = dict[int, Version]


class Session:
    """One process's work on a run, from taking its lock to giving it back.

    A session marks the run as its own. Every save looks first whether that mark and the state are still those that this
    session left, and raises OtherWriter where they are not: then nothing is overwritten.
    """

    def __init__(self, entry: Entry, held: Held) -> None:
        self.entry, self.held = entry, held
        self.mark = f"{secrets.token_hex(8)} process {os.getpid()} on {socket.gethostname()}"
        self.history = Growing(entry.folder / "history.csv")
        self.versions: Versions = {}
        self.about: dict[str, Any] = {}
        self.seen: tuple[int, ...] | None = None  # the state's file, as this session read or wrote it
        self.saved = 0, 0  # rounds and rows of history in that state
        self.proof: dict[str, Any] = {}  # what run.json records of the end

    def load(self, s: Server, table: Table) -> list[dict[str, Any]]:
        """Put the last saved round into s and table; returns its history (empty at the start)."""
        entry = self.entry
        with writing(entry.folder):
            for folder in (entry.folder, *(p for p in entry.folder.iterdir() if p.is_dir())):
                sweep(folder)
            atomically(entry.folder / "writer", self.mark)
        self.seen = _identity(entry.state)
        history = entry.history()  # nothing where no round was saved; an error where its state is missing
        if self.seen is None:
            with writing(entry.folder):
                self._remove_other_rows()
            return []
        state, about = entry.read(entry.state)  # its digest covers the model: hashing that too would take as long again
        with entry.reading(entry.state):
            self._take(s, table, state, about)
        with entry.reading(self.history.path):
            self._take_history(history)
        with writing(entry.folder):
            self._remove_other_rows()
        self.saved = s.t, len(history)
        return history

    def take_over(self, other: Entry, s: Server, table: Table) -> list[dict[str, Any]]:
        """Begin with the last saved round of another run, which stays as it is; returns its rounds."""
        theirs = Session(other, self.held)
        state, about = other.load_state()
        with other.reading(other.state):
            theirs._take(s, table, state, about)
        history = [row for row in other.history() if not row.get("tuned")]
        self.save(s, table, sorted(table.clients), history)
        return history

    def _take(self, s: Server, table: Table, state: dict[str, Tensor], about: dict[str, str]) -> None:
        _check_fit(self.entry.state, state, s.values(name for name in s.names if name not in NOT_KEPT))
        self.versions = _versions(self.entry.state, about)
        if wrong := [i for i in self.versions if not 0 <= i < s.N]:
            raise DamagedFile(self.entry.state, f"has a row of client {wrong[0]}, and there are {s.N} clients")
        with ThreadPoolExecutor(4) as threads:  # hashing and reading leave Python to the others
            rows = list(threads.map(partial(self._load_row, start=table.start), self.versions))
        for i, row in zip(self.versions, rows, strict=True):
            table.clients[i] = {name: x.to(table.start[name].device) for name, x in row.items()}
        for name, x in state.items():
            setattr(s, name, x)
        s.t = int(about["round"])
        recorded = about.get("weights_sha256") or weights_digest(state["w"], state["b"])
        self.proof = {"weights_sha256": recorded, "round": s.t}

    def _load_row(self, i: int, start: dict[str, Tensor]) -> dict[str, Tensor]:
        row = _load_row(self.entry, i, self.versions[i])
        _check_fit(_row_path(self.entry, i, self.versions[i]), row, start)
        return row

    def _take_history(self, history: list[dict[str, Any]]) -> None:
        """Go on behind the last row that belongs to the state; what lies behind was never completed."""
        path, known = self.history.path, self.entry.extent()
        if known is None:  # an older version's, which wrote it anew each time and said nothing about its length
            rounds = int(metadata(self.entry.state)["round"])
            history[:] = [row for row in history if row["round"] < rounds]
            path.unlink()
            self.history.append(history)
            return
        data = written(path, known[0])
        cut(path, len(data))
        self.history = Growing(path, data, len(history))

    def describe(self, about: dict[str, Any]) -> None:
        """Write run.json; whether a round was saved stands there too, so that a state that is missing is missed."""
        self._check_alone()
        self.about = about | ({"saved": True} if self.seen else {})
        self.entry.describe(self.about)

    def save(self, s: Server, table: Table, changed: list[int], history: list[dict[str, Any]]) -> None:
        """A finished round. The state file comes last: until it is there, the round has not happened."""
        self._check_alone()
        if self.saved != (s.t, len(history)):
            self._write(s, table, changed, history)
        if self.about and "saved" not in self.about:
            self.describe(self.about)

    def _write(self, s: Server, table: Table, changed: list[int], history: list[dict[str, Any]]) -> None:
        entry = self.entry
        with writing(entry.folder):
            versions = self.versions | self._save_rows(table, changed, s.t)
            extent = self.history.append(history[self.history.extent.rows :])
            state = {n: x.detach().cpu() for n, x in s.values(n for n in s.names if n not in NOT_KEPT).items()}
            proof = {"weights_sha256": weights_digest(state["w"], state["b"]), "round": s.t}
            words = {
                "key": entry.key,
                "round": str(s.t),
                "clients": json.dumps({i: version for i, (version, _) in versions.items()}),
                "rows": json.dumps({i: digest for i, (_, digest) in versions.items()}),
                "history": json.dumps(extent.as_json()),
                "weights_sha256": proof["weights_sha256"],
                "writer": self.mark,
            }
            self._check_alone()
            save_tensors(entry.state, state, words)
            self.seen, self.saved, self.proof = _identity(entry.state), (s.t, extent.rows), proof
            for i, before in self.versions.items():
                if versions[i] != before:
                    _row_path(self.entry, i, before).unlink(missing_ok=True)
            self.versions = versions

    def end(self, about: dict[str, Any]) -> None:
        """The run is over: record in run.json what belongs to it."""
        self.describe(about | self.proof | {"history": self.history.extent.as_json()})

    def _check_alone(self) -> None:
        """Raise OtherWriter where somebody else has written since this session did."""
        folder = self.entry.folder
        with writing(folder):
            os.stat(folder)
        self.held.check()
        mark = folder / "writer"
        try:
            said = mark.read_text()
        except (OSError, ValueError):
            said = "nobody"
        if said != self.mark:
            raise self._other(f"{mark} names {said.partition(' ')[2] or 'nobody'}")
        if (there := _identity(self.entry.state)) != self.seen:
            self._adopt()
            self.seen = there

    def _adopt(self) -> None:
        """Take over a state that a save of this session left, interrupted behind its last step; no other."""
        path = self.entry.state
        try:
            about = metadata(path)
            if about.get("writer") != self.mark:
                raise DamagedFile(path, "is of another process")
            self.versions = _versions(path, about)
            self.saved = int(about["round"]), Extent.of(path, about["history"]).rows
            self.proof = {"weights_sha256": about["weights_sha256"], "round": self.saved[0]}
        except (DamagedFile, OSError):
            raise self._other(f"{path} is not the one that this process saved") from None

    def _other(self, seen: str) -> OtherWriter:
        return OtherWriter(
            f"run {self.entry.key} was written by another process meanwhile ({seen}); this one stops and writes "
            f"nothing. Leave it to one process at a time; the same command goes on after the last saved round"
        )

    def _save_rows(self, table: Table, changed: list[int], version: int) -> Versions:
        if not table.start or not changed:
            return {}
        new_folder(self.entry.folder / "clients")
        saved = {}
        for i in changed:
            about = {"key": self.entry.key, "client": str(i), "version": str(version)}
            path = _row_path(self.entry, i, (version, ""))
            saved[i] = version, save_tensors(path, table.clients[i], about)
        return saved

    def _remove_other_rows(self) -> None:
        """Remove rows that no state points to: of saves that were never completed."""
        kept = {_row_path(self.entry, i, version) for i, version in self.versions.items()}
        for path in (self.entry.folder / "clients").glob("*.safetensors"):
            if path not in kept:
                path.unlink()


def check_saved(entry: Entry) -> None:
    """Read all that a run saved of its last round, the clients' rows with the state, and forget it."""
    _, about = entry.load_state()
    with entry.reading(entry.state):
        for i, version in _versions(entry.state, about).items():
            _load_row(entry, i, version)


def _row_path(entry: Entry, i: int, version: Version) -> Path:
    return entry.folder / "clients" / f"{i:05d}-{version[0]:06d}.safetensors"


def _load_row(entry: Entry, i: int, version: Version) -> dict[str, Tensor]:
    """A client's row, which must be the one that the state was saved with."""
    path = _row_path(entry, i, version)
    row, about = entry.read(path)
    if "unchecked" in about:
        return row
    if (about.get("client"), about.get("version")) != (str(i), str(version[0])):
        raise DamagedFile(path, f"is of client {about.get('client')} in round {about.get('version')}")
    if metadata(path).get("sha256") != version[1]:
        raise DamagedFile(path, "is not the file that the run's state was saved with")
    return row


def _versions(path: Path, about: dict[str, str]) -> Versions:
    """Which rows belong to a state, from the words about it; an older one's have no digests."""
    try:
        digests = json.loads(about.get("rows", "{}"))
        return {int(i): (int(version), digests.get(i, "")) for i, version in json.loads(about["clients"]).items()}
    except (KeyError, ValueError, AttributeError):
        raise DamagedFile(path, "does not say which clients' rows belong to it") from None


def _check_fit(path: Path, found: dict[str, Tensor], wanted: dict[str, Tensor]) -> None:
    """Names, shapes and number types must be those that the method and the model need."""
    if set(found) != set(wanted):
        raise DamagedFile(path, f"has {', '.join(sorted(found))} where the method needs {', '.join(sorted(wanted))}")
    for name, x in found.items():
        there, needed = ((str(y.dtype).removeprefix("torch."), tuple(y.shape)) for y in (x, wanted[name]))
        if there != needed:
            raise DamagedFile(path, f"{name} is {there[0]} {there[1]}, and the method needs {needed[0]} {needed[1]}")


def _identity(path: Path) -> tuple[int, ...] | None:
    """What tells a file from one that was written in its place; None where there is none."""
    try:
        seen = os.stat(path)
    except FileNotFoundError:
        return None
    return seen.st_dev, seen.st_ino, seen.st_size, seen.st_mtime_ns


class Checkpoints:
    """Saves finished rounds: each of them where that is cheap, otherwise so often that it takes a 20th of the time.

    A run that ends in between, by an interrupt or an error, leaves its last finished round behind; only a kill or a
    power cut loses the rounds since the last save, and they come back with the same bits.
    """

    SHARE = 0.05

    def __init__(self, session: Session, s: Server, table: Table, history: list[dict[str, Any]]) -> None:
        self.session, self.s, self.table, self.history = session, s, table, history
        self.changed: set[int] = set()
        self.left: Callable[[], None] | None = None  # saves the last finished round, where it is not saved yet
        self.began, self.spent, self.cost = time.monotonic(), 0.0, 0.0

    def __enter__(self) -> Checkpoints:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if self.left and not isinstance(error, StoreError):  # what cannot be saved now could not be a moment ago
            self.left()

    def finished(self, changed: list[int]) -> None:
        """A round is over, in which these clients changed."""
        self.changed |= set(changed)
        names = [name for name in self.s.names if name != "lr"]
        rows = Table(self.table.start)
        rows.clients = {i: self.table.clients[i] for i in self.changed if i in self.table.clients}
        twin = self.s.borrowing(
            self.s.values(names)
        )  # tensors are replaced, never written into: these stay as they are
        self.left = partial(self._save, twin, rows, len(self.history))
        if not self.spent or self.spent + self.cost <= self.SHARE * (time.monotonic() - self.began):
            self.left()

    def _save(self, s: Server, rows: Table, count: int) -> None:
        began = time.monotonic()
        self.session.save(s, rows, sorted(rows.clients), self.history[:count])
        self.changed, self.left = set(), None
        took = time.monotonic() - began
        self.spent += took
        self.cost = min(self.cost or took, took)  # a slow moment of the disk is not what the next one will cost
