"""Tables for a terminal whose long texts are wrapped inside their columns."""

from __future__ import annotations

from collections.abc import Iterable
from textwrap import wrap
from typing import Any


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
    lines = [_line([head for head, _ in heads.values()], widths), _line(["-" * width for width in widths], widths)]
    for row in rows:
        cells = [wrap(str(row[name]), width) or [""] for name, (_, width) in heads.items()]
        lines += [_line([c[i] if i < len(c) else "" for c in cells], widths) for i in range(max(map(len, cells)))]
    return "\n".join(lines)


def _line(texts: list[str], widths: list[int]) -> str:
    return "  ".join(text.ljust(width) for text, width in zip(texts, widths, strict=True)).rstrip()
