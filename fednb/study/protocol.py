"""How runs differ from the paper's experiment: data, model, rounds and local training, found by comparing settings."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from typing import Any

from fednb.base.checks import is_number
from fednb.data.partition import parse as parse_partition
from fednb.data.sources import UnknownData, find, title
from fednb.engines.setting import Setting

APART = ("precision", "report", "evaluate_every")  # shown by itself, or no part of how a model is trained
FIRST = ("data", "model", "rounds", "samples", "clients")
COMPARED = (*FIRST, *(f.name for f in fields(Setting) if f.name not in (*FIRST, *APART)))
COUNTS = ("rounds", "clients")  # fewer are said as "60 of 300"
FEW = 3  # values that are listed one by one


def protocol_differences(ours: Iterable[dict[str, Any]], paper: Iterable[Setting]) -> str:
    """What some runs' settings have that the paper's settings do not; an empty text where there is nothing.

    ours: as runs.json has them. paper: of the same table at paper scale; a run is compared with those of its data set
    where there are some.

    >>> paper = [fn.Setting(rounds=300, model="resnet20-gn")]
    >>> protocol_differences([fn.Setting(rounds=60, samples=500).plain()], paper)
    'model cnn-small for resnet20-gn, rounds 60 of 300, 500 of 1,438 samples'
    """
    printed = list({str(setting): setting.plain() for setting in paper}.values())
    apart: dict[str, tuple[list[Any], list[Any]]] = {}
    for setting in map(_normal, ours):
        alike = [each for each in printed if each["data"] == setting.get("data")] or printed
        for name in (name for name in COMPARED if name in setting):
            theirs = [each[name] for each in alike]
            if theirs and setting[name] not in theirs:
                seen = apart.setdefault(name, ([], []))
                seen[0].append(_said_of(name, setting))
                seen[1].extend(_said_of(name, each) for each in alike)
    return ", ".join(_words(name, *map(_once, apart[name])) for name in COMPARED if name in apart)


def _normal(setting: dict[str, Any]) -> dict[str, Any]:
    """A setting of an older version with its split spelled as now."""
    try:
        return setting | {"partition": str(parse_partition(setting["partition"]))}
    except (KeyError, ValueError, TypeError):
        return setting


def _said_of(name: str, setting: dict[str, Any]) -> Any:
    """The value of a field as it is said: data sets by the papers' name, samples with how many there are."""
    value = setting[name]
    try:
        if name == "data":
            return title(value)
        if name == "samples":
            every = find(setting["data"]).train
            return f"{value:,} of {every:,}" if value and every else "all" if value is None else f"{value:,}"
    except (UnknownData, KeyError, TypeError):
        pass
    return value


def _once(values: list[Any]) -> list[Any]:
    return [value for at, value in enumerate(values) if value not in values[:at]]


def _words(name: str, ours: list[Any], theirs: list[Any]) -> str:
    """One difference: "rounds 60 of 300", "lr 0.05 for 0.1"."""
    if name == "samples":
        return f"{_listed(ours)} samples"
    fewer = name in COUNTS and all(is_number(v) for v in (*ours, *theirs)) and max(ours) < min(theirs)
    return f"{name} {_listed(ours)} {'of' if fewer else 'for'} {_listed(theirs)}"


def _listed(values: list[Any]) -> str:
    if len(values) > FEW and all(is_number(value) for value in values):
        return f"{min(values):g} to {max(values):g}"
    texts = [f"{value:g}" if is_number(value) else str(value).lower() if isinstance(value, bool) else str(value)
             for value in values]  # fmt: skip
    more = f" and {len(texts) - FEW + 1} more" if len(texts) > FEW else ""
    return " and ".join(texts) if not more else ", ".join(texts[: FEW - 1]) + more
