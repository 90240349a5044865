"""Things that are imported when they are asked for.

By import path: "my_package.nets:Net" is what the name `Net` of the module `my_package.nets` stands for. And packages
that fednb can do without.
"""

from __future__ import annotations

import importlib
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from fednb.base.inputs import closest, one_line, shown

PATH = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")


class BadImport(ValueError):
    """An import path behind which nothing is found."""


class NotInstalled(ImportError):
    """Something was asked for whose package, an extra of fednb, is not installed."""


def is_import_path(text: Any) -> bool:
    """True for a text such as "my_package.nets:Net".

    >>> is_import_path("my_package.nets:Net"), is_import_path("dirichlet(0.1)"), is_import_path("C:/nets.py")
    (True, False, False)
    """
    return isinstance(text, str) and PATH.fullmatch(text.strip()) is not None


def path_of(x: Any) -> str:
    """The import path of a function or class."""
    return f"{x.__module__}:{x.__qualname__}"


def imported(path: str) -> Any:
    """What an import path stands for; BadImport where the module or the name in it is not there.

    A module is looked for where Python looks for modules, and last in the current folder.

    >>> imported("math:pi") > 3
    True
    """
    module_name, _, inside = path.strip().partition(":")
    try:
        with _current_folder_last():
            found: Any = importlib.import_module(module_name)
    except Exception as error:  # whatever the module raises while it is imported
        raise BadImport(f"{shown(path)} cannot be imported: {type(error).__name__}: {one_line(str(error))}") from error
    for name in inside.split("."):
        if not hasattr(found, name):
            there = closest(name, [each for each in vars(found) if not each.startswith("_")])
            raise BadImport(f"{shown(path)}: {module_name} has no {name!r}; closest: {there}")
        found = getattr(found, name)
    return found


def installed(package: str, what: str, extra: str = "") -> ModuleType:
    """A package that is imported when it is needed; NotInstalled, in one line, where it is not there.

    what: what needs it. extra: the extra of fednb that brings it.
    """
    try:
        return importlib.import_module(package)
    except ImportError as error:
        how = f"pip install 'fednb[{extra}]'" if extra else f"pip install {package}"
        raise NotInstalled(f"{what} needs the package {package}, which is not installed: `{how}`") from error


@contextmanager
def _current_folder_last() -> Iterator[None]:
    """Let Python look for modules in the current folder too, behind all others."""
    try:
        here = os.getcwd()
    except FileNotFoundError:  # it was removed
        here = ""
    if not here or here in sys.path:
        yield
        return
    sys.path.append(here)
    try:
        yield
    finally:
        sys.path.remove(here)
