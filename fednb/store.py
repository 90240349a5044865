"""Runs by content key: a folder each, written atomically, locked at work, resumable at the last finished round."""

from __future__ import annotations

import csv
import fcntl
import hashlib
import io
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from fednb.record import Server, Table

RESULTS = 2  # part of every key; raise it when a change makes the same setting give other numbers


class UnknownRun(KeyError):
    """A key that the store does not have, or that fits several runs."""

    def __str__(self) -> str:
        return str(self.args[0])


def home() -> Path:
    """The store's folder: FEDNB_STORE, or a cache folder of the user's."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(os.environ.get("FEDNB_STORE") or cache / "fednb")


def key_of(*identity: Any) -> str:
    """A short name for everything that decides a run's numbers."""
    text = "\n".join(map(repr, (RESULTS, *identity)))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def atomically(path: Path, text: str) -> None:
    """Write a file so that a reader sees the old one or the new one, never half."""
    fresh = path.with_name(f".{path.name}.new")
    with open(fresh, "w", encoding="utf-8", newline="") as f:
        f.write(text)
        f.flush()
        os.fsync(f.fileno())
    os.replace(fresh, path)


def save_tensors(path: Path, tensors: dict[str, Tensor], about: dict[str, str]) -> None:
    """The same for tensors."""
    fresh = path.with_name(f".{path.name}.new")
    save_file({name: x.detach().cpu().contiguous().clone() for name, x in tensors.items()}, fresh, metadata=about)
    os.replace(fresh, path)


def load_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    with safe_open(path, framework="pt") as f:
        return {name: f.get_tensor(name) for name in f.keys()}, f.metadata() or {}  # noqa: SIM118


@dataclass(frozen=True)
class Entry:
    """One run's folder: run.json, history.csv, state.safetensors, clients/, probes/, measured/."""

    key: str
    folder: Path

    @classmethod
    def of(cls, key: str) -> Entry:
        return cls(key, home() / "runs" / key)

    def about(self) -> dict[str, Any]:
        """run.json, or nothing where the run has never started."""
        path = self.folder / "run.json"
        return json.loads(path.read_text()) if path.exists() else {}

    @property
    def ended(self) -> bool:
        return self.about().get("status") in ("finished", "diverged")

    def describe(self, about: dict[str, Any]) -> None:
        atomically(self.folder / "run.json", json.dumps(about, indent=1, ensure_ascii=False) + "\n")

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Hold the run's lock; wait while another process works on the same key. It falls with the process."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with open(self.folder / "lock", "w") as f:
            if not _try_lock(f):
                print(f"fednb: run {self.key} is at work in another process; waiting for it", file=sys.stderr)
                while not _try_lock(f):
                    time.sleep(0.2)
            yield

    def save(self, s: Server, table: Table, changed: list[int], history: list[dict[str, Any]]) -> None:
        """A finished round. The state file comes last: until it is there, the round has not happened."""
        self._save_clients(table, changed, s.t)
        atomically(self.folder / "history.csv", _as_csv(history))
        names = [name for name in s.names if name not in ("delta", "step", "lr")]
        versions = self._versions() | {str(i): s.t for i in changed if table.start}
        save_tensors(
            self.folder / "state.safetensors", s.values(names), {"round": str(s.t), "clients": json.dumps(versions)}
        )
        self._sweep(versions)

    def load(self, s: Server, table: Table) -> list[dict[str, Any]]:
        """Put the last finished round into s and table; returns its history (empty at the start)."""
        path = self.folder / "state.safetensors"
        if not path.exists():
            return []
        state, about = load_tensors(path)
        for name, x in state.items():
            setattr(s, name, x)
        s.t = int(about["round"])
        for i, version in json.loads(about["clients"]).items():
            rows, _ = load_tensors(self._client(int(i), version))
            table.clients[int(i)] = {name: x.to(table.start[name].device) for name, x in rows.items()}
        return [row for row in self.history() if row["round"] < s.t]

    def history(self) -> list[dict[str, Any]]:
        """One row per finished round."""
        path = self.folder / "history.csv"
        if not path.exists():
            return []
        with open(path, newline="") as f:
            return [{name: _number(text) for name, text in row.items()} for row in csv.DictReader(f)]

    def weights(self) -> dict[str, Tensor]:
        """The last finished round's state by name; `w` is the model."""
        return load_tensors(self.folder / "state.safetensors")[0]

    def _client(self, i: int, version: int) -> Path:
        return self.folder / "clients" / f"{i:05d}-{version:06d}.safetensors"

    def _save_clients(self, table: Table, changed: list[int], version: int) -> None:
        if table.start:
            (self.folder / "clients").mkdir(exist_ok=True)
            for i in changed:
                save_tensors(self._client(i, version), table.clients[i], {})

    def _versions(self) -> dict[str, int]:
        path = self.folder / "state.safetensors"
        if not path.exists():
            return {}
        with safe_open(path, framework="pt") as f:
            return json.loads(f.metadata()["clients"])

    def _sweep(self, versions: dict[str, int]) -> None:
        """Remove rows that no state points to any more."""
        kept = {self._client(int(i), version) for i, version in versions.items()}
        for path in (self.folder / "clients").glob("*.safetensors"):
            if path not in kept:
                path.unlink()


class Checkpoints:
    """Saves finished rounds: each of them where that is cheap, otherwise so often that it takes a tenth of the time.

    A run that ends in between, by an interrupt or an error, leaves its last finished round behind; only a kill or a
    power cut loses the rounds since the last save, and they come back with the same bits.
    """

    SHARE = 0.1

    def __init__(self, entry: Entry, s: Server, table: Table, history: list[dict[str, Any]]) -> None:
        self.entry, self.s, self.table, self.history = entry, s, table, history
        self.changed: set[int] = set()
        self.left: Callable[[], None] | None = None  # saves the last finished round, where it is not saved yet
        self.ended, self.cost = time.monotonic(), 0.0

    def __enter__(self) -> Checkpoints:
        return self

    def __exit__(self, *error: object) -> None:
        if self.left:
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
        self.left = partial(self._save, twin, rows, list(self.history))
        if time.monotonic() - self.ended >= self.cost * (1 / self.SHARE - 1):
            self.left()

    def _save(self, s: Server, rows: Table, history: list[dict[str, Any]]) -> None:
        began = time.monotonic()
        self.entry.save(s, rows, sorted(rows.clients), history)
        self.changed, self.left, self.ended = set(), None, time.monotonic()
        took = self.ended - began
        self.cost = min(self.cost or took, took)  # a slow moment of the disk is not what saving costs


def find(key: str) -> Entry:
    """A run by its key or the beginning of it."""
    fits = sorted(p.name for p in (home() / "runs").glob(f"{key}*") if (p / "run.json").exists())
    if len(fits) != 1:
        known = len(list((home() / "runs").glob("*/run.json")))
        what = f"several runs begin with {key!r}: {', '.join(fits[:5])}" if fits else f"no run {key!r} among {known}"
        raise UnknownRun(f"{what}. The store is {home()}; set FEDNB_STORE for another.")
    return Entry.of(fits[0])


def _try_lock(f: io.TextIOWrapper) -> bool:
    try:
        fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except BlockingIOError:
        return False


def _as_csv(rows: list[dict[str, Any]]) -> str:
    out = io.StringIO()
    writer = csv.DictWriter(out, fieldnames=list(rows[0]) if rows else ["round"], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def _number(text: str) -> int | float | None:
    if text == "":
        return None
    try:
        return int(text)
    except ValueError:
        return float(text)
