"""Methods from one line of text: "fedsmoo + highpass(0.01)", "fedavg + prox(0.1) + gradient(centralize())"."""

from __future__ import annotations

import ast
from itertools import pairwise
from typing import Any
from warnings import catch_warnings, simplefilter

from fednb import filters
from fednb.algorithms import parts
from fednb.algorithms.parts.ascend import FilterPerturbation
from fednb.algorithms.parts.clean import FilterGradient
from fednb.algorithms.parts.fsa import FlexibleRadius
from fednb.base.imports import imported, is_import_path
from fednb.base.inputs import closest, one_line, shown
from fednb.core.rounds import Method, Part
from fednb.filters import Filter

NAMES: dict[str, Any] = {
    **{n.lower(): x for n, x in vars(filters).items() if isinstance(x, type) and issubclass(x, Filter) and n[0] != "_"},
    **{n.lower(): getattr(parts, n) for n in parts.__all__},
    "gradient": FilterGradient,
    "perturbation": FilterPerturbation,
    "fsa": FlexibleRadius,
}
NAMES.pop("filter")
MOST_LETTERS, MOST_TERMS, DEEPEST = 2000, 50, 20
NO_TERM = "is no term; write a name with its numbers, such as highpass(0.01)"


class BadTerm(ValueError):
    """A term of an expression that names nothing known, or is written wrongly."""


def terms(text: str) -> list[str]:
    """The terms of an expression: what stands between plus signs outside brackets.

    >>> terms("fedsam + permuted(highpass(0.05), '3210') + dyn(5)")
    ['fedsam', "permuted(highpass(0.05), '3210')", 'dyn(5)']
    """
    if len(text) > MOST_LETTERS:
        raise BadTerm(f"{shown(text)} has {len(text)} letters; a method is written in at most {MOST_LETTERS}")
    cuts, depth = [-1], 0
    for at, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if not 0 <= depth <= DEEPEST:
            wrong = "more brackets are closed than opened" if depth < 0 else f"over {DEEPEST} brackets are open"
            raise BadTerm(f"{shown(text)} {NO_TERM}: {wrong}")
        if letter == "+" and depth == 0:
            cuts.append(at)
    if depth:
        raise BadTerm(f"{shown(text)} {NO_TERM}: a bracket is not closed")
    if len(cuts) > MOST_TERMS:
        raise BadTerm(f"{shown(text)} has {len(cuts)} terms; a method has at most {MOST_TERMS}")
    return [text[start + 1 : end].strip() for start, end in pairwise([*cuts, len(text)])]


def built(term: str) -> Filter | Part | Method:
    """What a term names: "highpass(0.01)" a filter or part, an import path what is behind it, a method too."""
    if is_import_path(term):
        return _imported(term)
    made = None
    with catch_warnings():
        simplefilter("ignore")  # of the compiler, about what is refused below
        try:
            made = _value(ast.parse(term, mode="eval").body, term)
        except (SyntaxError, RecursionError, MemoryError):
            pass
        except ValueError as error:  # such as a null byte
            if type(error) is ValueError:
                raise BadTerm(f"{shown(term)}: {one_line(str(error), 300)}") from None
            raise
    if not isinstance(made, Filter | Part):
        raise BadTerm(f"{shown(term)} {NO_TERM}")
    return made


def _imported(term: str) -> Filter | Part | Method:
    """A user's filter, part or method by its import path; a class is made and a function called, without arguments."""
    found = imported(term)
    try:
        made = found if isinstance(found, Filter | Part | Method) or not callable(found) else found()
    except Exception as error:  # of a user's code
        why = f"{type(error).__name__}: {one_line(str(error), 300)}"
        raise BadTerm(f"{shown(term)} must make a part without arguments: {why}") from error
    if not isinstance(made, Filter | Part | Method):
        raise BadTerm(f"{shown(term)} is {shown(made)}, expected a filter, a part or a method")
    return made


def _value(node: ast.expr, term: str) -> Any:
    if isinstance(node, ast.Name):
        return _kind(node.id)()
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        if any(k.arg is None for k in node.keywords):
            raise BadTerm(f"{shown(term)}: ** cannot stand here; name each number")
        given = [_value(arg, term) for arg in node.args]
        named = {str(k.arg): _value(k.value, term) for k in node.keywords}
        try:
            return _kind(node.func.id)(*given, **named)
        except TypeError as error:
            raise BadTerm(f"{shown(term)}: {one_line(str(error), 300)}") from None
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, OverflowError):
        raise BadTerm(f"{shown(term)}: only names, brackets, numbers and texts can stand here") from None


def _kind(name: str) -> Any:
    if name.lower() not in NAMES:
        raise BadTerm(f"no filter, part or method {shown(name)}; closest: {closest(name.lower(), NAMES)}")
    return NAMES[name.lower()]


def added(base: Method, thing: Filter | Part | Method) -> Method:
    """A method with one more idea.

    A filter cleans the perturbation where there is one, else the gradient; gradient(...) and perturbation(...) say
    which. fsa(...) takes the place of the ascent. Everything else goes behind.
    """
    if isinstance(thing, Method):
        return Method(base.name, *base.parts, *thing.parts)
    if isinstance(thing, Filter):
        thing = FilterPerturbation(thing) if any(p.ascends for p in base.parts) else FilterGradient(thing)
    if isinstance(thing, FlexibleRadius) and any(p.ascends for p in base.parts):
        return Method(base.name, *(thing if p.ascends else p for p in base.parts))
    if isinstance(thing, FilterPerturbation):
        at = 1 + max((i for i, p in enumerate(base.parts) if p.ascends or p.shapes_ascent), default=-1)
        return Method(base.name, *base.parts[:at], thing, *base.parts[at:])
    return Method(base.name, *base.parts, thing)
