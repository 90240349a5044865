"""The one style of all figures: colours that the colour-blind can tell apart, markers, panels, sizes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import matplotlib.pyplot as plt
import seaborn as sns

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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
