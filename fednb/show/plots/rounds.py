"""A quantity by round: curves of several methods in one panel, or what each of them is above one of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fednb.show.plots.panels import Panel, _labelled_panels, _legend, _name_ends, _parts, _several
from fednb.show.plots.style import _panels, _show_covered, _style, look

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FEW = 3  # curves of a panel whose ranges can be told apart, and for which a legend is near enough
SMALL = {"width": 2.5, "height": 2.1}  # inches of a panel with one method


def curves(
    histories: pd.DataFrame, y: str = "accuracy", by: str = "method", ylabel: str = "", panel: Panel = "",
    dashed: str = "", log: bool = False, base: str = "",
) -> Figure:  # fmt: skip
    """A quantity by round, one curve per value of `by`: the mean over seeds, and the range where there are several.

    Up to three curves of a panel have a range and stand in a legend; more are named where they end, without a range.
    panel: a column or several; one panel for each of their values. Columns that are not there are passed over. dashed:
    how names end that are drawn dashed, with colour and marker of the name without it. base: one of the values of
    `by`; drawn is what the others are above it in the same round with the same seed, in a small panel each, all on one
    scale, with a curve and its range for each value of `panel`.

    >>> runs = pd.DataFrame({"method": "FedAvg", "round": [0, 1, 2], "accuracy": [10.0, 40.0, 60.0], "seed": 0})
    >>> figure = fn.plots.curves(runs, ylabel="accuracy, percent")
    >>> figure.axes[0].get_xlabel(), figure.axes[0].get_ylabel()
    ('round', 'accuracy, percent')
    >>> both = pd.concat([runs, runs.assign(method="FedSAM", accuracy=[11.0, 43.0, 60.0])])
    >>> fn.plots.curves(both, base="FedAvg").axes[0].lines[0].get_ydata().tolist()
    [1.0, 3.0, 0.0]
    """
    known = histories.dropna(subset=[y])
    if base:
        return _above(known, y, by, ylabel or f"{y} above {base}'s", _several(panel), base)
    parts = list(_parts(known, *_several(panel)))
    names = list(dict.fromkeys(str(value).removesuffix(dashed) for value in histories[by]))
    most = max(part[by].nunique() for _, part in parts)
    beside = [str(value) for value in known[by].unique()] if most > FEW else []
    with _style():
        fig, axes = _labelled_panels(len(parts), beside)
        for ax, (title, shown) in zip(axes, parts, strict=True):
            for value, part in shown.groupby(by, sort=False):
                how = look(names.index(str(value).removesuffix(dashed)))
                how |= {"ls": "--"} if dashed and str(value).endswith(dashed) else {}
                _curve(ax, part, y, str(value), how, ranged=most <= FEW)
            ax.set(xlabel="round", ylabel=ylabel or y, title=title, yscale="log" if log else "linear")
            ax.xaxis.get_major_locator().set_params(integer=True)
            _show_covered(ax, ax.lines)
            if beside:
                _name_ends(ax, {str(line.get_label()): line for line in ax.lines}, beside)
        if not beside:
            _legend(fig, axes, by)
    return fig


def _curve(ax: Axes, part: pd.DataFrame, y: str, name: str, how: dict[str, Any], ranged: bool) -> None:
    """The mean over seeds by round, counted from 1, and their range."""
    seen = part.groupby("round")[y].agg(["mean", "min", "max"])
    every = max(1, len(seen) // 8)
    first = len(ax.lines) % every  # each curve has its markers in other rounds: none hides all of another's
    ax.plot(seen.index + 1, seen["mean"], **how, ms=3.5, lw=1.5, markevery=(first, every), label=name)
    if ranged:
        ax.fill_between(seen.index + 1, seen["min"], seen["max"], color=how["color"], alpha=0.15, lw=0)


def _above(table: pd.DataFrame, y: str, by: str, ylabel: str, panel: tuple[str, ...], base: str) -> Figure:
    """What each value of `by` is above one of them, round by round with the same seed: a small panel for each."""
    same = [c for c in (*panel, "seed", "round") if c in table]
    theirs = table.loc[table[by] == base, [*same, y]]
    if theirs.empty:
        raise ValueError(f"base {base!r}: must be one of {', '.join(dict.fromkeys(map(str, table[by])))}")
    both = table[table[by] != base].merge(theirs, on=same, suffixes=("", " of the base"))
    both[y] -= both[f"{y} of the base"]
    names, settings = list(dict.fromkeys(both[by])), list(_parts(both, *panel))
    row = min(range(3, 6), key=lambda n: (-len(names) % n, -n)) if len(names) > 4 else 4  # fewest places left empty
    with _style():
        fig, axes = _panels(max(1, len(names)), **SMALL, row=row, sharex=True, sharey=True)
        if not names:  # a table of which only a part is run
            axes[0].set(title=f"nothing yet to set beside {base}", xlabel="round", ylabel=ylabel)
        for i, (ax, name) in enumerate(zip(axes[: len(names)], names, strict=True)):
            for j, (setting, part) in enumerate(settings):
                _curve(ax, part[part[by] == name], y, setting, look(j), ranged=True)
            ax.axhline(0, color="0.4", lw=0.8, zorder=1)
            ax.set_title(str(name), fontsize=8)
            ax.set_ylabel("" if i % row else ylabel)
            if i + row >= len(names):  # nothing is below it
                ax.set_xlabel("round")
                ax.tick_params("x", labelbottom=True)
            ax.xaxis.get_major_locator().set_params(integer=True)
        if len(settings) > 1:
            _legend(fig, axes, "")
    return fig
