"""The front page with the claims of all papers, and the lists of papers, notebooks, figures and benchmarks."""

from __future__ import annotations

from functools import partial
from html import escape
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from fednb.runs.bench import kept
from fednb.show.site.book import Book, seeds
from fednb.show.site.claims import FIND, Row, as_evidence, by_paper, claims_table, counts, decided, is_judged, name_of
from fednb.show.site.notebook import rendered_title
from fednb.show.site.pages import Found, Picture, SitePage, address, href, table
from fednb.show.site.sound import Reading, checked_benchmark
from fednb.show.site.text import linked, reading_log, rendered, without_markup
from fednb.study import map as map_of_papers
from fednb.study.forest import forest
from fednb.study.paper import Paper

if TYPE_CHECKING:
    import pandas as pd

WELCOME = """<h1>What the papers claim, and what we see</h1>
<p class="lead">fednb reproduces papers on federated learning, notebook by notebook: methods that look uphill before
they step, and methods that filter low frequencies out of what clients send. Each notebook is one table or figure; it
states the paper's claim, runs the experiment, and ends in a verdict.</p>
"""
RULES = """<p>Each claim is a rule that numbers can fail; the paper's own numbers are put to the same rule. What counts
is the difference between methods seed by seed, with its interval, in every setting that the claim is about. Only paper
scale says that a claim holds or does not; laptop scale, smaller data and a smaller model, says seen, not seen or not
clear. Verdicts are judged anew from the kept numbers whenever this page is made.</p>
"""
ERRORS = """<p>{decided} verdicts here are for or against a claim. The rule lets each be wrong in about one case of
twenty at most, so up to {wrong} of them may be.</p>
"""
HOW = """<h2 id="how-to-run">How to run this</h2>
<p><code>make demo</code> runs one notebook at smoke scale, on handwritten digits in seconds, which shows that all of it
runs and is evidence of nothing. <code>fednb notebook fedfft/01 --scale laptop --keep</code> makes results and keeps
them; <code>fednb verify --all</code> lists every claim as here.</p>
"""
OWN = {"": "To begin with", "explore": "To play with"}  # folders of notebooks that belong to no paper


def front_page(found: pd.DataFrame, shelf: list[Paper]) -> SitePage:
    """Counts by paper, and every claim with its evidence and the place where it is looked at."""
    titles = {paper.id: paper.about["title"] for paper in shelf}
    shown = {id: _evidence_first(rows) for id, rows in by_paper(found, titles).items()}
    tables = "".join(
        f'<section><h2 id="{escape(id)}"><a href="{_of_paper(id)}">{escape(titles[id])}</a></h2>\n'
        f"{forest(rows, lambda row: href(_url(row), 'index.html'))}{claims_table(rows, _where)}</section>\n"
        for id, rows in shown.items()
    )
    errors = ERRORS.format(decided=decided(shown), wrong=ceil(decided(shown) / 20))
    body = f'{WELCOME}<div class="scroll" tabindex="0">{counts(shown)}</div>\n{RULES}{errors}{FIND}{tables}{HOW}'
    seen = [
        Found("claim", row["says"], _url(row), f"{id} {row['claim']} {row['verdict']}")
        for id, rows in shown.items() for row in rows
    ]  # fmt: skip
    return SitePage("index.html", "Claims", body, tuple(seen), wide=True)


def _evidence_first(rows: list[Row]) -> list[Row]:
    """Claims as the evidence has them, those that were not run last."""
    return sorted(map(as_evidence, rows), key=lambda row: not is_judged(row))


def _url(row: Row) -> str:
    return f"notebooks/{address(row['notebook'])}.html#{address(name_of(row))}"


def _of_paper(id: str) -> str:
    """The address of a paper's page."""
    return f"papers/{address(id)}.html"


def _where(row: Row) -> str:
    """A link to the line of the claim on its notebook's page."""
    paper, _, name = row["notebook"].partition("/")
    return f'<a href="{href(_url(row), "index.html")}">{escape(paper)}/<wbr>{escape(name.split("_")[0])}</a>'


def papers_page(shelf: list[Paper]) -> SitePage:
    """The list of papers."""
    items = "".join(
        f'<li><a href="{_of_paper(paper.id)}"><strong>{escape(paper.about["title"])}</strong></a><br>'
        f'<span class="quiet">{escape(paper.about["authors"])}; {escape(paper.about["venue"])}</span></li>\n'
        for paper in shelf
    )
    return SitePage("papers.html", "Papers", f'<h1>Papers</h1>\n<ul class="list">{items}</ul>')


def paper_page(paper: Paper, books: dict[str, Book], known: pd.DataFrame | None = None) -> SitePage:
    """One paper: what it is, which notebook shows which section, and how it was read. known: see `map_lines`."""
    url, about = _of_paper(paper.id), paper.about
    rows = [
        ["<br>".join(map(escape, line.titles)), _link(books.get(line.notebook), url), str(line.claims),
         rendered(line.found)] for line in map_of_papers.map_lines(paper, known)
    ]  # fmt: skip
    log = paper.readings.partition("\n")[2]  # without its title
    read = linked(reading_log(log), books, lambda name: href(f"notebooks/{address(name)}.html", url))
    below = read.replace("<h2 ", "<h3 ").replace("</h2>", "</h3>")
    body = (
        f"<h1>{escape(about['title'])}</h1>\n<p>{escape(about['citation'])}</p>\n"
        f"<p>{escape(about['authors'])}; {escape(about['venue'])}. Code: {escape(about.get('code', 'none'))}.</p>\n"
        f'<p><a href="{href(f"index.html#{address(paper.id)}", url)}">Its claims</a>, '
        '<a href="#how">how it was read</a>.</p>\n'
        f"<h2>Sections</h2>\n{table(('sections', 'notebook', 'claims', 'found so far'), rows)}"
        f'<h2 id="how">How it was read</h2>\n<div class="log">{below}</div>'
    )
    found = [Found("paper", about["title"], url, f"{paper.id} {about['authors']} {about['venue']}")]
    found += _entries(read, url, paper.id)
    return SitePage(url, about["title"], body, tuple(found))


