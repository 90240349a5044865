"""Explorer b: any filter on any layer of a stored probe, or on a signal drawn by hand."""

from __future__ import annotations

import inspect
import re
from dataclasses import fields
from functools import lru_cache
from html import escape
from itertools import permutations
from math import log10
from typing import Any

import ipywidgets as w
import numpy as np
import torch
from torch import Tensor

from fednb import filters
from fednb.engines.objective import one_thread
from fednb.filters import Filter, Permuted
from fednb.runs.probes import AFTER, BEFORE, GLOBAL
from fednb.show.explore.beforehand import move
from fednb.show.explore.filters_scene import Scene, Seen
from fednb.show.explore.frame import CannotDraw, Explorer, Values, offer, slim
from fednb.show.explore.moves import Move
from fednb.show.explore.signals import HAND, PRESETS, SHAPES, drawn, preset
from fednb.show.explore.stored import Stored, first_set, stored

LAYER = "a layer of a probe"
STORED = ("run", "round", "what", "client", "layer")
BIG = 1e3  # long enough for filters that leave short vectors alone to show that they are not linear


def kinds() -> dict[str, type[Filter]]:
    """Every filter of fednb.filters by its name, in the order in which it lists them."""
    there = (cls for name, cls in vars(filters).items() if inspect.isclass(cls) and not name.startswith("_"))
    return {cls.__name__: cls for cls in there if issubclass(cls, Filter) and cls is not Filter}


def inner() -> dict[str, type[Filter]]:
    """The filters that Permuted and NormMatched can hold: of one flat layer, without a filter inside."""
    return {name: cls for name, cls in kinds().items() if cls.flat and not cls.whole}


def sees_shape(kind: str) -> bool:
    """Whether the layer's shape matters to a filter; NormMatched hands it on to one that is flat here."""
    return not kinds()[kind].flat and kind != "NormMatched"


def parameters(kind: type[Filter], inside: str) -> list[str]:
    """The fields of a filter that have a control, with those of the filter inside it. Layers are chosen elsewhere."""
    own = [f.name for f in fields(kind) if f.name != "where"]
    return own + [name for name in parameters(inner()[inside], inside) if name not in own] if "filter" in own else own


def built(kind: str, values: Values) -> Filter:
    """The filter that the controls describe."""
    cls = kinds()[kind]
    names = [f.name for f in fields(cls) if f.name != "where"]
    given = {name: _rounded(values[name]) for name in names if name != "filter"}
    return cls(**given | ({"filter": built(values["filter"], values)} if "filter" in names else {}))


def _rounded(value: Any) -> Any:
    """What a slider says, in three digits."""
    return float(f"{value:.3g}") if isinstance(value, float) else value


def linear(filter: Filter, n: int, shape: tuple[int, ...], dtype: torch.dtype = torch.float64) -> bool:
    """Whether Φ(a + b) = Φ(a) + Φ(b), for two vectors drawn at random."""
    a, b = BIG * torch.randn(2, n, generator=torch.Generator().manual_seed(0), dtype=dtype)
    both, one, other = filter(torch.stack([a + b, a, b]), shape)
    return bool((both - one - other).norm() <= 1e-3 * both.norm())


