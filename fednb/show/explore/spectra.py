"""Explorer a: spectra of what clients see, and what is left of it behind a cut."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import ipywidgets as w

from fednb.metrics.drift import WHOLE
from fednb.show.explore.beforehand import move
from fednb.show.explore.collect import Collector
from fednb.show.explore.cutline import CutLine
from fednb.show.explore.frame import CannotDraw, Explorer, Values, offer, slim
from fednb.show.explore.later import Later
from fednb.show.explore.look import Look, Losses
from fednb.show.explore.moves import Move
from fednb.show.explore.spectra_scene import TOP, Scene
from fednb.show.explore.spectra_words import Effect
from fednb.show.explore.stored import ALPHAS, METHODS, NEEDED, Stored, first_set, stored

CHOICES: dict[str, Callable[[Stored], tuple[str, Any]]] = {  # label and value of a run, from the first choice down
    "data": lambda s: (s.data, s.data),
    "alpha": lambda s: (s.alpha, s.alpha),
    "method": lambda s: (s.method, s.method),
    "run": lambda s: (s.label, s.key),
}
CUTS = (0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 1.0)  # drawn beforehand for a page without a kernel
LABELS = {"data": "data set", "alpha": "alpha", "method": "method", "run": "run"}


class Spectra(Explorer):
    """Perturbations and gradients of clients by frequency; a cut to drag, and at once what it does to them."""

    title = "Spectra: what is left of the clients' perturbations behind a cut"

    def __init__(
        self, scale: str = "smoke", alphas: Sequence[float] = ALPHAS, methods: Sequence[str] = METHODS,
        ratio: float = 0.05, device: str = "auto",
    ) -> None:  # fmt: skip
        self.device, self.patient = device, True
        self.first = first_set(scale, alphas, methods, device)
        self.found = stored(*NEEDED)
        self.scene, self.later = Scene(), Later()
        controls: dict[str, w.ValueWidget] = {name: w.Dropdown(**slim(label)) for name, label in LABELS.items()}
        controls |= {
            "round": w.SelectionSlider(options=[0], **slim("round")),
            "layer": w.Dropdown(**slim("layer")),
            "one": w.Dropdown(**slim("client")),
            "other": w.Dropdown(**slim("and client")),
            "ratio": w.BoundedFloatText(value=ratio, min=0, max=1, step=0.01, **slim("cut ratio r")),
        }
        super().__init__(controls)
        self.line = CutLine(self.picture, controls["ratio"], TOP, "fednb-cut")
        self.collector = Collector(scale, self._collected, alphas, device)
        self._quiet = True
        self.choose(self.first[0].key)
        self._quiet = False

    def beside(self) -> list[w.Widget]:
        return [*self.controls.values(), self.collector.view()]

    def seen(self) -> list[w.Widget]:
        self.patient = False  # somebody moves controls: slow losses come when they come
        return [self.line.box, self.words]

    def stills(self) -> list[Values]:
        """Three cuts through one round, and the other runs of the first set at the first of them."""
        ratios = [{"ratio": ratio} for ratio in (0.0, 0.05, 0.3)]
        return [*ratios, *({"run": s.key} for s in self.first[1:])]

    def moves(self) -> list[Move]:
        """The runs of the first set, the cut, and the whole model or its longest layer."""
        layout = self.first[0].probed(self.first[0].rounds[0]).layout
        longest = max(zip(layout.sizes, layout.names, strict=True))[1]
        names = {s.key: f"α {s.alpha}, {s.method}" for s in self.first}
        return [
            move(self, "run", list(names), names.__getitem__),
            move(self, "layer", [WHOLE, longest]),
            move(self, "ratio", CUTS),
        ]

    def choose(self, key: str) -> None:
        """Set the choices to this run, and offer what there is beside it."""
        (mine,) = (s for s in self.found if s.key == key)
        for name, of in CHOICES.items():
            offer(self.controls[name], dict.fromkeys(map(of, self._left(name))), of(mine)[1])
        self._narrow()

    def _left(self, name: str) -> list[Stored]:
        """The runs that fit all choices above this one."""
        above = list(CHOICES)[: list(CHOICES).index(name)]
        return [s for s in self.found if all(CHOICES[a](s)[1] == self.controls[a].value for a in above)]

    def _narrow(self) -> None:
        """Offer at every choice what fits those above it; what was chosen stays where it can."""
        for name, of in CHOICES.items():
            offer(self.controls[name], dict.fromkeys(map(of, self._left(name))))
        mine = self._run(self.controls["run"].value)
        offer(self.controls["round"], [(str(t + 1), t) for t in mine.rounds])
        kept = mine.probed(self.controls["round"].value)
        offer(self.controls["layer"], [(WHOLE, WHOLE), *((name, name) for name in kept.layout.names)])
        for name in ("one", "other"):
            offer(self.controls[name], [(str(i), i) for i in kept.clients])
        if self.controls["one"].value == self.controls["other"].value:
            self.controls["other"].value = next(
                (i for i in kept.clients[::-1] if i != self.controls["one"].value), None
            )

    def _run(self, key: str) -> Stored:
        return next(s for s in self.found if s.key == key)

    def _changed(self, change: Any) -> None:
        if self._quiet:
            return
        if change.owner in [self.controls[name] for name in (*CHOICES, "round")]:
            with self.together():
                self._narrow()
            return
        self.refresh()

    def _collected(self, key: str) -> None:
        """A run was collected, all of it or some rounds: offer it."""
        self.found = stored(*NEEDED)
        if any(s.key == key for s in self.found):
            with self.together():
                self.choose(key)

    def draw(self, **values: Any) -> tuple[bytes, str]:
        mine, t, layer, ratio = self._run(values["run"]), values["round"], values["layer"], values["ratio"]
        look = _look(mine, t, layer)
        pair = _pair(look, values["one"], values["other"])
        before, after = look.at(0.0, *pair), look.at(ratio, *pair)
        if not any(before.norms):
            raise CannotDraw(f"{mine.method} perturbs nothing: choose FedSAM, FedFFT or another that looks uphill.")
        losses = self._losses(mine, t, pair, ratio)
        told = Effect(look, before, after, pair, losses, _losses_of(mine, t, self.device).samples)
        head = f"{mine.data}, α {mine.alpha}, {mine.method}, round {t + 1}, {layer}: r = {ratio:g}, {told.short}"
        return self.scene.show(look, before, after, ratio, pair, head), told.table

    def _losses(self, mine: Stored, t: int, pair: tuple[int, int], ratio: float) -> list[float | None]:
        """At w, then for each of the pair at w + δ and at w + Φ(δ); None where it is still being computed."""
        of = _losses_of(mine, t, self.device)
        wanted: list[tuple[int | None, float]] = [(None, 0.0), *((i, r) for i in pair for r in (0.0, ratio))]
        if self.patient or of.quick:
            return [of.at(*each) for each in wanted]
        if any(of.known(*each) is None for each in wanted):
            self.later.do(lambda: self._catch_up(of, wanted))
        return [of.known(*each) for each in wanted]

    def _catch_up(self, of: Losses, wanted: list[tuple[int | None, float]]) -> None:
        """Compute slow losses, then show them with what the controls say by then."""
        for each in wanted:
            of.at(*each)
        self.refresh()


@lru_cache(maxsize=12)
def _look(mine: Stored, t: int, layer: str) -> Look:
    return Look(mine, t, layer)


@lru_cache(maxsize=8)
def _losses_of(mine: Stored, t: int, device: str) -> Losses:
    return Losses(mine, t, device)


def _pair(look: Look, one: int, other: int | None) -> tuple[int, int]:
    """The rows of two clients."""
    if other is None:
        raise CannotDraw(f"Client {one} was alone in this round: choose another round, or a run with more of them.")
    if one == other:
        raise CannotDraw(f"Client {one} is paired with itself: choose another one beside it.")
    return look.clients.index(one), look.clients.index(other)
