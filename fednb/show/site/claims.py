"""The table of claims: on the site's front page, on each notebook's page, or as one web page by itself."""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fednb.base.version import __version__
from fednb.show.site.pages import address
from fednb.study.map import VERDICTS

if TYPE_CHECKING:
    import pandas as pd

Row = dict[str, Any]  # a claim, as `verify` tells it
Where = Callable[[Row], str]  # from a claim to the HTML that says where it is looked at

KINDS = {"holds": "holds", "does not hold": "fails", "not decided": "open"}  # verdicts and their classes
COUNTED = VERDICTS | {"only ran": "ran (", "not run": "not run"}  # heads of columns, and how the verdicts begin
LONG = 150  # characters of numbers that are shown; more are folded away
FIND = (
    '<p><label>Find <input id="find" type="search" placeholder="a method, a table, a verdict"></label> '
    '<span id="shown" class="quiet" role="status"></span></p>\n'
)
HEAD = {"claim": 25, "paper's numbers": 18, "ours": 18, "n": 3, "verdict": 9, "best evidence kept": 19}
REST = 8  # the width that is left for where a claim is looked at


def claims_page(found: pd.DataFrame, titles: dict[str, str]) -> str:
    """The page of `verify`'s table: counts by paper first, then every claim with its rule folded away.

    titles: the name of each paper by its id, in the order wanted.
    """
    scale = ", ".join(dict.fromkeys(found["scale"]))
    shown = by_paper(found, titles)
    body = "".join(
        f'<section><h2 id="{escape(id)}">{escape(titles[id])}</h2>\n{claims_table(rows)}</section>'
        for id, rows in shown.items()
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>fednb: claims</title><style>{static('style.css')}</style></head>\n<body><main class=wide>"
        f'<h1>What the papers claim, and what we see</h1><p class="quiet">fednb {escape(__version__)}, {len(found)} '
        f"claims, run at scale {escape(scale)}. Each claim is a rule that numbers can fail; the paper's own numbers "
        f"are put to the same rule.</p>\n{counts(shown)}{FIND}{body}</main>"
        f"<script>{static('filter.js')}</script></body></html>\n"
    )


def static(name: str) -> str:
    """A file of the site, for a page that has to carry it inside."""
    return (Path(__file__).parent / "static" / name).read_text(encoding="utf-8")


def by_paper(found: pd.DataFrame, titles: dict[str, str]) -> dict[str, list[Row]]:
    """The claims of each paper that has some."""
    shown = {id: found[found["paper_id"] == id].reset_index().to_dict("records") for id in titles}
    return {id: rows for id, rows in shown.items() if rows}


def counts(shown: dict[str, list[Row]]) -> str:
    """How many claims of each paper have which verdict: of the evidence kept, or else of this run."""
    head = "".join(f'<th scope="col">{escape(kind)}</th>' for kind in ("paper", "claims", *COUNTED))
    lines = (
        _row({"paper": f'<a href="#{address(id)}">{escape(id)}</a>', "claims": str(len(rows))} |
             {kind: str(sum(_best(row)[0].startswith(begin) for row in rows)) for kind, begin in COUNTED.items()})
        for id, rows in shown.items()
    )  # fmt: skip
    return f'<table class="counts"><thead><tr>{head}</tr></thead><tbody>{"".join(lines)}</tbody></table>\n'


def claims_table(rows: list[Row], where: Where | None = None, place: str = "notebook", named: bool = False) -> str:
    """One line per claim, with its place, which is called a notebook or a section; `named` lines can be linked to."""
    heads = [*HEAD, place]
    widths = "".join(f'<col style="width:{width}%">' for width in (*HEAD.values(), REST))
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in heads)
    lines = "".join(
        _row(dict(zip(heads, _claim(row, where), strict=True)), "claim", name_of(row) if named else "") for row in rows
    )
    return (
        f'<table class="claims"><colgroup>{widths}</colgroup><thead><tr>{head}</tr></thead>\n'
        f"<tbody>{lines}</tbody></table>\n"
    )


def name_of(row: Row) -> str:
    """What links to a claim's line say after #."""
    return f"claim-{row['claim']}"


def _row(cells: dict[str, str], kind: str = "", name: str = "") -> str:
    """A line of a table; on a narrow screen each cell says what it is."""
    inner = "".join(f'<td data-name="{escape(head)}">{text}</td>' for head, text in cells.items())
    own = (f' class="{kind}"' if kind else "") + (f' id="{escape(name)}"' if name else "")
    return f"<tr{own}>{inner}</tr>\n"


def _best(row: Row) -> tuple[str, str]:
    """The verdict that counts, and where it is from."""
    if row["best_verdict"]:
        return row["best_verdict"], f"{row['best_scale']} scale, n = {row['best_n']}: {row['best_ours']}"
    return row["verdict"], ""


def _claim(row: Row, where: Where | None) -> tuple[str, ...]:
    text = {name: escape(str(value)) for name, value in row.items()}
    best, evidence = (badge(row["best_verdict"]), folded(_best(row)[1])) if row["best_verdict"] else ("none", "")
    place = where(row) if where else text["notebook"]
    scale = f' <span class="quiet">{text["scale"]} scale</span>' if row["verdict"] in KINDS else ""
    return (
        f"{text['says']}<details><summary>{text['claim']}: the rule</summary>"
        f'<span class="rule">{text["rule"]}</span></details>',
        f'<span class="numbers">{folded(row["paper"])}</span>',
        f'<span class="numbers">{folded(row["ours"])}</span>',
        text["n"],
        badge(row["verdict"]) + scale,
        f'{best} <span class="quiet">{evidence}</span>',
        f'<span class="numbers">{place}</span>',
    )


def folded(text: Any) -> str:
    """Long texts show their beginning, and the rest when asked."""
    whole = str(text)
    if len(whole) <= LONG:
        return escape(whole)
    begin = whole[: whole.rfind(" ", 0, LONG)]
    return f"<details><summary>{escape(begin)} …</summary>{escape(whole)}</details>"


def badge(verdict: str) -> str:
    """A verdict in its colour; the word says it too, and remarks in brackets are quiet."""
    word, sign, remark = str(verdict).partition(" (")
    said = f' <span class="quiet">({escape(remark)}</span>' if sign else ""
    return f'<span class="badge {KINDS.get(verdict, "")}">{escape(word)}</span>{said}'
