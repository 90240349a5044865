"""A line across a panel of a picture that can be dragged: a slider that lies exactly on the panel."""

from __future__ import annotations

from math import log10

import ipywidgets as w

from fednb.show.explore.panes import Rect

LEAST = 1e-4  # the left end of the line's way, where nothing is cut
STEP = 0.02  # of the line, in powers of ten
COLOUR = "#c1272d"

# Important throughout: ipywidgets' own rules for sliders are longer, and win otherwise.
STYLE = """<style>
.fednb-over {{ display: block !important; position: relative; width: fit-content; max-width: 100%; margin: 0;
  overflow: visible; }}
.fednb-over > img {{ display: block; margin: 0; max-width: 100%; height: auto; }}
.fednb-over > .{name} {{ position: absolute; left: {left:.4%}; top: {top:.4%}; width: {width:.4%} !important;
  height: {height:.4%} !important; display: block; margin: 0; overflow: visible; pointer-events: none; }}
.{name} .slider-container, .{name} .noUi-target {{ position: absolute !important; inset: 0; margin: 0 !important;
  width: 100%; height: 100% !important; overflow: visible; }}
.{name} .noUi-target {{ background: none !important; border: none !important; pointer-events: auto; }}
.{name} .noUi-connects {{ background: none !important; }}
.{name} .noUi-origin {{ height: 100% !important; }}
.{name} .noUi-handle {{ width: 3px !important; height: 100% !important; top: 0 !important; right: -1.5px !important;
  border: none !important; border-radius: 0 !important; background: {colour} !important;
  cursor: ew-resize !important; }}
.{name} .noUi-handle::before, .{name} .noUi-handle::after {{ content: "" !important; position: absolute;
  display: block; left: -9px !important; top: 0 !important; width: 21px !important; height: 100% !important;
  background: none !important; }}
.{name} .noUi-handle::after {{ left: -4px !important; top: calc(50% - 11px) !important; width: 11px !important;
  height: 22px !important; border-radius: 4px; background: {colour} !important; }}
.{name} .noUi-handle:focus-visible {{ outline: 3px solid #1f6feb !important; outline-offset: 4px; }}
.{name} > .widget-label, .{name} > .widget-readout {{ position: absolute; bottom: 100%; width: auto !important;
  height: auto; margin: 0 0 3px; padding: 0; font-size: 11px; line-height: 1.3; color: {colour}; background: none; }}
.{name} > .widget-label {{ right: 4.4em; max-width: none; }}
.{name} > .widget-readout {{ right: 0; min-width: 3.8em; pointer-events: auto; border: 1px solid #bbb; }}
</style>"""


class CutLine:
    """A picture with a line to drag; `number` is the same ratio in a field with a label, for those who type.

    The line is the handle of a slider, which the browser moves at once; arrow keys move it as well. at: the panel's
    place in the picture. Its x axis is logarithmic from LEAST to 1, and at the left end the ratio is 0.
    """

    def __init__(self, picture: w.Image, number: w.BoundedFloatText, at: Rect, name: str) -> None:
        left, bottom, width, height = at
        place = {"left": left, "top": 1 - bottom - height, "width": width, "height": height}
        self.number = number
        self.slider = w.FloatLogSlider(
            value=max(LEAST, number.value), base=10, min=-4, max=0, step=STEP, readout_format=".2g",
            description="cut at r (drag the line, or ← →):",
            style={"description_width": "initial"},
        )  # fmt: skip
        self.slider.add_class(name)
        style = w.HTML(STYLE.format(name=name, colour=COLOUR, **place), layout=w.Layout(display="none"))
        self.box = w.Box([style, picture, self.slider])
        self.box.add_class("fednb-over")
        self.slider.observe(self._dragged, names="value")
        number.observe(self._typed, names="value")

    def _dragged(self, _: object) -> None:
        if not self._near():
            self.number.value = ratio_at(self.slider.value)

    def _typed(self, _: object) -> None:
        if not self._near():
            self.slider.value = max(LEAST, self.number.value)

    def _near(self) -> bool:
        """Whether line and number agree. A browser puts the line on its nearest step and says so: that is no move."""
        return abs(log10(self.slider.value / max(LEAST, self.number.value))) <= STEP / 2 + 1e-9


def ratio_at(place: float) -> float:
    """The ratio of a place of the line, in two digits where these are as near as can be seen, else in three.

    It is 0 at the left end.

    >>> ratio_at(10**-1.3), ratio_at(10**-1.28), ratio_at(LEAST)
    (0.05, 0.0525, 0.0)
    """
    if place <= LEAST * 1.0001:
        return 0.0
    short = float(f"{place:.2g}")
    return short if abs(place / short - 1) < 0.005 else float(f"{place:.3g}")
