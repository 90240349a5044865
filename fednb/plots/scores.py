"""How good: accuracy and other quantities of whole runs, ours beside the paper's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from fednb.plots.style import _panels, _style, look

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
    """
    parts = list(_parts(histories.dropna(subset=[y]), *_several(panel)))
    names = list(dict.fromkeys(str(value).removesuffix(dashed) for value in histories[by]))
    with _style():
        fig, axes = _panels(len(parts), width=4.8 if len(parts) == 1 else 3.8, row=ROW, sharex=len(parts) > 1)
        for ax, (title, shown) in zip(axes, parts, strict=True):
            for value, part in shown.groupby(by, sort=False):
                how = look(names.index(str(value).removesuffix(dashed)))
                how |= {"ls": "--"} if dashed and str(value).endswith(dashed) else {}
                seen = part.groupby("round")[y].agg(["mean", "min", "max"])
                every = max(1, len(seen) // 8)
                ax.plot(seen.index + 1, seen["mean"], **how, ms=3.5, lw=1.5, markevery=every, label=str(value))
                ax.fill_between(seen.index + 1, seen["min"], seen["max"], color=how["color"], alpha=0.15, lw=0)
            ax.set(xlabel="round", ylabel=ylabel or y, title=title or ylabel or y, yscale="log" if log else "linear")
        _legend(fig, axes, by)
    return fig


def compare(table: pd.DataFrame, base: str = "", title: str = "", xlabel: str = "accuracy, percent") -> Figure:
    """`fn.compare`'s table: one panel per setting, methods down; hollow the paper's, filled ours with their spread.

    base: show what each method gains over this one, in points, which is what smaller scales can be compared in.
    """
    shown = _gained(table, base) if base else table
    parts = list(_parts(shown.reset_index(), *[n for n in table.index.names if n != "method"]))
    with _style():
        rows = max(len(part) for _, part in parts)
        fig, axes = _panels(len(parts), width=4.2, height=1.1 + 0.24 * rows, row=ROW)
        for ax, (name, part) in zip(axes, parts, strict=True):
            _dots(ax, part[::-1], _ours(shown))
            ax.set(title=name, xlabel=f"gain over {base}, points" if base else xlabel)
            if base:
                ax.axvline(0, color="0.4", lw=0.8)
        axes[0].legend(loc="best")
        fig.suptitle(title, fontsize=11)
    return fig


def _dots(ax: Axes, part: pd.DataFrame, ours: str) -> None:
    """One line per method: the paper's number, ours, and a thin line between them."""
    at = np.arange(len(part))
    ax.hlines(at, part["paper"], part["ours"], color="0.8", lw=1, zorder=1)
    ax.scatter(part["paper"], at, facecolors="none", edgecolors="0.3", marker="D", s=28, label="paper", zorder=2)
    ax.errorbar(part["ours"], at, xerr=part["std"].fillna(0), **look(0), ls="", ms=5, capsize=2, label=ours)
    ax.set_yticks(at, part["method"])
    ax.set_ylim(-0.7, len(part) - 0.3)


def _ours(shown: pd.DataFrame) -> str:
    n = shown["n"].dropna()
    return f"ours, mean ± std, n = {int(n.max())}" if len(n) and n.max() > 1 else "ours, n = 1"


def _gained(table: pd.DataFrame, base: str) -> pd.DataFrame:
    """Both columns as differences to one method in the same setting."""
    settings = [n for n in table.index.names if n != "method"]
    flat = table.reset_index()
    of_base = flat[flat["method"] == base].set_index(settings) if settings else flat[flat["method"] == base]
    rest = flat[flat["method"] != base]
    for column in ("paper", "ours"):
        known = of_base[column].groupby(level=list(range(len(settings))), dropna=False).first() if settings else None
        minus = rest.set_index(settings).index.map(known) if known is not None else of_base[column].iloc[0]
        rest = rest.assign(**{column: rest[column] - np.asarray(minus, dtype=float)})
    return rest.set_index([*settings, "method"])


def sweep(
    scores: pd.DataFrame,
    x: str,
    by: str = "method",
    panel: Panel = "",
    xlabel: str = "",
    ylabel: str = "",
    log: bool = False,
) -> Figure:
    """A quantity against a number that was varied: the mean over seeds with their range.

    Methods that have no such number are flat lines.
    """
    parts = list(_parts(scores.dropna(subset=["value"]), *_several(panel)))
    names = list(dict.fromkeys(scores[by]))
    with _style():
        fig, axes = _panels(len(parts), width=4.8 if len(parts) == 1 else 3.8, row=ROW)
        for ax, (title, shown) in zip(axes, parts, strict=True):
            for value, part in shown.groupby(by, sort=False):
                _swept(ax, part, x, str(value), look(names.index(value)))
            ax.set(xlabel=xlabel or x, ylabel=ylabel or str(scores["measure"].iloc[0]), title=title)
            if log:
                ax.set_xscale("log")
        _legend(fig, axes, by)
    return fig


def _swept(ax: Axes, part: pd.DataFrame, x: str, name: str, how: dict[str, Any]) -> None:
    if part[x].isna().all():
        ax.axhline(part["value"].mean(), color=how["color"], ls="--", lw=1.2, label=name)
        return
    seen = part.groupby(x)["value"].agg(["mean", "min", "max"])
    span = [seen["mean"] - seen["min"], seen["max"] - seen["mean"]]
    ax.errorbar(seen.index, seen["mean"], yerr=span, **how, ms=4, lw=1.5, elinewidth=0.8, capsize=2, label=name)


def bars(scores: pd.DataFrame, by: str = "method", panel: Panel = "", ylabel: str = "", title: str = "") -> Figure:
    """One bar per value of `by`: the mean over seeds, every seed as a dot."""
    parts = list(_parts(scores.dropna(subset=["value"]), *_several(panel)))
    names = list(dict.fromkeys(scores[by]))
    with _style():
        fig, axes = _panels(len(parts), width=1.4 + 0.55 * len(names), row=ROW)
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
