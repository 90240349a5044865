"""Tables for a terminal whose long texts are wrapped inside their columns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from textwrap import wrap
from typing import Any

WIDTH = 100  # letters of a line in a terminal
NARROWEST = 6  # letters of a column


def in_columns(rows: Iterable[dict[str, Any]], heads: dict[str, tuple[str, int]]) -> str:
    """Rows below their heads, texts wrapped. heads: by the name of an entry, the words above it and its width.

    >>> print(in_columns([{"claim": "low frequencies matter", "n": 3}], {"claim": ("claim", 11), "n": ("n", 1)}))
    claim        n
    -----------  -
    low          3
    frequencies
    matter
    """
    widths = [width for _, width in heads.values()]
    named = [head for head, _ in heads.values()]
    lines = [*_wrapped(named, widths), _line(["-" * width for width in widths], widths)]
    for row in rows:
        lines += _wrapped([str(row[name]) for name in heads], widths)
    return "\n".join(lines)


def fitting(rows: Sequence[dict[str, Any]], width: int = WIDTH) -> str:
    """Rows below the names of their entries, in lines of at most `width` letters: the widest columns are wrapped.

    >>> print(fitting([{"name": "digits", "note": "small pictures"}], width=16))
    name    note
    ------  --------
    digits  small
            pictures
    """
    if not rows:
        return "none"
    rows = [{k: f"{v:.4g}" if isinstance(v, float) else v for k, v in row.items()} for row in rows]
    widths = {name: max(*map(len, name.split()), *(len(str(row[name])) for row in rows)) for name in rows[0]}
    while sum(widths.values()) + 2 * (len(widths) - 1) > width:
        widest = max(widths, key=lambda name: widths[name])
        if widths[widest] <= NARROWEST:
            break
        widths[widest] -= 1
    return in_columns(rows, {name: (name, width) for name, width in widths.items()})


def _wrapped(texts: list[str], widths: list[int]) -> list[str]:
    """One row: as many lines as its longest text needs."""
    cells = [wrap(text, width) or [""] for text, width in zip(texts, widths, strict=True)]
    return [_line([c[i] if i < len(c) else "" for c in cells], widths) for i in range(max(map(len, cells)))]


def _line(texts: list[str], widths: list[int]) -> str:
    return "  ".join(text.ljust(width) for text, width in zip(texts, widths, strict=True)).rstrip()
