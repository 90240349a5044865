"""Parts: one idea of one paper each, readable beside it. A part never imports another.

Every class that `@part` has made in a file of this folder is exported under its name.

>>> fn.Method("mine", fn.parts.Sam(rho=0.1), fn.parts.Prox(mu=0.01)).parameters()["mu"]
0.01
>>> fn.cost(fn.Method("mine", fn.parts.Sam())).passes
2.0
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from fednb.core.readings import is_part


def _found() -> dict[str, Any]:
    """The parts of all files in this folder, by name."""
    modules = [import_module(f"{__name__}.{each.name}") for each in iter_modules(__path__)]
    return {n: x for m in modules for n, x in sorted(vars(m).items()) if is_part(x) and x.__module__ == m.__name__}


globals().update(_found())
__all__ = sorted(_found())


def __getattr__(name: str) -> Any:  # tells type checkers that there are more names than they see
    raise AttributeError(f"module {__name__!r} has no part {name!r}")
