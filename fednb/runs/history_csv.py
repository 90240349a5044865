"""A run's history as a CSV file that only grows: a line per finished round, added at the end and synced.

Whoever keeps a history's extent beside it (its rows, bytes and their digest) can tell later what of the file belongs to
it: what lies behind was written by a save that was never completed, and is cut off.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fednb.base.files import DamagedFile, digest, sync_folder, write_all

Row = dict[str, Any]
ALL_DIGITS = 17  # significant ones that tell any two numbers apart


@dataclass(frozen=True)
class Extent:
    """How much of a history file belongs to a save: rows, bytes, and the digest of these bytes."""

    rows: int = 0
    bytes: int = 0
    sha256: str = digest(b"")

    @classmethod
    def of(cls, path: Path, plain: Any) -> Extent:
        """From what `as_json` gave. path: the file that it stands in, named where it cannot be read."""
        try:
            told = json.loads(plain) if isinstance(plain, str) else plain
            found = cls(told["rows"], told["bytes"], told["sha256"])
            sound = found.rows >= 0 and found.bytes >= 0 and isinstance(found.sha256, str)
        except (TypeError, ValueError, KeyError):
            sound = False
        if not sound:
            raise DamagedFile(path, "does not say how long its history is")
        return found

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


class Growing:
    """A history at work: it knows what of the file is written, and adds rows behind that."""

    def __init__(self, path: Path, written: bytes = b"", rows: int = 0) -> None:
        self.path = path
        self._now = hashlib.sha256(written), Extent(rows, len(written), digest(written))

    @property
    def extent(self) -> Extent:
        return self._now[1]

    def append(self, rows: Sequence[Row]) -> Extent:
        """Add rows and sync them.

        Bytes are written first and what lies behind them is cut off then: the same rows written twice, where the first
        time was interrupted, never make the file shorter than a state that was saved with them says.
        """
        running, before = self._now
        if rows:
            data = as_csv(rows, header=before.rows == 0)
            _write_at(self.path, before.bytes, data)
            running = running.copy()
            running.update(data)
            after = Extent(before.rows + len(rows), before.bytes + len(data), running.hexdigest())
            self._now = running, after
        return self.extent


def _write_at(path: Path, start: int, data: bytes) -> None:
    new = not path.exists()
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        if os.fstat(descriptor).st_size < start:
            raise DamagedFile(path, "is shorter than it was when its last round was saved")
        os.lseek(descriptor, start, os.SEEK_SET)
        write_all(descriptor, data)
        os.ftruncate(descriptor, start + len(data))
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    if new:
        sync_folder(path.parent)


def as_csv(rows: Sequence[Row], header: bool = True) -> bytes:
    """Rows as lines of CSV, with or without the line of their names."""
    out = io.StringIO()
    writer = csv.DictWriter(out, fieldnames=list(rows[0]), lineterminator="\n")
    if header:
        writer.writeheader()
    writer.writerows(rows)
    return out.getvalue().encode()


def shortened(value: Any, digits: int) -> Any:
    """A number with so many significant digits; whole numbers, and what is none, as they are."""
    return float(f"{value:.{digits}g}") if isinstance(value, float) else value


def written(path: Path, extent: Extent) -> bytes:
    """The bytes of a history file that belong to an extent, checked."""
    if extent.bytes == 0:
        return b""
    try:
        with open(path, "rb") as f:
            data = f.read(extent.bytes)
    except FileNotFoundError:
        raise DamagedFile(path, "is missing") from None
    if len(data) < extent.bytes:
        raise DamagedFile(path, f"is cut short: {len(data)} bytes, not {extent.bytes}")
    if digest(data) != extent.sha256:
        raise DamagedFile(path, "is not what was written (its digest does not fit)")
    return data


def rows_of(path: Path, data: bytes, count: int | None = None) -> list[Row]:
    """The rows in the bytes of a history file. count: how many there must be."""
    try:
        lines = csv.DictReader(io.StringIO(data.decode(), newline=""), strict=True)
        rows = [{name: _number(text) for name, text in line.items()} for line in lines]
    except (ValueError, TypeError, csv.Error):
        raise DamagedFile(path, "is not a history: a name and a number for every column") from None
    if count is not None and len(rows) != count:
        raise DamagedFile(path, f"has {len(rows)} rows, not {count}")
    return rows


def cut(path: Path, size: int) -> None:
    """Remove what lies behind the first `size` bytes."""
    if path.exists() and path.stat().st_size > size:
        _write_at(path, size, b"")


def _number(text: str) -> int | float | None:
    if text == "":
        return None
    try:
        return int(text)
    except ValueError:
        return float(text)
