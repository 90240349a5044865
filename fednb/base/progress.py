"""The one place for progress: a bar where somebody looks, a few lines where nobody does, or a function that wants it.

On a terminal and in a notebook that somebody has open, work shows a bar with the time that is left. Work inside other
work writes itself behind the outer bar, so that there is one line whatever calls what. Under papermill, nbmake or
nbconvert, in a file or a pipe it is a line for every tenth, and none at all if it takes a few seconds.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import log2
from typing import TextIO

from tqdm import tqdm

# A function of a caller's own: done, of how many, seconds left; None where it is not known.
OnProgress = Callable[[int, int | None, float | None], object]

SOON = 5.0  # seconds that work may take without a line in a file
SOON_INSIDE = 60.0  # the same for work inside other work, which has lines of its own
FIRST = 6  # times as long: the first line at the latest, so that an estimate is there early
OFTEN = 0.1  # seconds between two pictures of a bar


class Bar:
    """Work of a known length: how much of it is done, and how long the rest will take."""

    def __init__(self, total: int | None, what: str, unit: str, face: Face) -> None:
        self.total, self.what, self.unit, self.face = total, what, unit, face
        self.n = self.before = 0
        self.words = self.inside = ""
        self.began = time.monotonic()

    def update(self, count: int = 1, before: bool = False) -> None:
        """So much more is done. before: it was there already, and says nothing about the time that the rest takes."""
        self.n += count
        self.before += count * before
        self.face.show(self)

    def expect(self, total: int) -> None:
        """The work is longer or shorter than it seemed."""
        self.total = total
        self.face.show(self)

    def say(self, words: str) -> None:
        """Show these words behind the bar."""
        self.words = words
        self.face.show(self)

    @property
    def seconds(self) -> float:
        """Seconds since the work began."""
        return time.monotonic() - self.began

    @property
    def left(self) -> float | None:
        """The seconds that the rest will take at the rate so far; None where nothing can be said yet."""
        new = self.n - self.before
        return self.seconds * max(0, self.total - self.n) / new if new and self.total is not None else None

    @property
    def remark(self) -> str:
        return ", ".join(filter(None, (self.words, self.inside)))


class Face:
    """How a bar is drawn; this base class draws nothing."""

    def show(self, bar: Bar) -> None:
        """Draw the bar after a change."""

    def end(self, bar: Bar, stopped: bool) -> None:
        """Take the bar away: the work is over, or was stopped."""

    def within(self, outer: Bar) -> Face:
        """How bars of work inside this work are drawn."""
        return Face()


class ToFunction(Face):
    """No bar: a caller's own function is called with done, total and the seconds left."""

    def __init__(self, function: OnProgress) -> None:
        self.function = function

    def show(self, bar: Bar) -> None:
        self.function(bar.n, bar.total, bar.left)


class OnTerminal(Face):
    """A bar with the time that is left, gone when the work is over."""

    def __init__(self, file: TextIO, position: int | None, close: bool) -> None:
        self.file, self.position, self.close = file, position, close
        self.drawn: tqdm | None = None
        self.last = 0.0

    def show(self, bar: Bar) -> None:
        if self.drawn is None:
            how = {"unit_scale": True} if bar.unit == "B" else {}
            self.drawn = tqdm(total=bar.total, desc=bar.what, unit=bar.unit, leave=False, file=self.file,
                              position=self.position, smoothing=0, dynamic_ncols=True, **how)  # fmt: skip
        if time.monotonic() - self.last < OFTEN and bar.n != bar.total:
            return
        self.drawn.n, self.drawn.initial, self.drawn.total = bar.n, bar.before, bar.total
        self.drawn.set_postfix_str(bar.remark)
        self.last = time.monotonic()

    def end(self, bar: Bar, stopped: bool) -> None:
        if self.drawn is not None:
            self.drawn.close()
        if self.close:
            self.file.close()

    def within(self, outer: Bar) -> Face:
        return Behind(outer)


class Behind(Face):
    """Work inside other work, written behind the outer bar: two bars would overwrite each other in a notebook."""

    def __init__(self, outer: Bar) -> None:
        self.outer = outer

    def show(self, bar: Bar) -> None:
        self.outer.inside = f"{bar.what} {_amount(bar)}{f', {bar.remark}' * bool(bar.remark)}"
        self.outer.face.show(self.outer)

    def end(self, bar: Bar, stopped: bool) -> None:
        self.outer.inside = ""

    def within(self, outer: Bar) -> Face:
        return Behind(outer)


