"""Claims at a glance: for each the printed effect and ours with its interval, in units of what is printed."""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from typing import Any

from fednb.study.claims import COLOURS, GROUPS, in_printed_units, outcome_class

Row = dict[str, Any]  # a claim, as `verify` tells it

LOW, HIGH = -1.5, 2.5  # printed effects: what lies beyond is drawn at the edge
WIDTH, LABEL, LINE, FOOT = 860, 400, 19, 34  # of the picture, its names, a claim, and the axis
TICKS = {-1.0: "-1", 0.0: "none", 1.0: "as printed", 2.0: "2"}
WORDS = "{} claims: our effect with its 90% interval, in units of the printed one"
STYLE = (
    "<style>text{font:13px sans-serif;fill:#222}.tick{stroke:#999}g{stroke:#666;stroke-width:2;color:#666}"
    "g text{stroke:none}circle{fill:currentColor;stroke:none}.printed{fill:none;stroke-width:1.4}"
    ".holds{stroke:#1b7f4b;color:#1b7f4b}.fails{stroke:#b3261e;color:#b3261e}.open{stroke:#8a6100;color:#8a6100}</style>"
    '<rect width="100%" height="100%" fill="#fff"/>'
)  # of a picture that stands alone


def forest(rows: list[Row], url: Callable[[Row], str]) -> str:
    """The claims with an effect that the paper prints too, grouped by verdict, as HTML; "" where there are none.

    url: the address of a claim.
    """
    shown = _shown(rows)
    if not shown:
        return ""
    words = WORDS.format(len(shown))
    return (
        f'<figure><svg class="forest" role="group" aria-label="{words}" viewBox="0 0 {WIDTH} {_height(shown)}">'
        f"{_inside(shown, url)}</svg>"
        f'<figcaption class="quiet">{words} (diamond); what lies outside is drawn at the edge.</figcaption></figure>\n'
    )


def drawing(rows: list[Row]) -> str:
    """The picture of `forest` as the text of an SVG file that stands alone; "" where there is nothing to draw."""
    shown = _shown(rows)
    if not shown:
        return ""
    height = _height(shown)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}">'
        f"<title>{WORDS.format(len(shown))}</title>{STYLE}\n{_inside(shown)}</svg>\n"
    )


def _shown(rows: list[Row]) -> list[Row]:
    """The claims that are drawn, in their order."""
    comparable = [row for row in rows if in_printed_units(row) is not None]
    return sorted(comparable, key=lambda row: GROUPS.index(outcome_class(row["verdict"])))


def _height(shown: list[Row]) -> int:
    return LINE * len(shown) + FOOT


def _inside(shown: list[Row], url: Callable[[Row], str] | None = None) -> str:
    """The axis, and a line for each claim."""
    height = _height(shown)
    axis = "".join(
        f'<line class="tick" x1="{_x(at):.1f}" x2="{_x(at):.1f}" y1="4" y2="{height - FOOT + 6}"/>'
        f'<text text-anchor="middle" x="{_x(at):.1f}" y="{height - 14}">{name}</text>'
        for at, name in TICKS.items()
    )
    return axis + "".join(_line(row, i, url(row) if url else "") for i, row in enumerate(shown))


def _x(value: float) -> float:
    """Where a number of printed effects lies."""
    return LABEL + (WIDTH - LABEL - 20) * (min(max(value, LOW), HIGH) - LOW) / (HIGH - LOW)


def _line(row: Row, i: int, url: str) -> str:
    """One claim: its name and verdict, the interval, our effect, the printed one."""
    y, measured = LINE * (i + 0.75), in_printed_units(row) or {}
    low, at, high, printed = (_x(measured[name]) for name in ("low", "effect", "high", "printed"))
    kind = COLOURS.get(outcome_class(row["verdict"]), "")
    name = escape(f"{row['claim']}: {row['verdict'].partition(' (')[0]}, n = {row['n']}")
    text = f'<text text-anchor="end" x="{LABEL - 10}" y="{y + 4:.1f}">{name}</text>'
    linked = f'<a href="{escape(url)}">{text}</a>' if url else text
    return (
        f'<g class="{kind}">{linked}<line x1="{low:.1f}" x2="{high:.1f}" y1="{y:.1f}" y2="{y:.1f}"/>'
        f'<circle cx="{at:.1f}" cy="{y:.1f}" r="4"/>'
        f'<path class="printed" d="M{printed:.1f} {y - 5:.1f}l5 5l-5 5l-5 -5z"/></g>'
    )