def _entries(read: str, url: str, id: str) -> list[Found]:
    """The entries of a reading log."""
    blocks = read.split('<h2 id="')[1:]
    return [
        Found("reading", f"{id}: {name}", f"{url}#{address(name)}", without_markup(rest.partition("</h2>")[2]))
        for name, _, rest in (block.partition('"') for block in blocks)
    ]


def _link(book: Book | None, here: str) -> str:
    return f'<a href="{href(book.url, here)}">{rendered_title(book.title)}</a>' if book else ""


def notebooks_page(books: list[Book], titles: dict[str, str]) -> SitePage:
    """The list of notebooks: what is shown of each, and what was kept."""
    url, parts = "notebooks.html", []
    for folder in dict.fromkeys(book.name.rpartition("/")[0] for book in books):
        mine = [book for book in books if book.name.rpartition("/")[0] == folder]
        rows = [
            [
                _link(book, url),
                book.scale or "not executed",
                f"{len(book.runs)}, n = {seeds(book.runs)}" if book.runs else "",
                ", ".join(f"{k.scale}, n = {seeds(k.runs)}" if k.runs else k.scale for k in book.kept),
                f'<span class="badge fails">{book.errors}</span>' if book.errors else "",
            ]
            for book in mine
        ]
        heads = ("notebook", "scale shown", "runs", "kept", *(["errors"] if any(row[-1] for row in rows) else []))
        title = titles.get(folder) or OWN.get(folder, folder)
        parts.append(f"<h2>{escape(title)}</h2>\n{table(heads, (row[: len(heads)] for row in rows), 'notebooks')}")
    return SitePage(url, "Notebooks", f"<h1>Notebooks</h1>\n{''.join(parts)}")


def gallery_page(pictures: list[Picture], titles: dict[str, str]) -> SitePage:
    """All figures, those of larger scales first where a notebook has both; each leads to its place."""
    parts = ""
    for folder in dict.fromkeys(_folder(each) for each in pictures):
        mine = "".join(_framed(each) for each in pictures if _folder(each) == folder)
        title = titles.get(folder) or OWN.get(folder, folder)
        parts += f'<section><h2>{escape(title)}</h2>\n<div class="gallery">{mine}</div></section>\n'
    find = FIND.replace("a method, a table, a verdict", "a paper, a figure, a scale")
    return SitePage("gallery.html", "Gallery", f"<h1>Gallery</h1>\n{find}{parts}", wide=True)


def _folder(picture: Picture) -> str:
    """The folder of the notebook that shows it."""
    return unquote(picture.url.partition("#")[0]).removeprefix("notebooks/").rpartition("/")[0]


def _framed(picture: Picture) -> str:
    return (
        f'<figure><a href="{href(picture.url, "gallery.html")}"><img src="{escape(picture.file)}" loading="lazy" '
        f'alt="{escape(picture.words)}"></a><figcaption>{escape(picture.words)} '
        f'<span class="quiet">{escape(picture.told)}</span></figcaption></figure>\n'
    )


def benchmarks_page(folder: Path, seen: Reading) -> SitePage:
    """Figures that came with this version, and what `fednb bench ... --out FILE` wrote into a folder here."""
    here = {file.stem: seen.or_else(None, partial(checked_benchmark, file)) for file in sorted(folder.glob("*.json"))}
    shown = {name: result for name, result in (here | kept.results()).items() if result}
    parts = "".join(_bench(name, result) for name, result in shown.items())
    commands = escape((kept.FOLDER / "commands.txt").read_text(encoding="utf-8"))
    body = (
        f"<h1>Benchmarks</h1>\n{parts}<h2>How those that came with this version were made</h2>\n<pre>{commands}</pre>"
    )
    return SitePage("benchmarks.html", "Benchmarks", body, wide=True)


def _bench(name: str, result: dict[str, Any]) -> str:
    """One benchmark: its workload, a line for each row, the machine; columns without a number are left out."""
    rows = result["rows"]
    heads = [
        head
        for head in dict.fromkeys(key for row in rows for key in row)
        if any(row.get(head) not in (None, "") for row in rows)
    ]
    cells = ([escape(_number(row.get(head))) for head in heads] for row in rows)
    machine = "; ".join(f"{key} {value}" for key, value in result.get("machine", {}).items() if value)
    work = f"<p>{escape(what)}</p>\n" if (what := kept.workload(result)) else ""
    words = (head.replace("_", " ") for head in heads)
    return f'<h2>{escape(name)}</h2>\n{work}{table(words, cells)}<p class="quiet">{escape(machine)}</p>\n'


def _number(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(_number, value))
    return "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)
