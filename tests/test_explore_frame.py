"""A picture follows its controls; where nobody is, there is a grid of pictures and no dead control."""

import io
from base64 import b64decode
from threading import Thread

import ipywidgets as w
import numpy as np
import pytest
from moving import Powers
from PIL import Image

from fednb.show.explore.beforehand import drawn
from fednb.show.explore.cutline import LEAST, CutLine, ratio_at
from fednb.show.explore.frame import attended, offer, png, tiled
from fednb.show.explore.later import Later
from fednb.show.explore.moves import MIME, Moving
from fednb.show.explore.panes import Canvas, blank, envelope, fit, joined, pane

VIEW = "application/vnd.jupyter.widget-view+json"


def pixels(data):
    return np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))


def test_a_control_changes_picture_and_words():
    shown = Powers()
    shown.refresh()
    before = shown.picture.value
    shown.controls["x"].value = 3
    assert shown.picture.value != before and ">3<" in shown.words.value
    shown.controls["power"].value = 2
    assert ">9<" in shown.words.value


def test_nothing_to_draw_leaves_the_picture_and_says_why():
    shown = Powers()
    shown.refresh()
    before = shown.picture.value
    shown.controls["x"].value = -1
    assert shown.picture.value == before
    assert "x &lt; 0: choose another" in shown.words.value and "role='alert'" in shown.words.value


def test_controls_set_together_are_drawn_once():
    shown = Powers()
    with shown.together():
        shown.controls["x"].value, shown.controls["power"].value = 3, 3
    assert shown.drawn == 1 and ">27<" in shown.words.value


