"""The table of claims: on the site's front page, on each notebook's page, or as one web page by itself."""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fednb.base.version import __version__
from fednb.runs.grid import SCALES
from fednb.show.site.pages import address
from fednb.study.claims import COLOURS, outcome_class
from fednb.study.verdict_text import interval, short
from fednb.study.verify import BEST

if TYPE_CHECKING:
    import pandas as pd

Row = dict[str, Any]  # a claim, as `verify` tells it
Where = Callable[[Row], str]  # from a claim to the HTML that says where it is looked at

COUNTED = {
    "hold": ("holds", "average"), "do not hold": ("fails",), "not decided": ("open",),
    "seen": ("seen", "seen-average"), "not seen": ("not-seen",), "not clear": ("unclear",),
    "by construction": ("construction",), "only ran": ("ran",), "not run": ("none", ""),
}  # fmt: skip  # heads of columns, and the classes of verdicts that are counted there
DECIDED = ("holds", "average", "fails", "seen", "seen-average", "not-seen")
LONG = 150  # characters of numbers that are shown; more are folded away
FIND = (
    '<p><label>Find <input id="find" type="search" placeholder="a method, a table, a verdict"></label> '
    '<span id="shown" class="quiet" role="status"></span></p>\n'
)
HEAD = {"claim": 29, "verdict": 13, "effect [interval]": 11, "printed": 7, "n": 4, "settings": 7, "seen": 20}
KEPT = "best evidence kept"
REST = 9  # the width that is left for where a claim is looked at, and for evidence beside a run


def claims_page(found: pd.DataFrame, titles: dict[str, str]) -> str:
    """The page of `verify`'s table: counts by paper first, then every claim with its rule folded away.

    titles: the name of each paper by its id, in the order wanted.
    """
    scale = ", ".join(dict.fromkeys(found["scale"]))
    shown = by_paper(found, titles)
    body = "".join(
        f'<section><h2 id="{escape(id)}">{escape(titles[id])}</h2>\n{claims_table(rows, kept=True)}</section>'
        for id, rows in shown.items()
    )
    counted = {id: [as_evidence(row) if row["best_verdict"] else row for row in rows] for id, rows in shown.items()}
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>fednb: claims</title><style>{static('style.css')}</style></head>\n<body><main class=wide>"
        f'<h1>What the papers claim, and what we see</h1><p class="quiet">fednb {escape(__version__)}, {len(found)} '
        f"claims, run at scale {escape(scale)}. Each claim is a rule that numbers can fail; the paper's own numbers "
        f"are put to the same rule.</p>\n{counts(counted)}{FIND}{body}</main>"
        f"<script>{static('filter.js')}</script></body></html>\n"
    )


def static(name: str) -> str:
    """A file of the site, for a page that has to carry it inside."""
    return (Path(__file__).parent / "static" / name).read_text(encoding="utf-8")


def by_paper(found: pd.DataFrame, titles: dict[str, str]) -> dict[str, list[Row]]:
    """The claims of each paper that has some."""
    shown = {id: found[found["paper_id"] == id].reset_index().to_dict("records") for id in titles}
    return {id: rows for id, rows in shown.items() if rows}


def as_evidence(row: Row) -> Row:
    """A claim as the evidence has it: kept, or executed at that scale or a larger one. Smoke scale is none."""
    larger = SCALES[1:]
    executed = row["scale"] in larger and outcome_class(row["verdict"]) not in ("none", "")
    if executed and (not row["best_verdict"] or larger.index(row["scale"]) >= larger.index(row["best_scale"])):
        return row
    kept = {name: row[f"best_{name}"] for name in BEST}
    if row["best_verdict"]:
        return row | kept
    command = f"fednb notebook {row['notebook']} --scale laptop"
    return row | kept | {"verdict": "not run", "ours": f"`{command}` runs it", "n": "", "scale": ""}


