"""The command that makes a run again, found from what its run.json says."""

from __future__ import annotations

import ast
import shlex
from collections.abc import Iterator
from dataclasses import fields
from typing import Any, NamedTuple

from fednb.algorithms.catalogue import method
from fednb.core.rounds import Method
from fednb.engines.setting import Setting
from fednb.runs.experiment import run_of
from fednb.runs.probes import Probe


class Command(NamedTuple):
    """What to type for a run, and the key that the run has in this version."""

    text: str
    key: str


def command_of(about: dict[str, Any]) -> Command | None:
    """The command for the run that a run.json is about; None for a method or a setting that cannot be typed.

    Import paths are never followed: a run may come from anywhere, and looking at it must not execute its code.

    >>> setting = fn.Setting(samples=100, clients=4, rounds=2, epochs=1, batch=25, lr=0.05)
    >>> run = fn.run(setting, fn.method("FedSAM", rho=0.2), seed=1, progress=False)
    >>> command_of(run.about).text
    'fednb run FedSAM -p rho 0.2 --seed 1 --clients 4 --rounds 2 --epochs 1 --batch 25 --lr 0.05 --samples 100'
    """
    try:
        if any(":" in str(named) for named in (about["method"], *about["setting"].values())):
            return None
        setting, base = Setting(**about["setting"]), method(about["method"])
        changes = dict(_changes(base, about["parts"]))
        meant = base.but(**changes)
        probe = Probe(**about["probe"]) if "probe" in about else None
        key = run_of(setting, meant, about["seed"], probe).key
    except (AttributeError, KeyError, TypeError, ValueError, SyntaxError, RecursionError, MemoryError):
        return None  # an older version's, code that is not here, or no text of parts
    if (key != about.get("key") and repr(meant) != about["parts"]) or (probe and not (probe.what and probe.rounds)):
        return None
    default, plain = Setting().plain(), setting.plain()
    words = ["fednb", "run", about["method"]]
    words += [word for name, value in changes.items() for word in ("-p", name, str(value))]
    words += ["--seed", str(about["seed"])]
    for name in (f.name for f in fields(Setting) if plain[f.name] != default[f.name]):
        words += [f"--{name.replace('_', '-')}", str(plain[name])]
    if probe:
        words += ["--probe", ",".join(probe.what), "--probe-rounds", ",".join(map(str, probe.rounds))]
        words += ["--probe-batches", str(probe.batches)] if probe.batches != 1 else []
    return Command(shlex.join(words), key)


def _changes(base: Method, parts: str) -> Iterator[tuple[str, Any]]:
    """Which parameters of a method have other values in the text of its parts."""
    told = list(_fields(parts))
    for address, own in base.parameters().items():
        whose, _, name = address.lower().rpartition(".")
        values = [value for part, field, value in told if field.lower() == name and whose in ("", part.lower())]
        if values and any(value != own for value in values):
            yield address, values[0]


def _fields(parts: str) -> Iterator[tuple[str, str, Any]]:
    """The fields in a text such as "Method('FedSAM', Sam(rho=0.1))": part, field, value; numbers and texts alone."""
    for node in ast.walk(ast.parse(parts, mode="eval")):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            for given in node.keywords:
                try:
                    yield node.func.id, given.arg or "", ast.literal_eval(given.value)
                except ValueError:  # a filter, whose own fields follow
                    continue