@lru_cache(maxsize=64)
@one_thread()
def response(
    filter: Filter, n: int, shape: tuple[int, ...], dtype: torch.dtype = torch.float64
) -> tuple[np.ndarray | None, np.ndarray | None]:
    """What becomes of a single 1 in the middle, where the filter is linear; and its gain at each frequency.

    There is a gain where the next weight's 1 becomes the same, one weight along: then the filter is a convolution.
    """
    if not linear(filter, n, shape, dtype):
        return None, None
    ones = torch.zeros(2, n, dtype=dtype)
    ones[0, n // 2] = ones[1, (n // 2 + 1) % n] = 1
    here, next_ = filter(ones, shape)
    same = torch.allclose(here.roll(1), next_, atol=1e-4)
    return here.numpy(), torch.fft.rfft(here).abs().numpy() if same else None


@one_thread()
def look(filter: Filter, x: Tensor, shape: tuple[int, ...]) -> Seen:
    """A signal `[n]` of a layer of this shape behind a filter, and what there is to know about the filter."""
    y = filter(x, shape)
    before, after = (torch.fft.rfft(_ordered(filter, z, shape).double(), norm="ortho").abs().numpy() for z in (x, y))
    return Seen(x.numpy(), y.numpy(), before, after, *response(filter, len(x), shape, x.dtype))


def _ordered(filter: Filter, x: Tensor, shape: tuple[int, ...]) -> Tensor:
    """In the order in which the filter sees the weights."""
    if not (isinstance(filter, Permuted) and order_of(filter, shape)):
        return x
    return x[filter.permutation(len(x), shape)]


def order_of(filter: Filter, shape: tuple[int, ...]) -> str:
    """The name of that order, where it is not the layer's own."""
    reorders = isinstance(filter, Permuted) and (filter.order == "random" or len(shape) == 4)
    return filter.order if reorders else ""  # type: ignore[attr-defined]


def _controls(found: list[Stored]) -> dict[str, w.ValueWidget]:
    """Where the signal comes from, then the filter, then a control for every field that any filter has."""
    return {
        "source": w.Dropdown(options=[*PRESETS, HAND, LAYER], **slim("signal")),
        "shape": w.Dropdown(options=list(SHAPES), **slim("taken as")),
        "run": w.Dropdown(options=[(s.title, s.key) for s in found], **slim("run")),
        "round": w.SelectionSlider(options=[0], **slim("round")),
        "what": w.Dropdown(**slim("vector")),
        "client": w.Dropdown(**slim("client")),
        "layer": w.Dropdown(**slim("layer")),
        "kind": w.Dropdown(options=list(kinds()), **slim("filter")),
        "filter": w.Dropdown(options=list(inner()), **slim("of filter")),
        "ratio": _logarithmic("ratio", 0.05, least=5e-4, most=1),
        "kernel": w.IntSlider(value=17, min=3, max=129, step=2, **slim("kernel")),
        "sigma": _logarithmic("sigma", 5.3, least=0.53, most=53),
        "truncate": w.FloatSlider(value=4.0, min=0.5, max=8, step=0.5, **slim("truncate")),
        "order": w.Dropdown(options=["3210", *(o for o in _orders() if o != "3210"), "random"], **slim("order")),
        "seed": w.BoundedIntText(value=0, min=0, max=999, **slim("seed")),
        "radius": _logarithmic("radius", 0.1, least=1e-3, most=100),
        "per": w.Dropdown(options=["model", "layer"], **slim("per")),
        "factor": w.FloatSlider(value=3.0, min=0.1, max=10, step=0.1, **slim("factor")),
    }


def _logarithmic(name: str, value: float, least: float, most: float) -> w.FloatLogSlider:
    """A slider of powers of ten in hundredths, from a least value that lies a whole number of them below `value`."""
    return w.FloatLogSlider(
        value=value, base=10, min=log10(least), max=log10(most), step=0.02, readout_format=".3g", **slim(name)
    )


def _orders() -> list[str]:
    return ["".join(axes) for axes in permutations("0123")]


def _hand() -> dict[str, w.ValueWidget]:
    """Points of a signal to draw: a row of small upright sliders."""
    start = (0.2, 0.8, 0.5, -0.3, -0.6, 0.1, 0.9, 0.4, -0.2)  # two waves
    small = w.Layout(width="30px", height="130px")
    upright: dict[str, Any] = dict(min=-1, max=1, step=0.05, orientation="vertical", readout=False, layout=small)
    return {
        f"point{i}": w.FloatSlider(value=y, description=str(i), tooltip=f"point {i} of the signal", **upright)
        for i, y in enumerate(start, 1)
    }


class Filters(Explorer):
    """A signal, a filter, and what the filter makes of it."""

    title = "Filters: input, spectrum, output"

    def __init__(self, scale: str = "smoke", device: str = "auto") -> None:
        self.first = first_set(scale, device=device)
        self.found = [s for s in stored() if _vectors(s, s.rounds[0])]
        self.scene = Scene()
        super().__init__(_controls(self.found) | _hand())
        self.points = w.VBox(
            [w.HTML("Draw: each slider is a point of the signal."), w.HBox([self.controls[p] for p in _hand()])]
        )
        self._quiet = True
        self.controls["run"].value = self.first[0].key
        self._fit()
        self._quiet = False

    def beside(self) -> list[w.Widget]:
        places = [control for name, control in self.controls.items() if not name.startswith("point")]
        return [*places[:2], self.points, *places[2:]]

    def stills(self) -> list[Values]:
        """One signal behind six filters, and a layer of a probe in two orders."""
        conv = next(name for name, shape in _shapes(self.first[0]).items() if len(shape) == 4 and np.prod(shape) > 200)
        real = {"source": LAYER, "layer": conv, "ratio": 0.2, "filter": "HighPass"}
        several = ("HighPass", "LowPass", "LocalAverage", "GaussianDetrend", "RandomBand", "ClipToMedian")
        return [*({"kind": kind} for kind in several), real | {"kind": "HighPass"}, real | {"kind": "Permuted"}]

    def moves(self) -> list[Move]:
        """A made signal, a filter, and how strong it is."""
        return [
            move(self, "source", ["trend and noise", "step", "sine mix"]),
            move(
                self, "kind", ["HighPass", "LowPass", "RandomBand", "LocalAverage", "GaussianDetrend", "ClipToMedian"]
            ),
            move(self, "ratio", [0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5]),
            move(self, "kernel", [3, 9, 17, 33, 65, 129]),
            move(self, "sigma", [0.53, 1.5, 5.3, 15.0, 53.0]),
            move(self, "factor", [0.5, 1.0, 2.0, 3.0]),
        ]

    def matters(self, values: Values) -> set[str]:
        """Signal and filter, the filter's own fields, and where a layer or a shape is asked for, these."""
        kind, source = values["kind"], values["source"]
        shape = ("shape",) if sees_shape(kind) else ()
        points = [name for name in values if name.startswith("point")] if source == HAND else []
        used = parameters(kinds()[kind], values["filter"])
        return {"source", "kind", *points, *used, *(STORED if source == LAYER else shape)}

    def _changed(self, change: Any) -> None:
        if not self._quiet:
            with self.together():
                self._fit()

    def _fit(self) -> None:
        """Offer what the chosen run has, and show the controls that matter now."""
        mine = self._run(self.controls["run"].value)
        offer(self.controls["round"], [(str(t + 1), t) for t in mine.rounds])
        t = self.controls["round"].value
        offer(self.controls["what"], [(name, name) for name in _vectors(mine, t)])
        offer(self.controls["client"], [(str(i), i) for i in mine.probed(t).clients])
        offer(self.controls["layer"], [(f"{name} {list(shape)}", name) for name, shape in _shapes(mine).items()])
        shown = self.matters(self.values)
        for name, control in self.controls.items():
            if not name.startswith("point"):
                control.layout.display = None if name in shown else "none"
        self.points.layout.display = None if "point1" in shown else "none"

    def _run(self, key: str) -> Stored:
        return next(s for s in self.found if s.key == key)

    def signal(self, values: Values) -> tuple[Tensor, tuple[int, ...], str]:
        """The chosen signal, the shape of its layer, and its name."""
        source = values["source"]
        if source != LAYER:
            made = drawn([values[p] for p in values if p.startswith("point")]) if source == HAND else preset(source)
            return torch.from_numpy(made), SHAPES[values["shape"]], source
        kept = self._run(values["run"]).probed(values["round"])
        rows = kept.vectors[values["what"]]
        row = rows[kept.clients.index(values["client"]) if len(rows) > 1 else 0]
        shape = _shapes(self._run(values["run"]))[values["layer"]]
        whose = f" of client {values['client']}" if len(rows) > 1 else ""
        return kept.layout.layers(row)[values["layer"]], shape, f"{values['what']}{whose}, {values['layer']}"

    def draw(self, **values: Any) -> tuple[bytes, str]:
        x, shape, name = self.signal(values)
        if not x.any():
            raise CannotDraw(f"{name} is zero everywhere: draw something, or choose another method's run or vector.")
        filter = built(values["kind"], values)
        seen = look(filter, x, shape)
        order = order_of(filter, shape)
        shown = self.scene.show(seen, f"{name} → {filter.short}", f" in order {order}" if order else "")
        return shown, _words(filter, seen)


def _shapes(mine: Stored) -> dict[str, tuple[int, ...]]:
    layout = mine.probed(mine.rounds[0]).layout
    return dict(zip(layout.names, layout.shapes, strict=True))


def _vectors(mine: Stored, t: int) -> list[str]:
    """What was kept of whole models, by name."""
    kept = mine.probed(t)
    return [name for name in (*BEFORE[::-1], *AFTER, GLOBAL) if name in kept.vectors]


def _words(filter: Filter, seen: Seen) -> str:
    """The filter as code, what it is, and what it did to the signal's length."""
    before, after = (float(np.linalg.norm(v.astype(float))) for v in (seen.x, seen.y))
    about = re.sub("`(.+?)`", r"<code>\1</code>", escape((inspect.getdoc(filter) or "").splitlines()[0]))
    cosine = float(seen.x.astype(float) @ seen.y.astype(float) / (before * after)) if after else 0.0
    code = repr(filter).replace("where='*', ", "").replace(", where='*'", "").replace("where='*'", "")
    return (
        f"<p style='line-height: 1.4'><code>{escape(code)}</code><br>{about}</p>"
        f"<p style='line-height: 1.4'>Length {before:.4g} → {after:.4g}, cosine between input and output {cosine:.4f}. "
        f"What it took has length {float(np.linalg.norm(seen.x - seen.y)):.4g}.</p>"
    )
