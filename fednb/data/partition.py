"""Which client holds which samples: the kinds of partition by name, and the text that names one."""

import difflib
import re
from dataclasses import fields

from fednb.base.inputs import shown
from fednb.data.domains import LeaveOneOut
from fednb.data.labels import Dirichlet, DirichletClient, DirichletEqual, Iid, Pathological, PathologicalShards
from fednb.data.natural import Natural
from fednb.data.shift import FeatureShift
from fednb.data.split import Partition, PartitionFailed, counts

__all__ = [
    "Dirichlet",
    "DirichletClient",
    "DirichletEqual",
    "FeatureShift",
    "Iid",
    "LeaveOneOut",
    "Natural",
    "Partition",
    "PartitionFailed",
    "Pathological",
    "PathologicalShards",
    "UnknownPartition",
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


def parse(text: str | Partition) -> Partition:
    """The partition a text names: "iid", "dirichlet(0.1)", "pathological(classes=2)". A partition passes unchanged.

    >>> parse("dirichlet-client(0.6)")
    DirichletClient(alpha=0.6)
    """
    if isinstance(text, Partition):
        return text
    text = str(text)
    if len(text) > MOST_LETTERS:
        raise UnknownPartition(f"no partition {shown(text)}; write one in at most {MOST_LETTERS} letters.")
    found = re.fullmatch(r"\s*([\w-]+)\s*(?:\((.*)\))?\s*", text)
    kind = kind_of(found[1] if found else text)
    return kind(**arguments(kind, (found and found[2]) or ""))


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
