"""Where clients and models lie: points in two dimensions, distances by layer, similarities, the loss around a model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import seaborn as sns
from matplotlib.colors import PowerNorm

from fednb.core.vectors import chosen
from fednb.metrics.drift import WHOLE
from fednb.show.plots.style import HEAT, _panels, _side_by_side, _style, look

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

OF_ONE_POINT = ("method", "key", "client", "class", "x", "y")  # columns in which points of the same axes may differ


def scatter(groups: dict[str, np.ndarray], spread: dict[str, float], centre: str = "global model") -> Figure:
    """Where clients went: two principal axes, the global model in the middle; one panel per group, same scale.

    >>> moves = {"FedAvg": np.array([[1.0, 0.0], [0.0, 1.0]])}
    >>> figure = fn.plots.scatter(moves, spread={"FedAvg": 0.5})
    >>> figure.axes[0].get_title().splitlines()
    ['FedAvg', 'spread 0.5']
    """
    with _style():
        fig, axes = _panels(len(groups), sharex=True, sharey=True)
        for i, (ax, (name, points)) in enumerate(zip(axes, groups.items(), strict=True)):
            for x, y in points:
                ax.annotate("", (x, y), (0, 0), arrowprops={"arrowstyle": "->", "color": look(i)["color"], "lw": 1.2})
            ax.scatter(
                points[:, 0], points[:, 1], color=look(i)["color"], s=22, zorder=3, label="clients after training"
            )
            ax.scatter([0], [0], color="black", marker="*", s=90, zorder=4, label=centre)
            ax.set(title=f"{name}\nspread {spread[name]:.3g}", xlabel="first axis", ylabel="" if i else "second axis")
        axes[0].legend(loc="best")
    return fig


def embedding(
    points: pd.DataFrame, spreads: pd.DataFrame | None = None, by: str = "method", title: str = "", axis: str = "axis"
) -> Figure:
    """Vectors of several methods in the same two axes, as `embed.points` gives them; the spread of each above.

    One panel for every setting, seed and round: each has axes of its own.

    >>> points = pd.DataFrame({"method": ["FedAvg", "FedSAM"], "client": 0, "x": [0.0, 1.0], "y": [1.0, 0.0]})
    >>> figure = fn.plots.embedding(points)
    >>> figure.axes[0].get_xlabel()
    'first axis'
    """
    groups = list(_same_axes(points))
    with _style():
        fig, axes = _panels(len(groups), width=3.8, height=3.6)
        for ax, (name, part) in zip(axes, groups, strict=True):
            for i, (value, mine) in enumerate(part.groupby(by, sort=False)):
                ax.scatter(mine["x"], mine["y"], **look(i), s=24, alpha=0.8, lw=0, label=str(value))
            said = [name, *_spread_lines(part, spreads, by)]
            ax.set(xlabel=f"first {axis}", ylabel=f"second {axis}")
            ax.set_title("\n".join(filter(None, said)), fontsize=9)
            ax.legend()
        fig.suptitle(title, fontsize=11)
    return fig


def classes(points: pd.DataFrame, scores: pd.DataFrame | None = None, by: str = "method", title: str = "") -> Figure:
    """Samples in the plane, coloured by class (FedWMSAM Fig. 5), from `separate.class_points`: a panel for each run.

    scores: the table that has the silhouette of each run, which stands above its panel.

    >>> points = pd.DataFrame({"key": "k", "method": "FedAvg", "class": [0, 1], "x": [0.0, 1.0], "y": [1.0, 0.0]})
    >>> figure = fn.plots.classes(points)
    >>> figure.axes[0].get_title()
    'FedAvg'
    """
    groups = list(points.groupby(["key", by], sort=False))
    labels = sorted(points["class"].unique())
    with _style():
        fig, axes = _panels(len(groups), width=3.0, height=3.1, row=2 if len(groups) == 4 else 3)
        for ax, ((key, name), part) in zip(axes, groups, strict=True):
            for i, label in enumerate(labels):
                mine = part[part["class"] == label]
                ax.scatter(mine["x"], mine["y"], **look(i), s=14, alpha=0.8, lw=0, label=str(label))
            ax.set(xticks=[], yticks=[], xlabel="first axis", ylabel="second axis")  # t-SNE's have no unit
            ax.set_title("\n".join([str(name), *_silhouettes(scores, key)]), fontsize=9)
        fig.legend(*axes[0].get_legend_handles_labels(), title="class", loc="outside right center", markerscale=1.5)
        fig.suptitle(title, fontsize=11)
    return fig


def _silhouettes(scores: pd.DataFrame | None, key: str) -> list[str]:
    """A line for each silhouette of a run."""
    if scores is None:
        return []
    mine = scores[(scores["key"] == key) & scores["measure"].str.startswith("silhouette")]
    return [f"{name} {value:.3f}" for name, value in zip(mine["measure"], mine["value"], strict=True)]


def _same_axes(points: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """The points that were placed together, named by what tells the panels apart."""
    common = [c for c in points.columns if c not in OF_ONE_POINT]
    vary = [c for c in common if points[c].nunique(dropna=False) > 1]
    for values, part in points.groupby(common, sort=False, dropna=False) if common else [((), points)]:
        known = dict(zip(common, values, strict=True))
        yield ", ".join(f"{c} {known[c] + 1 if c == 'round' else known[c]}" for c in vary), part


def _spread_lines(part: pd.DataFrame, spreads: pd.DataFrame | None, by: str) -> list[str]:
    if spreads is None:
        return []
    here = spreads[spreads["measure"] == "spread"]
    for column in spreads.columns.intersection(part.columns).drop("measure", errors="ignore"):
        here = here[here[column].isin(part[column])]
    seen = here.groupby(by, sort=False)["value"].mean()
    return [f"spread of {value}: {number:.3g}" for value, number in seen.items()]


def along_layers(
    table: pd.DataFrame, by: str = "measure", where: str = "*", ylabel: str = "", title: str = "", log: bool = False
) -> Figure:
    """A number for every layer, from the input to the output: one curve per value of `by`.

    Divergence before, after and with the random control (SpecGradFilter Fig. 2), drift, cosines, mean CKA. Points are
    means over runs, rounds and draws; bars span all of them. where="*.weight" leaves biases and norm shifts out.

    >>> table = pd.DataFrame({"layer": ["conv.weight", "fc.weight"], "measure": "drift", "value": [1.0, 2.0]})
    >>> figure = fn.plots.along_layers(table)
    >>> [label.get_text() for label in figure.axes[0].get_xticklabels()]
    ['conv.weight', 'fc.weight']
    """
    table = table[[chosen(name, where) for name in table["layer"]]]
    names = list(dict.fromkeys(table["layer"]))
    if names[-1] == WHOLE and len(names) > 1:
        names.insert(-1, "")  # a gap: the whole model is no further layer
    with _style():
        fig, (ax,) = _panels(1, width=max(4.8, 0.5 + 0.19 * len(names)), height=3.8)
        for i, (value, part) in enumerate(table.groupby(by, sort=False)):
            seen = part.groupby("layer")["value"].agg(["mean", "min", "max"]).reindex(names)
            span = [seen["mean"] - seen["min"], seen["max"] - seen["mean"]]
            ax.errorbar(range(len(names)), seen["mean"], yerr=span, **look(i), ms=4, lw=1.2, elinewidth=0.8,
                        capsize=2, label=str(value))  # fmt: skip
        _side_by_side(ax)
        ax.set(xlabel="layer, input to output", ylabel=ylabel or ", ".join(dict.fromkeys(table["measure"])))
        named = [i for i, name in enumerate(names) if name]
        ax.set_xticks(named, [names[i] for i in named], rotation=90, fontsize=6 if len(names) > 12 else 8)
        ax.set_xlim(-0.7, len(names) - 0.3)
        ax.set_title(title)
        if log:
            ax.set_yscale("log")
        if table[by].nunique() > 4:  # so many would hide points
            fig.legend(loc="outside right center")
        else:
            ax.legend()
    return fig


def similarity(
    table: pd.DataFrame, by: str = "method", rows: str = "client", columns: str = "other", title: str = ""
) -> Figure:
    """CKA as heat maps with one scale (SpecGradFilter Fig. 7): one panel per value of `by`, with the mean above.

    rows="client" takes a table of `cka.between_clients` with a single layer: the mean is over different clients.
    rows="layer" takes one of `cka.between_layers`: the mean is over layers with themselves, in different clients.

    >>> pairs = [{"client": i, "other": j, "value": 1.0 if i == j else 0.5} for i in range(2) for j in range(2)]
    >>> figure = fn.plots.similarity(pd.DataFrame(pairs).assign(method="FedAvg", measure="CKA"))
    >>> figure.axes[0].get_title().splitlines()
    ['FedAvg', 'mean 0.500']
    """
    if rows == "client" and "layer" in table and table["layer"].nunique() > 1:
        raise ValueError("the table has several layers; choose one, such as table[table['layer'] == '@penultimate']")
    maps = {value: _square(part, rows, columns) for value, part in table.groupby(by, sort=False)}
    low = min(float(np.nanmin(m.to_numpy())) for m in maps.values())
    with _style():
        side, labels = max(2.0, 0.16 * max(map(len, maps.values()))), 1.8 if rows == "layer" else 1.0
        fig, axes = _panels(len(maps), width=side + labels, height=side + labels + 0.4)
        for ax, (value, m) in zip(axes, maps.items(), strict=True):
            sns.heatmap(m, ax=ax, cmap=HEAT, vmin=low, vmax=1.0, square=True, cbar=False, xticklabels=1, yticklabels=1)
            ax.set(xlabel=f"{rows} (of another client)" if rows == "layer" else rows, ylabel=rows)
            ax.set_title(f"{value}\nmean {_mean(m, rows):.3f}")
            ax.tick_params("x", labelsize=6 if len(m) > 12 else 8, rotation=90 if rows == "layer" else 0)
            ax.tick_params("y", labelsize=6 if len(m) > 12 else 8, rotation=0)
        fig.colorbar(axes[-1].collections[0], ax=axes, label=", ".join(dict.fromkeys(table["measure"])), shrink=0.8)
        fig.suptitle(title, fontsize=11)
    return fig


def _square(part: pd.DataFrame, rows: str, columns: str) -> pd.DataFrame:
    """A table as a matrix, in the table's own order; means over runs and rounds."""
    names = list(dict.fromkeys(part[rows]))
    if rows == "client":
        names = sorted(names)
    return part.pivot_table(index=rows, columns=columns, values="value", dropna=False).reindex(names, columns=names)


