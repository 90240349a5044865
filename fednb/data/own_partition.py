"""A user's own partition: each client's samples in a list or a file, or a function that deals them."""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from torch import Tensor

from fednb.base.imports import path_of
from fednb.base.inputs import BadFile, one_line, read_text, shown
from fednb.data.split import Partition, PartitionFailed

FILES = (".csv", ".json", ".npz")
MOST_BYTES = 1 << 30  # of a text file
ALLOWED = (
    "one client for each sample, a list with each client's samples, a function of (labels, clients, seed), or a file"
)
Parts = tuple[np.ndarray, ...]


def _label(default: Any) -> Any:
    """A field that changes nobody's samples, and so has no part in a run's key."""
    return field(default=default, compare=False, repr=False, metadata={"label": True})


@dataclass(frozen=True)
class OwnPartition(Partition):
    """A partition that a user gives. called: its text. repeated, unused: what `fn.add_partition` is told."""

    called: str = _label("")
    repeated: bool = _label(False)
    unused: bool = _label(False)

    def __post_init__(self) -> None:
        """Fields are checked where they are made."""

    def __str__(self) -> str:
        return self.called

    def split(self, labels: np.ndarray, clients: int, seed: int, owner: np.ndarray | None = None) -> list[np.ndarray]:
        """Sample indices (int64, ascending) of each client; PartitionFailed where they are no partition."""
        parts = self.parts_of(np.asarray(labels), clients, seed)
        check(self, parts, len(labels), clients)
        return [np.sort(part) for part in parts]

    def parts_of(self, labels: np.ndarray, clients: int, seed: int) -> Parts:
        """The indices of each client in any order, not checked yet."""
        raise NotImplementedError


@dataclass(frozen=True)
class Listed(OwnPartition):
    """Each client's samples as the user lists them, the same for every seed. digest: a fingerprint of them."""

    digest: str = ""
    parts: Parts = field(default=(), compare=False, repr=False, metadata={"label": True})
    name: ClassVar[str] = "listed"

    def parts_of(self, labels: np.ndarray, clients: int, seed: int) -> Parts:
        return self.parts


@dataclass(frozen=True)
class ByFunction(OwnPartition):
    """Samples dealt by a user's function of (labels, clients, seed)."""

    function: Callable[..., Any] = field(default=lambda labels, clients, seed: [])
    name: ClassVar[str] = "by-function"

    def parts_of(self, labels: np.ndarray, clients: int, seed: int) -> Parts:
        first, second = (self._dealt(labels.copy(), clients, seed) for _ in range(2))
        if len(first) != len(second) or not all(map(np.array_equal, first, second)):
            raise PartitionFailed(f"{self} deals otherwise each time; expected the same samples for the same seed")
        return first

    def _dealt(self, labels: np.ndarray, clients: int, seed: int) -> Parts:
        try:
            found = self.function(labels, clients, seed)
        except Exception as error:  # of a user's code
            why = f"{type(error).__name__}: {one_line(str(error))}"
            raise PartitionFailed(f"{self}({len(labels)} labels, {clients}, {seed}) fails: {why}") from error
        return parts_from(str(self), found, clients)


def is_own(given: Any) -> bool:
    """True for what only a user's own partition can be: no text, unless it names a file."""
    if isinstance(given, str):
        return given.lower().endswith(FILES)
    lists = np.ndarray | list | tuple | Tensor | Mapping | Path
    return isinstance(given, lists) or (callable(given) and not isinstance(given, type))


def own_partition(name: str, given: Any, repeated: bool = False, unused: bool = False) -> OwnPartition:
    """A user's partition under a name; without one it is called by its file, its function or its fingerprint."""
    if isinstance(given, str | Path):
        if not str(given).lower().endswith(FILES):
            raise ValueError(f"partition {shown(given)}: expected a file that ends with {', '.join(FILES)}")
        name, given = name or str(given), read_file(Path(given).expanduser())
    if callable(given):
        return ByFunction(name or _function_name(given), repeated, unused, given)
    parts = parts_from(name or "partition", given)
    digest = hashlib.sha256(b"".join(len(p).to_bytes(8, "little") + np.sort(p).tobytes() for p in parts)).hexdigest()
    return Listed(name or f"listed-{digest[:12]}", repeated, unused, digest[:32], parts)


def _function_name(function: Callable[..., Any]) -> str:
    inner = getattr(function, "func", function)
    return path_of(inner if hasattr(inner, "__qualname__") else type(inner))


