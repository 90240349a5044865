"""A table cut into panels: a title for each, one scale along x, one legend for all or names at the ends of curves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fednb.show.plots.style import _in_axes, _panels

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.legend import Legend
    from matplotlib.lines import Line2D

ROW = 3  # panels side by side
NAME = 0.125  # inches from one name at the end of a curve to the next
LETTER = 0.06  # inches of a letter in such a name, or in a legend
AROUND = 1.1  # inches of a panel's height for title, numbers, label and caption
Panel = str | tuple[str, ...]


def _labelled_panels(count: int, names: Sequence[str] = ()) -> tuple[Figure, list]:
    """A figure of panels with one scale along x, its numbers under every panel; with room for names right of each."""
    width = (4.8 if count == 1 else 3.8) + LETTER * max(map(len, names), default=0)
    fig, axes = _panels(count, width, _height(names), _row(count), sharex=count > 1)
    for ax in axes:
        ax.tick_params("x", labelbottom=True)
    return fig, axes


def _height(names: Sequence[str]) -> float:
    """Inches of a panel with these names beside it, one below another."""
    return max(2.9, AROUND + NAME * len(names))


def _row(panels: int) -> int:
    """How many panels go side by side; four make a square."""
    return 2 if panels == 4 else ROW


def _several(panel: Panel) -> tuple[str, ...]:
    return (panel,) if isinstance(panel, str) else tuple(panel)


def _parts(table: pd.DataFrame, *panel: str) -> Iterator[tuple[str, pd.DataFrame]]:
    """The table cut by some columns, each piece with a title; columns with one value need none."""
    columns = [c for c in panel if c in table and table[c].nunique(dropna=False) > 1]
    if not columns:
        yield "", table
        return
    for values, part in table.groupby(columns, sort=False, dropna=False):
        shown = [
            f"{c} = {v:g}" if isinstance(v, float) else str(v) for c, v in zip(columns, values, strict=True) if v == v
        ]
        yield ", ".join(shown), part


def _legend(fig: Figure, axes: list, by: str) -> None:
    """Inside the only panel, where that has room for it, or one for all of them beside them."""
    found = {label: handle for ax in axes for handle, label in zip(*ax.get_legend_handles_labels(), strict=True)}
    if len(axes) == 1 and len(found) <= 6:
        inside = axes[0].legend(found.values(), found.keys(), title=by)
        if not _covers(fig, inside, axes[0]):
            return
        inside.remove()
    _legend_beside(fig, found, by)


def _legend_beside(fig: Figure, found: dict[str, Any], title: str = "") -> None:
    """A legend right of all panels, by its labels, in a figure that becomes as much wider."""
    longest = max((len(line) for label in found for line in label.splitlines()), default=0)
    fig.set_figwidth(fig.get_figwidth() + 0.5 + LETTER * longest)
    fig.legend(found.values(), found.keys(), title=title, loc="outside right center")


def _covers(fig: Figure, legend: Legend, ax: Axes) -> bool:
    """True if a legend lies on a curve of its panel."""
    fig.draw_without_rendering()
    box = legend.get_window_extent()
    return any(line.get_transform().transform_path(line.get_path()).intersects_bbox(box, False) for line in ax.lines)


def _name_ends(ax: Axes, curves: dict[str, Line2D], names: Sequence[str]) -> None:
    """Write the name of each curve right of the panel, at the height of its end; a line leads from one to the other.

    names: those that the panel has room for, which may be more.
    """
    ax.set(xlim=ax.get_xlim(), ylim=ax.get_ylim())  # the names are placed for these
    ends = [np.asarray(line.get_xydata())[-1] for line in curves.values()]
    heights = np.nan_to_num(_in_axes(ax, ends)[:, 1])
    order = np.argsort(heights, kind="stable")
    for i, height in zip(order, _apart(heights[order], NAME / (_height(names) - AROUND)), strict=True):
        name, line = list(curves.items())[i]
        leader = {"arrowstyle": "-", "color": line.get_color(), "lw": 1, "ls": line.get_linestyle(), "shrinkA": 1,
                  "shrinkB": 1, "relpos": (0, 0.5)}  # fmt: skip
        ax.annotate(name, ends[i], (1.05, height), line.get_transform(), "axes fraction", leader,
                    va="center", fontsize=7)  # fmt: skip


def _apart(wanted: np.ndarray, gap: float) -> np.ndarray:
    """Rising heights at least `gap` from one to the next, as near as can be to the wanted ones, between 0 and 1.

    Heights that would be too near to one another stand around their mean.
    """
    steps = gap * np.arange(len(wanted))
    groups: list[tuple[float, int]] = []  # mean and size
    for height in np.clip(wanted, 0, 1) - steps:
        mean, size = float(height), 1
        while groups and groups[-1][0] >= mean:
            below, n = groups.pop()
            mean, size = (below * n + mean * size) / (n + size), n + size
        groups.append((mean, size))
    return np.repeat(*map(np.array, zip(*groups, strict=True))).clip(0, max(0.0, 1 - steps[-1])) + steps
