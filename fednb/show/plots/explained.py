"""Shares of a gain: one row per method, how much of another's gain it has, and how sure that is."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from typing import TYPE_CHECKING

import numpy as np

from fednb.show.plots.panels import Panel, _parts, _several
from fednb.show.plots.style import PALETTE, _panels, _style
from fednb.study.measurements.explained import OF_A_SEED, SHARE

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

UNSURE = "0.55"  # the colour of an unbounded interval
WIDEST = 60.0  # percent beyond all shares: longer intervals are cut


def shares(table: pd.DataFrame, of: str, rows: Sequence[str] = (), panel: Panel = "", title: str = "") -> Figure:
    """How much of what the method `of` gains others gain: ratios with 90% intervals, single seeds; lines at 0 and 100%.

    table: of the measurement `explained`. rows: all methods in their order; those that the table lacks are "not run".
    An unbounded interval is a dashed line. The numbers stand right of each panel.

    >>> table = pd.DataFrame({"method": "centralised", "seed": "all", "measure": "share of the gain", "value": [96.0],
    ...                       "low": 90.0, "high": 102.0, "n": 3, "gain": 20.4})
    >>> figure = fn.plots.shares(table, of="the filter", rows=["centralised", "shuffled"])
    >>> [label.get_text() for label in figure.axes[0].get_yticklabels()]
    ['shuffled', 'centralised']
    """
    names = [name for name in rows or dict.fromkeys(table["method"]) if name != of][::-1]
    parts = list(_parts(table[table["method"] != of], *_several(panel)))
    with _style():
        fig, axes = _panels(len(parts), 8.4, 1.5 + 0.28 * len(names), 1)
        for ax, (name, part) in zip(axes, parts, strict=True):
            _draw(ax, part, names)
            ax.set(title=name, xlabel=f"share of what {of} gains, percent", ylabel="method")
            ax.set_ylim(-0.7, len(names) - 0.3)
        found = {label: handle for ax in axes for handle, label in zip(*ax.get_legend_handles_labels(), strict=True)}
        if found:
            fig.legend(found.values(), found.keys(), loc="outside right center")
        fig.suptitle(title, fontsize=10)
    return fig


def _draw(ax: Axes, part: pd.DataFrame, names: list[str]) -> None:
    """The methods of one setting, from the bottom up."""
    whole = part[part["measure"] == SHARE].set_index("method")
    seeds = part[part["measure"] == OF_A_SEED].dropna(subset=["value"])
    low, high = _limits(whole, seeds)
    for at in (0, 100):
        ax.axvline(at, color="0.3", lw=1.0, ls="-" if at else ":", zorder=1)
    if len(seeds):
        ax.plot(seeds["value"], seeds["method"].map(names.index), "|", color="black", ms=7, zorder=4, label="one seed")
    for y, name in enumerate(names):
        row = whole.loc[name] if name in whole.index else None
        if row is not None and isfinite(row["low"]):
            ax.plot([row["low"], row["high"]], [y, y], color=PALETTE[0], lw=2, zorder=2)
            ax.plot(row["value"], y, "o", color=PALETTE[0], ms=6, zorder=3, label="all seeds,\n90% interval")
        elif row is not None and isfinite(row["value"]):
            ax.plot([low, high], [y, y], color=UNSURE, lw=1.2, ls="--", zorder=2)
            ax.plot(row["value"], y, "o", color=UNSURE, ms=6, zorder=3, label="all seeds,\nunbounded interval")
        ax.annotate(_said(row), (1.02, y), xycoords=("axes fraction", "data"), va="center", fontsize=8)
    ax.set_yticks(range(len(names)), names)
    ax.set_xlim(low, high)


def _said(row: pd.Series | None) -> str:
    """A share in words: 96% [90, 102], n = 3."""
    if row is None:
        return "not run"
    if not isfinite(row["value"]):
        return "no gain to share" if isfinite(row["gain"]) else "diverged"
    ends = f"[{row['low']:.0f}, {row['high']:.0f}]" if isfinite(row["low"]) else "unbounded"
    return f"{row['value']:.0f}% {ends}, n = {row['n']:.0f}"


def _limits(whole: pd.DataFrame, seeds: pd.DataFrame) -> tuple[float, float]:
    """Room for all shares, 0 and 100; intervals that reach far beyond are cut at the edge."""
    points = np.array([0.0, 100.0, *whole["value"], *seeds["value"]])
    ends = whole[["low", "high"]].to_numpy(float).ravel()
    points = points[np.isfinite(points)]
    low, high = points.min() - WIDEST, points.max() + WIDEST
    reached = np.append(ends[np.isfinite(ends)], points)
    return max(low, float(reached.min()) - 5), min(high, float(reached.max()) + 5)
