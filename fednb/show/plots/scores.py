"""How good: accuracy and other quantities of whole runs, ours beside the paper's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fednb.show.plots.panels import (
    Panel,
    _labelled_panels,
    _legend,
    _legend_beside,
    _name_ends,
    _parts,
    _row,
    _several,
)
from fednb.show.plots.style import _panels, _show_covered, _side_by_side, _style, look

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

MANY = 6  # series of a panel up to which a legend is near enough


def compare(
    table: pd.DataFrame, base: str = "", title: str = "", xlabel: str = "accuracy, percent", down: Panel = "method"
) -> Figure:
    """`fn.compare`'s table: one panel per setting, methods down; hollow the paper's, filled ours with their spread.

    base: the method that the gains in the table are over, where it has gains (`fn.compare(..., base=...)`). down:
    what goes down instead of methods, such as ("dataset", "alpha"); then there is a panel per method, in one scale.

    >>> ours = pd.DataFrame({"method": "FedAvg", "seed": [0, 1], "measure": "accuracy", "value": [79.0, 81.0]})
    >>> printed = pd.DataFrame({"method": ["FedAvg"], "measure": ["accuracy"], "value": [82.0]})
    >>> figure = fn.plots.compare(fn.compare(ours, printed))
    >>> figure.axes[0].get_xlabel()
    'accuracy, percent'
    """
    rows_by = tuple(name for name in _several(down) if name in table.index.names)
    flat = table.reset_index()
    flat = flat.assign(row=flat[list(rows_by)].astype(str).agg(", ".join, axis=1))
    order = {name: i for i, name in enumerate(dict.fromkeys(flat["row"]))}  # the same in all panels
    parts = list(_parts(flat, *[n for n in table.index.names if n not in rows_by]))
    with _style():
        rows = max(len(part) for _, part in parts)
        fig, axes = _panels(len(parts), 4.2, 1.1 + 0.24 * rows, _row(len(parts)), sharex=down != "method")
        for ax, (name, part) in zip(axes, parts, strict=True):
            ax.tick_params("x", labelbottom=True)
            _dots(ax, part.sort_values("row", key=lambda names: -names.map(order), kind="stable"), _ours(table))
            ax.set(title=name, xlabel=f"gain over {base}, points" if base else xlabel)
            if base or xlabel.startswith("gain"):
                ax.axvline(0, color="0.4", lw=0.8)
        drawn = dict(zip(*reversed(axes[0].get_legend_handles_labels()), strict=True))
        if flat["paper"].isna().all():
            del drawn[_theirs(parts[0][1])]
        _legend_beside(fig, drawn)  # it would hide dots in a panel
        fig.suptitle(title, fontsize=11)
    return fig


def _dots(ax: Axes, part: pd.DataFrame, ours: str) -> None:
    """One line per row, from the bottom up: the paper's number, ours, and a thin line between them.

    Where runs are there and none of them has a number, such as a target that nobody reached, that is written instead.
    """
    at = np.arange(len(part))
    ax.hlines(at, part["paper"], part["ours"], color="0.8", lw=1, zorder=1)
    ax.scatter(part["paper"], at, facecolors="white", edgecolors="0.3", marker="D", s=28, zorder=2, label=_theirs(part))
    ax.errorbar(part["ours"], at, xerr=part["std"].fillna(0), **look(0), ls="", ms=5, capsize=2, label=ours)
    for y in at[part["n"] == 0]:
        ax.text(0.01, y, "none of our seeds", transform=ax.get_yaxis_transform(), va="center", fontsize=7,
                color=look(0)["color"], bbox={"facecolor": "white", "lw": 0, "pad": 1})  # fmt: skip
    ax.set_yticks(at, part["row"])
    ax.set_ylim(-0.7, len(part) - 0.3)


def _theirs(part: pd.DataFrame) -> str:
    return f"paper\n({part['paper on'].iloc[0]})" if "paper on" in part else "paper"


def _ours(shown: pd.DataFrame) -> str:
    n = sorted({int(each) for each in shown["n"].dropna() if each})  # 0: no seed got as far, and there is no dot
    who = f"ours\n({shown['ours on'].iloc[0]})" if "ours on" in shown else "ours"
    if not n:
        return who if (shown["n"] == 0).any() else f"{who}, not run yet"
    many = f"n = {n[0]} to {n[-1]}" if len(n) > 1 else f"n = {n[0]}"
    return f"{who},\nmean ± std, {many}" if n[-1] > 1 else f"{who}, {many}"


def sweep(
    scores: pd.DataFrame,
    x: str,
    by: str = "method",
    panel: Panel = "",
    xlabel: str = "",
    ylabel: str = "",
    log: bool | str = False,
) -> Figure:
    """A quantity against a number that was varied: the mean over seeds with their range.

    Methods that have no such number are flat lines; more than six are named where they end, not in a legend. log: True
    for the number that was varied, "xy" for both. Gains (see `fn.gains`) are drawn with their zero.

    >>> scores = pd.DataFrame({"method": "FedSAM", "rho": [0.01, 0.1], "measure": "accuracy", "value": [70.0, 75.0]})
    >>> figure = fn.plots.sweep(scores, x="rho", log=True)
    >>> figure.axes[0].get_xscale()
    'log'
    """
    parts = list(_parts(scores.dropna(subset=["value"]), *_several(panel)))
    names = list(dict.fromkeys(scores[by]))
    beside = [str(name) for name in names] if max(part[by].nunique() for _, part in parts) > MANY else []
    with _style():
        fig, axes = _labelled_panels(len(parts), beside)
        for ax, (title, shown) in zip(axes, parts, strict=True):
            drawn = {str(value): _swept(ax, part, x, str(value), look(names.index(value)))
                     for value, part in shown.groupby(by, sort=False)}  # fmt: skip
            ax.set(xlabel=xlabel or x, ylabel=ylabel or str(scores["measure"].iloc[0]), title=title)
            if log:
                ax.set(xscale="log", yscale="log" if log == "xy" else "linear")
            _ticks(ax, sorted(scores[x].dropna().unique()), bool(log))
            if (shown["measure"] == "gain").all():
                ax.axhline(0, color="0.4", lw=0.8, zorder=1)
                if np.ptp(ax.get_ylim()) < 1e-9:  # no gain at all, but for rounding
                    ax.set_ylim(-1, 1)
            _show_covered(ax, list(drawn.values()))
            if shown.duplicated([by, x]).any():  # bars of several seeds; single points stay where they were tried
                _side_by_side(ax)
            if beside:
                _name_ends(ax, drawn, beside)
        if not beside:
            _legend(fig, axes, by)
    return fig


def intervals(table: pd.DataFrame, over: str = "", label: str = "accuracy", title: str = "") -> Figure:
    """Means with their intervals, or paired gains over a method with theirs: methods down, a panel for each setting.

    table: from `table` of `fn.grid`. over: the base of its gains. A mean of one seed has no interval.

    >>> index = pd.Index(["FedAvg", "FedSAM"], name="method")
    >>> table = pd.DataFrame({"mean": [70.0, 75.0], "low": [68.0, 74.0], "high": [72.0, 76.0], "n": 3}, index=index)
    >>> figure = fn.plots.intervals(table)
    >>> figure.axes[0].get_xlabel()
    'accuracy, percent'
    """
    mean, low, high = ("gain", "gain_low", "gain_high") if over else ("mean", "low", "high")
    flat = table.reset_index()
    flat = flat[flat["method"] != over]
    parts = list(_parts(flat, *[name for name in table.index.names if name != "method"]))
    names = list(dict.fromkeys(flat["method"]))[::-1]
    with _style():
        fig, axes = _panels(len(parts), 4.2, 1.1 + 0.24 * len(names), _row(len(parts)), sharey=True)
        for ax, (name, part) in zip(axes, parts, strict=True):
            at = part["method"].map(names.index)
            reach = [(part[mean] - part[low]).fillna(0), (part[high] - part[mean]).fillna(0)]
            ax.errorbar(part[mean], at, xerr=reach, **look(0), ls="", ms=5, capsize=2)
            ax.set_yticks(range(len(names)), names)
            ax.set(title=name, xlabel=f"gain over {over}, points" if over else f"{label}, percent",
                   ylim=(-0.7, len(names) - 0.3))  # fmt: skip
            if over:
                ax.axvline(0, color="0.4", lw=0.8, zorder=1)
        axes[0].set_ylabel("method")
        fig.suptitle(title or f"mean and interval, n = {' or '.join(map(str, sorted(set(flat['n']))))}", fontsize=10)
    return fig


def _ticks(ax: Axes, values: list[float], log: bool) -> None:
    """Ticks at the values that were tried, where they are few; too near to the next they have no text."""
    if len(values) <= 8:
        least = (values[-1] - values[0]) * 0.07
        named: list[float] = []
        for value in reversed(values):
            apart = not named or (value * 1.5 <= named[-1] if log else value + least <= named[-1])
            named += [value] if apart else []
        ax.set_xticks(values, [f"{value:g}" if value in named else "" for value in values])
        ax.set_xticks([], minor=True)


def _swept(ax: Axes, part: pd.DataFrame, x: str, name: str, how: dict[str, Any]) -> Line2D:
    """The curve of a series with its range, or a flat line where it has no number that was varied."""
    if part[x].isna().all():
        return ax.axhline(part["value"].mean(), color=how["color"], ls="--", lw=1.2, label=name)
    seen = part.groupby(x)["value"].agg(["mean", "min", "max"])
    span = [seen["mean"] - seen["min"], seen["max"] - seen["mean"]]
    how = how | {"ms": 4, "lw": 1.5, "elinewidth": 0.8, "capsize": 2}
    return ax.errorbar(seen.index, seen["mean"], yerr=span, **how, label=name).lines[0]


def bars(scores: pd.DataFrame, by: str = "method", panel: Panel = "", ylabel: str = "", title: str = "") -> Figure:
    """One bar per value of `by`: the mean over seeds, as a number at the top of the panel; every seed as a dot.

    >>> scores = pd.DataFrame({"method": ["FedAvg", "FedSAM"], "measure": "accuracy", "value": [70.0, 75.0]})
    >>> figure = fn.plots.bars(scores)
    >>> [label.get_text() for label in figure.axes[0].get_xticklabels()]
    ['FedAvg', 'FedSAM']
    """
    parts = list(_parts(scores.dropna(subset=["value"]), *_several(panel)))
    names = list(dict.fromkeys(scores[by]))
    most = max(part[by].nunique() for _, part in parts)
    with _style():
        width = max(4.2 if len(parts) == 1 else 2.8, 1.4 + 0.55 * most)  # a title has to fit
        height = 2.6 + 0.035 * max(len(str(name)) for name in names)  # under the bars are their names, at a slant
        fig, axes = _panels(len(parts), width, height, _row(len(parts)))
        for ax, (name, part) in zip(axes, parts, strict=True):
            means = part.groupby(by, sort=False)["value"].mean()
            at = {value: i for i, value in enumerate(means.index)}
            ax.bar(range(len(at)), means, color=[look(names.index(n))["color"] for n in at], alpha=0.75)
            ax.scatter(part[by].map(at), part["value"], color="black", s=9, zorder=3)
            for i, mean in enumerate(means):
                ax.text(i, 0.98, f"{mean:.3g}", transform=ax.get_xaxis_transform(), ha="center", va="top", fontsize=7)
            ax.set_xticks(range(len(at)), means.index, rotation=35, ha="right", rotation_mode="anchor")
            ax.set(ylabel=ylabel or str(scores["measure"].iloc[0]), title=name, xlim=(-0.7, most - 0.3))
            low, high = min(part["value"].min(), 0), max(part["value"].max(), 0)
            room = (high - low or 1.0) * np.array([-0.06 * (low < 0), 0.14])  # above: for the numbers
            ax.set_ylim(low + room[0], high + room[1])
            ax.grid(visible=False, axis="x")
        fig.suptitle(title, fontsize=11)
    return fig
