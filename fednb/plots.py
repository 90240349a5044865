"""One function per kind of figure, all in one style: labelled, colour-blind safe, readable at a glance."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import matplotlib.pyplot as plt
import numpy as np
import seaborn as sns

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

PALETTE = sns.color_palette("colorblind")
MARKERS = "osD^vPX*"


def _look(i: int) -> dict[str, Any]:
    """Colour and marker of the i-th series; forty differ."""
    return {"color": PALETTE[i % len(PALETTE)], "marker": MARKERS[i % len(MARKERS)]}


@contextmanager
def _style() -> Iterator[None]:
    look = {"figure.facecolor": "white", "axes.titlesize": 10, "axes.labelsize": 9, "legend.fontsize": 8,
            "xtick.labelsize": 8, "ytick.labelsize": 8, "axes.titleweight": "bold"}  # fmt: skip
    with sns.axes_style("whitegrid"), plt.rc_context(look):
        yield


def _panels(count: int, width: float = 3.6, height: float = 2.9, **how: Any) -> tuple[Figure, list]:
    fig, axes = plt.subplots(1, count, figsize=(width * count, height), squeeze=False, layout="constrained", **how)
    plt.close(fig)  # shown by the notebook because the cell returns it, not twice
    return fig, list(axes[0])


def bands(table: pd.DataFrame, by: str = "alpha", title: str = "", log: bool = True) -> Figure:
    """A tidy band table as curves, low frequencies left: one panel per measure, one curve per value of `by`.

    Points are means over seeds and rounds; bars span all of them.
    """
    measures = list(dict.fromkeys(table["measure"]))
    with _style():
        fig, axes = _panels(len(measures), width=3.6 if len(measures) > 1 else 5.0)
        for ax, measure in zip(axes, measures, strict=True):
            for i, (value, part) in enumerate(table[table["measure"] == measure].groupby(by)):
                seen = part.groupby("band")["value"].agg(["mean", "min", "max"])
                span = [seen["mean"] - seen["min"], seen["max"] - seen["mean"]]
                ax.errorbar(seen.index, seen["mean"], yerr=span, **_look(i), ms=4, lw=1.5,
                            elinewidth=0.8, capsize=2, label=f"{by} = {value}")  # fmt: skip
            ax.set(xlabel="frequency band (1 = lowest)", ylabel=f"{measure} across clients")
            ax.set_xticks(sorted(table["band"].unique()))
            if log:
                ax.set_yscale("log")
            ax.legend(title="bars: all rounds and seeds", title_fontsize=7)
        fig.suptitle(title, fontsize=11)
    return fig


def layers(table: pd.DataFrame, title: str = "") -> Figure:
    """Layers down, bands across: each layer's share of variance in each band, as a heat map."""
    shares = table.div(table.sum(axis=1), axis=0)
    with _style():
        fig, (ax,) = _panels(1, width=5.2, height=0.9 + 0.28 * len(table))
        sns.heatmap(shares, ax=ax, cmap="cividis", vmin=0, annot=len(table) <= 12, fmt=".2f", annot_kws={"size": 7},
                    cbar_kws={"label": "share of the layer's variance"})  # fmt: skip
        ax.set(xlabel="frequency band (1 = lowest)", ylabel="layer", title=title)
    return fig


def clients_by_class(counts: dict[str, np.ndarray]) -> Figure:
    """Who has what: clients down, classes across, one panel per partition."""
    with _style():
        fig, axes = _panels(len(counts), height=3.2)
        top = max(c.max() for c in counts.values())
        for ax, (name, table) in zip(axes, counts.items(), strict=True):
            sns.heatmap(table, ax=ax, cmap="cividis", vmin=0, vmax=top, cbar=ax is axes[-1])
            ax.set(title=f"{name}: samples", xlabel="class", ylabel="client")
    return fig


def sizes(counts: dict[str, np.ndarray]) -> Figure:
    """How much each client has, largest first, one curve per partition."""
    with _style():
        fig, (ax,) = _panels(1, width=4.5)
        for i, (name, table) in enumerate(counts.items()):
            ax.plot(np.sort(table.sum(1))[::-1], **_look(i), ms=4, label=name)
        ax.set(xlabel="clients, largest first", ylabel="samples", title="Client sizes", ylim=(0, None))
        ax.legend()
    return fig


def scatter(groups: dict[str, np.ndarray], spread: dict[str, float], centre: str = "global model") -> Figure:
    """Where clients went: two principal axes, the global model in the middle; one panel per group, same scale."""
    with _style():
        fig, axes = _panels(len(groups), sharex=True, sharey=True)
        for i, (ax, (name, points)) in enumerate(zip(axes, groups.items(), strict=True)):
            for x, y in points:
                ax.annotate("", (x, y), (0, 0), arrowprops={"arrowstyle": "->", "color": _look(i)["color"], "lw": 1.2})
            ax.scatter(
                points[:, 0], points[:, 1], color=_look(i)["color"], s=22, zorder=3, label="clients after training"
            )
            ax.scatter([0], [0], color="black", marker="*", s=90, zorder=4, label=centre)
            ax.set(title=f"{name}\nspread {spread[name]:.3g}", xlabel="first axis", ylabel="" if i else "second axis")
        axes[0].legend(loc="best")
    return fig


def curves(histories: pd.DataFrame, y: str = "accuracy", by: str = "method", ylabel: str = "") -> Figure:
    """A quantity by round, one curve per value of `by`: the mean over seeds, and the range where there are several."""
    with _style():
        fig, (ax,) = _panels(1, width=4.8)
        for i, (value, part) in enumerate(histories.dropna(subset=[y]).groupby(by, sort=False)):
            seen = part.groupby("round")[y].agg(["mean", "min", "max"])
            ax.plot(seen.index + 1, seen["mean"], **_look(i), ms=3.5, lw=1.5, label=str(value))
            ax.fill_between(seen.index + 1, seen["min"], seen["max"], color=_look(i)["color"], alpha=0.15, lw=0)
        ax.set(xlabel="round", ylabel=ylabel or y, title=ylabel or y)
        ax.legend(title=by)
    return fig
