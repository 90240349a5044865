"""Who has what: the data of the clients."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import seaborn as sns

from fednb.plots.style import HEAT, _panels, _style, look

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def clients_by_class(counts: dict[str, np.ndarray], row: int = 99) -> Figure:
    """Who has what: clients down, classes across, one panel per partition.

    row: so many panels side by side, with one colour scale; data sets with many classes are given a row of their own.
    """
    with _style():
        fig, axes = _panels(len(counts), height=3.2, row=row)
        shown = list(counts.values())
        for i, (ax, (name, table)) in enumerate(zip(axes, counts.items(), strict=True)):
            beside = shown[i - i % row : i - i % row + row]
            top = max(c.max() for c in beside)
            sns.heatmap(table, ax=ax, cmap=HEAT, vmin=0, vmax=top, cbar=table is beside[-1])
            ax.set(title=f"{name}: samples", xlabel="class", ylabel="client")
    return fig


def sizes(counts: dict[str, np.ndarray]) -> Figure:
    """How much each client has, largest first, one curve per partition."""
    with _style():
        fig, (ax,) = _panels(1, width=4.5)
        for i, (name, table) in enumerate(counts.items()):
            ax.plot(np.sort(table.sum(1))[::-1], **look(i), ms=4, label=name)
        ax.set(xlabel="clients, largest first", ylabel="samples", title="Client sizes", ylim=(0, None))
        ax.legend()
    return fig
