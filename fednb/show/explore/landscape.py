"""Two runs' loss surfaces along the same directions, with one scale: which two, how far, seen from where."""

from __future__ import annotations

import atexit
from html import escape
from threading import Event, Thread
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import ipywidgets as w
import numpy as np

from fednb.base.progress import bar_of, duration
from fednb.data.partition import DirichletClient
from fednb.engines.setting import Setting
from fednb.metrics.landscape import roughness
from fednb.runs.experiment import run
from fednb.show.explore.beforehand import move
from fednb.show.explore.frame import CannotDraw, Explorer, Values, offer, slim
from fednb.show.explore.moves import Move
from fednb.show.explore.panes import DPI
from fednb.show.explore.planes import Finished, Plane, finished
from fednb.show.explore.stored import RUNS
from fednb.show.explore.waiting import Stopped, ticking

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

ROUNDS = {"smoke": 12, "laptop": 40, "paper": 200}  # of the two runs that are looked at first
LOOKED = {"smoke": {"points": 13, "samples": 200}, "laptop": {"points": 21, "samples": 500},
          "paper": {"points": 21, "samples": 500}}  # fmt: skip
METHODS = ("FedAvg", "FedSAM")
KINDS = ("contours", "surface", "profile")
SIZE = (8.8, 4.4)  # inches
RADII = (0.1, 0.25, 0.5, 1.0, 2.0)
FIGURES = 8  # that are held, so that turning a surface need not build it again


