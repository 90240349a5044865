"""Code from outside the package is part of a key: as it runs, with what it closes over, and nothing by its name."""

import functools
import linecache
import os
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

import fednb as fn
from fednb import models, parts
from fednb.algorithms.catalogue import method
from fednb.algorithms.parts import FilterGradient, Sam
from fednb.algorithms.sums import NAMES
from fednb.base.codetext import Unreadable, describe, is_outside
from fednb.core.rounds import Method
from fednb.data import sources
from fednb.data.labels import Iid
from fednb.engines.setting import Setting
from fednb.filters import Filter, HighPass
from fednb.runs import keys
from fednb.runs.keys import identify, key_of
from fednb.runs.probes import Probe


def key(setting: Setting, name: str | Method) -> str:
    return key_of(identify(setting, method(name), 0))


def of_part(part: Any) -> str:
    return key(Setting(), Method("mine", part))


CELL = """
    from fednb.filters import Filter
    from fednb.algorithms.parts import FilterGradient
    from fednb.core.rounds import Part, part
    from dataclasses import dataclass

    SCALE = 2.0
    TABLE = {"a": (1, 2)}

    def helper(x):
        return SCALE * x

    @part
    class Mine(Part):
        rho: float = 0.1

        def correct(self, k, s, v):
            '''v ← v'''
            return helper(v) + self.rho * TABLE["a"][0]
"""
count = iter(range(10_000))


def cell(source: str, wanted: str = "Mine", known: bool = True, **names: Any) -> Any:
    """What a notebook's cell makes: its source is known to linecache as IPython's is, or to nobody."""
    text, file = textwrap.dedent(source), f"<ipython-input-{next(count)}>" if known else "<string>"
    if known:
        linecache.cache[file] = len(text), None, text.splitlines(keepends=True), file
    space: dict[str, Any] = {"__name__": "__main__", **names}
    exec(compile(text, file, "exec"), space)
    return space[wanted]


EDITS = {
    "the body": ("helper(v) + self", "helper(v) - self"),
    "a constant": ('TABLE["a"][0]', 'TABLE["a"][1]'),
    "a helper": ("SCALE * x", "SCALE + x"),
    "a number outside": ("SCALE = 2.0", "SCALE = 2.5"),
    "a table outside": ("(1, 2)", "(3, 2)"),
    "a default": ("rho: float = 0.1", "rho: float = 0.3"),
    "another stage": ("def correct", "def gradient"),
    "the class": ("class Mine(Part):", "class Mine(Part):\n        ascends = False"),
}


@pytest.mark.parametrize("known", [True, False], ids=["source known", "bytecode alone"])
@pytest.mark.parametrize("edit", EDITS)
def test_an_edited_cell_is_another_run(edit, known):
    before, after = EDITS[edit]
    assert CELL.count(before) == 1
    old, new = cell(CELL, known=known), cell(CELL.replace(before, after), known=known)
    assert of_part(old()) != of_part(new())


@pytest.mark.parametrize("known", [True, False], ids=["source known", "bytecode alone"])
def test_a_cell_run_again_is_the_same_run(known):
    """So are comments, empty lines, and other names in the notebook that the code does not ask for."""
    first = of_part(cell(CELL, known=known)())
    assert of_part(cell(CELL, known=known)()) == first
    remarked = CELL.replace("SCALE = 2.0", "# a remark\n\n    SCALE = 2.0  # two")
    assert of_part(cell(remarked, known=not known)()) == first
    assert of_part(cell(CELL, rho=torch.ones(3), v=7, known=known)()) == first
    assert of_part(cell(CELL)(rho=1)) == of_part(cell(CELL)(rho=1.0)) != first


def test_a_class_of_a_known_name_does_not_take_its_place():
    """`Sam` written in a notebook, with another body or the same: FedSAM's run stays FedSAM's."""
    source = """
        from fednb.core.rounds import Part, part
        @part
        class Sam(Part):
            rho: float = 0.1
            ascends = True
            def perturb(self, k, s, delta):
                '''δ ← 0'''
                return 0 * k.w
    """
    other = cell(source, "Sam")
    assert repr(other()) == repr(Sam()) and of_part(other()) != of_part(Sam())
    child = cell("from fednb.algorithms.parts import Sam as Old\nclass Sam(Old): pass", "Sam")
    assert repr(child()) == repr(Sam()) and of_part(child()) != of_part(Sam())
    other.__module__ = Sam.__module__  # even where it says that it is the package's
    assert of_part(other()) != of_part(Sam())