def _mean(matrix: pd.DataFrame, rows: str) -> float:
    m = matrix.to_numpy()
    same = np.eye(len(m), dtype=bool)
    return float(np.nanmean(m[same] if rows == "layer" else m[~same]))


def profiles(table: pd.DataFrame, by: str = "method", title: str = "", log: bool = False) -> Figure:
    """The loss along one direction, the model in the middle: one curve per value of `by`, and the range over runs.

    >>> table = pd.DataFrame({"method": "FedAvg", "measure": "loss", "a": [-1.0, 0.0, 1.0], "value": [3.0, 1.0, 3.0]})
    >>> figure = fn.plots.profiles(table)
    >>> figure.axes[0].get_xlabel(), figure.axes[0].get_ylabel()
    ('step along the direction', 'loss')
    """
    with _style():
        fig, (ax,) = _panels(1, width=4.8)
        for i, (value, part) in enumerate(table.groupby(by, sort=False)):
            seen = part.groupby("a")["value"].agg(["mean", "min", "max"])
            ax.plot(seen.index, seen["mean"], **look(i), ms=3.5, lw=1.5, label=str(value))
            ax.fill_between(seen.index, seen["min"], seen["max"], color=look(i)["color"], alpha=0.15, lw=0)
        ax.axvline(0, color="0.4", lw=0.8, ls=":")
        ax.set(xlabel="step along the direction", ylabel=_measured(table), title=title)
        if log:
            ax.set_yscale("log")
        ax.legend(title=by)
    return fig