class Landscapes(Explorer):
    """Two finished runs of one data set and model. A plane is computed once, in a thread; views of it are quick."""

    title = "The loss around two models"

    def __init__(
        self, kin: tuple[str, str] | None = None, device: str = "auto", begin: tuple[str, ...] = (), **looked: int
    ) -> None:
        """kin: data and model to begin with. begin: keys of the two runs to begin with. looked: fields of `Plane`."""
        self.device, self.looked, self.begin = device, looked, begin
        self.found = {each.key: each for each in finished()}
        super().__init__(_controls(sorted({each.kin for each in self.found.values()}), kin))
        self.bar, self.state = w.IntProgress(min=0, max=1, **slim("rows")), w.HTML()
        self.buttons = {
            "stop": w.Button(description="Stop", tooltip="rows that are there are kept", disabled=True),
            "go_on": w.Button(description="Go on", tooltip="compute what is missing", disabled=True),
        }
        for name, button in self.buttons.items():
            button.on_click(lambda _, name=name: getattr(self, name)())
        self._figures: dict[Any, Figure] = {}
        self._job: Job | None = None
        self._halted = False
        self._fit()
        _open.add(self)

    @classmethod
    def at(cls, scale: str, device: str = "auto") -> Landscapes:
        """With two runs of the scale's own setting, made where they are not in the store, whatever else is there."""
        setting = Setting(**RUNS[scale] | {"rounds": ROUNDS[scale]}, partition=DirichletClient(0.6))
        there = {each.method for each in finished() if each.setting == setting}
        lacking = [name for name in METHODS if name not in there]
        with ticking(len(lacking) * setting.rounds, "two runs", "round") as tick:
            begin = tuple(run(setting, name, device=device, progress=lambda row: tick()).key for name in METHODS)
        made = cls((setting.data, setting.model), device, begin, **LOOKED[scale])
        missing = made.missing(made.values)
        with ticking(sum(p.points - p.load(each)[1] for each, p in missing), "landscape", "row") as tick:
            for each, plane in missing:
                plane.losses(each, tick, device)
        return made

    def plane(self, values: Values) -> Plane:
        return Plane(values["seed"], values["radius"], **self.looked)

    def pair(self, values: Values) -> list[Finished]:
        """The two runs; refuse what cannot be compared."""
        keys = [values["first"], values["second"]]
        if None in keys or keys[0] == keys[1]:
            raise CannotDraw(f"{len(self.found)} finished runs in the store; choose two different ones of one model, "
                             "or make more, as in d_live_run.")  # fmt: skip
        return [self.found[key] for key in keys]

    def missing(self, values: Values) -> list[tuple[Finished, Plane]]:
        """What has to be computed before these values can be drawn."""
        try:
            pair, plane = self.pair(values), self.plane(values)
        except CannotDraw:
            return []
        return [(each, plane) for each in pair if not plane.known(each)]

    def draw(self, **values: Any) -> tuple[Figure, str]:
        pair, plane = self.pair(values), self.plane(values)
        seen = {each.short: plane.losses(each, device=self.device).numpy() for each in pair}
        figure = self._figure(seen, plane, values["kind"], values["log"])
        for ax in figure.axes:
            if hasattr(ax, "view_init"):
                ax.view_init(values["height"], values["angle"])
        return figure, words(seen, plane)

    def _figure(self, seen: dict[str, np.ndarray], plane: Plane, kind: str, log: bool) -> Figure:
        """A figure that was drawn before keeps its places: to find them anew takes longer than to draw it."""
        identity = (*seen, plane, kind, log)
        if identity in self._figures:
            self._figures[identity].set_layout_engine("none")
            return self._figures[identity]
        while len(self._figures) >= FIGURES:
            self._figures.pop(next(iter(self._figures)))
        self._figures[identity] = picture(seen, plane, kind, log)
        return self._figures[identity]

    def stills(self) -> list[Values]:
        return [{"kind": "contours"}, {"kind": "contours", "log": True}, {"kind": "surface"}, {"kind": "profile"}]

    def moves(self) -> list[Move]:
        """Three views, how far they go, the scale, and the side from which a surface is seen."""
        return [
            move(self, "kind", KINDS),
            move(self, "radius", [0.25, 1.0, 2.0]),
            move(self, "log", [False, True]),
            move(self, "angle", [-120, -90, -60, -30]),
        ]

    def matters(self, values: Values) -> set[str]:
        """All, but a surface alone can be turned."""
        return set(values) - (set() if values["kind"] == "surface" else {"angle", "height"})

    def refresh(self) -> None:
        """Draw what is known; else compute it, in a thread that draws when it is done."""
        with self._drawing:
            self._fit()
            if missing := self.missing(self.values):
                self._compute(missing)
                return
            super().refresh()
            if self._job is None:
                self._say("")

    def stop(self) -> None:
        """End after the row that is being computed; the button does not wait for it."""
        self._halted = True
        if self._job is not None:
            self._job.stopping.set()

    def go_on(self) -> None:
        """Go on computing after a stop."""
        self._halted = False
        self.refresh()

    def wait(self) -> None:
        """Wait until the computing thread has ended."""
        while (job := self._job) is not None:
            job.join()

    def close(self) -> None:
        """Stop the computing thread and wait for it."""
        self.stop()
        self.wait()

    def beside(self) -> list[w.Widget]:
        return [*super().beside(), w.HBox([*self.buttons.values()]), self.bar, self.state]

    def _changed(self, change: Any) -> None:
        if not self._quiet:
            self._halted = False  # other values are another wish
        super()._changed(change)

    def _compute(self, missing: list[tuple[Finished, Plane]]) -> None:
        """Start on it; what is at work on something else ends first."""
        if self._job is not None:
            if self._job.missing != missing:
                self._job.stopping.set()
        elif self._halted:
            self._say("stopped; finished rows are kept", go_on=True)
        else:
            self._job = Job(self, missing)
            self._say("computing …", stop=True)
            self._job.start()

    def _ended(self, error: BaseException | None) -> None:
        """The job's thread is through: draw, or go on with what was asked for meanwhile."""
        with self._drawing:
            self._job = None
            if error is None or isinstance(error, Stopped):
                self.refresh()
            else:
                said = f"<span role='alert'>{type(error).__name__}: {escape(str(error))}</span>"
                self._say(said, go_on=True)

    def _say(self, text: str, stop: bool = False, go_on: bool = False) -> None:
        self.state.value = f"<p role='status'>{text}</p>"
        self.buttons["stop"].disabled, self.buttons["go_on"].disabled = not stop, not go_on

    def _fit(self) -> None:
        """Runs to choose from are those of the chosen kin; a surface alone can be turned."""
        runs = [each for each in self.found.values() if each.kin == self.controls["kin"].value]
        options: list[tuple[str, str | None]] = [(each.long, each.key) for each in runs] or [("none", None)]
        first, second = self.controls["first"], self.controls["second"]
        before, self._quiet = self._quiet, True
        if list(first.options) != options:  # type: ignore[attr-defined]
            known = self.begin and {each.key for each in runs}.issuperset(self.begin)
            for control, key in zip((first, second), self.begin if known else opening(runs), strict=True):
                offer(control, options, key)
        self._quiet = before
        shown = self.matters(self.values)
        for name in ("angle", "height"):
            self.controls[name].layout.display = None if name in shown else "none"


def opening(runs: list[Finished]) -> tuple[str | None, str | None]:
    """The keys to begin with: the newest FedAvg where there is one, and beside it the run that says most.

    That is one of another method, in the same setting, FedSAM before others, the newest first, as far as there are any.
    """
    if not runs:
        return None, None
    first = next((each for each in runs if each.method == METHODS[0]), runs[0])

    def worth(each: Finished) -> tuple[bool, bool, bool]:
        return each.method != first.method, each.setting == first.setting, each.method == METHODS[1]

    second = max((each for each in runs if each.key != first.key), key=worth, default=None)
    return first.key, (second.key if second else None)


