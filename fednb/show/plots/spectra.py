"""Frequencies: disagreement by band, and where in the model."""

from __future__ import annotations

from typing import TYPE_CHECKING

import seaborn as sns

from fednb.show.plots.style import HEAT, _panels, _side_by_side, _style, look

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


def bands(table: pd.DataFrame, by: str = "alpha", title: str = "", log: bool = True) -> Figure:
    """A tidy band table as curves, low frequencies left: one panel per measure, one curve per value of `by`.

    Points are means over seeds and rounds; bars span all of them.

    >>> table = pd.DataFrame({"alpha": 0.1, "measure": "variance", "band": [1, 2, 3], "value": [3.0, 2.0, 1.0]})
    >>> figure = fn.plots.bands(table)
    >>> figure.axes[0].get_ylabel()
    'variance across clients'
    """
    measures = list(dict.fromkeys(table["measure"]))
    with _style():
        fig, axes = _panels(len(measures), width=3.6 if len(measures) > 1 else 5.0)
        for ax, measure in zip(axes, measures, strict=True):
            for i, (value, part) in enumerate(table[table["measure"] == measure].groupby(by)):
                seen = part.groupby("band")["value"].agg(["mean", "min", "max"])
                span = [seen["mean"] - seen["min"], seen["max"] - seen["mean"]]
                ax.errorbar(seen.index, seen["mean"], yerr=span, **look(i), ms=4, lw=1.5,
                            elinewidth=0.8, capsize=2, label=f"{by} = {value}")  # fmt: skip
            _side_by_side(ax)
            ax.set(xlabel="frequency band (1 = lowest)", ylabel=f"{measure} across clients")
            ax.set_xticks(sorted(table["band"].unique()))
            if log:
                ax.set_yscale("log")
        fig.set_figwidth(fig.get_figwidth() + 1.4)  # for the legend, which would hide bars inside a panel
        shown = axes[0].get_legend_handles_labels()
        fig.legend(*shown, title="bars: all\nrounds and seeds", title_fontsize=7, loc="outside right center")
        fig.suptitle(title, fontsize=11)
    return fig


def layers(table: pd.DataFrame, title: str = "") -> Figure:
    """Layers down, bands across: each layer's share of variance in each band, as a heat map.

    >>> table = pd.DataFrame([[2.0, 1.0], [1.0, 1.0]], index=["conv", "fc"], columns=[1, 2])
    >>> figure = fn.plots.layers(table, title="Where clients disagree")
    >>> figure.axes[0].get_title()
    'Where clients disagree'
    """
    shares = table.div(table.sum(axis=1), axis=0)
    with _style():
        fig, (ax,) = _panels(1, width=5.2, height=0.9 + 0.28 * len(table))
        sns.heatmap(shares, ax=ax, cmap=HEAT, vmin=0, annot=len(table) <= 12, fmt=".2f", annot_kws={"size": 7},
                    cbar_kws={"label": "share of the layer's variance"})  # fmt: skip
        ax.set(xlabel="frequency band (1 = lowest)", ylabel="layer", title=title)
    return fig