def contours(table: pd.DataFrame, by: str = "method", title: str = "", levels: int = 14) -> Figure:
    """The loss on a plane through the model as contours: one panel per value of `by`, the same levels in all.

    Levels grow as squares, as the loss does around a minimum: even distances between lines are an even bowl.

    >>> a, b = np.meshgrid([-1.0, 0.0, 1.0], [-1.0, 0.0, 1.0])
    >>> bowl = pd.DataFrame({"a": a.ravel(), "b": b.ravel(), "value": (a**2 + b**2).ravel()})
    >>> figure = fn.plots.contours(bowl.assign(method="FedAvg", measure="loss"))
    >>> figure.axes[0].get_title()
    'FedAvg'
    """
    grids, scale = _planes(table, by)
    at = scale.inverse(np.linspace(0, 1, levels))
    with _style():
        fig, axes = _panels(len(grids), width=3.3, height=3.2, sharex=True, sharey=True)
        for i, (ax, (value, grid)) in enumerate(zip(axes, grids.items(), strict=True)):
            x, y = np.meshgrid(grid.index, grid.columns, indexing="ij")
            filled = ax.contourf(x, y, grid, levels=at, norm=scale, cmap=HEAT)
            ax.contour(x, y, grid, levels=at, colors="white", linewidths=0.5, alpha=0.7)
            ax.scatter([0], [0], color="white", edgecolor="black", marker="*", s=90, zorder=4)
            ax.set(title=str(value), xlabel="first direction", ylabel="" if i else "second direction", aspect="equal")
            ax.grid(False)
        fig.colorbar(filled, ax=axes, label=_measured(table), format="%.3g")
        fig.suptitle(title, fontsize=11)
    return fig


