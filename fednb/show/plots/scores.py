"""How good: accuracy and other quantities of whole runs, ours beside the paper's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from fednb.show.plots.style import _panels, _style, look

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ROW = 3  # panels side by side
Panel = str | tuple[str, ...]


def curves(
    histories: pd.DataFrame, y: str = "accuracy", by: str = "method", ylabel: str = "", panel: Panel = "",
    dashed: str = "", log: bool = False,
) -> Figure:  # fmt: skip
    """A quantity by round, one curve per value of `by`: the mean over seeds, and the range where there are several.

    panel: a column or several; one panel for each of their values. Columns that are not there are passed over. dashed:
    how names end that are drawn dashed, with colour and marker of the name without it.

    >>> runs = pd.DataFrame({"method": "FedAvg", "round": [0, 1, 2], "accuracy": [10.0, 40.0, 60.0], "seed": 0})
    >>> figure = fn.plots.curves(runs, ylabel="accuracy, percent")
    >>> figure.axes[0].get_xlabel(), figure.axes[0].get_ylabel()
    ('round', 'accuracy, percent')
    """
    parts = list(_parts(histories.dropna(subset=[y]), *_several(panel)))
    names = list(dict.fromkeys(str(value).removesuffix(dashed) for value in histories[by]))
    with _style():
        fig, axes = _labelled_panels(len(parts))
        for ax, (title, shown) in zip(axes, parts, strict=True):
            for value, part in shown.groupby(by, sort=False):
                how = look(names.index(str(value).removesuffix(dashed)))
                how |= {"ls": "--"} if dashed and str(value).endswith(dashed) else {}
                seen = part.groupby("round")[y].agg(["mean", "min", "max"])
                every = max(1, len(seen) // 8)
                ax.plot(seen.index + 1, seen["mean"], **how, ms=3.5, lw=1.5, markevery=every, label=str(value))
                ax.fill_between(seen.index + 1, seen["min"], seen["max"], color=how["color"], alpha=0.15, lw=0)
            ax.set(xlabel="round", ylabel=ylabel or y, title=title or ylabel or y, yscale="log" if log else "linear")
            ax.xaxis.get_major_locator().set_params(integer=True)
        _legend(fig, axes, by)
    return fig


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
    parts = list(_parts(table.reset_index(), *[n for n in table.index.names if n not in rows_by]))
    with _style():
        rows = max(len(part) for _, part in parts)
        fig, axes = _panels(len(parts), 4.2, 1.1 + 0.24 * rows, _row(len(parts)), sharex=down != "method")
        for ax, (name, part) in zip(axes, parts, strict=True):
            ax.tick_params("x", labelbottom=True)
            _dots(ax, part[::-1], rows_by, _ours(table))
            ax.set(title=name, xlabel=f"gain over {base}, points" if base else xlabel)
            if base or xlabel.startswith("gain"):
                ax.axvline(0, color="0.4", lw=0.8)
        fig.set_figwidth(fig.get_figwidth() + 1.4)  # for the legend, which would hide dots inside a panel
        fig.legend(*axes[0].get_legend_handles_labels(), loc="outside right center")
        fig.suptitle(title, fontsize=11)
    return fig


def _dots(ax: Axes, part: pd.DataFrame, down: tuple[str, ...], ours: str) -> None:
    """One line per method, or per value of `down`: the paper's number, ours, and a thin line between them."""
    at = np.arange(len(part))
    ax.hlines(at, part["paper"], part["ours"], color="0.8", lw=1, zorder=1)
    ax.scatter(part["paper"], at, facecolors="white", edgecolors="0.3", marker="D", s=28, zorder=2, label=_theirs(part))
    ax.errorbar(part["ours"], at, xerr=part["std"].fillna(0), **look(0), ls="", ms=5, capsize=2, label=ours)
    ax.set_yticks(at, part[list(down)].astype(str).agg(", ".join, axis=1))
    ax.set_ylim(-0.7, len(part) - 0.3)


def _theirs(part: pd.DataFrame) -> str:
    return f"paper\n({part['paper on'].iloc[0]})" if "paper on" in part else "paper"


