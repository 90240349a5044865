"""Readings as small classes beside their part, and parts that are exported by standing in their folder."""

import inspect
import pickle
import shutil
import subprocess
import sys
from itertools import combinations
from pathlib import Path

import pytest
from quadratics import one_round, quadratic

import fednb as fn
from fednb.algorithms import parts
from fednb.algorithms.cards import pseudo_code
from fednb.algorithms.parts import cr
from fednb.base.codetext import describe
from fednb.core.readings import Chosen, Not, in_turn, nothing, when
from fednb.core.record import P
from fednb.core.rounds import BadParameter, BadReading, Method, Part, part

PACKAGE = Path(fn.__file__).parent


@part
class Push(Part):
    """Go on by a constant."""

    by: float = 1.0
    reading: str = "forward"
    idle: bool = False
    where: str = "client"
    on_server = {"pushed": P}

    def correct(self, k, s, v):
        """v ← v − by"""
        return v - self.by

    server = in_turn("count", "move")

    def count(self, k, s):
        """pushed ← pushed + by"""
        s.pushed = s.pushed + self.by

    def move(self, k, s):
        """step ← Δ"""
        s.step = s.delta


@when(reading="back")
class PushBack(Push):
    """The other way."""

    def correct(self, k, s, v):
        """v ← v + by"""
        return v + self.by


@when(idle=True)
class PushIdle(Push):
    """Nothing at the clients."""

    correct = nothing
    count = nothing
    on_server = {}


@when(where="server")
class PushServer(PushIdle):
    """At the server only."""

    on_server = Push.on_server

    def move(self, k, s):
        """step ← Δ + by"""
        s.step = s.delta + self.by


@when(by=Not(1.0), where="server")
class PushServerTwice(PushServer):
    """Twice, where the constant is another."""

    def move(self, k, s):
        """step ← Δ + 2 by"""
        s.step = s.delta + 2 * self.by


def after(p: Part) -> float:
    """w after one step of η = 0.1 from 0 on ½ w², where FedAvg stays at 0."""
    return one_round(Method("m", p), quadratic(0.0))[1].w.item()


@pytest.mark.parametrize("p, w, equations", [
    (Push(), 0.1, ["v ← v − by", "pushed ← pushed + by;  step ← Δ"]),
    (Push(reading="back"), -0.1, ["v ← v + by", "pushed ← pushed + by;  step ← Δ"]),
    (Push(idle=True), 0.0, ["step ← Δ"]),
    (Push(reading="back", idle=True), 0.0, ["step ← Δ"]),
    (Push(where="server"), 1.0, ["step ← Δ + by"]),
    (Push(2.0, where="server"), 4.0, ["step ← Δ + 2 by"]),
])  # fmt: skip
def test_a_reading_changes_its_own_stages_and_their_lines(p, w, equations):
    """v = −by gives w = 0.1 by; the last reading that fits counts; a stage that is left out has no line."""
    assert type(p) is Push
    assert after(p) == pytest.approx(w)
    own = [line for line in pseudo_code(Method("m", p)).splitlines()[1:] if line.endswith("Push")]
    assert [line[31:].removesuffix("Push").strip() for line in own] == equations


class TwoSteps:
    correct = in_turn("double", "add")

    def double(self, k, s, v):
        """v ← 2 v"""
        return 2 * v

    def add(self, k, s, v):
        """v ← v + 1"""
        return v + 1


def test_functions_in_turn_pass_a_value_on():
    stage = TwoSteps().correct
    assert stage(None, None, 3) == 2 * 3 + 1
    assert stage.__doc__ == "v ← 2 v;  v ← v + 1"


def test_a_reading_changes_what_is_declared():
    assert Push().on_server == {"pushed": P} and Push(idle=True).on_server == {}
    assert Method("m", Push(idle=True)).declared("on_server") == {}


def test_the_values_of_readings_are_the_allowed_ones():
    assert Push.readings == ("forward", "back")
    with pytest.raises(BadReading, match=r"Push\.reading = 'up': must be one of forward, back"):
        Push(reading="up")
    with pytest.raises(BadParameter, match=r"Push\.where = 'sky': must be client or server"):
        Push(where="sky")


def test_parts_alone_are_exported():
    """A dataclass beside them, such as FedCR's loss, is none."""
    assert cr.ClassLoss.__module__ == parts.ClassGaussians.__module__ and "ClassLoss" not in parts.__all__
    assert all(issubclass(getattr(parts, name), Part) for name in parts.__all__)


