"""The picture of claims: who is in it, in which order, and where the marks are."""

import re
from xml.etree import ElementTree

from fednb.study.forest import HIGH, LOW, _x, drawing, forest


def row(claim, verdict="holds", effect=2.0, printed=4.0, **more):
    known = {"low": effect - 1, "high": effect + 1} if effect != "" else {"low": "", "high": ""}
    return {"claim": claim, "verdict": verdict, "effect": effect, "printed": printed, "n": 3, "reading": "above",
            **known, **more}  # fmt: skip


def drawn(*rows):
    return forest(list(rows), lambda row: f"#{row['claim']}")


def test_claims_with_both_numbers_are_drawn_in_the_order_of_verdicts():
    partly = row("g", "holds on average where run (2 of 6 settings)")
    told = drawn(row("a", "does not hold"), partly, row("b"), row("c", "not run", ""), row("d", printed=float("nan")),
                 row("e", reading="inside"), row("f", printed=0.0))  # fmt: skip
    assert re.findall(r">(\w): ([^<]*)<", told) == [
        ("b", "holds, n = 3"), ("g", "holds on average where run, n = 3"), ("a", "does not hold, n = 3"),
    ]  # fmt: skip
    assert "3 claims" in told and drawn(row("c", "not run", "")) == ""


def test_numbers_are_in_units_of_the_printed_effect():
    told = drawn(row("a", effect=-2.0, printed=-4.0))
    assert f'cx="{_x(-0.5):.1f}"' in told and f"M{_x(-1):.1f} " in told
    assert f'x1="{_x(-0.75):.1f}" x2="{_x(-0.25):.1f}"' in told


def test_factors_are_in_units_of_their_logarithms():
    """Twice as many rounds where half as many are printed is -1, and a factor of 1 is none."""
    told = drawn(row("a", effect=0.5, printed=2.0, ratio=-1.0, low=0.25, high=1.0))
    assert f'cx="{_x(-1):.1f}"' in told and f"M{_x(1):.1f} " in told and f'x2="{_x(0):.1f}"' in told
    assert drawn(row("a", effect=1.2, printed=1.0, ratio=float("nan"))) == ""


def test_what_lies_beyond_is_drawn_at_the_edge():
    told = drawn(row("a", effect=400.0))
    assert f'cx="{_x(HIGH):.1f}"' in told and _x(-9) == _x(LOW) < _x(0) < _x(1) < _x(HIGH)


def test_names_are_only_text():
    told = forest([row("<b>")], lambda row: '#"<')
    assert "<b>" not in told and "&lt;b&gt;" in told and 'href="#&quot;&lt;"' in told


def test_a_drawing_stands_alone_and_has_the_same_marks():
    rows = [row("a", "does not hold"), row("b")]
    alone, linked = drawing(rows), forest(rows, lambda row: "#x")
    assert alone.startswith('<svg xmlns="http://www.w3.org/2000/svg"') and "<a " not in alone and drawing([]) == ""
    marks = r'c[xy]="[\d.]+"|d="[^"]+"'
    assert re.findall(marks, alone) == re.findall(marks, linked)
    ElementTree.fromstring(alone)
