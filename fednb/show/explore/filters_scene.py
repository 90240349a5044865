"""The picture of `filters`: made once, then told new numbers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fednb.show.explore.panes import GREY, Canvas, blank, entitle, envelope, fit, pane
from fednb.show.plots.style import PALETTE

BLUE, RED = PALETTE[0], PALETTE[3]
AROUND = 48  # weights on either side of an impulse that the picture shows


@dataclass(frozen=True, eq=False)
class Seen:
    """A signal before and after a filter, in the order of its weights and by frequency in the order of the filter."""

    x: np.ndarray
    y: np.ndarray
    before: np.ndarray  # amplitudes of the ⌊n/2⌋ + 1 frequencies
    after: np.ndarray
    impulse: np.ndarray | None  # what becomes of a single one in the middle, where the filter is linear
    gain: np.ndarray | None  # by frequency, where it treats each by itself


class Scene:
    """Input, output, both spectra, and the filter's response."""

    def __init__(self) -> None:
        self.fig = blank(8.4, 6.6)
        self.head = self.fig.text(0.01, 0.982, "", fontsize=9, va="top")
        whole = "weight, in the order of the layer"
        self.signal = pane(self.fig, (0.09, 0.70, 0.89, 0.205), "Input (grey) and output", whole)
        self.gone = pane(self.fig, (0.09, 0.40, 0.385, 0.175), "What the filter took: input − output", whole)
        self.freq = pane(
            self.fig,
            (0.595, 0.40, 0.385, 0.175),
            "Spectrum: input (grey), output",
            "share of the spectrum",
            "amplitude",
        )
        self.resp = pane(self.fig, (0.09, 0.095, 0.385, 0.185), "")
        self.gain = pane(
            self.fig, (0.595, 0.095, 0.385, 0.185), "Gain by frequency", "share of the spectrum", "output / input"
        )
        (self.x,) = self.signal.plot([], [], color=GREY, lw=1.2)
        (self.y,) = self.signal.plot([], [], color=BLUE, lw=1.0)
        (self.d,) = self.gone.plot([], [], color=RED, lw=1.0)
        (self.zx,) = self.freq.plot([], [], color=GREY, lw=1.2)
        (self.zy,) = self.freq.plot([], [], color=BLUE, lw=1.0)
        (self.h,) = self.resp.plot([], [], color=BLUE, lw=1.0, marker=".", ms=3)
        (self.dots,) = self.resp.plot([], [], color=BLUE, lw=0, marker=".", ms=2)
        (self.g,) = self.gain.plot([], [], color=BLUE, lw=1.2)
        self.none = self.gain.text(0.5, 0.5, "", fontsize=8, ha="center", va="center", transform=self.gain.transAxes)
        self.freq.set_xlim(0, 1)
        self.gain.set(xlim=(0, 1), ylim=(-0.05, 1.3))
        moving = [self.x, self.y, self.d, self.zx, self.zy, self.h, self.dots, self.g, self.none, self.head]
        self.canvas = Canvas(self.fig, moving)

    def show(self, seen: Seen, head: str, order: str) -> bytes:
        """The picture (PNG)."""
        self.head.set_text(head)
        for line, values in ((self.x, seen.x), (self.y, seen.y), (self.d, seen.x - seen.y)):
            line.set_data(*envelope(values))
        for ax in (self.signal, self.gone):  # on the input's scale: limits that stay are not drawn again
            ax.set_xlim(0, max(1, len(seen.x) - 1))
            fit(ax, seen.x, 0.0)
        entitle(self.freq, f"Spectrum{order}: input (grey), output")
        for line, z in ((self.zx, seen.before), (self.zy, seen.after)):
            line.set_data(*_by_share(z))
        fit(self.freq, 0.0, seen.before)
        self._response(seen)
        return self.canvas.picture()

    def _response(self, seen: Seen) -> None:
        """An impulse and what becomes of it; where that says nothing, output against input."""
        empty: tuple[list[float], list[float]] = ([], [])
        if seen.impulse is None:
            entitle(self.resp, "Output against input: not linear")
            self.resp.set_xlabel("input", fontsize=8)
            few = slice(None, None, -(-len(seen.x) // 1500))
            self.dots.set_data(seen.x[few], seen.y[few])
            self.h.set_data(*empty)
            most = 1.05 * float(np.abs(seen.x).max(initial=0.0)) or 1.0
            self.resp.set(xlim=(-most, most), ylim=(-most, most))
        else:
            entitle(self.resp, "What becomes of a single 1")
            self.resp.set_xlabel("weights away from it", fontsize=8)
            middle = len(seen.impulse) // 2
            low, high = max(0, middle - AROUND), min(len(seen.impulse), middle + AROUND + 1)
            self.h.set_data(np.arange(low, high) - middle, seen.impulse[low:high])
            self.dots.set_data(*empty)
            self.resp.set_xlim(low - middle - 0.5, high - middle - 0.5)
            self.resp.set_ylim(-0.6, 1.1)
        self.g.set_data(*(empty if seen.gain is None else _by_share(seen.gain)))
        self.none.set_text("" if seen.gain is not None else "none: it does not treat\neach frequency by itself")


def _by_share(z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Amplitudes over the share of the spectrum up to each: what HighPass(r) removes lies at or below r."""
    at, y = envelope(z)
    return (at + 1) / len(z), y
