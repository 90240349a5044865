"""Two runs that take turns, round by round, in threads: started, paused and resumed, in the store all along."""

from __future__ import annotations

import atexit
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from math import nan
from typing import Any

from fednb.algorithms.catalogue import method
from fednb.core.rounds import Method
from fednb.engines import device_of
from fednb.engines.setting import Setting
from fednb.metrics.drift import agreement
from fednb.runs.experiment import Run, run, run_of
from fednb.runs.probes import Probe

GAP = 0.4  # seconds between two pictures of a run at work, at least: drawing takes time from training


class Paused(Exception):
    """Raised where a run reports its round: it ends there, and goes on from there another time."""


class AtWork(RuntimeError):
    """A duel was started while it was still running."""


class Itself(ValueError):
    """A method against itself: both sides would be one run."""


class Turns:
    """Whose turn it is among those who still have something to do."""

    def __init__(self, order: list[int]) -> None:
        self.order, self.stopped = deque(order), False
        self.change = threading.Condition()

    def mine(self, i: int) -> None:
        """Wait until it is i's turn."""
        with self.change:
            self.change.wait_for(lambda: self.stopped or self.order[0] == i)
            if self.stopped:
                raise Paused

    def next(self) -> None:
        with self.change:
            self.order.rotate(-1)
            self.change.notify_all()

    def leave(self, i: int) -> None:
        with self.change:
            self.order.remove(i)
            self.change.notify_all()

    def stop(self) -> None:
        with self.change:
            self.stopped = True
            self.change.notify_all()


class Side:
    """One of the runs: its rounds so far, each with the agreement between its clients' moves."""

    def __init__(self, setting: Setting, name: str | Method, seed: int) -> None:
        self.setting, self.method, self.seed = setting, method(name), seed
        self.probe = Probe(("move",), rounds=tuple(range(setting.rounds)))
        self.rows: list[dict[str, Any]] = []
        self.error: BaseException | None = None
        self.catch_up()

    @property
    def run(self) -> Run:
        """The run as the store has it now."""
        return run_of(self.setting, self.method, self.seed, self.probe)

    @property
    def over(self) -> bool:
        return self.run.entry.ended

    def catch_up(self) -> None:
        """Read the rounds that the store already has of this run."""
        for row in self.run.rows:
            self.take(row)

    def take(self, row: dict[str, Any]) -> bool:
        """Add a finished round; returns whether it was not known yet."""
        if row["round"] < len(self.rows):
            return False
        moves = self.run.probed(row["round"]).vectors["move"]
        self.rows.append({**row, "agreement": agreement(moves) if len(moves) > 1 else nan})
        return True

    def code(self) -> str:
        """What to type for this run: it comes from the store, or goes on where it was paused."""
        plain, usual = self.setting.plain(), Setting().plain()
        given = ", ".join(f"{name}={value!r}" for name, value in plain.items() if value != usual[name])
        probe = f'fn.Probe("move", rounds=range({self.setting.rounds}))'
        return f'fn.run(fn.Setting({given}), "{self.method.name}", {self.seed}, probe={probe})'


class Duel:
    """Runs that take turns, round by round, in threads of their own. They are in the store all along."""

    def __init__(self, setting: Setting, names: Sequence[str | Method], seed: int = 0, device: str = "auto") -> None:
        if len({str(each) for each in names}) < len(names):
            raise Itself(f"{names[0]} against itself: choose two different methods.")
        self.sides = [Side(setting, name, seed) for name in names]
        self.device = device
        self.engine = "loop" if device_of(device).type == "cpu" else "auto"  # a pool serves one run at a time
        self.runners: list[threading.Thread] = []
        self.teller: threading.Thread | None = None
        self.turns = Turns([])
        self.began, self.before = 0.0, 0

    @property
    def at_work(self) -> bool:
        return any(thread.is_alive() for thread in self.runners)

    @property
    def done(self) -> int:
        """Finished rounds of all sides."""
        return sum(len(side.rows) for side in self.sides)

    @property
    def total(self) -> int:
        return sum(len(side.rows) if side.over else side.setting.rounds for side in self.sides)

    @property
    def over(self) -> bool:
        return all(side.over for side in self.sides)

    @property
    def seconds_left(self) -> float:
        """An estimate, from the rounds since the last start; not a number before the first."""
        fresh = self.done - self.before
        return (time.monotonic() - self.began) / fresh * (self.total - self.done) if fresh else nan

    def start(self, news: Callable[[], None] = lambda: None) -> None:
        """Begin, or go on after the last finished round. `news` is called after rounds, not more often than `GAP`.

        Only one duel of a process is at work at a time: another one is paused.
        """
        global _playing
        if self.at_work:
            raise AtWork("these runs are at work; pause them first")
        if _playing is not None:
            _playing.pause()
        _playing = self
        self.turns = Turns(sorted(range(len(self.sides)), key=lambda i: len(self.sides[i].rows)))
        self.began, self.before = time.monotonic(), self.done
        changed = threading.Event()
        self.runners = [
            threading.Thread(target=self._run, args=(i, changed), daemon=True) for i in range(len(self.sides))
        ]
        self.teller = threading.Thread(target=self._tell, args=(changed, news), daemon=True)
        for thread in (*self.runners, self.teller):
            thread.start()

    def _run(self, i: int, changed: threading.Event) -> None:
        """Run one side in its thread, a round whenever it is its turn."""
        side, turns = self.sides[i], self.turns
        side.error = None

        def watch(row: dict[str, Any]) -> None:
            if side.take(row):
                changed.set()
                turns.next()
                if row["round"] + 1 < side.setting.rounds:  # what is finished waits for nobody
                    turns.mine(i)

        try:
            turns.mine(i)
            run(side.setting, side.method, side.seed, engine=self.engine, device=self.device, probe=side.probe,
                progress=watch)  # fmt: skip
            side.catch_up()
        except Paused:
            pass
        except BaseException as error:
            side.error = error
        finally:
            turns.leave(i)
            changed.set()

    def _tell(self, changed: threading.Event, news: Callable[[], None]) -> None:
        """Say that there is news, at times, and once more at the end."""
        while self.at_work:
            if changed.wait(timeout=0.1):
                changed.clear()
                news()
                time.sleep(GAP)
        news()

    def pause(self, patience: float | None = None) -> None:
        """End after the round that is being trained; returns when nothing is at work any more."""
        self.turns.stop()
        self.wait(patience)

    def wait(self, patience: float | None = None) -> None:
        """Until it has ended, or so many seconds. An interrupt pauses it."""
        try:
            for thread in filter(None, (*self.runners, self.teller)):
                thread.join(patience)
        except KeyboardInterrupt:
            self.pause(patience)
            raise


_playing: Duel | None = None


@atexit.register
def _quit() -> None:
    """A process that ends does so after the round, not within it."""
    if _playing is not None:
        _playing.pause(patience=10)
