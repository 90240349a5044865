"""The browser test can fail: what is broken on purpose in a notebook made here is noticed."""

import pytest

from browser.driver import WIDE, DidNotFollow

pytestmark = pytest.mark.browser

MADE = """
import ipywidgets as w
from matplotlib.figure import Figure
from fednb.show.explore.frame import Explorer

class Made(Explorer):
    title = "made"
    def __init__(self):
        sliders = {name: w.IntSlider(value=5, max=9, description=name) for name in ("whole", "loose", "broken")}
        super().__init__(sliders)
        sliders["loose"].unobserve_all()
    def draw(self, whole, loose, broken):
        figure = Figure(figsize=(4, 2))
        figure.text(0.1, 0.5, f"{whole} {10 // (broken - 6)}")
        return figure, f"whole is {whole}"
    def view(self):
        return w.VBox([super().view(), w.HBox([w.Text(description="wide", layout=w.Layout(min_width="3000px"))])])

Made()
"""


class TestMade:
    name = "made"
    cells = (MADE, "1 / 0")

    def test_an_error_in_a_cell_is_noticed(self, notebook):
        heard, shown = notebook.errors()
        assert heard == "kernel: ZeroDivisionError: division by zero"
        assert shown.startswith("shown: ") and "ZeroDivisionError" in shown

    def test_a_control_and_its_picture(self, notebook):
        """One step, another picture and other words; one step back, the same as before."""
        before, whole = notebook.shown(), notebook.control("whole")
        after = notebook.follows(whole)
        assert (before.words, after.words) == ("whole is 5", "whole is 6")
        assert notebook.back(whole) == before
        assert len(notebook.errors()) == 2  # those of the cell

    def test_a_control_without_its_picture_is_noticed(self, notebook):
        with pytest.raises(DidNotFollow, match="loose was moved and the picture did not change"):
            notebook.follows(notebook.control("loose"), within=3)

    def test_what_leaves_the_window_is_noticed(self, notebook):
        notebook.resize(*WIDE)
        assert any("wide" in each for each in notebook.misplaced())

    def test_an_error_in_a_handler_is_noticed(self, notebook):
        """It is shown in no cell: the kernel says it to the page alone."""
        with pytest.raises(DidNotFollow):
            notebook.follows(notebook.control("broken"), within=5)
        assert len([each for each in notebook.errors() if "ZeroDivisionError" in each]) == 3
