"""The page of methods: what each costs, its card, its parts, and the tables and figures in which it is used."""

from __future__ import annotations

import inspect
from collections import defaultdict
from html import escape

from fednb.algorithms.cards import pseudo_code
from fednb.algorithms.catalogue import ALIASES, CATALOGUE, UnknownMethod, method
from fednb.core.cost import cost
from fednb.core.rounds import Method, Part
from fednb.runs.grid import SCALES
from fednb.show.site.pages import Found, SitePage, address, facts, href, table
from fednb.show.site.text import slug
from fednb.study.paper import Paper

URL = "methods.html"
HEADS = ("method", "paper", "gradients per step", "more per round", "down", "up", "traffic / FedAvg",
         "kept by a client", "used in")  # fmt: skip
SAID = """<p>What a method costs is seen by running it, not typed in: gradients of a local step, gradients beside the
steps per client and round, and numbers sent and kept, in models: 1 is one number per weight, 4 MB for a million weights
in fp32.</p>
"""
Uses = dict[str, list[tuple[str, str, str]]]  # by method: paper's id, section's title, notebook


def methods_page(shelf: list[Paper]) -> SitePage:
    """All methods of the catalogue."""
    used, names = uses(shelf), {paper.id for paper in shelf}
    rows = [_line(name, used) for name in CATALOGUE]
    cards = "".join(_card(name, used, names) for name in CATALOGUE)
    body = f"<h1>Methods</h1>\n{SAID}{table(HEADS, rows, 'methods')}<h2>Cards</h2>\n{cards}"
    found = tuple(
        Found("method", name, f"{URL}#{anchor(name)}", f"{entry.paper}. {_ideas(entry.method)} {_aliases(name)}")
        for name, entry in CATALOGUE.items()
    )
    return SitePage(URL, "Methods", body, found, wide=True)


def uses(shelf: list[Paper]) -> Uses:
    """The sections whose grids run each method, at any scale, by the papers' order."""
    found: Uses = defaultdict(list)
    for paper in shelf:
        for name, section in paper.about["sections"].items():
            if section.get("grid", True):
                for each in _methods_of(paper, name):
                    found[each].append((paper.id, section["title"], section["notebook"]))
    return found


def _methods_of(paper: Paper, grid: str) -> list[str]:
    """The catalogue's methods in a grid; one with other parameters is still that method."""
    made = dict.fromkeys(cell.method.name for scale in SCALES for cell in paper.grid(grid, scale).cells)
    return list(dict.fromkeys(found for name in made if (found := _known(name))))


def _known(name: str) -> str:
    """The catalogue's name of a method; nothing for a sum of ideas that has none."""
    try:
        return made if (made := method(name).name) in CATALOGUE else ""
    except UnknownMethod:
        return ""


def anchor(name: str) -> str:
    """Where a method's card stands: letters, digits and hyphens, which stand in an address as they are."""
    return "m-" + slug(name.replace("+", " plus "))


def _line(name: str, used: Uses) -> list[str]:
    seen, entry = cost(CATALOGUE[name].method), CATALOGUE[name]
    numbers = (seen.passes, seen.extra, seen.down, seen.up, seen.traffic, seen.kept)
    places = len({notebook for _, _, notebook in used.get(name, [])})
    return [f'<a href="#{anchor(name)}">{escape(name)}</a>', escape(entry.paper), *(f"{x:.3g}" for x in numbers),
            f"{places} notebook{'s' * (places != 1)}" if places else ""]  # fmt: skip


def _card(name: str, used: Uses, papers: set[str]) -> str:
    entry = CATALOGUE[name]
    told = {
        "paper": _source(entry.paper, papers),
        "in Python": f"<code>{escape(f'fn.method({name.lower()!r})')}</code>",
        "used in": _places(used.get(name, [])),
    }
    items = "".join(f"<li><code>{escape(repr(p))}</code> {escape(_idea(p))}</li>" for p in entry.method.parts)
    parts = f"<ul>{items}</ul>" if items else ""
    return (
        f'<section class="card" id="{anchor(name)}"><h3>{escape(name)}</h3>\n{facts(told)}'
        f'<pre tabindex="0">{escape(pseudo_code(entry.method))}</pre>\n{parts}</section>\n'
    )


def _places(found: list[tuple[str, str, str]]) -> str:
    """Links to the notebooks that run it; many of them are folded away."""
    links = "".join(
        f'<li><a href="{href(f"notebooks/{address(notebook)}.html", URL)}">{escape(paper)}: {escape(title)}</a></li>'
        for paper, title, notebook in found
    )
    if not links:
        return ""
    count = f"{len(found)} table{'s' * (len(found) != 1)} or figure{'s' * (len(found) != 1)}"
    return f"<details{' open' * (len(found) <= 4)}><summary>{count}</summary><ul>{links}</ul></details>"


def _source(paper: str, papers: set[str]) -> str:
    """The paper that it is from; a link where that is one of ours."""
    url = f"papers/{address(paper.lower())}.html"
    return f'<a href="{href(url, URL)}">{escape(paper)}</a>' if paper.lower() in papers else escape(paper)


def _aliases(name: str) -> str:
    """All that it is found as, without case and punctuation."""
    return ", ".join(alias for alias, known in ALIASES.items() if known == name)


def _idea(part: Part) -> str:
    """The first line of a part's description."""
    return (inspect.getdoc(type(part)) or "").split("\n\n")[0].replace("\n", " ")


def _ideas(made: Method) -> str:
    return " ".join(f"{type(p).__name__}: {_idea(p)}" for p in made.parts)
