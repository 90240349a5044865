"""A small explorer, and what holds for all on a page without a kernel: whatever controls say has their picture."""

from itertools import product
from random import Random

import ipywidgets as w

from fednb.show.explore.beforehand import move, planned, small, still
from fednb.show.explore.frame import CannotDraw, Explorer
from fednb.show.explore.moves import PNG, Moving, State
from fednb.show.explore.panes import blank, pane

MOST_BYTES = 5_000_000  # of one explorer's pictures: five of them, and what else is on the site, stay under 40 MB


class Powers(Explorer):
    """x to a power, as a bar; negative numbers have no root to show."""

    title = "Powers"

    def __init__(self):
        x = w.IntSlider(value=2, min=-3, max=9, description="x")
        super().__init__({"x": x, "power": w.Dropdown(options=[1, 2, 3], description="power")})
        self.drawn = 0

    def draw(self, x, power):
        self.drawn += 1
        if x < 0:
            raise CannotDraw("x < 0: choose another")
        fig = blank(2, 1)
        pane(fig, (0.1, 0.1, 0.8, 0.8), "").bar([0], [x**power])
        return fig, f"{x**power}"

    def stills(self):
        return [{"x": 1}, {"x": 3}, {"power": 2}]

    def moves(self):
        return [move(self, "x", [-1, 0, 2, 3]), move(self, "power", [1, 2, 3])]

    def matters(self, values):
        return {"x", "power"} if values["x"] > 1 else {"x"}


def check(explorer, put, some=3):
    """Every combination of controls has one picture; for some of them it is what the live controls show.

    put: from values to the picture and the words (HTML) that the explorer shows when its controls are set to them.
    """
    moves, base = explorer.moves(), explorer.values
    plan = list(planned(explorer, moves))
    assert Moving("", tuple(moves), tuple(State(at, b"", "") for at, _ in plan)).unanswered() == []
    assert {name for at, _ in plan for name in at} == {each.name for each in moves} and len(moves) > 1
    seen = set()
    for numbers in Random(1).sample([*product(*(range(len(each.options)) for each in moves))], some):
        asked = {each.name: i for each, i in zip(moves, numbers, strict=True)}
        (values,) = (values for at, values in plan if at.items() <= asked.items())
        picture, words = still(explorer, values)
        live, said = put(base | {each.name: each.options[asked[each.name]][1] for each in moves})
        assert picture == small(live) and picture.startswith(PNG) and words in said, asked
        seen.add(picture)
    assert len(seen) > 1 and len(plan) * max(map(len, seen)) < MOST_BYTES


def through_controls(explorer):
    """A way to put values that sets every control."""

    def put(values):
        with explorer.together():
            for name, control in explorer.controls.items():
                control.value = values[name]
        return explorer.picture.value, explorer.words.value

    return put
