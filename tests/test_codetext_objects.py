"""Objects from outside the package are part of a key with all that they are: order, state, class, held modules."""

import functools
import types
from dataclasses import dataclass

import pytest
from test_codetext import Called, applied

from fednb.algorithms.parts import Sam
from fednb.base.codetext import describe


def test_the_order_of_a_dictionary_counts():
    """Code may ask for the first; items in the order of their texts have the description that they always had."""
    assert describe({"a": 1, "b": 2}) == {"dict": [["a", 1], ["b", 2]]} != describe({"b": 2, "a": 1})
    assert describe({"b": 2, "a": 1}) == describe({"b": 2, "a": 1}) != describe({"b": 1, "a": 2})
    assert len({str(describe(dict.fromkeys(order))) for order in ("abc", "acb", "bac", "bca", "cab", "cba")}) == 6


def test_what_an_instance_has_beside_its_fields_counts():
    """A number that was put there, or what its class extends; not what it works out when it is first asked."""

    @dataclass
    class Mine(dict):
        rho: float = 1.0

        @functools.cached_property
        def twice(self):
            return 2 * self.rho

    plain, asked, more, held = (Mine() for _ in range(4))
    assert asked.twice == 2.0
    more.by, held["by"] = 2, 2
    assert describe(plain) == describe(asked)
    assert len({str(describe(x)) for x in (plain, more, held)}) == 3
    assert describe(Sam()) == {"is": {"of": "Sam"}, "rho": 0.1}


class Times:
    """A decorator with a number."""

    def __init__(self, function, by):
        functools.update_wrapper(self, function)
        self.by = by

    def __call__(self, *args):
        return self.by * self.__wrapped__(*args)


class Plus(Times):
    """Another one."""

    def __call__(self, *args):
        return self.by + self.__wrapped__(*args)


def test_a_decorator_that_is_an_object_counts():
    def told(text):
        inner = lambda x: x  # noqa: E731
        inner.__doc__ = text
        return inner

    one, other = told("one"), lambda x: -x
    assert applied(Times(one, 2)) == applied(Times(one, 2))
    assert len({applied(f) for f in (one, Times(one, 2), Times(one, 3), Plus(one, 2), Times(other, 2))}) == 5


def test_what_takes_a_methods_place_counts_whatever_its_name(monkeypatch):
    """`wraps` gives a function the module and the name of what it stands for."""

    def scaled(by):
        @functools.wraps(perturb)
        def scaled(*args):
            return by * perturb(*args)

        return scaled

    perturb, seen = Sam.perturb, [describe(Sam())]
    for stand_in in (scaled(2), scaled(3), Times(perturb, 2), Times(perturb, 3)):
        with monkeypatch.context() as here:
            here.setattr(Sam, "perturb", stand_in)
            seen.append(describe(Sam()))
            assert describe(Sam()) == seen[-1]
    assert len({str(each) for each in seen}) == 5 and describe(Sam()) == seen[0]


def module(text):
    made = types.ModuleType("helpers")
    exec(text, vars(made))
    return made


@pytest.mark.parametrize("held", [Called, lambda m: Called([m]), lambda m: Called(functools.partial(max, key=m))])
def test_a_module_that_is_held_counts_with_all_that_it_has(held):
    """Nobody can tell what it will be asked for; modules that hold one another are read once."""
    source = "import math\ndef inner(x): return x + 1\ndef outer(x): return inner(x)\n"
    first, again, other = (module(text) for text in (source, source, source.replace("+ 1", "+ 2")))
    for each in (first, again, other):
        each.other = module("")
        each.other.back = each
    assert describe(held(first)) == describe(held(again)) != describe(held(other))