def test_threads_draw_one_after_the_other():
    """Two pictures at once would draw into one figure: the second waits for the first."""
    shown, inside, most = Powers(), [], []
    plain = shown.draw

    def draw(**values):
        inside.append(1)
        most.append(len(inside))
        done = plain(**values)
        inside.pop()
        return done

    shown.draw = draw
    threads = [Thread(target=shown.refresh) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert most == [1] * 4


def test_headless_there_is_a_grid_and_no_widget(monkeypatch):
    """Three pictures of 160 x 80 in two columns: 320 x 160, in the order of `stills`."""
    monkeypatch.setenv("FEDNB_WIDGETS", "still")
    shown = Powers()
    bundle = shown._repr_mimebundle_()
    assert VIEW not in bundle and set(bundle) == {"text/plain", "image/png"}
    grid = pixels(b64decode(bundle["image/png"]))
    assert grid.shape == (160, 320, 3)
    third = pixels(png(shown.draw(x=2, power=2)[0]))
    assert (grid[80:, :160] == third).all() and (grid[80:, 160:] == 255).all()


def test_a_front_end_gets_the_widget_and_a_picture_that_outlives_it(monkeypatch):
    monkeypatch.setenv("FEDNB_WIDGETS", "live")
    shown = Powers()
    bundle = shown._repr_mimebundle_()
    assert VIEW in bundle and b64decode(bundle["image/png"]) == shown.picture.value


def test_outside_of_a_kernel_nobody_attends(monkeypatch):
    monkeypatch.delenv("FEDNB_WIDGETS", raising=False)
    assert not attended()


def test_offered_options_keep_the_choice_where_they_can():
    one = w.Dropdown(options=[("a", 1), ("b", 2)], value=2)
    offer(one, [("b", 2), ("c", 3)])
    assert one.value == 2
    offer(one, [("c", 3), ("d", 4)])
    assert one.value == 3
    offer(one, [("c", 3), ("d", 4)], 4)
    assert one.value == 4


def test_tiles_are_as_large_as_the_largest():
    small, large = (png(blank(width, 1)) for width in (1, 3))
    assert pixels(tiled([small, large], 2)).shape == (80, 480, 3)
    assert pixels(tiled([small], 2)).shape == (80, 80, 3)


def line_of(value):
    number = w.BoundedFloatText(value=value, min=0, max=1)
    return CutLine(w.Image(), number, (0.1, 0.6, 0.8, 0.3), "cut"), number


def test_the_line_and_the_number_are_one_ratio():
    """Dragged to 10⁻¹ the number is 0.1; typed 0.3 the line goes there; at the left end nothing is cut."""
    line, number = line_of(0.05)
    line.slider.value = 0.1
    assert number.value == 0.1
    number.value = 0.3
    assert line.slider.value == 0.3
    line.slider.value = LEAST
    assert number.value == 0.0
    number.value = 0.5
    number.value = 0.0
    assert line.slider.value == LEAST


def test_a_browsers_rounding_to_the_next_step_is_no_move():
    """Typed 0.0123, log₁₀ = −1.910: the browser answers 10^−1.92, its nearest step. The step after it counts."""
    line, number = line_of(0.0123)
    line.slider.value = 10**-1.92
    assert number.value == 0.0123
    line.slider.value = 10**-1.94
    assert number.value == ratio_at(10**-1.94) == 0.0115


def test_steps_of_the_line_are_all_different():
    """201 places from 10⁻⁴ to 1, and 201 ratios: none is lost by rounding. Those of the papers are among them."""
    ratios = [ratio_at(10 ** (-4 + 0.02 * i)) for i in range(201)]
    assert len(set(ratios)) == 201 and ratios == sorted(ratios) and {0.0, 0.01, 0.05, 0.1, 1.0} <= set(ratios)


def test_the_line_lies_on_its_panel():
    """A panel from 10% to 90% across, its top at 1 − 0.6 − 0.3 = 10% and 30% high; in shares, so that it may shrink."""
    line, _ = line_of(0.05)
    style = line.box.children[0].value
    assert "left: 10.0000%; top: 10.0000%; width: 80.0000%" in style and "height: 30.0000%" in style
    assert line.slider.description  # its label


def test_an_envelope_loses_no_extreme():
    """10,000 numbers in 600 points: the largest and the least are among them, whatever their place."""
    x = np.random.default_rng(0).standard_normal(10_000)
    for place in (0, 33, 9_999):
        spiky = x.copy()
        spiky[place] = 50.0
        at, y = envelope(spiky)
        assert len(at) == len(y) == 600 and y.max() == 50.0 and y.min() == spiky.min()
    assert envelope(x[:5])[1].tolist() == x[:5].tolist()


def test_joined_curves_have_gaps():
    x, y = joined([(np.array([0.0, 1.0]), np.array([2.0, 3.0]))] * 2)
    assert len(x) == 6 and np.isnan(x[[2, 5]]).all() and np.isnan(y[[2, 5]]).all()
    assert len(joined([])[0]) == 1


def test_what_moves_on_a_canvas_is_drawn_as_if_all_were():
    """Drawn on a copy of the rest, or from nothing: the same dots. Limits that change are seen."""

    def made():
        fig = blank(2, 1)
        ax = pane(fig, (0.2, 0.2, 0.7, 0.6), "")
        (line,) = ax.plot([], [])
        ax.set(xlim=(0, 1), ylim=(0, 1))
        return ax, line, Canvas(fig, [line])

    ax, line, canvas = made()
    pictures = []
    for top in (1.0, 1.0, 4.0):
        line.set_data([0, 1], [0, top])
        ax.set_ylim(0, top)
        pictures.append(canvas.picture())
        line.set_data([0, 0.5], [0, 0.2])
        pictures.append(canvas.picture())
    fresh_ax, fresh_line, fresh = made()
    fresh_line.set_data([0, 0.5], [0, 0.2])
    fresh_ax.set_ylim(0, 4.0)
    assert pictures[0] == pictures[2] != pictures[1]
    assert pictures[5] == fresh.picture() != pictures[3]


def test_limits_hold_all_values():
    ax = pane(blank(2, 1), (0.2, 0.2, 0.7, 0.6), "")
    fit(ax, [1.0, np.nan, 5.0], [-2.0])
    low, high = ax.get_ylim()
    assert low < -2 and high > 5
    fit(ax, [1e-9, 1e-3, 1.0], log=True)
    assert 1e-4 < ax.get_ylim()[0] < 1e-3 and ax.get_ylim()[1] > 1


def test_later_does_the_last_that_was_asked_for():
    """While one is at work two more are asked for: the first and the last are done."""
    later, done = Later(), []

    def first():
        later.do(lambda: done.append("second"))
        later.do(lambda: done.append("third"))
        done.append("first")

    later.do(first)
    later.wait()
    assert done == ["first", "third"]
    later.do(lambda: done.append("fourth"))
    later.wait()
    assert done[-1] == "fourth"


def test_a_copy_for_the_site_has_every_state(monkeypatch):
    """Every combination once: the power does not matter to 0, nor to a number that cannot be drawn."""
    monkeypatch.setenv("FEDNB_WIDGETS", "still")
    monkeypatch.setenv("FEDNB_PAGE", "anywhere")
    shown = Powers()
    moving = Moving.read(shown._repr_mimebundle_()[MIME])
    assert [state.at for state in moving.states] == [
        {"x": 0}, {"x": 1}, *({"x": x, "power": power} for x in (2, 3) for power in (0, 1, 2))
    ]  # fmt: skip
    none, *words = (state.words for state in moving.states)
    assert none == "<p>x &lt; 0: choose another</p>" and words == ["0", "2", "4", "8", "3", "9", "27"]
    assert moving.first.at == {"x": 2, "power": 0} and moving.states[0].picture == b""
    wanted = pixels(png(shown.draw(x=3, power=2)[0])).astype(int)
    assert abs(pixels(moving.states[6].picture) - wanted).max() < 40  # fewer colours
    monkeypatch.delenv("FEDNB_PAGE")
    assert MIME not in shown._repr_mimebundle_()


@pytest.mark.parametrize("damage", [
    lambda data: data["states"].pop(),
    lambda data: data["states"].append(data["states"][1]),
    lambda data: data["states"][1].update(picture="AAAA"),
    lambda data: data["states"][1].update(picture="not base64!"),
    lambda data: data["states"][1].update(words=3),
    lambda data: data["states"][1]["at"].update(other=1),
    lambda data: data["moves"][0].update(start=9),
    lambda data: data["moves"][0].update(name='x" onclick="f()'),
    lambda data: data["moves"][0].update(options=[1, 2, 3, 4]),
    lambda data: data["moves"].pop(),
    lambda data: data.pop("title"),
])  # fmt: skip
def test_states_that_are_not_whole_are_refused(damage):
    data = drawn(Powers()).bundle()[MIME]
    assert Moving.read(data)
    damage(data)
    with pytest.raises((ValueError, KeyError, TypeError)):
        Moving.read(data)
