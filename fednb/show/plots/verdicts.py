"""Verdicts at a glance: the printed effect of each claim and ours with its interval, grouped by verdict."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fednb.show.plots.style import PALETTE, _panels, _style
from fednb.study.claims import GROUPS, OUTCOMES, in_printed_units, outcome_class
from fednb.study.claims.judging import NUMBERS

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = {"holds": 2, "seen": 2, "average": 0, "seen-average": 0, "fails": 3, "not-seen": 3}  # places in the palette
UNDECIDED = "0.45"
WIDEST = 3.0  # times the range of all effects: longer intervals are cut


def forest(verdicts: pd.DataFrame, relative: bool = False, xlabel: str = "", title: str = "") -> Figure:
    """One row per claim, grouped by verdict: our effect with its interval, the printed one, and what the claim asks.

    verdicts: from `fn.verdict`; claims without an effect are left out. relative: in units of the printed effect, for
    claims of different measures; those without a printed effect, or that say there is none, are left out.

    >>> claim = fn.Claim(paper="mine", id="helps", section="s", says="A helps", kind="above", left="A", right="B")
    >>> table = pd.DataFrame({"method": ["A", "B"] * 3, "seed": [0, 0, 1, 1, 2, 2], "measure": "accuracy",
    ...                       "value": [72.0, 70.0, 73.0, 70.5, 72.5, 71.0]})
    >>> figure = fn.plots.forest(fn.verdict(table, [claim], scale="paper"))
    >>> [label.get_text() for label in figure.axes[0].get_yticklabels()]
    ['helps: holds (n = 3)']
    """
    rows = _rows(verdicts, relative)
    at = np.arange(len(rows))[::-1]
    with _style():
        fig, (ax,) = _panels(1, width=9.0, height=1.3 + 0.27 * max(1, len(rows)))
        ax.axvline(0, color="0.4", lw=0.8, zorder=1)
        if relative:
            ax.axvline(1, color="0.4", lw=0.8, ls=":", zorder=1)
        for y, (_, row) in zip(at, rows.iterrows(), strict=True):
            _draw(ax, y, row, first=y == at[0])
        ax.set_yticks(at, [f"{claim}: {row['begin']} (n = {row['n']})" for claim, row in rows.iterrows()])
        ax.set(xlabel=xlabel or ("effect / printed effect" if relative else "effect, as the claim has its sign"),
               ylabel="claim", title=title, ylim=(-0.7, len(rows) - 0.3))  # fmt: skip
        ax.grid(visible=False, axis="y")
        _limits(ax, rows)
        fig.legend(*ax.get_legend_handles_labels(), loc="outside right center")
    return fig


def _rows(verdicts: pd.DataFrame, relative: bool) -> pd.DataFrame:
    """The claims that have something to draw, in the order of the picture."""
    begins = {kind: begin for begin, kind in OUTCOMES.items()}
    groups = verdicts["verdict"].map(outcome_class)
    rows = verdicts.assign(group=groups, begin=groups.map(begins)).astype(dict.fromkeys(NUMBERS, float))
    rows = rows[np.isfinite(rows["effect"])]
    if relative:
        units = [in_printed_units(row) for _, row in rows.iterrows()]
        rows = rows[[each is not None for each in units]]
        numbers = [[each[name] for name in NUMBERS] for each in units if each is not None]
        rows[list(NUMBERS)] = np.reshape(numbers, (-1, len(NUMBERS)))
    order = {group: i for i, group in enumerate(GROUPS)}
    return rows.sort_values("group", key=lambda groups: groups.map(order), kind="stable")


def _draw(ax: Axes, y: int, row: pd.Series, first: bool) -> None:
    """One claim; the first one brings the legend."""
    place = COLOURS.get(row["group"])
    colour = UNDECIDED if place is None else PALETTE[place]
    named = {"ours": "ours, 90% interval", "printed": "printed", "bound": "bound of the claim"} if first else {}
    ax.plot([row["low"], row["high"]], [y, y], color=colour, lw=1.6, zorder=2)
    ax.plot(row["effect"], y, "o", color=colour, ms=5, zorder=3, label=named.get("ours"))
    ax.plot(row["printed"], y, "D", mfc="white", mec="black", ms=5, zorder=3, label=named.get("printed"))
    asked = [row["bound"], -row["bound"]] if row["reading"] == "inside" else [row["bound"]]
    ax.plot(asked, [y] * len(asked), "|", color="black", ms=9, ls="", zorder=2, label=named.get("bound"))


def _limits(ax: Axes, rows: pd.DataFrame) -> None:
    """Room for all effects; intervals that are much longer than these differ are cut at the edge."""
    points = rows[["effect", "printed", "bound"]].to_numpy(float)
    points = np.append(points[np.isfinite(points)], 0.0)
    span = max(float(np.ptp(points)), 1e-12) * (WIDEST - 1) / 2
    ends = np.append(rows[["low", "high"]].to_numpy(float).ravel(), points)
    low, high = max(ends.min(), points.min() - span), min(ends.max(), points.max() + span)
    room = 0.04 * (high - low) or 0.5
    ax.set_xlim(low - room, high + room)
