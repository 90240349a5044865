"""Who has what: the data of the clients."""

from __future__ import annotations

from textwrap import fill
from typing import TYPE_CHECKING

import numpy as np
import seaborn as sns
from matplotlib.colors import PowerNorm

from fednb.show.plots.style import HEAT, PALETTE, _panels, _style, look

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WIDTH = 36  # letters of a title that are as wide as a panel


def clients_by_class(counts: dict[str, np.ndarray], row: int = 99) -> Figure:
    """Who has what: clients down, classes across, one panel per partition.

    row: so many panels side by side, with one colour scale; data sets with many classes are given a row of their own.
    Colours go by the square root of the samples: one client with hundreds leaves those with a dozen to be seen.

    >>> counts = {"iid": np.array([[5, 5], [5, 5]]), "by class": np.array([[10, 0], [0, 10]])}
    >>> figure = fn.plots.clients_by_class(counts)
    >>> figure.axes[0].get_title(), figure.axes[1].get_title()
    ('iid: samples', 'by class: samples')
    """
    with _style():
        fig, axes = _panels(len(counts), height=3.2, row=row)
        shown = list(counts.values())
        for i, (ax, (name, table)) in enumerate(zip(axes, counts.items(), strict=True)):
            beside = shown[i - i % row : i - i % row + row]
            scale = PowerNorm(0.5, vmin=0, vmax=max(c.max() for c in beside))
            sns.heatmap(table, ax=ax, cmap=HEAT, norm=scale, cbar=table is beside[-1])
            ax.set(title=fill(f"{name}: samples", WIDTH), xlabel="class", ylabel="client")
    return fig


def classes_of_clients(counts: dict[str, np.ndarray]) -> Figure:
    """Who has what as bars: one for each client, as high as it has samples, cut by class; one panel per partition.

    >>> figure = fn.plots.classes_of_clients({"by class": np.array([[10, 0], [0, 10]])})
    >>> figure.axes[0].get_xlabel(), figure.axes[0].get_ylabel()
    ('client', 'samples')
    """
    with _style():
        fig, axes = _panels(len(counts), width=3.4, sharey=True)
        for ax, (name, table) in zip(axes, counts.items(), strict=True):
            below = np.cumsum(table, axis=1) - table
            for c in range(table.shape[1]):
                ax.bar(range(len(table)), table[:, c], bottom=below[:, c], color=_shade(c, table.shape[1]), label=c)
            ax.set(title=name, xlabel="client", ylabel="samples")
            ax.set_xticks(range(0, len(table), max(1, len(table) // 10)))
            ax.grid(visible=False, axis="x")
        fig.legend(*axes[0].get_legend_handles_labels(), title="class", loc="outside right center", reverse=True)
    return fig


def _shade(c: int, classes: int) -> tuple[float, ...]:
    """A colour for each class: those that all can tell apart, or shades where there are more of them."""
    return look(c)["color"] if classes <= len(PALETTE) else sns.color_palette(HEAT, classes)[c]


def sizes(counts: dict[str, np.ndarray]) -> Figure:
    """How much each client has, largest first, one curve per partition.

    >>> figure = fn.plots.sizes({"by class": np.array([[10, 0], [0, 20]])})
    >>> figure.axes[0].lines[0].get_ydata().tolist()
    [20, 10]
    """
    with _style():
        fig, (ax,) = _panels(1, width=4.5)
        for i, (name, table) in enumerate(counts.items()):
            ax.plot(np.sort(table.sum(1))[::-1], **look(i), ms=4, label=name)
        ax.set(xlabel="clients, largest first", ylabel="samples", title="Client sizes", ylim=(0, None))
        ax.xaxis.get_major_locator().set_params(integer=True)
        ax.legend()
    return fig
