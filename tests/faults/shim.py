"""Faults from below: file operations of a process are counted, one of them fails, and what was synced is written down.

Installed in a child of the fork server, never in the process of the tests. Everything that writes below the watched
folder goes through Python's `os` and `open`, which are replaced; other folders are left alone.
"""

from __future__ import annotations

import builtins
import errno
import fcntl
import io
import json
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

WAYS = ("kill", "half", "EIO", "ENOSPC", "EROFS")  # half: half of a write, or all of another operation, then a kill
FILLS = ("open", "write", "mkdir")  # what a full disk refuses
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
real_open, real_write, real_link = os.open, os.write, os.link


class Shim:
    """Counts the operations below a folder; the one with number `at` (from 1) fails in one way.

    A full, read-only or forbidden disk stays so. journal: a file outside of the folder that gets a line of JSON per
    operation that was done and per mark of the test's. aside: a folder for files that were replaced or removed, so that
    they can be put back; none keeps nothing.
    """

    def __init__(self, folder: Path, journal: Path, at: int = 0, way: str = "", aside: Path | None = None) -> None:
        self.folder, self.at, self.way, self.aside, self.count = str(folder), at, way, aside, 0
        self.journal = real_open(journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def install(self) -> Shim:
        for name in ("replace", "rename", "mkdir", "unlink", "remove", "rmdir", "truncate"):
            setattr(os, name, self._by_path(name, getattr(os, name)))
        for name in ("fsync", "fdatasync", "ftruncate"):
            setattr(os, name, self._by_descriptor(name, getattr(os, name)))
        os.open, os.write = self._os_open, self._os_write
        self.open = io.open
        builtins.open = io.open = self._open
        return self

    def mark(self, what: str, value: Any) -> None:
        """A line of the journal that is no operation."""
        real_write(self.journal, (json.dumps({"mark": what, "value": value}) + "\n").encode())

    def step(self, kind: str, paths: list[str], do: Callable[[], Any], half: Callable[[], Any] | None = None) -> Any:
        """One operation, or its failure."""
        self.count += 1
        if self.count == self.at and self.way in ("kill", "half"):
            if self.way == "half":
                (half or do)()
            os.kill(os.getpid(), signal.SIGKILL)
        if self._refused(kind):
            if half and self.way == "ENOSPC":
                half()
            number = getattr(errno, self.way)
            raise OSError(number, os.strerror(number), paths[0])
        there = os.path.lexists(paths[-1])
        note: dict[str, Any] = {"op": kind, "paths": paths, "size": _size(paths[0]), "there": there}
        if self.aside and kind in ("replace", "rename", "unlink", "remove") and os.path.isfile(paths[-1]):
            note["aside"] = str(self.aside / str(self.count))
            real_link(paths[-1], note["aside"])
        done = do()
        note["after"] = _size(paths[0])
        real_write(self.journal, (json.dumps(note) + "\n").encode())
        return done

    def _refused(self, kind: str) -> bool:
        if not self.at or self.count < self.at or self.way in ("kill", "half"):
            return False
        if self.way in ("EROFS", "EACCES"):
            return self.count == self.at or not kind.endswith("sync")
        return self.count == self.at or (self.way == "ENOSPC" and kind in FILLS)

    def _below(self, path: Any, dir_fd: int | None = None) -> str:
        """The whole path where it is in the folder; otherwise nothing."""
        if isinstance(path, int):
            path = os.readlink(f"/proc/self/fd/{path}")
        path = os.fsdecode(path)
        if dir_fd is not None:
            path = os.path.join(os.readlink(f"/proc/self/fd/{dir_fd}"), path)
        path = os.path.abspath(path)
        return path if path == self.folder or path.startswith(self.folder + os.sep) else ""

    def _by_path(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*paths: Any, **options: Any) -> Any:
            named = [p for p in paths if isinstance(p, str | bytes | os.PathLike)]
            found = [self._below(p, options.get("dir_fd")) for p in named]
            if not any(found):
                return real(*paths, **options)
            return self.step(name, found, lambda: real(*paths, **options))

        return wrapped

    def _by_descriptor(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(file: Any, *rest: Any) -> Any:
            found = self._below(file if isinstance(file, int) else file.fileno())
            return self.step(name, [found], lambda: real(file, *rest)) if found else real(file, *rest)

        return wrapped

    def _os_open(self, path: Any, flags: int, *rest: Any, **options: Any) -> int:
        found = self._below(path, options.get("dir_fd")) if flags & WRITING else ""
        if not found:
            return real_open(path, flags, *rest, **options)
        return self.step("open", [found], lambda: real_open(path, flags, *rest, **options))

    def _os_write(self, file: int, data: Any) -> int:
        found = self._below(file)
        if not found:
            return real_write(file, data)
        some = memoryview(data).cast("B")
        half = some[: len(some) // 2]
        return self.step("write", [found], lambda: real_write(file, some), lambda: real_write(file, half))

    def _open(
        self, file: Any, mode: str = "r", buffering: int = -1, encoding: str | None = None, errors: str | None = None,
        newline: str | None = None, closefd: bool = True, opener: Any = None,
    ) -> Any:  # fmt: skip
        if not set(mode) & set("wax+") or not self._below(file):
            return self.open(file, mode, buffering, encoding, errors, newline, closefd, opener)
        plain = mode.replace("b", "").replace("t", "")
        raw = self.step("open", [self._below(file)], lambda: Raw(self, file, plain, closefd, opener))
        if buffering == 0:
            return raw
        held = (io.BufferedRandom if "+" in mode else io.BufferedWriter)(raw)
        return held if "b" in mode else io.TextIOWrapper(held, encoding or "utf-8", errors, newline)


class Raw(io.FileIO):
    """A file opened for writing, whose writes are operations of the shim."""

    def __init__(self, shim: Shim, *how: Any) -> None:
        super().__init__(*how)
        self.shim = shim

    def write(self, data: Any) -> int:
        found, some = self.shim._below(self.fileno()), memoryview(data).cast("B")
        write = super().write
        return self.shim.step("write", [found], lambda: write(some), lambda: write(some[: len(some) // 2]))

    def truncate(self, size: int | None = None) -> int:
        truncate = super().truncate
        return self.shim.step("truncate", [self.shim._below(self.fileno())], lambda: truncate(size))


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return -1


def locks_that(way: str) -> None:
    """Locks of this process are ignored (everybody gets them), or refused with ENOLCK."""

    def refuse(*_: Any) -> NoReturn:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    fcntl.flock = fcntl.lockf = {"ignored": lambda *_: None, "ENOLCK": refuse}[way]


def journal_of(path: Path) -> list[dict[str, Any]]:
    """What was done, in order: operations and marks."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def operations(notes: list[dict[str, Any]]) -> int:
    """How many operations there were until the run ended."""
    end = next((i for i, note in enumerate(notes) if note.get("mark") == "ended"), len(notes))
    return sum("op" in note for note in notes[:end])


def marks(notes: list[dict[str, Any]], what: str) -> list[Any]:
    """The values of one kind of mark."""
    return [note["value"] for note in notes if note.get("mark") == what]


def cut_power(notes: list[dict[str, Any]], names: str) -> None:
    """Make the folder what a power cut would leave: bytes that were not synced are gone.

    names: "kept" leaves every name in place, so that files are empty or short; "undone" takes back what
    was made, renamed or removed in a folder that was not synced since.
    """
    synced: dict[str, int] = {}  # for files with bytes that are not on the disk: how many are
    pending: list[dict[str, Any]] = []
    for note in (n for n in notes if "op" in n):
        kind, paths = note["op"], note["paths"]
        if kind in ("write", "truncate", "ftruncate"):
            synced.setdefault(paths[0], max(note["size"], 0))
        elif kind == "open" and note["size"] > note["after"]:
            synced.setdefault(paths[0], 0)
        elif kind in ("fsync", "fdatasync"):
            synced.pop(paths[0], None)
            pending = [p for p in pending if not all(os.path.dirname(x) == paths[0] for x in p["paths"])]
        elif kind in ("replace", "rename"):
            synced = {_moved(path, *paths): size for path, size in synced.items() if path != paths[1]}
        elif kind in ("unlink", "remove"):
            synced.pop(paths[0], None)
        if kind in ("replace", "rename", "unlink", "remove", "mkdir") or (kind == "open" and not note["there"]):
            pending.append(note)
    for path, size in synced.items():
        if os.path.isfile(path):
            os.truncate(path, size)
    for note in reversed(pending if names == "undone" else []):
        _undo(note)


def _moved(path: str, old: str, new: str) -> str:
    return new + path[len(old) :] if path == old or path.startswith(old + os.sep) else path


def _undo(note: dict[str, Any]) -> None:
    kind, paths = note["op"], note["paths"]
    if kind == "mkdir":
        shutil.rmtree(paths[0], ignore_errors=True)
    elif kind == "open":
        Path(paths[0]).unlink(missing_ok=True)
    else:
        if kind in ("replace", "rename"):
            os.rename(paths[1], paths[0])
        if "aside" in note:
            os.link(note["aside"], paths[-1])