class Job(Thread):
    """Computes planes, tells how far it is, and can be stopped between two rows."""

    def __init__(self, owner: Landscapes, missing: list[tuple[Finished, Plane]]) -> None:
        super().__init__(daemon=True)
        self.owner, self.missing, self.stopping = owner, missing, Event()
        self.total = sum(plane.points - plane.load(each)[1] for each, plane in missing)

    def run(self) -> None:
        error: BaseException | None = None
        try:
            with bar_of(self.total, "landscape", show=self.tell, unit="row") as bar:
                for each, plane in self.missing:
                    plane.losses(each, bar.update, self.owner.device)
        except BaseException as caught:  # shown by the owner: a thread has no cell to show it in
            error = caught
        self.owner._ended(error)

    def tell(self, done: int, total: int | None, left: float | None) -> None:
        self.owner.bar.max, self.owner.bar.value = self.total, done
        soon = "computing …" if left is None else f"row {done} of {self.total}, about {duration(left)} left"
        self.owner._say(soon, stop=True)
        if self.stopping.is_set() and done < self.total:
            raise Stopped


_open: WeakSet[Landscapes] = WeakSet()


@atexit.register
def _quit() -> None:
    """A process that ends does so between two rows."""
    for each in list(_open):
        each.close()


def table_of(seen: dict[str, np.ndarray], plane: Plane, log: bool) -> pd.DataFrame:
    """Losses `[a, b]` by name as `fednb.show.plots` wants them: one row for each point."""
    import pandas as pd

    axis = plane.axis.numpy()
    a, b = (x.ravel() for x in np.meshgrid(axis, axis, indexing="ij"))
    measure = "log10 of the loss" if log else "loss"
    return pd.concat([
        pd.DataFrame({"run": name, "a": a, "b": b, "measure": measure, "value": _scaled(losses, log).ravel()})
        for name, losses in seen.items()
    ], ignore_index=True)  # fmt: skip


def _scaled(losses: np.ndarray, log: bool) -> np.ndarray:
    return np.log10(np.maximum(losses, 1e-12)) if log else losses


def picture(seen: dict[str, np.ndarray], plane: Plane, kind: str, log: bool) -> Figure:
    """The two side by side in one scale, or their cuts along both directions in one panel."""
    from fednb.show.plots import contours, profiles, surfaces

    title = f"loss within {plane.radius:g} of the model, directions {plane.seed}"
    if kind == "profile":
        figure = profiles(_cuts(table_of(seen, plane, False)), by="run", title=title, log=log)
    else:
        figure = (contours if kind == "contours" else surfaces)(table_of(seen, plane, log), by="run", title=title)
    figure.set_size_inches(SIZE)
    figure.set_dpi(DPI)
    return figure


def _cuts(table: pd.DataFrame) -> pd.DataFrame:
    """The lines through the model, along the first direction and along the second."""
    import pandas as pd

    first, second = table[table["b"] == 0], table[table["a"] == 0]
    return pd.concat([
        first.assign(run=first["run"] + ", along the first"),
        second.assign(run=second["run"] + ", along the second", a=second["b"]),
    ])  # fmt: skip


def words(seen: dict[str, np.ndarray], plane: Plane) -> str:
    """The loss at both models and how fast it rises, in words."""
    import torch

    middle, said = plane.points // 2, []
    for name, losses in seen.items():
        rough = roughness(torch.from_numpy(losses), plane.axis, plane.axis)
        rise = losses.mean() - losses[middle, middle]
        said.append(f"<b>{escape(name)}</b>: loss {losses[middle, middle]:.4g} at the model, higher by {rise:.4g} on "
                    f"average within {plane.radius:g}; roughness {rough:.3f}")  # fmt: skip
    return f"<p>{'<br>'.join(said)}</p>"


def _controls(kins: list[tuple[str, str]], kin: tuple[str, str] | None) -> dict[str, w.ValueWidget]:
    options: list[tuple[str, Any]] = [(", ".join(each), each) for each in kins] or [("none", None)]
    chosen = kin if kin in kins else options[0][1]
    return {
        "kin": w.Dropdown(options=options, value=chosen, **slim("data, model")),
        "first": w.Dropdown(options=[("none", None)], **slim("first run")),
        "second": w.Dropdown(options=[("none", None)], **slim("second run")),
        "kind": w.Dropdown(options=KINDS, **slim("kind")),
        "radius": w.SelectionSlider(options=RADII, value=1.0, **slim("radius")),
        "seed": w.BoundedIntText(value=0, min=0, max=999, **slim("directions")),
        "log": w.Checkbox(value=False, indent=True, **slim("log scale")),
        "angle": w.IntSlider(value=-60, min=-180, max=180, step=5, **slim("angle")),
        "height": w.IntSlider(value=30, min=0, max=90, step=5, **slim("height")),
    }
