"""Values, functions and classes as plain data: two that would do the same in a run have one description.

What belongs to the package goes by its name. What comes from outside, a class written in a notebook say, goes by what
Python would execute: bytecode, constants, defaults, what it closes over, the globals that it names, its bases. Source
text is not asked: a file that was edited after its import no longer says what is running.

What is installed in site-packages goes by its name alone, without its version, unless it extends the package's classes:
a run is not made again when a private package there has changed. Code that still changes is better left uninstalled.
"""

from __future__ import annotations

import dis
import functools
import hashlib
import importlib
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import MISSING, Field, fields, is_dataclass
from enum import Enum
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fednb.base.declared import settled
from fednb.base.origins import PACKAGE, installed, is_found, is_users, root_of, unwrapped

OF_THE_CLASS = frozenset(  # what every class has, or what says nothing about what it does
    ("__dict__", "__weakref__", "__doc__", "__module__", "__qualname__", "__annotations__", "__dataclass_fields__",
     "__dataclass_params__", "__match_args__", "__firstlineno__", "__static_attributes__", "__abstractmethods__",
     "_abc_impl", "__parameters__", "__orig_bases__", "__annotate__", "__annotate_func__", "__annotations_cache__",
     "__slotnames__")
)  # fmt: skip
BY_REPR = (complex, bytes, range, type(...), type(NotImplemented), torch.dtype, torch.device, torch.Size, np.dtype,
           types.GenericAlias, types.UnionType)  # fmt: skip
IN_C = (types.MethodDescriptorType, types.WrapperDescriptorType, types.GetSetDescriptorType,
        types.MemberDescriptorType, types.ClassMethodDescriptorType)  # fmt: skip


class Unreadable(ValueError):
    """Code or a value that cannot be read: machine code from outside, a lock, an open file."""


def describe(thing: Any) -> Any:
    """`thing` as numbers, texts, lists and dictionaries; Unreadable where that cannot be had."""
    try:
        return _Reader().read(thing)
    except RecursionError:
        raise Unreadable(f"{_name(thing)} goes too deep") from None


def is_outside(x: Any) -> bool:
    """True for a function, class or instance whose code is not the package's."""
    while isinstance(x, functools.partial):
        x = x.func
    x = x if isinstance(x, type | types.FunctionType) else type(x)
    return root_of(x.__module__) != PACKAGE