def test_an_edited_method_is_run_anew(tmp_path, monkeypatch):
    """The weights are those of the code that is there now."""
    monkeypatch.setenv("FEDNB_STORE", str(tmp_path))
    few = Setting(rounds=1, epochs=1, clients=2, samples=200, participation=1.0, partition="iid")
    old, new = (Method("m", cell(text)()) for text in (CELL, CELL.replace("2.0", "1.0")))
    first, second, third = (fn.run(few, m, engine="loop", progress=False) for m in (old, new, old))
    assert first.key == third.key != second.key
    assert first.weights_sha256 == third.weights_sha256 != second.weights_sha256


@pytest.mark.parametrize("kind", ["method", "static", "on the instance"])
def test_a_patched_class_of_the_package_is_another_run(kind, monkeypatch):
    plain = of_part(Sam(0.1))
    patch = lambda self, k, s, delta: 0 * k.w  # noqa: E731
    sam = Sam(0.1)
    if kind == "on the instance":
        object.__setattr__(sam, "perturb", patch)
    else:
        monkeypatch.setattr(Sam, "perturb", patch if kind == "method" else staticmethod(patch))
    assert of_part(sam) != plain
    monkeypatch.undo()
    assert of_part(Sam(0.1)) == plain


def test_a_patched_base_counts_for_all_that_stand_on_it(monkeypatch):
    plain = key(Setting(), "fedfft")
    monkeypatch.setattr(Filter, "idle", lambda self, n: True)
    assert key(Setting(), "fedfft") != plain


def test_closures_count():
    def made(factor):
        @dataclass(frozen=True)
        class Scaled(Filter):
            def __call__(self, x, shape=None):
                return factor * x

        return FilterGradient(Scaled())

    assert of_part(made(2.0)) == of_part(made(2.0)) != of_part(made(3.0))
    assert of_part(made(torch.ones(2))) == of_part(made(torch.ones(2))) != of_part(made(torch.zeros(2)))
    assert of_part(made(np.ones(2))) != of_part(made(np.ones(3)))


@dataclass(frozen=True)
class Called(Filter):
    """A filter that applies a function."""

    function: Any = None

    def __call__(self, x, shape=None):
        return self.function(x)


def applied(function: Any) -> str:
    return of_part(FilterGradient(Called(function)))


def test_lambdas_partials_and_wrapped_functions_count():
    double, triple = lambda x: 2 * x, lambda x: 3 * x
    again = lambda x: 2 * x  # noqa: E731
    assert applied(double) == applied(again) != applied(triple)
    times = lambda x, by=1: by * x  # noqa: E731
    assert len({applied(functools.partial(times, by=2)), applied(functools.partial(times, by=3)), applied(times)}) == 3
    assert applied(functools.lru_cache(double)) == applied(functools.lru_cache(again))
    assert applied(functools.lru_cache(double)) != applied(functools.lru_cache(triple))
    assert applied(torch.no_grad()(double)) != applied(torch.no_grad()(triple))
    assert applied(torch.relu) != applied(torch.tanh)
    assert applied(torch.nn.functional.relu) == applied(torch.nn.functional.relu)
    assert applied(torch.nn.Linear(2, 2).requires_grad_(False)) != applied(torch.nn.Linear(2, 2).requires_grad_(False))


MEMBERS = """
    from fednb.core.rounds import Part, part
    import functools

    @part
    class Mine(Part):
        @property
        def on_server(self):
            return {"m": 1}
        @staticmethod
        def first(x):
            return 1 * x
        @classmethod
        def second(cls, x):
            return 2 * x
        @functools.cached_property
        def third(self):
            return 3
        @functools.lru_cache
        def fourth(self):
            return 4
        def correct(self, k, s, v):
            '''v ← v'''
            return v
"""


@pytest.mark.parametrize("before, after", [('"m": 1', '"m": 2'), ("1 * x", "1 + x"), ("2 * x", "2 + x"),
                                           ("return 3", "return 5"), ("return 4", "return 5")])  # fmt: skip
def test_decorated_members_count(before, after):
    assert of_part(cell(MEMBERS)()) == of_part(cell(MEMBERS)()) != of_part(cell(MEMBERS.replace(before, after))())


def test_bases_from_outside_count():
    source = """
        from fednb.core.rounds import Part
        class Base(Part):
            by = 1
        class Mine(Base):
            pass
    """
    assert describe(cell(source)) == describe(cell(source)) != describe(cell(source.replace("by = 1", "by = 2")))