def test_a_part_says_which_readings_it_has():
    text = inspect.getdoc(Push)
    assert text.startswith("Go on by a constant.\n") and "\nreading='back': The other way." in text
    for name in parts.__all__:
        kind = getattr(parts, name)
        assert all(repr(reading) in kind.__doc__ for reading in kind.readings[1:]), name


def test_a_reading_is_not_made_by_itself():
    with pytest.raises(TypeError, match=r"PushBack is a reading; write Push\(reading='back'\)"):
        PushBack()


def test_a_reading_stands_in_the_file_of_its_part():
    """Elsewhere it would change what a package's part does behind the back of the run's key."""
    with pytest.raises(TypeError, match=r"a reading stands in the file of its part, fednb\.algorithms\.parts\.correct"):

        @when(dual="mine")
        class Mine(parts.Dyn):
            """Somebody else's."""

    with pytest.raises(BadParameter):
        parts.Dyn(dual="mine")


def test_a_reading_needs_its_equation():
    with pytest.raises(TypeError, match=r"Silent\.correct needs a docstring whose first line is its equation"):

        @when(reading="silent")
        class Silent(Push):
            """Says nothing."""

            def correct(self, k, s, v):
                return v


def test_readings_go_through_a_pickle():
    for p in (Push(reading="back"), parts.Dyn(reading="printed", dual="sent")):
        again = pickle.loads(pickle.dumps(p))
        assert again == p and again.correct.__func__ is p.correct.__func__


def cell(change: str) -> type[Part]:
    """A part of a notebook's with a reading that has `change` in it."""
    lines = ["@part", "class Mine(Part):", "    reading: str = 'a'", "    def correct(self, k, s, v):", "        'v'",
             "        return v", "@when(reading='b')", "class Other(Mine):", "    'Other.'",
             "    def correct(self, k, s, v):", "        '2 v'", f"        return {change}"]  # fmt: skip
    scope = {"part": part, "Part": Part, "when": when, "__name__": "__main__"}
    exec("\n".join(lines), scope)
    return scope["Mine"]


def test_the_code_of_a_notebooks_reading_is_part_of_the_key():
    one, again, other = (describe(cell(change)(reading="b")) for change in ("2 * v", "2 * v", "3 * v"))
    assert one == again != other


OVERRULED = {  # personal=False, server_step="poster" and reading="released" leave nothing to the other
    ("WmsamMomentum", "start"), ("WmsamMomentum", "server_variate"), ("WmsamMomentum", "server_momentum"),
    ("Lesam", "look_back"),
}  # fmt: skip


def test_two_readings_of_one_stage_are_read_together():
    """Where two readings with different fields change one thing, a third has both, or one overrules by its place."""
    for name in parts.__all__:
        for attribute in (x for x in vars(getattr(parts, name)).values() if isinstance(x, Chosen)):
            conditions = [values for values, _ in attribute.others]
            for one, other in combinations(conditions, 2):
                if (name, attribute.name) not in OVERRULED and not set(one) & set(other):
                    assert one | other in conditions, (name, attribute.name, one, other)


def test_only_parts_are_exported():
    assert "Dyn" in parts.__all__ and "DynPrinted" not in parts.__all__ and "Part" not in parts.__all__
    assert all(getattr(parts, name).__name__ == name for name in parts.__all__)
    with pytest.raises(AttributeError, match="has no part 'Nobody'"):
        parts.Nobody  # noqa: B018


NEW = '''"""A new idea."""

from fednb.core.rounds import Part, part


@part
class Shorter(Part):
    """Shorten every step."""

    by: float = 0.5

    def correct(self, k, s, v):
        """v ← by · v"""
        return self.by * v
'''
ASKED = """
import fednb as fn
assert fn.method("new").parts == (fn.parts.Shorter(by=0.25),)
assert "v ← by · v" in str(fn.card("new"))
assert fn.method("fedsam + shorter(0.1)").parts[1] == fn.parts.Shorter(0.1)
print(fn.__file__)
"""


def test_a_new_method_is_a_part_in_a_file_and_a_line_in_the_catalogue(tmp_path):
    shutil.copytree(PACKAGE, tmp_path / "fednb", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "fednb/algorithms/parts/shorter.py").write_text(NEW)
    with (tmp_path / "fednb/algorithms/catalogue.py").open("a") as catalogue:
        catalogue.write('\nNEW = _add(Method("New", parts.Shorter(by=0.25)), "A paper")\n')
    asked = subprocess.run([sys.executable, "-c", ASKED], cwd=tmp_path, capture_output=True, text=True)
    assert asked.returncode == 0, asked.stderr
    assert asked.stdout.splitlines()[-1].startswith(str(tmp_path))
