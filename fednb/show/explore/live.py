"""Two methods side by side while they learn: curves that grow round by round; pause, resume, keep."""

from __future__ import annotations

from dataclasses import replace
from html import escape
from math import ceil, floor, isfinite, log10
from typing import TYPE_CHECKING, Any

import ipywidgets as w

from fednb.algorithms.catalogue import CATALOGUE, method
from fednb.base.progress import bar_of, duration
from fednb.core.rounds import Method
from fednb.data import sources
from fednb.data.partition import DirichletClient, Partition
from fednb.engines.setting import Setting
from fednb.runs.experiment import Run
from fednb.show.explore.beforehand import move
from fednb.show.explore.duel import AtWork, Duel, Side
from fednb.show.explore.frame import CannotDraw, Explorer, Values, slim
from fednb.show.explore.moves import Move
from fednb.show.explore.panes import DPI
from fednb.show.explore.stored import RUNS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PANELS = {"accuracy": "test accuracy (%)", "train_loss": "training loss", "drift": "drift: length of a client's move",
          "agreement": "agreement: cosine between two moves"}  # fmt: skip


class Sheet:
    """The figure, made once: four numbers of both methods over rounds."""

    def __init__(self) -> None:
        from matplotlib.figure import Figure

        from fednb.show.plots.style import _style, look

        with _style():
            self.figure = Figure(figsize=(8.6, 5.4), dpi=DPI)
            axes = self.figure.subplots(2, 2, sharex=True).flat
            self.figure.subplots_adjust(0.08, 0.09, 0.985, 0.87, wspace=0.2, hspace=0.2)
            self.axes = dict(zip(PANELS, axes, strict=True))
            self.lines = {name: [ax.plot([], [], **look(i), ms=4, lw=1.5)[0] for i in (0, 1)]
                          for name, ax in self.axes.items()}  # fmt: skip
        for name, ax in self.axes.items():
            ax.set_title(PANELS[name], fontsize=9)
            ax.set_xlabel("round" if name in ("drift", "agreement") else "")
            ax.xaxis.get_major_locator().set_params(integer=True, nbins=8)
        self.axes["accuracy"].set_ylim(0, 100)

    def show(self, duel: Duel, shown: int | None = None) -> Figure:
        """What there is of both, or its first `shown` rounds."""
        for i, side in enumerate(duel.sides):
            rows = [row for row in list(side.rows) if row["accuracy"] is not None][:shown]
            for name, lines in self.lines.items():
                lines[i].set_data([row["round"] + 1 for row in rows], [row[name] for row in rows])
                lines[i].set_label(side.method.name)
        for name, ax in self.axes.items():
            ax.set_xlim(0.5, duel.sides[0].setting.rounds + 0.5)
            if name != "accuracy":
                ax.relim()
                ax.autoscale_view(scalex=False)
        for old in self.figure.legends:
            old.remove()
        self.figure.legend(handles=self.lines["accuracy"], loc="upper left", ncols=2, frameon=False)
        return self.figure


