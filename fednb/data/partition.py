"""Which client holds which samples: the kinds of partition by name, and the text that names one."""

import difflib
import re
import sys
from dataclasses import fields
from typing import Any

from fednb.base.codetext import Unreadable, describe
from fednb.base.imports import imported, is_import_path
from fednb.base.inputs import shown
from fednb.data.domains import LeaveOneOut
from fednb.data.labels import Dirichlet, DirichletClient, DirichletEqual, Iid, Pathological, PathologicalShards
from fednb.data.natural import Natural
from fednb.data.own_partition import ByFunction, Listed, is_own, own_partition
from fednb.data.shift import FeatureShift
from fednb.data.split import Partition, PartitionFailed, counts

__all__ = [
    "ByFunction",
    "Dirichlet",
    "DirichletClient",
    "DirichletEqual",
    "FeatureShift",
    "Iid",
    "LeaveOneOut",
    "Listed",
    "Natural",
    "Partition",
    "PartitionFailed",
    "Pathological",
    "PathologicalShards",
    "UnknownPartition",
    "add_partition",
    "counts",
    "parse",
]


class UnknownPartition(ValueError):
    """A name that no partition has."""


KINDS = (
    Iid, Dirichlet, DirichletClient, DirichletEqual, Pathological, PathologicalShards, Natural, FeatureShift,
    LeaveOneOut,
)  # fmt: skip
MOST_LETTERS = 200  # of a partition's text
NAMES: dict[str, type[Partition]] = {kind.name: kind for kind in KINDS}
OWN: dict[str, Partition] = {}  # a user's, by the text that names them in this process
OWN_NAME = re.compile(r"[A-Za-z][\w-]{0,59}")


def parse(text: Any) -> Partition:
    """The partition a text names: "iid", "dirichlet(0.1)", "pathological(classes=2)". A partition passes unchanged.

    A user's own is a list of index arrays, a function of (labels, clients, seed), the import path of either, or the
    path of a file; or the name that `add_partition` gave it.

    >>> parse("dirichlet-client(0.6)")
    DirichletClient(alpha=0.6)
    """
    if isinstance(text, Partition):
        return text
    if is_own(text):
        return _kept(own_partition("", text))
    text = str(text)
    if text in OWN:
        return OWN[text]
    if is_import_path(text):
        found = imported(text)
        return found if isinstance(found, Partition) else own_partition(text, found)
    if len(text) > MOST_LETTERS:
        raise UnknownPartition(f"no partition {shown(text)}; write one in at most {MOST_LETTERS} letters.")
    found = re.fullmatch(r"\s*([\w-]+)\s*(?:\((.*)\))?\s*", text)
    kind = kind_of(found[1] if found else text)
    return kind(**arguments(kind, (found and found[2]) or ""))


def add_partition(name: str, parts: Any, *, repeated: bool = False, unused: bool = False) -> None:
    """Enter a partition of your own under a name, for `fn.Setting(partition=name)` in this process.

    parts: each client's samples, a list of lists or arrays of positions in the training data; or one client number for
    each sample; or a function of (labels, clients, seed) that returns either; or the path of a file with either. A CSV
    file has columns sample and client, or client alone; a JSON file a list of lists, or a table from clients to lists;
    an npz file an array for each client, or one called client. `fn.Setting(partition=parts)` takes all of these too.
    Every sample must belong to exactly one client, and every client must have one. repeated=True allows samples of
    several clients, unused=True samples of none.

    A run's key has the positions, or the function's code. A name can be used again: another partition replaces the
    former, which is said.

    >>> fn.add_partition("halves", lambda labels, clients, seed: np.arange(len(labels)) % clients)
    >>> setting = fn.Setting(partition="halves", clients=2)
    >>> fn.class_counts(setting).sum(1).tolist()
    [719, 719]
    """
    if not isinstance(name, str) or not OWN_NAME.fullmatch(name):
        raise ValueError(f"partition {shown(name)}: must be a name of letters, digits, '-' and '_'")
    if name.lower().replace("-", "").replace("_", "") in {each.replace("-", "") for each in NAMES}:
        raise ValueError(f"partition {name!r} is one of the package's own: {', '.join(NAMES)}; take another name")
    made = own_partition(name, parts, repeated, unused)
    if name in OWN and not _same(OWN[name], made):
        print(f"fednb: partition {name!r} is replaced by another", file=sys.stderr)
    OWN[name] = made


def _same(one: Partition, other: Partition) -> bool:
    """True if two partitions deal in the same way; False where their code cannot be read."""
    try:
        return describe(one) == describe(other)
    except Unreadable:
        return False


def _kept(made: Partition) -> Partition:
    """A partition that can from now on be found by its text too; a file that was changed replaces what it had."""
    if not isinstance(made, Listed):
        return made
    text = str(made)
    if text in OWN and OWN[text] != made:
        print(f"fednb: partition {text!r} has changed since it was read; it is read again", file=sys.stderr)
        del OWN[text]
    return OWN.setdefault(text, made)


def kind_of(name: str) -> type[Partition]:
    """The class of a name; letter case, '-' and '_' do not matter."""
    known = {each.replace("-", ""): kind for each, kind in NAMES.items()}
    key = name.lower().replace("-", "").replace("_", "")
    if key in known:
        return known[key]
    near = [known[each].name for each in difflib.get_close_matches(key, known, cutoff=0.4)]
    raise UnknownPartition(f"no partition {shown(name)}; closest: {', '.join(near or NAMES)}.")


def arguments(kind: type[Partition], inner: str) -> dict[str, float]:
    """Field values from the text between the brackets, by position or by name."""
    known = [field.name for field in fields(kind)]
    values: dict[str, float] = {}
    for at, piece in enumerate(inner.split(",") if inner.strip() else []):
        field, _, value = (each.strip() for each in piece.rpartition("="))
        field = field or (known[at] if at < len(known) else value)
        if field not in known or field in values:
            problem = f"argument {shown(field)} is {'given twice' if field in values else 'unknown'}"
            raise ValueError(f'{kind.name}: {problem}; write e.g. "{kind()}".')
        try:
            values[field] = number(value)
        except ValueError:
            raise ValueError(f'{kind.name}: {field}={shown(value)} is not a number; write e.g. "{kind()}".') from None
    return values


def number(text: str) -> float:
    """A whole number, a number, true or false."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    return int(text) if re.fullmatch(r"[+-]?\d+", text) else float(text)
