"""New probes while somebody watches: a run in a thread, with a progress bar, that can be stopped and goes on later."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from threading import Event, Thread
from typing import Any

import ipywidgets as w

from fednb.algorithms.catalogue import CATALOGUE, method
from fednb.base.progress import duration, reporting_to
from fednb.data import sources
from fednb.runs.experiment import run, run_of
from fednb.show.explore.frame import slim
from fednb.show.explore.stored import SCALES, probe_of, setting_of
from fednb.show.explore.waiting import Stopped


class Collector:
    """Controls that start and stop one run, for the choices made in them. `then` is told its key when it ends."""

    def __init__(self, scale: str, then: Callable[[str], None], alphas: Sequence[float], device: str = "auto") -> None:
        self.scale, self.then, self.device = scale, then, device
        base = SCALES[scale]
        self.data = w.Dropdown(options=sources.names(), value=setting_of(scale).data, **slim("data set"))
        self.alpha = w.BoundedFloatText(value=alphas[0], min=0.01, max=1000, step=0.1, **slim("alpha"))
        self.method = w.Combobox(options=sorted(CATALOGUE), value="FedGAMMA", ensure_option=False, **slim("method"))
        self.rounds = w.BoundedIntText(value=base["rounds"], min=1, max=1000, **slim("rounds"))
        self.start = w.Button(description="Collect", tooltip="make new probes for these choices", icon="play")
        self.stop = w.Button(description="Stop", tooltip="end after this round", icon="stop", disabled=True)
        self.bar = w.IntProgress(min=0, max=1, value=0, layout=w.Layout(width="auto"))
        self.said = w.HTML()
        self._stopping = Event()
        self._thread: Thread | None = None
        self.start.on_click(lambda _: self.collect())
        self.stop.on_click(lambda _: self.end())

    def view(self) -> w.Widget:
        """The controls from top to bottom, behind a heading that opens them."""
        row = w.HBox([self.start, self.stop])
        parts = [self.data, self.alpha, self.method, self.rounds, row, self.bar, self.said]
        return w.Accordion([w.VBox(parts)], titles=("Collect new probes",), layout=w.Layout(width="auto"))

    @property
    def busy(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def collect(self) -> None:
        """Start the run, or go on with it where it was stopped. One at a time."""
        if self.busy:
            return
        try:
            setting, chosen = setting_of(self.scale, self.data.value, self.alpha.value, self.rounds.value), self.method
            wanted = {"setting": setting, "method": method(chosen.value), "probe": probe_of(setting)}
        except (ValueError, KeyError) as error:
            return self._say(str(error), wrong=True)
        self._stopping.clear()
        self.start.disabled, self.stop.disabled = True, False
        self.bar.max, self.bar.value, self.bar.bar_style = setting.rounds, 0, ""
        self._say("starting …")
        self._thread = Thread(target=self._work, args=(wanted,), daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Stop after the round that is under way."""
        self._stopping.set()
        self.stop.disabled = True
        self._say("stopping after this round …")

    def wait(self, seconds: float | None = None) -> bool:
        """Until the run has ended, at most so long; whether it has."""
        if self._thread is not None:
            self._thread.join(seconds)
        return not self.busy

    def _work(self, wanted: dict[str, Any]) -> None:
        mine = run_of(wanted["setting"], wanted["method"], 0, wanted["probe"])
        try:
            with reporting_to(self._told):
                done = run(**wanted, device=self.device)
            self.bar.value, self.bar.bar_style = self.bar.max, "success"
            self._say(f"{done.method.name}: {done.status}, {len(done.rows)} rounds, run {done.key[:6]}")
        except Stopped:
            kept = len(mine.entry.history())
            self._say(f"stopped after {kept} of {self.bar.max} rounds; they are kept, and Collect goes on with them")
        except Exception as error:  # a thread's error would be seen by nobody
            self.bar.bar_style = "danger"
            self._say(f"{type(error).__name__}: {error}", wrong=True)
        finally:
            self.start.disabled, self.stop.disabled = False, True
        self.then(mine.key)

    def _told(self, done: int, total: int | None, left: float | None) -> None:
        """Of the run's rounds; and of what comes before them, such as a download, which is not counted here."""
        if total == self.bar.max:
            self.bar.value = done
            if left is not None:
                self._say(f"round {done} of {total}, about {duration(left)} left")
        if self._stopping.is_set() and done != self.bar.max:
            raise Stopped

    def _say(self, text: str, wrong: bool = False) -> None:
        role = "alert" if wrong else "status"
        self.said.value = f"<p role='{role}' style='line-height: 1.3'>{escape(text)}</p>"
