"""Functions of a user by name: entered in this process, or found behind an import path when first asked for."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Generic, TypeVar

from fednb.base.codetext import Unreadable, describe
from fednb.base.imports import imported, is_import_path
from fednb.base.inputs import closest, shown
from fednb.models.own import library_source

NAME = re.compile(r"[A-Za-z][\w.+-]{0,59}")
FUNCTION = "a function of logits and labels"
_serial = count(1)


@dataclass(frozen=True, eq=False)
class Named:
    """A function under a name. serial: a number that no other of this process has; sent: it is another process's."""

    name: str
    function: Callable[..., Any] = field(repr=False)
    serial: int = field(default_factory=lambda: next(_serial))
    sent: bool = False

    def code(self) -> list[Any]:
        """What a run's key has of it: what it does, and the source where it is a library's."""
        return [describe(self.function), library_source(self.function)]

    def does_the_same_as(self, other: Named) -> bool:
        """True if another has the same code; False where that cannot be read."""
        try:
            return type(self) is type(other) and self.code() == other.code()
        except Unreadable:
            return False


Kind = TypeVar("Kind", bound=Named)


class Functions(Generic[Kind]):
    """Those of one kind by name: the ready ones, and a user's own.

    what: their kind in one word. error: what is raised where a name or a function is wrong. made: makes one from a name
    and a function. ready: those that are there from the start, which nobody replaces.
    """

    def __init__(
        self, what: str, error: type[ValueError], made: Callable[[str, Any], Kind], ready: dict[str, Kind]
    ) -> None:
        self.what, self.error, self.made, self.ready = what, error, made, ready
        self.known = dict(ready)

    def __getitem__(self, name: str) -> Kind:
        return self.known[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.known)

    def own(self, name: str) -> Kind | None:
        """The user's own of that name; None for a ready one."""
        return None if name in self.ready else self.known[name]

    def add(self, made: Kind) -> None:
        """Enter one; another of the same name is replaced, which is said."""
        name = made.name
        if not isinstance(name, str) or not NAME.fullmatch(name):
            raise self.error(f"{self.what} {shown(name)}: must be a name of letters, digits, '-' and '_'")
        if name in self.ready:
            raise self.error(f"{self.what} {name!r} is one of fednb's own; take another name")
        if not callable(made.function):
            raise self.error(f"{self.what} {name!r} is {shown(made.function)}, expected {FUNCTION}")
        former = self.known.get(name)
        if former is not None and former.does_the_same_as(made):
            return
        if former is not None:
            print(f"fednb: {self.what} {name!r} is replaced by another", file=sys.stderr)
        self.known[name] = made

    def find(self, name: Any) -> str:
        """The name of one that is there; what an import path stands for is entered under that path."""
        if is_import_path(name):
            return self._by_import_path(name.strip())
        if isinstance(name, str) and name.strip() in self.known:
            return name.strip()
        near = closest(name, self.known) if isinstance(name, str) else ", ".join(self.known)
        raise self.error(
            f"no {self.what} {shown(name)}; closest: {near}. Yours: what fn.add_{self.what} entered in this process, "
            f"or an import path, such as my_package.mine:{self.what}."
        )

    def _by_import_path(self, path: str) -> str:
        known = self.known.get(path)
        if known is not None and known.sent:
            return path
        found = imported(path)
        if not callable(found):
            raise self.error(f"{self.what} {path!r} is {shown(found)}, expected {FUNCTION}")
        if known is None or known.function is not found:
            self.known[path] = self.made(path, found)
        return path