def counts(shown: dict[str, list[Row]]) -> str:
    """How many claims of each paper have which verdict."""
    kinds = {id: [outcome_class(row["verdict"]) for row in rows] for id, rows in shown.items()}
    heads = {head: classes for head, classes in COUNTED.items()
             if head != "only ran" or any("ran" in each for each in kinds.values())}  # fmt: skip
    top = "".join(f'<th scope="col">{escape(kind)}</th>' for kind in ("paper", "claims", *heads))
    lines = (
        _row({"paper": f'<a href="#{address(id)}">{escape(id)}</a>', "claims": str(len(found))} |
             {head: str(sum(kind in classes for kind in found)) for head, classes in heads.items()})
        for id, found in kinds.items()
    )  # fmt: skip
    return f'<table class="counts"><thead><tr>{top}</tr></thead><tbody>{"".join(lines)}</tbody></table>\n'


def in_short(rows: list[Row]) -> str:
    """How many claims there are, and how many of them have which verdict: "5 claims: 3 seen, 2 not run"."""
    kinds = [outcome_class(row["verdict"]) for row in rows]
    found = {head: sum(kind in classes for kind in kinds) for head, classes in COUNTED.items()}
    told = ", ".join(f"{count} {head}" for head, count in found.items() if count)
    return f"{len(rows)} claim{'s' * (len(rows) != 1)}: {told}"


def is_judged(row: Row) -> bool:
    """True for a claim of which there is a verdict, whichever."""
    return outcome_class(row["verdict"]) not in ("none", "")


def decided(shown: dict[str, list[Row]]) -> int:
    """How many verdicts are for or against a claim."""
    return sum(outcome_class(row["verdict"]) in DECIDED for rows in shown.values() for row in rows)


def claims_table(
    rows: list[Row], where: Where | None = None, place: str = "notebook", named: bool = False, kept: bool = False
) -> str:
    """One line per claim, with its place, which is called a notebook or a section; `named` lines can be linked to.

    kept: beside a run, what the kept evidence says.
    """
    beside = [KEPT] if kept else []
    heads = [*HEAD, *beside, place]
    widths = "".join(f'<col style="width:{width}%">' for width in (*HEAD.values(), *(REST for _ in (*beside, place))))
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in heads)
    lines = "".join(
        _row(dict(zip(heads, _claim(row, where, kept), strict=True)), "claim", name_of(row) if named else "")
        for row in rows
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


def _claim(row: Row, where: Where | None, kept: bool) -> list[str]:
    text = {name: escape(str(value)) for name, value in row.items()}
    place = where(row) if where else text["notebook"]
    scale = f' <span class="quiet">{text["scale"]} scale</span>' if outcome_class(row["verdict"]) in COLOURS else ""
    settings = f"{text['settings_run']} of {text['settings_claimed']}" if row["n"] else ""
    beside = [
        f'{badge(row["best_verdict"])} <span class="quiet">{_kept(row)}</span>' if row["best_verdict"] else "none"
    ]
    return [
        f"{text['says']}<details><summary>{text['claim']}: the rule</summary>"
        f'<span class="rule">{text["rule"]}</span></details>',
        f"{badge(row['verdict'])}{scale}{_run_as(row)}",
        escape(interval(row)),
        f"{escape(short(row['printed']))}{_told('the numbers', row['paper'])}",
        text["n"],
        settings,
        f'<span class="numbers">{folded(row["ours"])}</span>',
        *(beside if kept else []),
        f'<span class="numbers">{place}</span>',
    ]


def _kept(row: Row) -> str:
    return folded(f"{row['best_scale']} scale, n = {row['best_n']}: {row['best_ours']}")


def _run_as(row: Row) -> str:
    """How the runs were made, folded away."""
    told = [f"precision {row['precision']}" if row["precision"] else "", str(row["tuned"] or ""),
            f"not as in the paper: {row['protocol']}" if row["protocol"] else ""]  # fmt: skip
    return _told("how it was run", "; ".join(text for text in told if text))


def _told(head: str, text: Any) -> str:
    return f"<details><summary>{head}</summary>{escape(str(text))}</details>" if text else ""


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
    return f'<span class="badge {COLOURS.get(outcome_class(verdict), "")}">{escape(word)}</span>{said}'