def surfaces(table: pd.DataFrame, by: str = "method", title: str = "") -> Figure:
    """The loss on a plane through the model as surfaces (FedFFT Fig. 7): one panel per value of `by`, one scale.

    >>> a, b = np.meshgrid([-1.0, 0.0, 1.0], [-1.0, 0.0, 1.0])
    >>> bowl = pd.DataFrame({"a": a.ravel(), "b": b.ravel(), "value": (a**2 + b**2).ravel()})
    >>> figure = fn.plots.surfaces(bowl.assign(method="FedAvg", measure="loss"))
    >>> figure.axes[0].get_title()
    'FedAvg'
    """
    grids, scale = _planes(table, by)
    with _style():
        fig, axes = _panels(len(grids), width=3.8, height=3.6, subplot_kw={"projection": "3d"})
        for ax, (value, grid) in zip(axes, grids.items(), strict=True):
            x, y = np.meshgrid(grid.index, grid.columns, indexing="ij")
            drawn = ax.plot_surface(x, y, grid.to_numpy(), norm=scale, cmap=HEAT, rstride=1, cstride=1, lw=0.2,
                                    edgecolor=(1, 1, 1, 0.3))  # fmt: skip
            ax.set(xlabel="first direction", ylabel="second direction", zlim=(scale.vmin, scale.vmax))
            ax.set_title(str(value), y=0.95)
            ax.tick_params(labelsize=6, pad=0)
            ax.locator_params(nbins=5)
            ax.set_box_aspect((1, 1, 0.8), zoom=0.84)
        fig.colorbar(drawn, ax=axes, label=_measured(table), shrink=0.7, pad=0.04)
        fig.suptitle(title, fontsize=11)
    return fig


def _planes(table: pd.DataFrame, by: str) -> tuple[dict[Any, pd.DataFrame], PowerNorm]:
    """Each group's mean surface, first direction down, and the colour scale that all of them share."""
    grids = {
        value: part.pivot_table(index="a", columns="b", values="value") for value, part in table.groupby(by, sort=False)
    }
    values = np.concatenate([grid.to_numpy().ravel() for grid in grids.values()])
    low, high = float(values[np.isfinite(values)].min()), float(values[np.isfinite(values)].max())
    return grids, PowerNorm(0.5, low, high if high > low else low + 1.0)  # a flat surface still has a scale


def _measured(table: pd.DataFrame) -> str:
    return {"rise": "rise of the loss"}.get(name := str(table["measure"].iloc[0]), name)
