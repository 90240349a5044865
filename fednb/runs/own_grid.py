"""Grids of one's own, from what a program or a TOML file describes; checked before anything is run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from fednb.algorithms.catalogue import UnknownMethod, method
from fednb.base.imports import imported, is_import_path
from fednb.base.inputs import BadFile, one_line, read_toml, shown
from fednb.core.rounds import Method, Part
from fednb.engines.setting import Setting
from fednb.runs.cells import SCALES, BadGrid, Cell, cells_of
from fednb.runs.grid import Grid
from fednb.runs.probes import Probe
from fednb.runs.tuning import trials_of

OWN = "own"  # the scale of a grid that is of no paper
FILE = ".toml"  # how the name of a file with a grid ends
OF_ENTRY = ("label", "setting", "tune", "scales")  # what a method's table has beside its name and parameters
Methods = Iterable[Any] | Mapping[str, Any]
Values = Mapping[str, Any]


def grid_of_file(path: Path, scale: str = "", seeds: list[int] | None = None) -> Grid:
    """The grid that a TOML file describes with the entries of papers' grids: setting, methods, vary, seeds, tune, ...

    Tables [smoke], [laptop] and [paper], where the file has them, are for one scale each; the rest is for all. A file
    with [smoke] has that scale where none is named; one without such tables has no scale. A method may be an import
    path, such as "my_package.ideas:mine".
    """
    described = read_toml(path)
    scales = [each for each in SCALES if each in described]
    if scale and not scales:
        raise BadFile(path, f"has no table [{scale}], it is the same at every scale; leave out --scale")
    scale = scale or SCALES[0]
    if scales and scale not in scales:
        raise BadFile(path, f"is for the scales {', '.join(scales)}; name one with --scale")
    own = described.get(scale, {})
    for_all = {"tune_by": "validation"} | {entry: value for entry, value in described.items() if entry not in SCALES}
    for said, table in (("", for_all), (f"{scale}: ", own)):
        if not isinstance(table, dict) or not isinstance(table.get("setting", {}), dict):
            raise BadFile(path, f"{said}`setting` must be a table of settings")
    whole = for_all | own | {"setting": for_all.get("setting", {}) | own.get("setting", {})}
    try:
        if isinstance(whole.get("methods"), list):
            whole["methods"] = [_imported(each) for each in whole["methods"]]
        return made_grid(path.stem, whole, None, scale if scales else OWN, seeds)
    except (ValueError, UnknownMethod) as error:
        raise BadFile(path, str(error)) from error


def _imported(entry: Any) -> Any:
    """A method of a file; one by import path, such as "my_package.ideas:mine", is made."""
    name = entry.get("name") if isinstance(entry, dict) else entry
    if not is_import_path(name):
        return entry
    return (entry if isinstance(entry, dict) else {}) | {"name": method_of(name)}


def made_grid(
    name: str, described: dict[str, Any], probe: Probe | None = None, scale: str = OWN, seeds: list[int] | None = None
) -> Grid:
    """A grid from its description; refused where methods share a label, or are tuned with unequal budgets."""
    cells = cells_of(name, scale, described, seeds)
    case = ", or each case an entry of its own" if "cases" in described else ""
    taken: dict[tuple[Any, ...], Cell] = {}
    for cell in cells:
        place = (cell.label, cell.seed, *sorted((k, str(v)) for k, v in cell.tags.items()))
        if place in taken:
            raise BadGrid(f"{name}: two methods are called {shown(cell.label)}; give each a label of its own{case}")
        taken[place] = cell
    _equal_budgets(name, cells)
    probe = Probe(**described["probe"]) if "probe" in described else probe
    return Grid(name, scale, cells, probe, trials_of(name, cells, described)).settled()


def _equal_budgets(where: str, cells: Iterable[Cell]) -> None:
    """Refuse tuning in which one method may try more values than another: that would be its advantage."""
    tried = {cell.label: prod(map(len, cell.tune.values())) for cell in cells if cell.tune}
    if len(set(tried.values())) > 1:
        (few, a), (many, b) = min(tried.items(), key=lambda x: x[1]), max(tried.items(), key=lambda x: x[1])
        raise BadGrid(f"{where}: {few} may try {a} and {many} {b}; give each as many, by method: "
                      f"tune = {{{few!r}: {{...}}, {many!r}: {{...}}}}")  # fmt: skip


def fields_of(setting: Setting | Mapping[str, Any]) -> dict[str, Any]:
    """A setting as a grid's description has it: values by the names of fields."""
    if isinstance(setting, Setting):
        return {f.name: getattr(setting, f.name) for f in fields(setting)}
    if not isinstance(setting, Mapping):
        raise BadGrid(f"setting = {shown(setting)}: must be a fn.Setting")
    return dict(setting)


