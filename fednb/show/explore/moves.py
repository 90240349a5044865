"""Controls with pictures drawn beforehand, which a page can move without a kernel, as an executed copy carries them."""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from collections import Counter
from dataclasses import dataclass
from itertools import product
from typing import Any

MIME = "application/vnd.fednb.moves+json"  # in an executed copy
Values = dict[str, Any]  # of the controls, by name
NAME = re.compile(r"\w+")
PNG = b"\x89PNG\r\n\x1a\n"  # how such a file begins


class CannotDraw(ValueError):
    """Controls that fit together but show nothing, such as a client paired with itself; the text says what to do."""


@dataclass(frozen=True)
class Move:
    """A control with the few values that it offers.

    options: a label and a value each; start: the number of the option that is shown at first; slides: it is a slider,
    else a list to choose from.
    """

    name: str
    label: str
    options: tuple[tuple[str, Any], ...]
    start: int
    slides: bool


@dataclass(frozen=True)
class State:
    """A picture (PNG) and the words under it (HTML). at: the number of the option of each control that matters here.

    Where nothing can be drawn the picture is empty, and the words say why.
    """

    at: dict[str, int]
    picture: bytes
    words: str


@dataclass(frozen=True)
class Moving:
    """An explorer as a page shows it without a kernel: its controls, and one state for whatever they say."""

    title: str
    moves: tuple[Move, ...]
    states: tuple[State, ...]

    @property
    def first(self) -> State:
        """The state that is shown at first."""
        start = {move.name: move.start for move in self.moves}
        return next(each for each in self.states if each.at.items() <= start.items())

    def unanswered(self) -> list[dict[str, int]]:
        """The combinations of controls that have no state, or several."""
        counts = Counter(tuple(sorted(each.at.items())) for each in self.states)
        matters = {tuple(sorted(each.at)) for each in self.states}
        numbers = product(*(range(len(move.options)) for move in self.moves))
        said = (dict(zip((move.name for move in self.moves), each, strict=True)) for each in numbers)
        return [at for at in said if sum(counts[tuple((name, at[name]) for name in names)] for names in matters) != 1]

    def bundle(self) -> dict[str, Any]:
        """As a result of a cell, by its kind: pictures as text, of each control the labels of its options."""
        moves = [{"name": m.name, "label": m.label, "options": [label for label, _ in m.options], "start": m.start,
                  "slides": m.slides} for m in self.moves]  # fmt: skip
        states = [{"at": s.at, "picture": b64encode(s.picture).decode(), "words": s.words} for s in self.states]
        return {MIME: {"title": self.title, "moves": moves, "states": states}}

    @classmethod
    def read(cls, data: Any) -> Moving:
        """From a result of a cell; ValueError, KeyError, TypeError or AttributeError where it is not whole."""
        moves = tuple(_move(**each) for each in data["moves"])
        states = tuple(_state(**each) for each in data["states"])
        made = cls(str(data["title"]), moves, states)
        if made.unanswered():
            raise ValueError("not every combination of controls has one picture")
        return made


def _move(name: str, label: str, options: list[str], start: int, slides: bool) -> Move:
    texts = [name, label, *options]
    if not all(type(text) is str for text in texts) or not NAME.fullmatch(name) or start not in range(len(options)):
        raise ValueError(f"a control is not whole: {name!r}")
    return Move(name, label, tuple((each, each) for each in options), start, bool(slides))


def _state(at: dict[str, int], picture: str, words: str) -> State:
    data = b64decode(picture, validate=True)
    if type(words) is not str or (data and not data.startswith(PNG)):
        raise ValueError(f"a picture is not whole: {at}")
    return State(dict(at), data, words)
