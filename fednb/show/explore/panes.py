"""Figures that are made once and told new numbers: what lets a picture answer a slider at once."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Rect = tuple[float, float, float, float]  # left, bottom, width, height, as shares of the figure
DPI = 80  # of pictures on the screen: more would make sliders slow
POINTS = 600  # across a panel: about one for each dot of the screen
GREY = "0.65"


def blank(width: float, height: float) -> Figure:
    """An empty figure (inches) that no other part of matplotlib knows of, so that a thread may draw it."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), dpi=DPI, facecolor="white")


def pane(fig: Figure, at: Rect, title: str, xlabel: str = "", ylabel: str = "") -> Axes:
    """Axes in a fixed place, in the style of the other figures. Labels are told where to stand: looking for room for
    them, and for ticks, is most of what a picture costs."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    ax = fig.add_axes(at)
    width, height = (size * inches * DPI for size, inches in zip(at[2:], fig.get_size_inches(), strict=True))
    entitle(ax, title)
    ax.set_xlabel(xlabel, fontsize=8)
    ax.set_ylabel(ylabel, fontsize=8)
    ax.xaxis.set_label_coords(0.5, -19 / height)
    ax.yaxis.set_label_coords(-43 / width, 0.5)
    ax.tick_params(labelsize=7, length=2, pad=2)
    ax.grid(True, color="0.9", linewidth=0.6)
    ax.set_axisbelow(True)
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(MaxNLocator(4))
        axis.set_major_formatter(FuncFormatter(_tick_text))
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    return ax


def entitle(ax: Axes, title: str) -> None:
    """A title over the left end."""
    ax.set_title(title, loc="left", fontsize=9, fontweight="bold", y=1.0, pad=4)


def _tick_text(value: float, _: int) -> str:
    """A tick's number in few digits, without a power of ten at the end of the axis."""
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"


def logarithmic(ax: Axes, axis: str) -> None:
    """A logarithmic axis with few ticks, in plain figures."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    getattr(ax, f"set_{axis}scale")("log")
    one = getattr(ax, f"{axis}axis")
    one.set_major_locator(LogLocator(numticks=7, subs=(1.0, 3.0) if axis == "y" else (1.0,)))
    one.set_minor_locator(NullLocator())
    one.set_major_formatter(FuncFormatter(_tick_text))


class Canvas:
    """A figure of which only what moves is drawn again, on a copy of the rest."""

    def __init__(self, fig: Figure, moving: Sequence[Artist]) -> None:
        from matplotlib.backends.backend_agg import FigureCanvasAgg

        self.fig, self.moving, self.agg = fig, moving, FigureCanvasAgg(fig)
        self._rest: Any = None
        self._state: Any = None
        for artist in moving:
            artist.set_animated(True)

    def picture(self) -> bytes:
        """The figure as it is now (PNG)."""
        from PIL import Image

        if self._state != (state := self._still()):
            self.agg.draw()
            self._rest, self._state = self.agg.copy_from_bbox(self.fig.bbox), state
        self.agg.restore_region(self._rest)
        for artist in self.moving:
            (artist.axes or self.fig).draw_artist(artist)
        file = io.BytesIO()
        Image.fromarray(np.asarray(self.agg.buffer_rgba())).convert("RGB").save(file, "png", compress_level=1)
        return file.getvalue()

    def _still(self) -> Any:
        """All that the rest of the figure is made of: limits, ticks, titles, labels, names of curves."""
        return [
            (ax.get_visible(), ax.get_xlim(), ax.get_ylim(), tuple(ax.get_xticks()), ax.get_title(loc="left"),
             ax.get_xlabel(), ax.get_ylabel(), tuple(t.get_text() for t in (legend.get_texts() if legend else ())))
            for ax in self.fig.axes for legend in (ax.get_legend(),)
        ]  # fmt: skip


def envelope(x: np.ndarray, points: int = POINTS) -> tuple[np.ndarray, np.ndarray]:
    """A long signal as a curve of few points: the least and the largest of each stretch, so that no spike is lost.

    >>> at, y = envelope(np.array([0.0, 3.0, -2.0, 1.0, 5.0, 4.0]), points=4)
    >>> at.tolist(), y.tolist()
    ([0.0, 0.0, 3.0, 3.0], [-2.0, 3.0, 1.0, 5.0])
    """
    if len(x) <= points:
        return np.arange(len(x), dtype=float), x
    starts = np.arange(points // 2) * len(x) // (points // 2)
    ends = np.minimum.reduceat(x, starts), np.maximum.reduceat(x, starts)
    return np.repeat(starts, 2).astype(float), np.stack(ends, axis=1).ravel()


def joined(curves: Iterable[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    """Several curves as one artist's data, with gaps between them."""
    gap = np.array([np.nan])
    pieces = [(np.append(x, gap), np.append(y, gap)) for x, y in curves]
    if not pieces:
        return gap, gap
    return np.concatenate([x for x, _ in pieces]), np.concatenate([y for _, y in pieces])


def fit(ax: Axes, *values: Any, log: bool = False, least: float = 1e-12) -> None:
    """Limits of the y axis around all these numbers, at least so far apart; logarithmic, five decades at most."""
    seen = np.concatenate([np.ravel(np.asarray(v, dtype=float)) for v in values])
    seen = seen[np.isfinite(seen)]
    if log:
        top = max(seen.max(initial=0.0), least)
        some = seen[seen > top * 1e-5]
        ax.set_ylim(some.min(initial=top) / 1.5, top * 1.5)
        return
    low, high = (seen.min(), seen.max()) if len(seen) else (0.0, 1.0)
    room = max(0.06 * (high - low), least)
    ax.set_ylim(low - room, high + room)