class _Reader:
    """Reads once; functions and classes that were met before are only pointed to."""

    def __init__(self) -> None:
        self.met: dict[int, tuple[int, Any]] = {}  # by id, with the thing itself: an id is free again when it dies
        self.open: list[Any] = []
        self.roots: set[str] = set()  # top modules of installed classes that are read because they extend the package

    def read(self, x: Any, names: frozenset[str] = frozenset()) -> Any:
        """The description of anything; `names` are those by which code might ask a module for what it has."""
        if x is None or type(x) in (bool, int, str):
            return x
        if isinstance(x, np.generic) and type(x.item()) in (bool, int, float, str):
            x = x.item()
        if type(x) is float:
            return x + 0.0
        if type(x) in PLAIN:
            return PLAIN[type(x)](self, x)
        if is_dataclass(x) and not isinstance(x, type):
            return self._fields(x)
        if isinstance(x, types.ModuleType):
            return self._module(x, names)
        for kind, read in READERS:
            if isinstance(x, kind):
                return read(self, x)
        return self._object(x)

    def _fields(self, x: Any) -> Any:
        """A dataclass by its class and fields: labels never count, quiet ones only where they are not the default.

        What an instance has beside its fields counts too, unless its class is the package's or works it out itself.
        """
        with self._inside(x) as met:
            if met is not None:
                return met
            counted = [f for f in fields(x) if not f.metadata.get("label") and not _silent(f, getattr(x, f.name))]
            own = {f.name: self.read(settled(f.type, getattr(x, f.name))) for f in counted}
            known = {f.name for f in fields(x)}
            patched = {n: self.read(v) for n, v in getattr(x, "__dict__", {}).items() if n not in known and callable(v)}
            found = {"is": self.read(type(x)), **own} | ({"patched": patched} if patched else {})
            if root_of(type(x).__module__) == PACKAGE:
                return found
            skipped = {*known, *patched, *_worked_out(type(x))}
            state = {n: self.read(v) for n, v in sorted(_state(x).items()) if n not in skipped}
            value = _value(x)
            return found | ({"state": state} if state else {}) | ({} if value is None else {"value": self.read(value)})

    def _items(self, x: Any) -> Any:
        with self._inside(x) as met:
            return met or [self.read(each) for each in x]

    def _set(self, x: Any) -> Any:
        return {"set": sorted((self.read(each) for each in x), key=repr)}

    def _dict(self, x: Any) -> Any:
        with self._inside(x) as met:
            if met:
                return met
            items = [[self.read(k), self.read(v)] for k, v in x.items()]
            order = sorted(range(len(items)), key=lambda i: repr(items[i]))
            found = {"dict": [items[i] for i in order]}
            return found if order == sorted(order) else found | {"order": order}

    def _array(self, x: Any) -> Any:
        if isinstance(x, Tensor):
            kept = x.detach().cpu().contiguous()
            data = kept.reshape(-1).view(torch.uint8).numpy().tobytes() if kept.numel() else b""
        elif x.dtype.hasobject:
            return {"array": [self.read(each) for each in x.reshape(-1).tolist()], "shape": list(x.shape)}
        else:
            data = np.ascontiguousarray(x).tobytes()
        return {"array": hashlib.sha256(data).hexdigest(), "type": str(x.dtype), "shape": list(x.shape)}

    def _class(self, x: type) -> Any:
        if not is_found(x):
            return self._once(x, self._body_of)
        top = root_of(x.__module__)
        if top == PACKAGE:
            changed = self._patches(x)
            return {"of": x.__qualname__} | ({"patched": changed} if changed else {})
        if any(root_of(base.__module__) == PACKAGE for base in x.__mro__):
            self.roots.add(top)
        return {"library": f"{x.__module__}.{x.__qualname__}"} if self._known(top) else self._once(x, self._body_of)

    def _known(self, top: str) -> bool:
        """True for modules whose code goes by its name: the package, and libraries unless they extend the package."""
        return top == PACKAGE or (installed(top) and top not in self.roots)

    def _body_of(self, x: type) -> Any:
        own = {name: member for name, member in vars(x).items() if name not in OF_THE_CLASS}
        if any(isinstance(m, types.MethodDescriptorType) for m in own.values()):
            raise Unreadable(_name(x))
        made = {f.name: self.read(f.default_factory) for f in (fields(x) if is_dataclass(x) else ())  # type: ignore[arg-type]
                if f.default_factory is not MISSING}  # fmt: skip
        return {
            "class": x.__qualname__,
            "module": x.__module__,
            "bases": [self.read(base) for base in (type(x), *x.__bases__)],
            "fields": [f.name for f in fields(x)] if is_dataclass(x) else None,  # type: ignore[arg-type]
            "made": made,
            "body": {name: self.read(own[name]) for name in sorted(own)},
        }

    def _patches(self, x: type) -> dict[str, Any]:
        """Members of a package's class that were put there from outside, whatever they claim to be."""
        found = {}
        for base in (base for base in x.__mro__ if root_of(base.__module__) == PACKAGE):
            for name, member in vars(base).items():
                inner = member if type(member) is types.FunctionType else unwrapped(member)
                if is_users(member) or (type(inner) is types.FunctionType and root_of(inner.__module__) != PACKAGE):
                    found[f"{base.__qualname__}.{name}"] = self.read(member)
        return dict(sorted(found.items()))

    def _function(self, x: types.FunctionType) -> Any:
        top = root_of(x.__module__)
        if not (is_found(x) and self._known(top)) or (top == PACKAGE and is_users(x)):
            return self._once(x, self._body_of_function)
        return {"of": x.__qualname__} if top == PACKAGE else {"library": f"{x.__module__}.{x.__qualname__}"}

    def _body_of_function(self, x: types.FunctionType) -> Any:
        asked, imported, names = _names(x.__code__)
        there = {name: x.__globals__[name] for name in sorted(asked) if name in x.__globals__}
        cells = zip(x.__code__.co_freevars, x.__closure__ or (), strict=True)
        return {
            "module": x.__module__,
            "code": self._code(x.__code__),
            "defaults": [self.read(x.__defaults__), self.read(x.__kwdefaults__)],
            "closure": {name: self.read(cell.cell_contents, names) for name, cell in cells if _filled(cell)},
            "globals": {name: self.read(value, names) for name, value in there.items()},
            "imports": {
                name: self._imported(name, x.__globals__.get("__package__"), names) for name in sorted(imported)
            },
            "own": {name: self.read(value) for name, value in sorted(vars(x).items())},
        }

    def _code(self, x: types.CodeType) -> Any:
        consts = [self._code(c) if isinstance(c, types.CodeType) else self.read(c) for c in x.co_consts]
        counts = [x.co_argcount, x.co_posonlyargcount, x.co_kwonlyargcount, x.co_flags]
        words = [list(x.co_names), list(x.co_varnames), list(x.co_freevars), list(x.co_cellvars)]
        return [x.co_code.hex(), getattr(x, "co_exceptiontable", b"").hex(), counts, words, consts]

    def _module(self, x: types.ModuleType, names: frozenset[str]) -> Any:
        if self._known(root_of(x.__name__)):
            return {"library": x.__name__}
        if not names:  # it is held in an attribute or a list, and anybody may ask it for anything
            return self._once(x, self._all_of)
        with self._inside(x) as met:
            used = sorted(names & set(vars(x)))
            return met or {"module": x.__name__, "uses": {name: self.read(vars(x)[name], names) for name in used}}

    def _all_of(self, x: types.ModuleType) -> Any:
        own = {name: self.read(vars(x)[name]) for name in sorted(vars(x)) if not name.startswith("__")}
        return {"module": x.__name__, "all": own}

    def _imported(self, name: str, package: str | None, names: frozenset[str]) -> Any:
        """A module that a function imports by itself; loaded now, as it would be by the run."""
        if self._known(root_of(name)):
            return {"library": name}
        try:
            return self.read(importlib.import_module(name, package), names)
        except ImportError:
            return {"absent": name}

    def _wrapper(self, x: Any) -> Any:
        inner = {"property": [x.fget, x.fset, x.fdel]} if isinstance(x, property) else {type(x).__name__: unwrapped(x)}
        return {kind: self.read(each) for kind, each in inner.items()}

    def _partial(self, x: functools.partial) -> Any:
        return {"partial": self.read(x.func), "args": self.read(x.args), "named": self.read(x.keywords)}

    def _bound(self, x: types.MethodType) -> Any:
        return {"method": self.read(x.__func__), "of": self.read(x.__self__)}

    def _builtin(self, x: Any) -> Any:
        owner = getattr(x, "__self__", None)
        if owner is not None and not isinstance(owner, types.ModuleType):
            return {"method": x.__name__, "of": self.read(owner)}
        if x.__module__ and not installed(root_of(x.__module__)):
            raise Unreadable(_name(x))
        return {"library": f"{x.__module__}.{x.__qualname__}"}

    def _descriptor(self, x: Any) -> Any:
        return {"library": f"{x.__objclass__.__module__}.{x.__objclass__.__qualname__}.{x.__name__}"}

    def _slice(self, x: slice) -> Any:
        return {"slice": [self.read(each) for each in (x.start, x.stop, x.step)]}

    def _named(self, x: Enum) -> Any:
        return {"member": self.read(type(x)), "name": x.name}

    def _object(self, x: Any) -> Any:
        """Anything else: the state of an object of Python's, or what a library would pickle of its own."""
        with self._inside(x) as met:
            if met is not None:
                return met
            if hasattr(x, "__dict__") and not installed(root_of(type(x).__module__)):
                own = {name: self.read(value) for name, value in sorted(_state(x).items())}
                return {"is": self.read(type(x)), "state": own, "value": self.read(_value(x))}
            return self._pickled(x)

    def _pickled(self, x: Any) -> Any:
        try:
            made = x.__reduce_ex__(2)
        except Exception:  # whatever a class raises that will not be pickled
            raise Unreadable(_name(x)) from None
        if isinstance(made, str):
            return {"library": f"{type(x).__module__}.{made}"}
        first, rest = made[:3], [None if items is None else list(items) for items in made[3:5]]
        return {"made": [self.read(each) for each in (*first, *rest)]}

    def _once(self, x: Any, body: Callable[[Any], Any]) -> Any:
        if id(x) in self.met:
            return {"again": self.met[id(x)][0]}
        self.met[id(x)] = len(self.met), x
        return body(x)

    @contextmanager
    def _inside(self, x: Any) -> Iterator[Any]:
        """While x is being read; gives how far up it stands where it contains itself."""
        above = [at for at, each in enumerate(reversed(self.open)) if each is x]
        self.open.append(x)
        try:
            yield {"above": above[0]} if above else None
        finally:
            self.open.pop()