def _ours(shown: pd.DataFrame) -> str:
    n = shown["n"].dropna()
    who = f"ours\n({shown['ours on'].iloc[0]})" if "ours on" in shown else "ours"
    return f"{who},\nmean ± std, n = {int(n.max())}" if len(n) and n.max() > 1 else f"{who}, n = 1"


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

    Methods that have no such number are flat lines. log: True for the number that was varied, "xy" for both.
    Gains (see `fn.gains`) are drawn with their zero.

    >>> scores = pd.DataFrame({"method": "FedSAM", "rho": [0.01, 0.1], "measure": "accuracy", "value": [70.0, 75.0]})
    >>> figure = fn.plots.sweep(scores, x="rho", log=True)
    >>> figure.axes[0].get_xscale()
    'log'
    """
    parts = list(_parts(scores.dropna(subset=["value"]), *_several(panel)))
    names = list(dict.fromkeys(scores[by]))
    with _style():
        fig, axes = _labelled_panels(len(parts))
        for ax, (title, shown) in zip(axes, parts, strict=True):
            for value, part in shown.groupby(by, sort=False):
                _swept(ax, part, x, str(value), look(names.index(value)))
            ax.set(xlabel=xlabel or x, ylabel=ylabel or str(scores["measure"].iloc[0]), title=title)
            if log:
                ax.set(xscale="log", yscale="log" if log == "xy" else "linear")
                _ticks(ax, sorted(scores[x].dropna().unique()))
            if (shown["measure"] == "gain").all():
                ax.axhline(0, color="0.4", lw=0.8, zorder=1)
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


def _ticks(ax: Axes, values: list[float]) -> None:
    """On a logarithmic axis: the values that were tried, where they are few; too near to the next they have no text."""
    if len(values) <= 8:
        named: list[float] = []
        for value in reversed(values):
            named += [value] if not named or value * 1.5 <= named[-1] else []
        ax.set_xticks(values, [f"{value:g}" if value in named else "" for value in values])
        ax.set_xticks([], minor=True)


def _swept(ax: Axes, part: pd.DataFrame, x: str, name: str, how: dict[str, Any]) -> None:
    if part[x].isna().all():
        ax.axhline(part["value"].mean(), color=how["color"], ls="--", lw=1.2, label=name)
        return
    seen = part.groupby(x)["value"].agg(["mean", "min", "max"])
    span = [seen["mean"] - seen["min"], seen["max"] - seen["mean"]]
    ax.errorbar(seen.index, seen["mean"], yerr=span, **how, ms=4, lw=1.5, elinewidth=0.8, capsize=2, label=name)


def bars(scores: pd.DataFrame, by: str = "method", panel: Panel = "", ylabel: str = "", title: str = "") -> Figure:
    """One bar per value of `by`: the mean over seeds, every seed as a dot.

    >>> scores = pd.DataFrame({"method": ["FedAvg", "FedSAM"], "measure": "accuracy", "value": [70.0, 75.0]})
    >>> figure = fn.plots.bars(scores)
    >>> [label.get_text() for label in figure.axes[0].get_xticklabels()]
    ['FedAvg', 'FedSAM']
    """
    parts = list(_parts(scores.dropna(subset=["value"]), *_several(panel)))
    names = list(dict.fromkeys(scores[by]))
    with _style():
        width = max(4.2 if len(parts) == 1 else 0.0, 1.4 + 0.55 * len(names))  # a title has to fit
        fig, axes = _panels(len(parts), width=width, row=_row(len(parts)))
        for ax, (name, part) in zip(axes, parts, strict=True):
            means = part.groupby(by, sort=False)["value"].mean()
            colours = [look(names.index(value))["color"] for value in means.index]
            ax.bar(range(len(means)), means, color=colours, alpha=0.75)
            ax.scatter(part[by].map(list(means.index).index), part["value"], color="black", s=9, zorder=3)
            ax.set_xticks(range(len(means)), means.index, rotation=35, ha="right")
            ax.set(ylabel=ylabel or str(scores["measure"].iloc[0]), title=name)
            ax.grid(visible=False, axis="x")
        fig.suptitle(title, fontsize=11)
    return fig


def _labelled_panels(count: int) -> tuple[Figure, list]:
    """A figure of panels with one scale along x, its numbers under every panel."""
    fig, axes = _panels(count, width=4.8 if count == 1 else 3.8, row=_row(count), sharex=count > 1)
    for ax in axes:
        ax.tick_params("x", labelbottom=True)
    return fig, axes


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
    """Inside the only panel, or one for all of them beside them."""
    found = {label: handle for ax in axes for handle, label in zip(*ax.get_legend_handles_labels(), strict=True)}
    if len(axes) == 1 and len(found) <= 6:
        axes[0].legend(found.values(), found.keys(), title=by)
    else:
        fig.legend(found.values(), found.keys(), title=by, loc="outside right center")
