"""An explorer on a page without a kernel: native controls over pictures that were drawn when it was executed."""

from __future__ import annotations

import hashlib
from html import escape
from typing import Any

from fednb.show.explore.moves import MIME, Move, Moving, State
from fednb.show.site.book import Book
from fednb.show.site.pages import Picture, href
from fednb.show.site.safe import harmless
from fednb.show.site.text import without_markup

SIZE = slice(16, 24)  # where a PNG file says its width and height
NEEDS = "The controls need JavaScript. Without it this is one of {count} pictures."
MORE = "{count} pictures, drawn beforehand at {scale} scale. In JupyterLab (<code>make lab</code>) every control moves."


def explorers(book: Book) -> list[tuple[dict[str, Any], Moving]]:
    """The explorers of an executed notebook that can move, each with its cell."""
    outputs = ((cell, output) for cell in book.content["cells"] for output in cell.get("outputs", []))
    return [(cell, Moving.read(o["data"][MIME])) for cell, o in outputs if MIME in o.get("data", {})]


def files_of(book: Book) -> dict[str, bytes]:
    """The pictures of its explorers by address; one that several states share is there once."""
    states = (state for _, moving in explorers(book) for state in moving.states)
    return {_url(book, state): state.picture for state in states if state.picture}


def first_pictures(book: Book, told: str) -> list[Picture]:
    """For the gallery, of each explorer what it shows at first. told: from what runs."""
    return [
        Picture(_url(book, moving.first), _words(moving, moving.first), told, f"{book.url}#cell-id={cell['id']}")
        for cell, moving in explorers(book)
        if moving.first.picture
    ]


def moving_html(data: Any, book: Book, cell: str) -> str:
    """An explorer as HTML, from a cell's result. cell: the cell's id.

    All states are in the page, and all but one hidden: without JavaScript it is a picture with its words.
    """
    moving = Moving.read(data)
    count = len(moving.states)
    controls = "".join(_control(each, f"{cell}-{each.name}") for each in moving.moves)
    states = "".join(_state(moving, each, book) for each in moving.states)
    return (
        f'<figure class="explorer" role="group" aria-label="{escape(moving.title)}">'
        f'<div class="moves" hidden>{controls}</div>'
        f'<p class="note unmoved">{NEEDS.format(count=count)}</p>'
        f'<div aria-live="polite">{states}</div>'
        f'<figcaption class="quiet">{MORE.format(count=count, scale=escape(book.scale))}</figcaption></figure>'
    )


def _control(move: Move, id: str) -> str:
    """A slider with its value beside it, or a list to choose from."""
    labels = [label for label, _ in move.options]
    name = f'<label for="{escape(id)}">{escape(move.label)}</label>'
    about = f'id="{escape(id)}" data-move="{move.name}" autocomplete="off"'
    if not move.slides:
        chosen = [" selected" if i == move.start else "" for i in range(len(labels))]
        options = "".join(f"<option{on}>{escape(label)}</option>" for on, label in zip(chosen, labels, strict=True))
        return f'<div class="move">{name}<select {about}>{options}</select></div>'
    marks = "".join(f'<option value="{i}" label="{escape(label)}"></option>' for i, label in enumerate(labels))
    now = escape(labels[move.start])
    return (
        f'<div class="move">{name}<input type="range" {about} min="0" max="{len(labels) - 1}" value="{move.start}" '
        f'list="{escape(id)}-marks" aria-valuetext="{now}"><output for="{escape(id)}">{now}</output>'
        f'<datalist id="{escape(id)}-marks">{marks}</datalist></div>'
    )


def _state(moving: Moving, state: State, book: Book) -> str:
    at = " ".join(f"{name}={number}" for name, number in state.at.items())
    hidden = "" if state is moving.first else " hidden"
    return (
        f'<div class="state" data-at="{escape(at)}"{hidden}>{_image(moving, state, book)}{harmless(state.words)}</div>'
    )


def _image(moving: Moving, state: State, book: Book) -> str:
    if not state.picture:
        return ""
    width, height = (int.from_bytes(state.picture[SIZE][at : at + 4], "big") for at in (0, 4))
    return (
        f'<img src="{href(_url(book, state), book.url)}" alt="{escape(_words(moving, state))}" width="{width}" '
        f'height="{height}" loading="lazy">'
    )


def _words(moving: Moving, state: State) -> str:
    """What a picture shows: the explorer, what its controls say, and the words under the picture."""
    options = {move.name: (move.label, [label for label, _ in move.options]) for move in moving.moves}
    said = (f"{options[name][0]} {options[name][1][number]}" for name, number in state.at.items())
    return f"{moving.title}; {', '.join(said)}. {without_markup(harmless(state.words))}".strip()


def _url(book: Book, state: State) -> str:
    """The address of a picture, by its content."""
    return f"{book.folder}/{hashlib.sha256(state.picture).hexdigest()[:16]}.png"
