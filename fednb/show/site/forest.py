"""Claims at a glance: for each the printed effect and ours with its interval, in units of what is printed."""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from math import isfinite
from typing import Any

from fednb.show.site.claims import COLOURS, Row
from fednb.study.claims import GROUPS, outcome_class

LOW, HIGH = -1.5, 2.5  # printed effects: what lies beyond is drawn at the edge
WIDTH, LABEL, LINE, FOOT = 860, 400, 19, 34  # of the picture, its names, a claim, and the axis
TICKS = {-1.0: "-1", 0.0: "none", 1.0: "as printed", 2.0: "2"}


def forest(rows: list[Row], url: Callable[[Row], str]) -> str:
    """The claims with an effect that the paper prints too, grouped by verdict, as a picture; "" where there are none.

    url: the address of a claim.
    """
    shown = sorted(filter(_comparable, rows), key=lambda row: GROUPS.index(outcome_class(row["verdict"])))
    if not shown:
        return ""
    height = LINE * len(shown) + FOOT
    axis = "".join(
        f'<line class="tick" x1="{_x(at):.1f}" x2="{_x(at):.1f}" y1="4" y2="{height - FOOT + 6}"/>'
        f'<text text-anchor="middle" x="{_x(at):.1f}" y="{height - 14}">{name}</text>'
        for at, name in TICKS.items()
    )
    lines = "".join(_line(row, i, url(row)) for i, row in enumerate(shown))
    words = f"{len(shown)} claims: our effect with its 90% interval, in units of the printed one"
    return (
        f'<figure><svg class="forest" role="group" aria-label="{words}" viewBox="0 0 {WIDTH} {height}">'
        f"{axis}{lines}</svg>"
        f'<figcaption class="quiet">{words} (diamond); what lies outside is drawn at the edge.</figcaption></figure>\n'
    )


def _comparable(row: Row) -> bool:
    """True for a claim about a difference, with numbers of ours and of the paper."""
    return row["reading"] == "above" and all(map(_is_number, (row["effect"], row["printed"]))) and row["printed"] != 0


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and isfinite(value)


def _x(value: float) -> float:
    """Where a number of printed effects lies."""
    return LABEL + (WIDTH - LABEL - 20) * (min(max(value, LOW), HIGH) - LOW) / (HIGH - LOW)


def _line(row: Row, i: int, url: str) -> str:
    """One claim: its name and verdict, the interval, our effect, the printed one."""
    y, size = LINE * (i + 0.75), abs(row["printed"])
    low, at, high, printed = (_x(row[name] / size) for name in ("low", "effect", "high", "printed"))
    kind = COLOURS.get(outcome_class(row["verdict"]), "")
    name = escape(f"{row['claim']}: {row['verdict'].partition(' (')[0]}, n = {row['n']}")
    return (
        f'<g class="{kind}"><a href="{escape(url)}"><text text-anchor="end" x="{LABEL - 10}" y="{y + 4:.1f}">{name}'
        f'</text></a><line x1="{low:.1f}" x2="{high:.1f}" y1="{y:.1f}" y2="{y:.1f}"/>'
        f'<circle cx="{at:.1f}" cy="{y:.1f}" r="4"/>'
        f'<path class="printed" d="M{printed:.1f} {y - 5:.1f}l5 5l-5 5l-5 -5z"/></g>'
    )