def methods_and_tune(methods: Methods, tune: Values | None) -> dict[str, Any]:
    """The entries `methods` and `tune` of a grid's description. tune: by parameter, or by method and parameter."""
    if isinstance(methods, str | Method | Part) or not isinstance(methods, Iterable):
        methods = [methods]
    pairs = methods.items() if isinstance(methods, Mapping) else [("", each) for each in methods]
    entries = [_entry(label, each) for label, each in pairs]
    if not entries:
        raise BadGrid("methods: name one at least, such as fn.grid(setting, ['FedAvg', 'FedSAM'])")
    if not tune or not all(isinstance(values, Mapping) for values in tune.values()):
        return {"methods": entries, "tune": _lists(tune or {})}
    if unknown := [label for label in tune if label not in [e["label"] for e in entries]]:
        raise BadGrid(f"tune: no method {shown(unknown[0])}; the methods are {', '.join(e['label'] for e in entries)}")
    own = {label: {"tune": _lists(values)} for label, values in tune.items()}
    return {"methods": [entry | own.get(entry["label"], {}) for entry in entries]}


def listed(values: Any) -> Any:
    """An array or a tensor as a list of Python's numbers, which keys and files can have; anything else as it is."""
    return values.tolist() if isinstance(values, np.ndarray | Tensor) else values


def _lists(values: Values) -> dict[str, list[Any]]:
    """The values to try of each parameter."""
    mine = {k: listed(v) for k, v in values.items()}
    if wrong := [k for k, v in mine.items() if isinstance(v, str) or not isinstance(v, Sequence) or not v]:
        raise BadGrid(f"tune {wrong[0]} = {shown(mine[wrong[0]])}: must be a list of values to try")
    return {k: list(v) for k, v in mine.items()}


def _entry(label: str, each: Any) -> dict[str, Any]:
    about = dict(each) if isinstance(each, Mapping) else {"name": each}
    made = method_of(about.pop("name", None))
    parameters = {k: about.pop(k) for k in [*about] if k not in OF_ENTRY}
    made = made.but(**parameters) if parameters else made
    return {**about, "name": made, "label": label or about.get("label") or made.name}


def method_of(thing: Any) -> Method:
    """A method from its name, a `Method`, a part, a function that returns one of these, or the import path of any.

    >>> from fednb.runs.own_grid import method_of
    >>> def mine():
    ...     return fn.parts.Sam(rho=0.05)
    ...
    >>> method_of(mine)
    Method('mine', Sam(rho=0.05))
    """
    if is_import_path(thing):
        return method_of(imported(thing))
    if isinstance(thing, str | Method):
        return method(thing)
    if isinstance(thing, Part):
        return Method(type(thing).__name__, thing)
    if not callable(thing):
        raise UnknownMethod(f"no method {shown(thing)}; give a name, a Method, a part, or a function that makes one")
    name = getattr(thing, "__name__", type(thing).__name__)
    try:
        made = thing()
    except Exception as error:  # of a user's code
        why = f"{type(error).__name__}: {one_line(str(error))}"
        raise UnknownMethod(f"{name}() must make a method without arguments: {why}") from error
    if isinstance(made, Part):
        return Method(name, made)
    if not isinstance(made, Method):
        raise UnknownMethod(f"{name}() gave {shown(made)}, not a Method or a part")
    return made
