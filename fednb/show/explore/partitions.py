"""Who has what: a partition's heat map, its sizes, and how far each client is from all clients together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import ipywidgets as w
import numpy as np

from fednb.data import sources
from fednb.data.partition import NAMES, FeatureShift, Natural, Partition, counts
from fednb.engines.problem import clients_of, data_of
from fednb.engines.setting import Setting
from fednb.metrics.skew import classes_for, distances
from fednb.show.explore.beforehand import move
from fednb.show.explore.frame import CannotDraw, Explorer, Values, slim
from fednb.show.explore.moves import Move
from fednb.show.explore.panes import DPI

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST = 10_000  # samples of a large data set that are dealt: more would make sliders slow, and look the same
START: dict[str, Values] = {
    "smoke": {"data": "digits", "clients": 20},
    "laptop": {"data": "fashion-mnist", "clients": 20},
    "paper": {"data": "cifar10", "clients": 100},
}
OWN = ("alpha", "classes", "minimum", "target", "quirk")  # fields of partitions that have a control
PLACES = (  # left, bottom, width, height of: heat map, colour scale, the whole, sizes, distances
    (0.075, 0.1, 0.4, 0.66), (0.484, 0.1, 0.013, 0.66), (0.075, 0.79, 0.4, 0.13), (0.58, 0.1, 0.18, 0.66),
    (0.8, 0.1, 0.18, 0.66),
)  # fmt: skip
SAMPLES, SHARES = "samples", "share of the client's samples"
GAMMA = 0.4  # colours by value ** GAMMA: a hundredth of the largest value is still not the colour of none

Order = Callable[[np.ndarray], np.ndarray]
ORDERS: dict[str, Order] = {  # clients [N, C] as the eye wants them
    "as dealt": lambda table: np.arange(len(table)),
    "largest class": lambda table: np.lexsort((-table.max(1) / table.sum(1), table.argmax(1))),
    "size": lambda table: np.argsort(-table.sum(1), kind="stable"),
    "distance": lambda table: np.argsort(-distances(table), kind="stable"),
}


@dataclass(frozen=True, eq=False)
class Dealt:
    """A data set in the hands of its clients. table: samples of each class at each client, `[clients, classes]`."""

    table: np.ndarray
    samples: int  # that were there to be dealt
    held: int  # of them in anybody's hands
    largest: float  # of them in the largest class


@lru_cache(maxsize=64)
def deal(data: str, partition: Partition, clients: int, seed: int) -> Dealt:
    """A partition of a data set, or of `MOST` samples of a large one."""
    whole = sources.load(data)
    some = None if isinstance(partition, Natural) or len(whole.y) <= MOST else MOST  # a writer keeps all it wrote
    setting = Setting(data=data, partition=partition, clients=clients, samples=some)
    parts = clients_of(setting, seed, data_of(setting))
    table = counts(whole.y.numpy(), parts, whole.classes)
    samples = some or len(whole.y)
    largest = samples * whole.y.bincount().max().item() / len(whole.y)
    return Dealt(table, samples, len(np.unique(np.concatenate(parts))), largest)


class Partitions(Explorer):
    """Kind, skew and number of clients on the left; the heat map of what they hold follows."""

    title = "Who has what"

    def __init__(
        self, data: str = "digits", kind: str = "dirichlet", alpha: float = 0.1, clients: int = 20, seed: int = 0
    ) -> None:
        super().__init__(_controls(data, kind, alpha, clients, seed))
        self.sheet = Sheet()
        self._fit()

    @classmethod
    def at(cls, scale: str, **chosen: Any) -> Partitions:
        """With the data set and the number of clients of a scale."""
        return cls(**START[scale] | chosen)

    def draw(self, **values: Any) -> tuple[Figure, str]:
        partition = partition_of(values)
        try:
            seen = deal(values["data"], partition, values["clients"], values["seed"])
        except (ValueError, OSError) as error:  # no such split, or no such data: both say the way out
            raise CannotDraw(str(error)) from error
        order = ORDERS[values["order"]](seen.table)
        title = f"{values['data']}, {partition}, {values['clients']} clients"
        return self.sheet.show(seen, order, values["shown"], title), words(seen, partition)

    def stills(self) -> list[Values]:
        return [
            {"kind": "iid"},
            {"kind": "dirichlet", "alpha": 1.0},
            {"kind": "dirichlet", "alpha": 0.1},
            {"kind": "pathological", "classes": 2, "order": "largest class"},
            {"kind": "dirichlet-client", "alpha": 0.1, "clients": 100, "order": "largest class"},
            {"kind": "natural", "data": "femnist-made", "order": "size"},
        ]

    def moves(self) -> list[Move]:
        """The kind, how skewed it is, and the number of clients."""
        return [
            move(self, "kind", ["dirichlet", "dirichlet-client", "pathological", "iid"]),
            move(self, "alpha", [0.1, 0.3, 1.0, 10.0, 100.0]),
            move(self, "classes", [1, 2, 3, 5]),
            move(self, "clients", sorted({10, 20, 50, 100, self.controls["clients"].value})),
        ]

    def matters(self, values: Values) -> set[str]:
        """All but the fields that other kinds of partitions have."""
        known = {f.name for f in fields(NAMES[values["kind"]])}
        return {name for name in values if name not in OWN or name in known}

    def refresh(self) -> None:
        self._fit()
        super().refresh()

    def _fit(self) -> None:
        """Show the controls that the kind has a field for, and offer no more classes than the data has."""
        shown = self.matters(self.values)
        for name in OWN:
            self.controls[name].layout.display = None if name in shown else "none"
        try:
            whole = sources.load(self.controls["data"].value)
        except (ValueError, OSError):
            return  # `draw` says what is wrong
        before, self._quiet = self._quiet, True  # a value that falls with its bound makes no picture of its own
        self.controls["classes"].max = whole.classes  # type: ignore[attr-defined]
        self.controls["target"].max = int(whole.owner.max()) if whole.owner is not None else 0  # type: ignore[attr-defined]
        self._quiet = before


def partition_of(values: Values) -> Partition:
    """The partition that the controls say: of the chosen kind, with the fields that it has."""
    kind = NAMES[values["kind"]]
    return kind(**{f.name: values[f.name] for f in fields(kind) if f.name in OWN})


def words(seen: Dealt, partition: Partition) -> str:
    """The sizes, classes and skew of the clients, as a line under the picture."""
    sizes, away = seen.table.sum(1), distances(seen.table)
    said = [
        f"<b>Mean distance {away.mean():.3f}</b> to the classes of all clients together "
        f"(total variation, from {away.min():.3f} to {away.max():.3f}).",
        f"{len(sizes)} clients hold {sizes.min():,} to {sizes.max():,} samples; "
        f"{classes_for(seen.table):.1f} classes make up 90% of what one has.",
        f"{seen.held:,} of {seen.samples:,} samples are dealt" + _several(int(sizes.sum()), seen.held) + ".",
    ]
    if isinstance(partition, FeatureShift):
        said.append("Labels are dealt evenly here: what differs is how each client's images are corrupted.")
    return f"<p>{' '.join(said)}</p>"


def _several(total: int, held: int) -> str:
    return f", and {total - held:,} times one went to a client more" if total > held else ", each to one client"


class Sheet:
    """The figure, made once: what clients hold, how much, how far each is from the whole; above, the whole itself.

    Clients go down, classes across. New tables move what is there, which is several times as fast as a new figure.
    """

    def __init__(self) -> None:
        from matplotlib.colors import PowerNorm
        from matplotlib.figure import Figure

        from fednb.show.plots.style import HEAT, _style, look

        with _style():
            self.figure = Figure(figsize=(9.2, 5.4), dpi=DPI)
            self.title = self.figure.text(0.075, 0.955, "", fontsize=11)
            self.heat, self.scale, self.whole, self.sizes, self.away = map(self.figure.add_axes, PLACES)
            self.norm = PowerNorm(GAMMA, 0, 1)
            how: dict[str, Any] = {"aspect": "auto", "cmap": HEAT, "norm": self.norm}
            self.cells = self.heat.imshow([[0.0]], interpolation="nearest", **how)
            self.shades = self.scale.imshow([[0.0]], **how)
            self.totals = self.whole.stairs([1.0], fill=True, color="0.55")
            bars: dict[str, Any] = {"orientation": "horizontal", "fill": True}
            self.bars = [ax.stairs([1.0], color=look(i)["color"], **bars) for i, ax in enumerate(self._beside)]
            self.means = [ax.axvline(0, color="black", lw=1.2, ls="--") for ax in self._beside]
        self._furnish()

    @property
    def _beside(self) -> tuple[Axes, Axes]:
        return self.sizes, self.away

    def _furnish(self) -> None:
        """Draw titles, labels and axes, which no control changes."""
        self.heat.set(xlabel="class", ylabel="client")
        self.whole.set(xticks=[], ylabel="all")
        self.sizes.set(xlabel="samples")
        self.away.set(xlabel="distance to the whole", xlim=(0, 1), xticks=[0, 0.5, 1])
        self.scale.set(xticks=[])
        self.scale.yaxis.tick_right()
        for ax in self.figure.axes:
            ax.grid(visible=ax in self._beside, axis="x")
            ax.grid(visible=False, axis="y")
        for ax in (self.whole, self.scale):
            ax.locator_params("y", nbins=2 if ax is self.whole else 5)
        self.sizes.locator_params("x", nbins=3)

    def show(self, seen: Dealt, order: np.ndarray, shown: str, title: str) -> Figure:
        """What the clients hold, in this order from the top."""
        table = seen.table[order]
        n, classes = table.shape
        self.title.set_text(title)
        self._colours(table, shown, seen.largest)
        self.totals.set_data(table.sum(0), np.arange(classes + 1) - 0.5)
        self.whole.set(xlim=(-0.5, classes - 0.5), ylim=(0, 1.1 * table.sum(0).max()))
        for ax, bar, mean, values in zip(
            self._beside, self.bars, self.means, (table.sum(1), distances(table)), strict=True
        ):
            bar.set_data(values, np.arange(n + 1) - 0.5)
            mean.set_xdata([values.mean()] * 2)
            ax.set_title(f"mean {values.mean():.3g}", fontweight="normal", fontsize=9)
        self.sizes.set_xlim(0, 1.05 * table.sum(1).max())
        self._name(order, classes)
        return self.figure

    def _colours(self, table: np.ndarray, shown: str, largest: float) -> None:
        """One scale for all partitions of a data set: up to all samples of its largest class, or to a share of 1."""
        n, classes = table.shape
        values, top = (table / table.sum(1, keepdims=True), 1.0) if shown == SHARES else (table, largest)
        self.norm.vmax = top
        self.cells.set_data(values)
        self.cells.set_extent((-0.5, classes - 0.5, n - 0.5, -0.5))
        self.shades.set_data(np.linspace(top, 0, 256)[:, None])
        self.shades.set_extent((0, 1, 0, top))
        self.scale.set_title(shown.split()[0], fontsize=8, fontweight="normal", loc="left")

    def _name(self, order: np.ndarray, classes: int) -> None:
        """At most ten names of clients and of classes: those of a sorted picture are out of order."""
        at, across = (np.arange(0, n, -(-n // 10)) for n in (len(order), classes))
        self.heat.set_yticks(at, [str(order[i]) for i in at])
        self.heat.set_xticks(across)
        for ax in self._beside:
            ax.set(ylim=(len(order) - 0.5, -0.5), yticks=[])


def _controls(data: str, kind: str, alpha: float, clients: int, seed: int) -> dict[str, w.ValueWidget]:
    here = [name for name in sources.names() if sources.available(name)]
    return {
        "data": w.Dropdown(options=list(dict.fromkeys([*here, data])), value=data, **slim("data")),
        "kind": w.Dropdown(options=list(NAMES), value=kind, **slim("kind")),
        "alpha": w.FloatLogSlider(value=alpha, min=-2, max=2, step=0.1, readout_format=".3g", **slim("alpha")),
        "classes": w.IntSlider(value=2, min=1, max=10, **slim("classes")),
        "minimum": w.IntSlider(value=1, min=1, max=50, **slim("minimum")),
        "target": w.IntSlider(value=0, min=0, max=0, **slim("target")),
        "quirk": w.Checkbox(value=False, **slim("first class never drawn")),
        "clients": w.IntSlider(value=clients, min=2, max=100, **slim("clients")),
        "seed": w.BoundedIntText(value=seed, min=0, max=999, **slim("seed")),
        "order": w.Dropdown(options=list(ORDERS), **slim("order")),
        "shown": w.Dropdown(options=[SAMPLES, SHARES], **slim("colour")),
    }
