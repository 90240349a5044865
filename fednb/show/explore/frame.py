"""What the explorers share: controls beside a picture, or a grid of pictures where nobody can touch them."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from html import escape
from threading import RLock
from typing import TYPE_CHECKING, Any

import ipywidgets as w

from fednb.base import progress
from fednb.show.explore.beforehand import drawn
from fednb.show.explore.moves import CannotDraw, Move, Values
from fednb.show.explore.panes import DPI

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Explorer:
    """Controls, a picture that follows them, and a line of words under it.

    A kind of explorer makes its `controls` in __init__ and defines `draw`, from values to a picture and words, and
    `stills`, the values that the grid of pictures shows where there is no front end: executed by papermill, nbmake or
    nbconvert. `moves` are the controls that an executed copy still has on a page without a kernel. Everything slow is
    prepared before: a control is to answer at once. `beside` and `seen` place what it has more of. A thread may call
    `refresh`: one picture is drawn at a time, and `draw` may return the same figure always.
    """

    title = ""
    columns = 2  # of the grid of pictures

    def __init__(self, controls: dict[str, w.ValueWidget]) -> None:
        self.controls = controls
        # No tooltip: a browser cannot show an Image that has one (ipywidgets 8.1 looks for its description's length).
        self.picture = w.Image(format="png", layout=w.Layout(max_width="100%", object_fit="contain"))
        self.words = w.HTML()
        self._quiet = False
        self._drawing = RLock()
        for each in controls.values():
            each.observe(self._changed, names="value")

    def draw(self, **values: Any) -> tuple[Figure | bytes, str]:
        """The picture of these values, a figure or a PNG, and words (HTML) to stand under it."""
        raise NotImplementedError

    def stills(self) -> list[Values]:
        """What the grid of pictures shows: for each picture, what differs from the controls as they are."""
        raise NotImplementedError

    def moves(self) -> list[Move]:
        """The controls, each with a few values, of which all pictures are drawn for a page without a kernel."""
        return []

    def matters(self, values: Values) -> set[str]:
        """The names of the controls that change the picture of these values."""
        return set(values)

    def prepare(self, values: Values) -> None:
        """Make what the picture of these values needs and `draw` does not make."""

    def answer(self, values: Values) -> tuple[bytes, str]:
        """The picture of these values (PNG) and its words (HTML), with all that they need made first."""
        with self._drawing:
            self.prepare(values)
            figure, words = self.draw(**values)
            return png(figure), words

    @property
    def values(self) -> Values:
        """What the controls say."""
        return {name: each.value for name, each in self.controls.items()}

    def refresh(self) -> None:
        """Draw what the controls say. Nothing to draw leaves the picture and says why."""
        with self._drawing:
            try:
                figure, words = self.draw(**self.values)
            except CannotDraw as error:
                self.words.value = f"<p role='alert'>{escape(str(error))}</p>"
                return
            self.picture.value = png(figure)
            self.words.value = f"<div aria-live='polite'>{words}</div>"

    @contextmanager
    def together(self) -> Iterator[None]:
        """Several controls set at once: one picture afterwards."""
        self._quiet = True
        try:
            yield
        finally:
            self._quiet = False
        self.refresh()

    def _changed(self, _: Any) -> None:
        if not self._quiet:
            self.refresh()

    def view(self) -> w.Widget:
        """Everything in its place; in a narrow window the picture goes below the controls."""
        controls = w.VBox(self.beside(), layout=w.Layout(flex="0 0 300px", min_width="280px"))
        seen = w.VBox(self.seen(), layout=w.Layout(flex="1 1 480px", min_width="320px"))
        heading = w.HTML(f"<h3>{escape(self.title)}</h3>")
        return w.VBox([heading, w.HBox([controls, seen], layout=w.Layout(flex_flow="row wrap", grid_gap="12px"))])

    def beside(self) -> list[w.Widget]:
        """What stands beside the picture, from top to bottom."""
        return [*self.controls.values()]

    def seen(self) -> list[w.Widget]:
        """The picture, and what stands above and below it."""
        return [self.picture, self.words]

    def grid(self) -> bytes:
        """The pictures of `stills` as one (PNG)."""
        base = self.values
        return tiled([self.answer(base | each)[0] for each in self.stills()], self.columns)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        """Controls where somebody is; with them the picture as it is, for a copy that outlives the kernel.

        Where nobody is, a grid of pictures; in a copy for the site (`fednb notebook`) also every state of `moves`.
        """
        if not attended():
            still = {"text/plain": f"{self.title}, as pictures", "image/png": _base64(self.grid())}
            site = os.environ.get("FEDNB_PAGE") and self.moves()
            return still | (drawn(self).bundle() if site else {})
        self.refresh()
        shown = self.view()._repr_mimebundle_() or {}
        return {**shown, "text/plain": self.title, "image/png": _base64(self.picture.value)}


def slim(label: str) -> dict[str, Any]:
    """A label and a width for a control, so that labels stand in one column: w.Dropdown(**slim("layer"))."""
    return {"description": label, "style": {"description_width": "84px"}, "layout": w.Layout(width="auto")}


def offer(control: Any, options: Any, value: Any = None) -> None:
    """Other options, (label, value) each; the value stays if it is among them, unless another is asked for."""
    options = list(options)
    values = [each for _, each in options]
    keep = control.value if value is None else value
    if list(control.options) != options:
        control.options = options
    control.value = keep if keep in values else values[0]


def attended() -> bool:
    """Whether a front end with widgets shows this cell. FEDNB_WIDGETS = live or still decides it by hand."""
    forced = os.environ.get("FEDNB_WIDGETS")
    return forced == "live" if forced else progress.attended()


def png(figure: Figure | bytes) -> bytes:
    """A figure as a picture, little packed, which is quick; one that is a picture already is left as it is."""
    if isinstance(figure, bytes):
        return figure
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=DPI, pil_kwargs={"compress_level": 1})
    return file.getvalue()


def tiled(pictures: list[bytes], columns: int) -> bytes:
    """Pictures in rows, each as large as the largest (PNG)."""
    from PIL import Image

    opened = [Image.open(io.BytesIO(each)).convert("RGB") for each in pictures]
    width, height = max(i.width for i in opened), max(i.height for i in opened)
    columns = min(columns, len(opened))
    sheet = Image.new("RGB", (columns * width, -(-len(opened) // columns) * height), "white")
    for i, each in enumerate(opened):
        sheet.paste(each, (i % columns * width, i // columns * height))
    file = io.BytesIO()
    sheet.save(file, "png", optimize=True)
    return file.getvalue()


def _base64(data: bytes) -> str:
    from base64 import b64encode

    return b64encode(data).decode()
