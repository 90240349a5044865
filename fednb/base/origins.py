"""Where code comes from: the package, an installed library, or a user, who may have put it in another's place."""

from __future__ import annotations

import functools
import importlib.util
import sys
import types
from pathlib import Path
from typing import Any

PACKAGE = __name__.partition(".")[0]


@functools.cache
def installed(top: str) -> bool:
    """True for a top module of the standard library, or one that a package manager has installed."""
    if top in ("__main__", "__mp_main__"):
        return False
    if top in sys.stdlib_module_names or top in sys.builtin_module_names:
        return True
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        return False
    places = [spec.origin or "", *(spec.submodule_search_locations or [])] if spec else []
    return any({"site-packages", "dist-packages"} & set(Path(place).parts) for place in places)


def root_of(module: str | None) -> str:
    """The top module of a module, by name."""
    return (module or "").partition(".")[0]


def is_found(x: Any) -> bool:
    """True where the name of a class or function leads to it; code that only claims to be of a module does not."""
    at: Any = sys.modules.get(x.__module__ or "")
    for name in x.__qualname__.split("."):
        at = getattr(at, "__dict__", {}).get(name)
    return unwrapped(at) is x or at is x


def unwrapped(member: Any) -> Any:
    """The function within a method's decorator, or whatever else it is."""
    if type(member) in (str, int, float, bool, dict, tuple, types.FunctionType, type(None)):
        return member
    if isinstance(member, property):
        return member.fget
    if isinstance(member, functools.cached_property | functools.partialmethod):
        return member.func
    return member if isinstance(member, type) else getattr(member, "__wrapped__", getattr(member, "__func__", member))


def is_users(member: Any) -> bool:
    """True for a user's function or callable by where it was made, whatever it says of itself: `wraps` copies that."""
    inner = unwrapped(member) if isinstance(member, staticmethod | classmethod | property) else member
    made_in = inner.__globals__.get("__name__") if isinstance(inner, types.FunctionType) else type(inner).__module__
    return root_of(made_in) != PACKAGE and not installed(root_of(made_in))
