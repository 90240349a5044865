"""Draw an explorer's pictures beforehand, for a page that has its controls and no kernel."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from html import escape
from itertools import product
from typing import Any, Protocol

import ipywidgets as w

from fednb.show.explore.moves import CannotDraw, Move, Moving, State, Values

COLOURS = 128  # of a picture: a third of the bytes, and lines and letters look the same


class Drawing(Protocol):
    """What is asked of an explorer here."""

    title: str
    controls: dict[str, w.ValueWidget]

    @property
    def values(self) -> Values: ...

    def moves(self) -> list[Move]: ...

    def matters(self, values: Values) -> set[str]: ...

    def answer(self, values: Values) -> tuple[bytes, str]: ...


def move(explorer: Drawing, name: str, values: Sequence[Any], label: Callable[[Any], str] | None = None) -> Move:
    """A control of an explorer with a few values, under its own label; it starts at its own value, if that is offered.

    label: the words for a value, if they are not the usual ones.
    """
    control: Any = explorer.controls[name]
    options = tuple(((label or in_words)(value), value) for value in values)
    start = next((i for i, value in enumerate(values) if value == control.value), 0)
    return Move(name, control.description, options, start, slides=not isinstance(control, w.Dropdown | w.Checkbox))


def in_words(value: Any) -> str:
    """A control's value as it is shown.

    >>> in_words(True), in_words(0.05), in_words(100.0), in_words("iid")
    ('yes', '0.05', '100', 'iid')
    """
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)


def drawn(explorer: Drawing) -> Moving:
    """All pictures that an explorer's `moves` can ask for, drawn by the explorer itself."""
    moves = tuple(explorer.moves())
    states = (State(at, *still(explorer, values)) for at, values in planned(explorer, moves))
    return Moving(explorer.title, moves, tuple(states))


def planned(explorer: Drawing, moves: Sequence[Move]) -> Iterator[tuple[dict[str, int], Values]]:
    """What has to be drawn: the numbers of the options that matter, and all values of the explorer with them.

    Combinations that differ only in controls that do not matter there are drawn once.
    """
    seen = set()
    for numbers in product(*(range(len(each.options)) for each in moves)):
        chosen = {each.name: i for each, i in zip(moves, numbers, strict=True)}
        values = explorer.values | {each.name: each.options[chosen[each.name]][1] for each in moves}
        matter = explorer.matters(values)
        at = {name: i for name, i in chosen.items() if name in matter}
        if tuple(at.items()) not in seen:
            seen.add(tuple(at.items()))
            yield at, values


def still(explorer: Drawing, values: Values) -> tuple[bytes, str]:
    """A small picture of these values (PNG) and its words; where nothing can be drawn b"", and words that say why."""
    try:
        picture, words = explorer.answer(values)
    except CannotDraw as error:
        return b"", f"<p>{escape(str(error))}</p>"
    return small(picture), words


def small(picture: bytes) -> bytes:
    """A picture (PNG) with few colours."""
    from PIL import Image

    file = io.BytesIO()
    Image.open(io.BytesIO(picture)).convert("RGB").quantize(COLOURS).save(file, "png")
    return file.getvalue()