PLAIN: dict[type, Callable[[_Reader, Any], Any]] = {
    tuple: _Reader._items, list: _Reader._items, set: _Reader._set, frozenset: _Reader._set, dict: _Reader._dict,
}  # fmt: skip
READERS: tuple[tuple[Any, Callable[[_Reader, Any], Any]], ...] = (
    (Enum, _Reader._named),
    ((Tensor, np.ndarray), _Reader._array),
    (BY_REPR, lambda _, x: {type(x).__name__: repr(x)}),
    (type, _Reader._class),
    (types.FunctionType, _Reader._function),
    (types.MethodType, _Reader._bound),
    (types.BuiltinFunctionType, _Reader._builtin),
    (IN_C, _Reader._descriptor),
    (slice, _Reader._slice),
    (functools.partial, _Reader._partial),
    (functools._lru_cache_wrapper, lambda reader, x: {"wraps": reader.read(x.__wrapped__)}),
    ((staticmethod, classmethod, property, functools.cached_property), _Reader._wrapper),
)


def _state(x: Any) -> dict[str, Any]:
    """The attributes that an object has of its own, without names and texts that it took over from what it wraps."""
    slots = [name for base in type(x).__mro__ if "__slots__" in vars(base)
             for name, member in vars(base).items() if isinstance(member, types.MemberDescriptorType)]  # fmt: skip
    state = getattr(x, "__dict__", {}) | {name: getattr(x, name) for name in slots if hasattr(x, name)}
    labels = functools.WRAPPER_ASSIGNMENTS if "__wrapped__" in state else ()
    return {name: value for name, value in state.items() if name not in labels}


