"""The one style of all figures: colours that the colour-blind can tell apart, markers, panels, sizes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import matplotlib.pyplot as plt
import numpy as np
import seaborn as sns
from matplotlib.container import ErrorbarContainer
from matplotlib.transforms import ScaledTranslation

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

PALETTE = [*sns.color_palette("colorblind"), (0.0, 0.0, 0.0)]  # FedWMSAM compares eleven methods
MARKERS = "osD^vPX*"
HEAT = "cividis"  # a colour map that is the same to the colour-blind, and monotone in grey


def look(i: int) -> dict[str, Any]:
    """Colour and marker of the i-th series; eighty-eight differ."""
    return {"color": PALETTE[i % len(PALETTE)], "marker": MARKERS[i % len(MARKERS)]}


@contextmanager
def _style() -> Iterator[None]:
    how: dict[Any, Any] = {"figure.facecolor": "white", "axes.titlesize": 10, "axes.labelsize": 9, "legend.fontsize": 8,
                           "xtick.labelsize": 8, "ytick.labelsize": 8, "axes.titleweight": "bold"}  # fmt: skip
    with sns.axes_style("whitegrid"), plt.rc_context(how):
        yield


def _panels(count: int, width: float = 3.6, height: float = 2.9, row: int = 99, **how: Any) -> tuple[Figure, list]:
    """A figure of `count` panels, at most `row` of them side by side."""
    across, down = min(count, row), -(-count // row)
    size = (width * across, height * down)
    fig, axes = plt.subplots(down, across, figsize=size, squeeze=False, layout="constrained", **how)
    plt.close(fig)  # shown by the notebook because the cell returns it, not twice
    for empty in axes.flat[count:]:
        empty.set_visible(False)
    return fig, list(axes.flat[:count])


def _side_by_side(ax: Axes, step: float = 3.5, most: float = 14.0) -> None:
    """Move series with error bars a little apart, so that none lies under another; their numbers stay.

    step: points from one to the next; most: from the first to the last.
    """
    series = [each for each in ax.containers if isinstance(each, ErrorbarContainer)]
    step = min(step, most / max(1, len(series) - 1))
    for i, (line, caps, bars) in enumerate(series):
        points = step * (i - (len(series) - 1) / 2)
        moved = ax.transData + ScaledTranslation(points / 72, 0, ax.figure.dpi_scale_trans)
        for artist in (line, *caps, *bars):
            artist.set_transform(moved)


def _show_covered(ax: Axes, lines: Sequence[Line2D], near: float = 0.004, most: int = 3) -> None:
    """Widen a curve that later ones run over in most of its points, so that it shows on both sides of them.

    near: the distance, as a share of the panel's height, from which on curves are apart; most: later curves that count.
    """
    points = [_in_axes(ax, line.get_xydata()) for line in lines]
    for i, line in enumerate(lines):
        over = sum(_runs_over(points[i], other, near) for other in points[i + 1 :])
        line.set_linewidth(line.get_linewidth() + 2 * min(over, most))
        line.set_markersize(line.get_markersize() + 2 * min(over, most))


def _runs_over(one: np.ndarray, other: np.ndarray, near: float) -> bool:
    return one.shape == other.shape and bool(np.mean(np.abs(one - other).max(axis=1) < near) > 0.75)


def _in_axes(ax: Axes, points: Any) -> np.ndarray:
    """Points of a panel as shares of its width and height, with the limits and scales that it has now."""
    ax.autoscale_view()
    return ax.transLimits.transform(ax.transScale.transform(points))
