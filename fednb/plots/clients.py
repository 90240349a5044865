"""Who has what: the data of the clients."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import seaborn as sns

from fednb.plots.style import HEAT, _panels, _style, look

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def clients_by_class(counts: dict[str, np.ndarray], row: int = 99, own_scale: bool = False) -> Figure:
    """Who has what: clients down, classes across, one panel per partition, at most `row` of them side by side.

    own_scale: a colour scale for every panel, where data sets with few and many classes stand together.
    """
    with _style():
        fig, axes = _panels(len(counts), height=3.2, row=row)
        top = max(c.max() for c in counts.values())
        for ax, (name, table) in zip(axes, counts.items(), strict=True):
            most = table.max() if own_scale else top
            sns.heatmap(table, ax=ax, cmap=HEAT, vmin=0, vmax=most, cbar=own_scale or ax is axes[-1])
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
