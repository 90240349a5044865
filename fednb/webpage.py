"""The table of claims as one web page: no server, no script from elsewhere, readable on a phone."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

from fednb.version import __version__

if TYPE_CHECKING:
    import pandas as pd

COLOURS = {"holds": "#0b6e4f", "does not hold": "#9b2226", "not decided": "#7a5c00"}  # dark enough on white
STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; margin: 1.5rem auto; max-width: 96rem; padding: 0 1rem; color: #1a1a1a }
table { border-collapse: collapse; width: 100%; margin: .5rem 0 2rem }
table.claims { table-layout: fixed }
th, td { border-bottom: 1px solid #ccc; padding: .4rem .5rem; text-align: left; vertical-align: top;
  overflow-wrap: anywhere }
th { position: sticky; top: 0; background: #f3f3f3 }
.numbers, summary, .quiet { font-size: 13px }
.badge { font-weight: 600 }
summary, .quiet { color: #555 }
input { font: inherit; padding: .3rem .5rem; width: min(30rem, 80%) }
@media (max-width: 800px) { td { display: block; border: 0; padding: .15rem 0 } thead, col { display: none }
  td::before { content: attr(data-name) ": "; color: #555; font-size: 13px }
  tr { display: block; border-bottom: 1px solid #aaa; padding: .5rem 0 } }
"""
SCRIPT = """
document.getElementById("find").addEventListener("input", event => {
  const words = event.target.value.toLowerCase().split(/\\s+/);
  for (const row of document.querySelectorAll("tr.claim"))
    row.hidden = !words.every(word => row.textContent.toLowerCase().includes(word));
});
"""
HEAD = {"claim": 25, "paper's numbers": 18, "ours": 18, "n": 3, "verdict": 9, "best evidence kept": 19, "notebook": 8}


def claims_page(found: pd.DataFrame, titles: dict[str, str]) -> str:
    """The page of `verify`'s table: counts by paper first, then every claim with its rule folded away.

    titles: the name of each paper by its id, in the order wanted.
    """
    scale = ", ".join(dict.fromkeys(found["scale"]))
    shown = {id: found[found["paper_id"] == id].reset_index().to_dict("records") for id in titles}
    body = "".join(_paper(id, titles[id], rows) for id, rows in shown.items() if rows)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>fednb: claims</title><style>{STYLE}</style></head>\n<body>"
        f'<h1>What the papers claim, and what we see</h1><p class="quiet">fednb {escape(__version__)}, {len(found)} '
        f"claims, run at scale {escape(scale)}. Each claim is a rule that numbers can fail; the paper's own numbers "
        "are put to the same rule.</p>\n"
        '<p><label>Find <input id="find" type="search" placeholder="a method, a table, a verdict"></label></p>\n'
        f"{_counts(shown)}{body}<script>{SCRIPT}</script></body></html>\n"
    )


def _counts(shown: dict[str, list[dict[str, Any]]]) -> str:
    """How many claims of each paper have which verdict: of the evidence kept, or else of this run."""
    kinds = list(dict.fromkeys([*COLOURS, *(_best(row)[0] for rows in shown.values() for row in rows)]))
    head = "".join(f"<th>{escape(kind)}</th>" for kind in ("paper", *kinds))
    lines = (
        _row({"paper": f'<a href="#{id}">{id}</a>'} | {k: str(sum(_best(row)[0] == k for row in rows)) for k in kinds})
        for id, rows in shown.items()
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table>\n"


def _row(cells: dict[str, str], kind: str = "") -> str:
    """A line of a table; on a narrow screen each cell says what it is."""
    inner = "".join(f'<td data-name="{escape(name)}">{text}</td>' for name, text in cells.items())
    start = f'<tr class="{kind}">' if kind else "<tr>"
    return f"{start}{inner}</tr>\n"


def _best(row: dict[str, Any]) -> tuple[str, str]:
    """The verdict that counts, and where it is from."""
    if row["best_verdict"]:
        return row["best_verdict"], f"{row['best_scale']} scale, n = {row['best_n']}: {row['best_ours']}"
    return row["verdict"], ""


def _paper(id: str, title: str, rows: list[dict[str, Any]]) -> str:
    widths = "".join(f'<col style="width:{width}%">' for width in HEAD.values())
    head = "".join(f"<th>{escape(name)}</th>" for name in HEAD)
    lines = "".join(_row(_claim(row), "claim") for row in rows)
    return (
        f'<h2 id="{id}">{escape(title)}</h2>\n<table class="claims"><colgroup>{widths}</colgroup>'
        f"<thead><tr>{head}</tr></thead>\n<tbody>{lines}</tbody></table>\n"
    )


def _claim(row: dict[str, Any]) -> dict[str, str]:
    text = {name: escape(str(value)) for name, value in row.items()}
    best, evidence = (_badge(row["best_verdict"]), escape(_best(row)[1])) if row["best_verdict"] else ("none", "")
    cells = (
        f"{text['says']}<details><summary>{text['claim']}: the rule</summary>{text['rule']}</details>",
        f'<span class="numbers">{text["paper"]}</span>',
        f'<span class="numbers">{text["ours"]}</span>',
        text["n"],
        _badge(row["verdict"]),
        f'{best} <span class="quiet">{evidence}</span>',
        f'<span class="numbers">{text["notebook"]}</span>',
    )
    return dict(zip(HEAD, cells, strict=True))


def _badge(verdict: str) -> str:
    return f'<span class="badge" style="color:{COLOURS.get(verdict, "#555")}">{escape(verdict)}</span>'