def test_functions_that_call_each_other_are_read_once():
    source = """
        def even(n):
            return n == 0 or odd(n - 1)
        def odd(n):
            return n != 0 and even(n - 1)
        even.friends = [even, odd]
    """
    assert describe(cell(source, "even")) == describe(cell(source, "even"))
    assert describe(cell(source, "even")) != describe(cell(source.replace("n != 0", "n > 0"), "even"))


@pytest.mark.parametrize(
    "use",
    ["import helpers as m\ndef Mine(x):\n    return m.outer(x)",
     "def Mine(x):\n    from helpers import outer\n    return outer(x)"],
    ids=["named", "imported inside"],
)  # fmt: skip
def test_modules_beside_the_notebook_count(use, tmp_path, monkeypatch):
    """What a function takes from a module of the user's own, and what that takes from there."""
    seen = []
    for folder, body in (("a", "x + 1"), ("b", "x + 1"), ("c", "x + 2")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "helpers.py").write_text(f"def inner(x): return {body}\ndef outer(x): return inner(x)\n")
        with monkeypatch.context() as here:
            here.syspath_prepend(tmp_path / folder)
            here.delitem(sys.modules, "helpers", raising=False)
            seen.append(describe(cell(use)))
            sys.modules.pop("helpers")
    assert seen[0] == seen[1] != seen[2]


def test_partitions_and_models_from_outside_count(monkeypatch):
    def iid(step):
        @dataclass(frozen=True)
        class Mine(Iid):
            def deal(self, labels, clients, rng):
                return np.array_split(np.arange(len(labels))[::step], clients)

        return Mine()

    assert key(Setting(partition=iid(1)), "fedavg") == key(Setting(partition=iid(1)), "fedavg")
    assert len({key(Setting(partition=p), "fedavg") for p in (iid(1), iid(-1), "iid")}) == 3

    def net(width):
        return lambda classes, input: torch.nn.Sequential(torch.nn.Flatten(), torch.nn.LazyLinear(width))

    seen = []
    for width in (3, 3, 4):
        monkeypatch.setitem(models.MODELS, "mine", net(width))
        seen.append(key(Setting(model="mine"), "fedavg"))
    assert seen[0] == seen[1] != seen[2]


def test_code_that_cannot_be_read_is_never_reused(capsys, tmp_path, monkeypatch):
    """A file that is open, a generator at work: another key every time, and one line that says so."""
    monkeypatch.setattr(keys, "_said", set())
    monkeypatch.setenv("FEDNB_STORE", str(tmp_path))
    lines = (n for n in range(3))
    assert len({applied(lambda x: next(lines) * x) for _ in range(3)}) == 3
    said = capsys.readouterr().err
    assert said == "fednb: run is not reused: the code of builtins.generator cannot be read\n"
    with pytest.raises(Unreadable):
        describe(lines)
    few = Setting(rounds=1, epochs=1, clients=2, samples=200, participation=1.0, partition="iid")
    unread = Method("m", FilterGradient(Called(lambda x: x if lines else 0)))
    first, second = (fn.run(few, unread, engine="loop", progress=False) for _ in range(2))
    assert first.status == second.status == "finished" and first.key != second.key


def test_models_and_data_of_the_package_are_not_from_outside():
    assert [name for name, build in models.MODELS.items() if is_outside(build)] == []
    assert [name for name in sources.names() if is_outside(sources.find(name).reader)] == []


def test_two_processes_agree(tmp_path):
    """Whatever their hash seeds, for code from outside too."""
    program = textwrap.dedent(CELL) + textwrap.dedent("""
        import fednb as fn
        from fednb.runs.keys import identify, key_of
        WORDS = {"a", "b", "c", "d"}
        @dataclass(frozen=True)
        class Kept(Filter):
            names: object = frozenset({"x", "y", "z"})
            def __call__(self, x, shape=None):
                return x if {"p", "q", "r"} & WORDS else helper(x)
        m = fn.method("fedfft").plus(Mine(), FilterGradient(Kept()))
        print(key_of(identify(fn.Setting(), m, 0)))
    """)
    (tmp_path / "program.py").write_text(program)
    told = {
        subprocess.run([sys.executable, tmp_path / "program.py"], env=os.environ | {"PYTHONHASHSEED": seed},
                       capture_output=True, text=True, check=True).stdout
        for seed in ("1", "2", "3")
    }  # fmt: skip
    assert len(told) == 1 and len(told.pop().strip()) == 16


def test_nothing_of_the_package_looks_patched():
    for kind in {*(getattr(parts, name) for name in parts.__all__), *NAMES.values(), Method, Setting, Probe, HighPass}:
        assert describe(kind) == {"of": kind.__qualname__}
