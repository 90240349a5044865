"""Many combinations at once: a heat map of ideas against ideas, and what single changes do to one number."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import seaborn as sns

from fednb.show.plots.style import HEAT, _panels, _style, look

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CELL = (0.46, 0.34)  # inches across and down: room for four characters
ABSENT, DIVERGED = "–", "div."
SIGNED = "PuOr"  # two colours that the colour-blind can tell apart, pale at zero


def matrix(
    table: pd.DataFrame, rows: str, columns: str, groups: str = "", label: str = "", title: str = "",
    beside: dict[str, str] | None = None, above: dict[str, str] | None = None, signed: bool = False,
) -> Figure:  # fmt: skip
    """One number for every combination: `rows` down, `columns` across, once for each of `groups`; means over seeds.

    All on one colour scale, with the number in each cell; signed: a scale around zero. A combination that is not in the
    table has a dash, one without a value "div.": no such method, and a run that diverged. beside, above: what is said
    of rows and of groups, such as their cost.

    >>> table = pd.DataFrame({"ascent": ["none", "SAM"], "filter": "high-pass", "seed": 0, "value": [70.0, 75.0]})
    >>> figure = fn.plots.matrix(table, rows="ascent", columns="filter", label="accuracy, percent")
    >>> figure.axes[0].get_xlabel(), figure.axes[0].get_ylabel()
    ('filter', 'ascent')
    """
    names, across = (list(dict.fromkeys(table[c])) for c in (rows, columns))
    parts = list(table.groupby(groups, sort=False)) if groups else [("", table)]
    colours = _colours(table["value"], signed)
    with _style():
        size = {"width": CELL[0] * len(across) + 0.3, "height": CELL[1] * len(names) + 1.6}
        row = 2 if len(parts) == 4 else 3  # groups side by side; four make a square
        fig, axes = _panels(len(parts), **size, row=row, sharey=True)
        fig.set_figwidth(fig.get_figwidth() + 2.6)  # for the rows' names and the scale
        for i, (ax, (group, part)) in enumerate(zip(axes, parts, strict=True)):
            seen = part.groupby([rows, columns])["value"].agg(lambda each: each.mean(skipna=False))
            _cells(ax, seen, names, across, colours)
            ax.set_title("\n".join(filter(None, [str(group), (above or {}).get(group, "")])), fontsize=9)
            ax.set(xlabel=columns, ylabel="" if i % row else rows)
        axes[0].set_yticks(np.arange(len(names)) + 0.5, [_said(name, beside or {}) for name in names])
        fig.colorbar(axes[0].collections[0], ax=axes, label=label, pad=0.01, fraction=0.02)
        fig.suptitle(title, fontsize=11)
    return fig


def _colours(values: pd.Series, signed: bool) -> dict[str, Any]:
    """A colour map and the values at its two ends."""
    most = values.abs().max()
    ends = (-most, most) if signed else (values.min(), values.max())
    return {"cmap": SIGNED if signed else HEAT, "vmin": ends[0], "vmax": ends[1]}


def _said(name: str, beside: dict[str, str]) -> str:
    return f"{name}\n{beside[name]}" if name in beside else name


def _cells(ax: Axes, seen: pd.Series, names: list[str], across: list[str], colours: dict[str, Any]) -> None:
    """One group: a number in each cell, or why there is none."""
    square = seen.unstack().reindex(index=names, columns=across)
    sns.heatmap(square, ax=ax, **colours, cbar=False, annot=True, fmt=".1f", annot_kws={"fontsize": 7}, linewidths=0.5,
                xticklabels=True, yticklabels=True)  # fmt: skip
    ax.set_facecolor("0.93")
    ax.grid(visible=False)
    for i, j in np.argwhere(square.isna().to_numpy()):
        why = DIVERGED if (names[i], across[j]) in seen.index else ABSENT
        ax.text(j + 0.5, i + 0.5, why, ha="center", va="center", fontsize=7, color="0.3")
    ax.tick_params("x", rotation=90, labelsize=7)
    ax.tick_params("y", rotation=0, length=0)


def effects(gains: pd.DataFrame, base: pd.DataFrame | None = None, xlabel: str = "", title: str = "") -> Figure:
    """What single changes do to one number: changes down in the order of their means, every seed a dot, a bar the mean.

    gains: from `fn.gains`; base: the unchanged runs, whose own range over seeds is drawn around zero.

    >>> gains = pd.DataFrame({"method": ["a", "a", "b", "b"], "seed": [0, 1, 0, 1], "value": [1.0, 2.0, -1.0, 0.0]})
    >>> figure = fn.plots.effects(gains, title="What each change does")
    >>> [label.get_text() for label in figure.axes[0].get_yticklabels()]
    ['b (n = 2)', 'a (n = 2)']
    """
    means = gains.groupby("method", sort=False)["value"].mean().sort_values()
    n = gains.groupby("method")["seed"].nunique()
    at = {name: i for i, name in enumerate(means.index)}
    with _style():
        fig, (ax,) = _panels(1, width=6.4, height=1.2 + 0.27 * len(means))
        if base is not None:
            around = base["value"] - base["value"].mean()
            ax.axvspan(around.min(), around.max(), color="0.88", zorder=0, label="the base over its seeds")
        ax.axvline(0, color="0.4", lw=0.8, zorder=1)
        ax.barh(list(at.values()), means, height=0.62, color=look(0)["color"], alpha=0.45, zorder=2, label="mean")
        ax.scatter(gains["value"], gains["method"].map(at), color="black", s=11, zorder=3, label="one seed")
        ax.set_yticks(list(at.values()), [f"{name} (n = {n[name]})" for name in at])
        ax.set(xlabel=xlabel or "points", ylabel="change", title=title, ylim=(-0.7, len(means) - 0.3))
        ax.grid(visible=False, axis="y")
        fig.set_figwidth(8.0)
        fig.legend(*ax.get_legend_handles_labels(), loc="outside right center")
    return fig
