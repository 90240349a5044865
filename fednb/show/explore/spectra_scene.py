"""The picture of `spectra`: made once, then told new numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from fednb.show.explore.cutline import COLOUR, LEAST
from fednb.show.explore.look import Cut, Look
from fednb.show.explore.panes import GREY, Canvas, Rect, blank, entitle, envelope, fit, joined, logarithmic, pane
from fednb.show.plots.style import PALETTE

TOP: Rect = (0.09, 0.665, 0.89, 0.24)  # where the cut can be dragged
PAIR = (PALETTE[0], PALETTE[3])


class Scene:
    """Spectra of perturbations (with the cut) and gradients, variance by band, and the pair's perturbations."""

    def __init__(self) -> None:
        self.fig = blank(8.4, 6.8)
        self.head = self.fig.text(0.008, 0.982, "", fontsize=9, va="top")
        self.top = pane(
            self.fig, TOP, "Perturbation δ: amplitude by frequency", "share of the spectrum, low to high", "amplitude"
        )
        self.low = pane(
            self.fig,
            (0.09, 0.375, 0.385, 0.165),
            "Gradient: amplitude by frequency",
            "share of the spectrum",
            "amplitude",
        )
        self.bands = pane(
            self.fig,
            (0.595, 0.375, 0.385, 0.165),
            "Variance of clients: before (grey), after",
            "frequency band (1 = lowest)",
            "variance",
        )
        self.each = [pane(self.fig, (left, 0.08, 0.385, 0.17), "", "weight", "δ") for left in (0.09, 0.595)]
        self.spectra = [_Spectrum(self.top, named=True), _Spectrum(self.low, named=False)]
        self.gone = self.top.axvspan(LEAST, LEAST, color=COLOUR, alpha=0.10, lw=0)
        self.line = self.top.axvline(LEAST, color=COLOUR, lw=1, ls="--")
        (self.before,) = self.bands.plot([], [], color=GREY, marker="o", ms=4, lw=1.5)
        (self.after,) = self.bands.plot([], [], color="black", marker="s", ms=3, lw=1.5)
        self.curves = [(ax.plot([], [], color=GREY, lw=0.8)[0],
                        ax.plot([], [], color=colour, lw=0.8)[0])
                       for ax, colour in zip(self.each, PAIR, strict=True)]  # fmt: skip
        spectra = [line for each in self.spectra for line in (each.others, *each.pair)]
        both = [line for lines in self.curves for line in lines]
        self.canvas = Canvas(self.fig, [self.gone, *spectra, self.line, self.before, self.after, *both, self.head])

    def show(self, look: Look, before: Cut, after: Cut, ratio: float, pair: tuple[int, int], head: str) -> bytes:
        """The picture (PNG) of a cut at this ratio for a pair of clients (rows)."""
        self.head.set_text(head)
        names = [f"client {look.clients[i]}" for i in pair]
        for drawn, what in zip(self.spectra, ("perturbation", "gradient"), strict=True):
            drawn.show(look.curves[what], pair, names)
        self.gone.set_width(max(ratio, LEAST) - LEAST)
        self.line.set_xdata([max(ratio, LEAST)] * 2)
        self._variance(before.bands, after.bands)
        for ax, lines, i, name in zip(self.each, self.curves, pair, names, strict=True):
            for line, cut in zip(lines, (before, after), strict=True):
                line.set_data(*envelope(cut.vectors[i].numpy()))
            entitle(ax, f"δ of {name}: before (grey), after")
            ax.set_xlim(0, max(1, before.vectors.shape[-1] - 1))
            fit(ax, lines[0].get_ydata())
        return self.canvas.picture()

    def _variance(self, before: list[float], after: list[float]) -> None:
        at = np.arange(1, len(before) + 1)
        self.before.set_data(at, before)
        self.after.set_data(at, after)
        if len(at) != len(self.bands.get_xticks()):
            self.bands.set_xlim(0.5, len(at) + 0.5)
            self.bands.set_xticks(at)
        self.bands.set_ylim(0, 1.1 * max(max(before), 1e-30))


class _Spectrum:
    """Amplitudes of all clients, the pair's in colour; where they are named, a legend tells which is which."""

    def __init__(self, ax: Any, named: bool) -> None:
        self.ax, self.named = ax, named
        logarithmic(ax, "x")
        logarithmic(ax, "y")
        ax.set_xlim(LEAST, 1)
        (self.others,) = ax.plot([], [], color=GREY, lw=0.7, label="other clients")
        self.pair = [ax.plot([], [], color=colour, lw=1.5)[0] for colour in PAIR]
        self.names: list[str] = []

    def show(self, curves: list[Any], pair: tuple[int, int], names: list[str]) -> None:
        self.others.set_data(*joined(curve for i, curve in enumerate(curves) if i not in pair))
        for line, i in zip(self.pair, pair, strict=True):
            line.set_data(*curves[i])
        fit(self.ax, *(y for _, y in curves), log=True)
        if self.named and names != self.names:
            for line, name in zip(self.pair, names, strict=True):
                line.set_label(name)
            self.ax.legend(fontsize=7, loc="lower left", ncols=3, frameon=False)
            self.names = names