class LiveRun(Explorer):
    """Two methods and a setting; Start, and see both learn. What is paused or finished is in the store.

    The partition is that of the setting, and its alpha a slider where it has one. alpha: Dirichlet's over clients with
    this alpha instead.
    """

    title = "Two methods, live"

    def __init__(
        self, first: str | Method = "FedAvg", second: str | Method = "FedSAM", base: Setting | None = None,
        alpha: float | None = None, seed: int = 0, device: str = "auto",
    ) -> None:  # fmt: skip
        given_base = base or _of_scale("smoke")
        self.base = given_base if alpha is None else given_base.but(partition=DirichletClient(alpha))
        given = [method(each) for each in (first, second)]
        self.methods = {name: method(name) for name in CATALOGUE} | {each.name: each for each in given}
        super().__init__(_controls(given, list(self.methods), self.base, seed))
        self.device, self.sheet = device, Sheet()
        self.runs: list[Run] = []  # those that were kept
        self._duels: dict[Any, Duel] = {}
        self.bar = w.FloatProgress(min=0, max=1, **slim("rounds"))
        self.state, self.kept = w.HTML(), w.HTML()
        self.buttons = {name: _button(name, tip) for name, tip in TIPS.items()}
        for name, button in self.buttons.items():
            button.on_click(lambda _, name=name: getattr(self, name)())

    @classmethod
    def at(cls, scale: str, rounds: int | None = None, **chosen: Any) -> LiveRun:
        """In the setting of a scale, with its number of rounds or another."""
        base = _of_scale(scale)
        return cls(base=base.but(rounds=rounds) if rounds else base, **chosen)

    def duel(self, values: Values) -> Duel:
        """The runs that these values describe, with what the store has of them."""
        try:
            partition: Any = self.base.partition
            if "alpha" in values:
                partition = replace(partition, alpha=values["alpha"])
            setting = self.base.but(partition=partition, **{name: values[name] for name in OF_SETTING})
            identity = (setting, values["first"], values["second"], values["seed"])
            if identity not in self._duels:
                chosen = [self.methods[values[which]] for which in ("first", "second")]
                self._duels[identity] = Duel(setting, chosen, values["seed"], self.device)
            return self._duels[identity]
        except ValueError as error:  # such as a method that has no form of the model
            raise CannotDraw(str(error)) from error

    def draw(self, shown: int | None = None, **values: Any) -> tuple[Figure, str]:
        duel = self.duel(values)
        return self.sheet.show(duel, shown), words(duel, shown)

    def stills(self) -> list[Values]:
        """One picture: both methods after their last round."""
        rounds = self.controls["rounds"].value
        return [{"shown": n} for n in sorted({1, -(-rounds // 3), -(-2 * rounds // 3), rounds})]

    def moves(self) -> list[Move]:
        """How many rounds are seen, in ten steps at most; at smoke scale, where a run takes seconds, a method too."""
        last, mine = self.controls["rounds"].value, self.controls["second"].value
        seen = [(str(n), n) for n in sorted({max(1, round(i * last / 10)) for i in range(1, 11)})]
        others = [name for name in OTHERS if name not in (mine, self.controls["first"].value)]
        second = [move(self, "second", [mine, *others])] if self.base.data == RUNS["smoke"]["data"] else []
        return [*second, Move("shown", "rounds", tuple(seen), len(seen) - 1, True)]

    def prepare(self, values: Values) -> None:
        """Finish both runs."""
        self.play(values)

    def refresh(self) -> None:
        """What is said to be paused or finished is drawn to its last round: what ends meanwhile is said next time."""
        with self._drawing:
            working = self._working()
            super().refresh()
            self._say(working)

    def start(self) -> None:
        """Begin what the controls say, or go on with it. Refused while it is at work."""
        try:
            self.duel(self.values).start(self._news)
        except (AtWork, CannotDraw) as error:
            self.state.value = f"<p role='alert'>{escape(str(error))}</p>"
            return
        with self._drawing:  # the last news of a run that ends at once come after this
            self._say(self._working())

    resume = start

    def pause(self) -> None:
        """End after the round that is being trained; the button does not wait for it."""
        self.duel(self.values).turns.stop()
        self.state.value = "<p>ends after this round …</p>"

    def keep(self) -> None:
        """Say how these runs are called, and keep them in `runs`."""
        sides = [side for side in self.duel(self.values).sides if side.rows]
        self.runs += [side.run for side in sides if side.run.key not in [each.key for each in self.runs]]
        self.kept.value = "".join(map(_kept, sides))

    def play(self, values: Values | None = None) -> None:
        """Both to the end, here and now, with a progress bar; an interrupt keeps what is finished.

        values: of the controls, without them as they are.
        """
        duel = self.duel(values or self.values)
        if duel.over:
            return
        with bar_of(duel.total, " and ".join(side.method.name for side in duel.sides)) as bar:
            bar.update(duel.done, before=True)
            if not duel.at_work:
                duel.start(lambda: bar.update(duel.done - bar.n))
            duel.wait()
        for error in (side.error for side in duel.sides if side.error):
            raise error

    def close(self) -> None:
        """Pause the runs and wait until their threads have ended."""
        for duel in self._duels.values():
            duel.pause()

    def _news(self) -> None:
        try:
            self.refresh()
        except Exception as error:  # a thread has no cell to show it in
            self.state.value = _alert("the picture", error)

    def _working(self) -> bool:
        try:
            return self.duel(self.values).at_work
        except CannotDraw:
            return False

    def _say(self, working: bool) -> None:
        """Progress, and which buttons may be pressed."""
        try:
            duel = self.duel(self.values)
        except CannotDraw:
            for button in self.buttons.values():
                button.disabled = True
            return
        begun, over = duel.done > 0, not working and duel.over
        off = {"start": working or begun or over, "resume": working or over or not begun, "pause": not working,
               "keep": not begun}  # fmt: skip
        for name, button in self.buttons.items():
            button.disabled = off[name]
        for control in self.controls.values():
            control.disabled = working  # type: ignore[attr-defined]
        self.bar.value = duel.done / max(1, duel.total)
        self.state.value = _state(duel, working)

    def beside(self) -> list[w.Widget]:
        return [*super().beside(), w.HBox(list(self.buttons.values())), self.bar, self.state]

    def seen(self) -> list[w.Widget]:
        return [*super().seen(), self.kept]


TIPS = {
    "start": "run both methods, taking turns",
    "pause": "stop after the current round; finished rounds are kept",
    "resume": "go on after the last finished round",
    "keep": "name the runs, and say how to get them back",
}
OTHERS = ("SCAFFOLD",)  # methods that a page without a kernel offers beside the two
OF_SETTING = ("data", "clients", "rounds", "lr")


def _button(name: str, tip: str) -> w.Button:
    return w.Button(description=name.capitalize(), tooltip=tip, layout=w.Layout(width="auto", flex="1 1 auto"))


def words(duel: Duel, shown: int | None = None) -> str:
    """Accuracy, loss, drift and agreement of both methods in words, now or after their first `shown` rounds."""
    said = []
    for side in duel.sides:
        rows = side.rows[:shown]
        last = rows[-1] if rows else None
        seen = "not started" if last is None else (
            f"round {len(rows)} of {side.setting.rounds}: accuracy {last['accuracy']:.2f}%, training loss "
            f"{last['train_loss']:.4g}, drift {last['drift']:.3g}, agreement {last['agreement']:.3f}"
        )  # fmt: skip
        said.append(f"<b>{escape(side.method.name)}</b>: {seen}")
    return f"<p>{'<br>'.join(said)}</p>"


def _state(duel: Duel, working: bool) -> str:
    """How far it is, in words; what went wrong, if anything did."""
    if wrong := [_alert(side.method.name, side.error) for side in duel.sides if side.error]:
        return "".join(wrong)
    if not working:
        if duel.over:
            return "<p>finished; another seed makes new runs</p>"
        return f"<p>paused after {duel.done} of {duel.total} rounds</p>" if duel.done else "<p>ready</p>"
    left = f", about {duration(duel.seconds_left)} left" if isfinite(duel.seconds_left) else ""
    return f"<p>{duel.done} of {duel.total} rounds{left}</p>"


def _alert(what: str, error: BaseException) -> str:
    return f"<p role='alert'>{escape(what)} stopped: {type(error).__name__}: {escape(str(error))}</p>"


def _kept(side: Side) -> str:
    return (f"<p><b>{escape(side.method.name)}</b>, {len(side.rows)} rounds, is run <code>{side.run.key}</code>: "
            f"<code>fednb show {side.run.key}</code>, or<br><code>{escape(side.code())}</code></p>")  # fmt: skip


def _of_scale(scale: str) -> Setting:
    return Setting(**RUNS[scale], partition=DirichletClient(0.1))


def _alpha(partition: Partition) -> dict[str, w.ValueWidget]:
    """A slider for the partition's alpha; none where it has none."""
    value: Any = getattr(partition, "alpha", None)
    if value is None:
        return {}
    low, high = min(-2, floor(log10(value))), max(2, ceil(log10(value)))
    return {"alpha": w.FloatLogSlider(value=value, min=low, max=high, step=0.1, readout_format=".3g", **slim("alpha"))}


def _controls(given: list[Method], names: list[str], base: Setting, seed: int) -> dict[str, w.ValueWidget]:
    here = [name for name in sources.names() if sources.available(name) and not sources.find(name).text]
    return {
        "first": w.Dropdown(options=names, value=given[0].name, **slim("first")),
        "second": w.Dropdown(options=names, value=given[1].name, **slim("second")),
        "data": w.Dropdown(options=list(dict.fromkeys([*here, base.data])), value=base.data, **slim("data")),
        **_alpha(base.partition),
        "clients": w.IntSlider(value=base.clients, min=4, max=100, **slim("clients")),
        "rounds": w.IntSlider(value=base.rounds, min=2, max=max(100, base.rounds), **slim("rounds")),
        "lr": w.FloatLogSlider(value=base.lr, min=-3, max=0, step=0.1, readout_format=".3g", **slim("lr")),
        "seed": w.BoundedIntText(value=seed, min=0, max=999, **slim("seed")),
    }