def _worked_out(x: type) -> Iterator[str]:
    """The attributes of a class's instances that are computed when they are first asked for."""
    return (n for base in x.__mro__ for n, m in vars(base).items() if isinstance(m, functools.cached_property))


def _value(x: Any) -> Any:
    """What an object is as a number, a text or a container, where its class extends one."""
    return next((kind(x) for kind in (int, float, str, *PLAIN) if isinstance(x, kind)), None)


def _names(code: types.CodeType) -> tuple[set[str], set[str], frozenset[str]]:
    """The globals that some code asks for, the modules that it imports, and all names in it, inner functions too."""
    asked, imported, names = set[str](), set[str](), set(code.co_names)
    steps = list(dis.get_instructions(code))
    for at, step in enumerate(steps):
        if step.opname in ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"):
            asked.add(step.argval)
        if step.opname == "IMPORT_NAME":
            imported.add("." * int(steps[at - 2].argval or 0) + step.argval)
    for inner in (c for c in code.co_consts if isinstance(c, types.CodeType)):
        more = _names(inner)
        asked, imported, names = asked | more[0], imported | more[1], names | more[2]
    return asked, imported, frozenset(names)


def _filled(cell: types.CellType) -> bool:
    try:
        return cell.cell_contents is not cell
    except ValueError:  # not assigned yet
        return False


def _silent(f: Field, value: Any) -> bool:
    if not f.metadata.get("quiet"):
        return False
    return value == (f.default if f.default_factory is MISSING else f.default_factory())


def _name(x: Any) -> str:
    own = x if isinstance(x, type | types.BuiltinFunctionType) else type(x)
    return f"{own.__module__}.{own.__qualname__}"
