"""Waiting for something that takes long: a bar among the outputs, and a way to stop it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import ipywidgets as w

from fednb.base.progress import OnProgress, bar_of, duration
from fednb.show.explore.frame import attended

Tick = Callable[[], None]


class Stopped(Exception):
    """Raised between two pieces of work: what is finished is kept, and the same work goes on from there."""


@contextmanager
def ticking(total: int, what: str, unit: str) -> Iterator[Tick]:
    """A bar that each call moves by one: among the outputs where a front end shows them, else in the usual way."""
    shown, tell = _among_outputs(what, unit)
    try:
        with bar_of(total, what, show=tell if attended() else total > 0, unit=unit) as bar:
            yield lambda: bar.update()
    finally:
        shown.close()


def _among_outputs(what: str, unit: str) -> tuple[w.Widget, OnProgress]:
    """A bar of its own, and the function that moves it; it appears when it is first told."""
    from IPython.display import display

    bar, said = w.IntProgress(), w.Label()
    shown = w.HBox([bar, said])

    def tell(done: int, total: int | None, left: float | None) -> None:
        bar.max, bar.value = total or 1, done
        said.value = f"{what}: {done} of {total} {unit}s" + ("" if left is None else f", about {duration(left)} left")
        if total and not done:
            display(shown)

    return shown, tell