def parts_from(name: str, given: Any, clients: int | None = None) -> Parts:
    """Each client's samples, from a list of them, a table of them, or one client for each sample (-1 for none).

    Clients of a table that are called 0 to n - 1 have these numbers, in whatever order they stand there; other names
    are numbered as they stand there.
    """
    if isinstance(given, Mapping):
        given = _in_order(given)
    if isinstance(given, Tensor):
        given = given.cpu().numpy()
    if not isinstance(given, np.ndarray | list | tuple):
        raise PartitionFailed(f"{name} is {shown(given)}; expected {ALLOWED}")
    if len(given) and np.ndim(given[0]) == 0:
        return _by_client(_whole(name, given), clients)
    return tuple(_whole(f"{name}: client {i}", part) for i, part in enumerate(given))


def _in_order(table: Mapping[Any, Any]) -> list[Any]:
    """What a table has of each client, in the order of their numbers where their names are 0 to n - 1."""
    named, numbers = {str(name): part for name, part in table.items()}, [str(i) for i in range(len(table))]
    return [named[number] for number in numbers] if set(named) == set(numbers) else list(table.values())


def _whole(name: str, values: Any) -> np.ndarray:
    """Whole numbers as int64 `[n]`."""
    found = values.cpu().numpy() if isinstance(values, Tensor) else np.asarray(values)
    if found.ndim != 1 or (len(found) and found.dtype.kind not in "iu"):
        raise PartitionFailed(f"{name} has {found.dtype} {found.shape}; expected a list of whole numbers")
    return found.astype(np.int64)


def _by_client(client: np.ndarray, clients: int | None) -> Parts:
    """The samples of each client, from the client of each sample."""
    count = max(int(client.max(initial=-1)) + 1, clients or 0)
    order = np.argsort(client, kind="stable")
    bounds = np.searchsorted(client[order], np.arange(count + 1))
    return tuple(order[begin:end] for begin, end in pairwise(bounds.tolist()))


def check(partition: OwnPartition, parts: Parts, n: int, clients: int) -> None:
    """Refuse what is no partition of n samples among that many clients, unless the user has said so."""
    if len(parts) != clients:
        raise PartitionFailed(f"{partition} has {len(parts)} clients, the setting {clients}; expected the same number")
    if empty := [i for i, part in enumerate(parts) if not len(part)]:
        raise PartitionFailed(f"{partition} leaves client {empty[0]} without samples; expected at least one for each")
    every = np.concatenate(parts)
    if every.min() < 0 or every.max() >= n:
        wrong = int(every.min() if every.min() < 0 else every.max())
        raise PartitionFailed(f"{partition} names sample {wrong}; expected positions 0 to {n - 1} in {n} samples")
    counts = np.bincount(every, minlength=n)
    if not partition.repeated and (twice := np.flatnonzero(counts > 1)).size:
        raise PartitionFailed(
            f"{partition} names sample {twice[0]} {counts[twice[0]]} times and {twice.size - 1} others more than once; "
            "expected once. Where that is meant: fn.add_partition(name, parts, repeated=True)"
        )
    if not partition.unused and (left := np.flatnonzero(counts == 0)).size:
        raise PartitionFailed(
            f"{partition} leaves out {left.size} of {n} samples, the first is {left[0]}; expected none. "
            "Where that is meant: fn.add_partition(name, parts, unused=True)"
        )


# Files


def read_file(path: Path) -> Any:
    """What a file says of who has which sample, as `parts_from` takes it; BadFile where it says something else."""
    kind = path.suffix.lower()
    if kind == ".npz":
        return _arrays(path)
    text = read_text(path, MOST_BYTES)
    if kind == ".json":
        try:
            return json.loads(text)
        except (ValueError, RecursionError) as error:
            raise BadFile(path, f"not JSON: {error}") from None
    return _table(path, text)


def _arrays(path: Path) -> Any:
    try:
        with zipfile.ZipFile(path):  # np.load would take other files for Python objects
            pass
        with np.load(path) as found:
            arrays = {name: found[name] for name in found.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise BadFile(path, f"cannot be read: {error}") from None
    return _numbered(arrays["client"]) if list(arrays) == ["client"] else arrays


def _table(path: Path, text: str) -> Any:
    import io

    import pandas as pd

    try:
        rows = pd.read_csv(io.StringIO(text))
    except ValueError as error:
        raise BadFile(path, f"not a table: {error}") from None
    if "client" not in rows or not set(rows) <= {"client", "sample"} or rows.isna().any(axis=None):
        raise BadFile(path, f"columns {shown(list(rows))}; expected sample and client, or client alone, in every row")
    client = _numbered(rows["client"].to_numpy())
    if "sample" not in rows:
        return client
    return [rows["sample"].to_numpy()[client == each] for each in range(client.max(initial=-1) + 1)]


def _numbered(client: Iterable[Any]) -> np.ndarray:
    """Clients as numbers from 0 on: as they are, or names in the order of the alphabet."""
    found = np.asarray(client)
    return found.astype(np.int64) if found.dtype.kind in "iu" else np.unique(found.astype(str), return_inverse=True)[1]
