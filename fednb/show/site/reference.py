"""What the API reference is made of: public names with signature, text, example and place, read from the sources."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from doctest import DocTestParser, Example
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import fednb

if TYPE_CHECKING:
    import griffe

BEGIN = """import numpy as np
import pandas as pd
import torch

import fednb as fn
"""
RESULTS = """from fednb.runs.grid import Grid

small = dict(samples=100, clients=4, participation=1.0, rounds=1, epochs=1, batch=25)
kept = dict(what=["gradient", "perturbation", "move", "model"], rounds=[0])
results = Grid.of("small", "smoke", dict(setting=small, methods=["FedAvg", "FedSAM"], probe=kept)).run()
"""
WIDTH = 96  # characters of a signature in one line
STAR: dict[Any, str] = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}


@dataclass(frozen=True)
class PublicName:
    """One public name.

    name: as it is written behind `fn.`, such as "run" or "cka.linear". kind: module, class, error, function, property
    or constant. inside: of a module its public functions and classes, of a class its public methods, by name.
    """

    name: str
    kind: str
    signature: str
    text: str
    examples: tuple[Example, ...]
    file: str
    line: int
    inside: tuple[PublicName, ...] = ()
    fields: tuple[tuple[str, str, str], ...] = ()  # of a class with explained fields: name, default, what it is

    @property
    def short(self) -> str:
        """The name without what stands before it."""
        return self.name.rpartition(".")[2]

    @property
    def summary(self) -> str:
        """The first sentence or paragraph of the text, in one line."""
        return " ".join(self.text.split("\n\n")[0].split())


def public() -> dict[str, PublicName]:
    """An entry for each name in `fednb.__all__`, in that order."""
    return {name: _entry(name, getattr(fednb, name)) for name in fednb.__all__}


def begin(examples: Iterable[Example]) -> dict[str, Any]:
    """The names with which examples on the pages begin: `BEGIN`, and `RESULTS` for those that need runs."""
    names: dict[str, Any] = {}
    exec(BEGIN, names)
    if any(re.search(r"\bresults\b", example.source) for example in examples):
        exec(RESULTS, names)
    return names


def _entry(name: str, value: Any) -> PublicName:
    if isinstance(value, ModuleType):
        return _module(name, value)
    if inspect.isroutine(value) or isinstance(value, type):
        return _defined(name, value)
    module, _, inner = _source("fednb").members[name].target_path.rpartition(".")  # type: ignore[union-attr]
    found = _source(module).members[inner]
    return _described(name, "constant", f"{name} = {value!r}", found)


def _module(name: str, module: ModuleType) -> PublicName:
    names = getattr(module, "__all__", None) or [n for n, x in vars(module).items() if _is_own(n, x, module)]
    inner = ((f"{name}.{each}", getattr(module, each)) for each in names)
    inside = [_defined(full, x) for full, x in inner if inspect.isroutine(x) or isinstance(x, type)]
    return _described(name, "module", "", _source(module.__name__), inside)


def _is_own(name: str, value: Any, module: ModuleType) -> bool:
    """True for a public function or class that the module itself defines."""
    own = (inspect.isroutine(value) or isinstance(value, type)) and value.__module__ == module.__name__
    return own and not name.startswith("_")


def _defined(name: str, value: Any) -> PublicName:
    """The entry of a function or class."""
    found = _source(value.__module__)[value.__qualname__]
    if not isinstance(value, type):
        return _described(name, "function", _call(name, _written(found), _annotation(found.returns)), found)
    if issubclass(value, BaseException):
        return _described(name, "error", "", found)
    inside = [made for member in found.members.values() if (made := _member(name, member))]
    signature = _call(name, _constructed(value), "")
    return _described(name, "class", signature, found, inside, _fields(value))


def _member(owner: str, found: Any) -> PublicName | None:
    """The entry of a class' method or property; None for what is private or has no docstring."""
    if found.is_alias or not found.docstring or found.name.startswith("_"):
        return None
    name = f"{owner}.{found.name}"
    if found.is_function:
        return _described(name, "function", _call(name, _written(found)[1:], _annotation(found.returns)), found)
    return _described(name, "property", f"{found.name}{_typed(found.annotation)}", found)


def _described(
    name: str, kind: str, signature: str, found: Any, inside: Iterable[PublicName] = (), explained: Iterable = ()
) -> PublicName:
    parts = DocTestParser().parse(inspect.cleandoc(found.docstring.value) if found.docstring else "")
    text = "".join(each for each in parts if isinstance(each, str)).strip()
    examples = tuple(each for each in parts if isinstance(each, Example))
    root = Path(fednb.__file__).parent.parent
    file = Path(found.filepath).relative_to(root).as_posix()
    line = found.lineno or 1
    return PublicName(name, kind, signature, text, examples, file, line, tuple(inside), tuple(explained))


@cache
def _source(module: str) -> griffe.Module:
    """A module as its source says, without running it."""
    import griffe

    path = Path(import_module(module).__file__ or "")
    return griffe.visit(module, filepath=path, code=path.read_text(encoding="utf-8"))


def _call(name: str, parameters: list[str], returns: str) -> str:
    """A signature: in one line, or with a line for each parameter."""
    short, back = name.rpartition(".")[2], f" -> {returns}" if returns else ""
    line = f"{short}({', '.join(parameters)}){back}"
    below = "".join(f"    {each},\n" for each in parameters)
    return line if len(line) <= WIDTH else f"{short}(\n{below}){back}"


def _written(found: Any) -> list[str]:
    """The parameters of a function as its source has them."""
    out: list[str] = []
    for p in found.parameters:
        kind = p.kind.value if p.kind else ""
        if kind == "keyword-only" and not any(each.startswith("*") for each in out):
            out.append("*")
        star = {"variadic positional": "*", "variadic keyword": "**"}.get(kind, "")
        default = "" if star or p.default is None else str(p.default)
        out.append(star + p.name + _typed(p.annotation) + _default(default, p.annotation))
    return out


def _constructed(cls: type) -> list[str]:
    """The parameters of a class, with the values that its fields have if nothing is given."""
    out: list[str] = []
    made = {f.name: f for f in fields(cls)} if is_dataclass(cls) else {}
    for p in inspect.signature(cls).parameters.values():
        if p.kind is p.KEYWORD_ONLY and not any(each.startswith("*") for each in out):
            out.append("*")
        typed = "" if p.annotation is p.empty else p.annotation
        default = "" if p.default is p.empty else _value(made.get(p.name), p.default)
        out.append(STAR.get(p.kind, "") + p.name + _typed(typed) + _default(default, typed))
    return out


def _value(made: Field | None, given: Any) -> str:
    """The default of a field or parameter as text."""
    factory = MISSING if made is None else made.default_factory
    return repr(given if factory is MISSING else factory())


def _typed(annotation: Any) -> str:
    text = _annotation(annotation)
    return f": {text}" if text else ""


def _annotation(annotation: Any) -> str:
    return "" if annotation is None else str(annotation)


def _default(default: str, annotation: Any) -> str:
    if not default:
        return ""
    return f" = {default}" if _annotation(annotation) else f"={default}"


def _fields(cls: type) -> list[tuple[str, str, str]]:
    """Name, default and explanation of each field that has one."""
    if not is_dataclass(cls):
        return []
    return [(f.name, _value(f, f.default), f.metadata["help"]) for f in fields(cls) if "help" in f.metadata]