class InLines(Face):
    """A line for every tenth of the work, and one at the end; none if it is over soon. Never more than a dozen."""

    def __init__(self, soon: float) -> None:
        self.soon, self.mark, self.lines = soon, 0, 0

    def show(self, bar: Bar) -> None:
        if bar.seconds < self.soon or bar.n == bar.total:
            return
        mark = min(9, 10 * bar.n // bar.total) if bar.total else int(log2(bar.seconds / self.soon))
        if mark > self.mark or (not self.lines and bar.seconds >= FIRST * self.soon):
            left = "" if bar.left is None else f", about {duration(bar.left)} left"
            self._print(bar, f"{_amount(bar)} in {duration(bar.seconds)}{left}")
        self.mark = max(mark, self.mark)

    def end(self, bar: Bar, stopped: bool) -> None:
        if bar.seconds >= self.soon:
            self._print(bar, f"{'stopped at ' * stopped}{_amount(bar)} in {duration(bar.seconds)}")

    def within(self, outer: Bar) -> Face:
        return InLines(SOON_INSIDE)

    def _print(self, bar: Bar, text: str) -> None:
        self.lines += 1
        print(f"{bar.what}: {text}{f' ({bar.words})' * bool(bar.words)}", file=sys.stderr, flush=True)


def _amount(bar: Bar) -> str:
    """How much of the work is done, in words: "3 of 12 runs", "20 of 170 MB"."""
    n, total, unit = bar.n, bar.total, f"{bar.unit}s"
    if bar.unit == "B":
        n, total, unit = round(n / 1e6), None if total is None else round(total / 1e6), "MB"
    return f"{n} {unit}" if total is None else f"{n} of {total} {unit}"


def duration(seconds: float) -> str:
    """Seconds for people.

    >>> [duration(s) for s in (7.4, 95, 3700, 200_000)]
    ['7 s', '2 min', '1 h 2 min', '2 d 7 h']
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours < 48 else f"{hours // 24} d {hours % 24} h"


class _Here(threading.local):
    """What goes on in one thread: the bars that are open, the outermost first, and who wants to be told."""

    def __init__(self) -> None:
        self.bars: list[Bar] = []
        self.told: OnProgress | None = None


_here = _Here()


@contextmanager
def bar_of(total: int | None, what: str, show: bool | OnProgress = True, unit: str = "round") -> Iterator[Bar]:
    """A bar over work of `total` units ("B" is bytes; None if nobody knows how many).

    show: False for silence, also inside; or a function that is told (done, total, seconds left) instead. What such a
    function raises ends the work.
    """
    bar = Bar(total, what, unit, _face(show))
    _here.bars.append(bar)
    stopped = True
    try:
        bar.face.show(bar)
        yield bar
        stopped = False
    finally:
        _here.bars.remove(bar)
        bar.face.end(bar, stopped)


@contextmanager
def reporting_to(function: OnProgress) -> Iterator[None]:
    """Everything in here tells a function how far it is, in place of bars: for a widget that has one of its own.

    It is told (done, total, seconds left) of each piece of work in turn, not of work inside work, and only of what this
    thread does. What it raises ends the work, with everything finished so far kept.
    """
    before, _here.told = _here.told, function
    try:
        yield
    finally:
        _here.told = before


def _face(show: bool | OnProgress) -> Face:
    if callable(show):
        return ToFunction(show)
    if not show:
        return Face()
    if _here.bars:
        return _here.bars[-1].face.within(_here.bars[-1])
    if _here.told:
        return ToFunction(_here.told)
    return _terminal() or (OnTerminal(sys.stderr, None, close=False) if _watched() else InLines(SOON))


def _terminal() -> Face | None:
    """The terminal that a notebook is executed from (FEDNB_TERMINAL), below the bar over its cells."""
    try:
        return OnTerminal(open(os.environ["FEDNB_TERMINAL"], "w"), 1, close=True)
    except (KeyError, OSError):
        return None


def _watched() -> bool:
    """Whether somebody looks at what is written: on a terminal, or in a notebook's front end."""
    return sys.stderr.isatty() or attended()


def attended() -> bool:
    """Whether a front end shows this cell: it names the cell that it asks for; papermill, nbmake, nbconvert do not."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    kernel = getattr(shell, "kernel", None)
    return kernel is not None and "cellId" in kernel.get_parent("shell").get("metadata", {})
