"""The page of one notebook: its results, kept or executed, where they are from, results of other scales, its claims."""

from __future__ import annotations

import copy
import json
import re
from functools import cache
from html import escape
from typing import Any

from fednb.runs.grid import SCALES
from fednb.show.explore.moves import MIME
from fednb.show.site.book import KEPT_AS, Book, KeptResults, caption, day, short, told_by
from fednb.show.site.claims import Row, as_evidence, badge, claims_table, folded, in_short, name_of
from fednb.show.site.moving import files_of, first_pictures, moving_html
from fednb.show.site.pages import Found, Picture, SitePage, address, facts, figure, href, table
from fednb.show.site.safe import harmless
from fednb.show.site.text import linked, rendered, slug, without_markup
from fednb.study.forest import forest
from fednb.study.verdict_text import interval
from fednb.study.verdict_text import short as shortened

WARNING = re.compile(r"\w*Warning: .*")
HEADING = re.compile(r'<h([23]) id="([^"]+)">(.*?)</h\1>', re.DOTALL)
TITLE = re.compile(r'\btitle ?= ?"([^"{]+)"')  # of a figure, in the cell that draws it
SHOWN = ("image/png", "image/jpeg", "text/html", "text/markdown", "text/latex", "text/plain")  # kinds of results
OF_CELL = re.compile(r"/\d+_\d+\.png\Z")  # the picture of a cell, by the numbers of cell and result
PYTHON = {"language_info": {"name": "python", "pygments_lexer": "ipython3"}}
Outputs = dict[str, bytes]  # pictures, by address


def notebook_page(book: Book, rows: list[Row], names: list[str], beside: tuple[Book | None, Book | None]) -> SitePage:
    """The whole page. rows: its claims; names: of all notebooks; beside: the one before and the one after."""
    taken = {"main", "claims", "kept", "search", "results"}
    body, outputs = converted(book, taken)
    pictures = _shown(book, outputs)
    kept, files, more = _kept(book)
    body = linked(body, names, lambda name: href(f"notebooks/{address(name)}.html", book.url))
    shown = [as_evidence(row) if book.shown or row["best_verdict"] else row for row in rows]
    table_of = claims_table(shown, _at_section, "section", named=True)
    own = f'<section id="claims"><h2>Claims</h2>\n{table_of}</section>' if rows else ""
    top = f"{_crumbs(book)}<h1>{rendered_title(book.title)}</h1>\n{_evidence(shown)}{_status(book)}"
    text = (
        f"{top}{_contents(body, bool(kept), bool(rows))}"
        f'<article class="notebook">\n{body}</article>\n{kept}{own}{_beside(book, beside)}'
    )
    found = [
        Found(
            "notebook", without_markup(rendered_title(book.title)), book.url, without_markup(_without_code(body))[:6000]
        )
    ]
    found += [
        Found("heading", without_markup(h), f"{book.url}#{address(id)}", book.title)
        for _, id, h in HEADING.findall(body)
    ]
    return SitePage(book.url, book.title, text, tuple(found), (*more, *pictures), files | outputs)


def _evidence(shown: list[Row]) -> str:
    """The verdicts of a notebook's claims at a glance, each with a link to its line below."""
    if not shown:
        return ""
    picture = forest(shown, lambda row: f"#{address(name_of(row))}")
    return f'<p class="lead"><a href="#claims">{escape(in_short(shown))}</a></p>\n{picture}'


def rendered_title(title: str) -> str:
    return rendered(title).strip().removeprefix("<p>").removesuffix("</p>")


def converted(book: Book, taken: set[str]) -> tuple[str, Outputs]:
    """The notebook's cells as HTML, without the title, and its pictures as files beside the page."""
    import nbformat

    content = _prepared(book)
    exporter = _exporter()
    exporter.register_filter("markdown2html", lambda source: rendered(source, taken))
    above, _, own = book.folder.rpartition("/")
    resources: dict[str, Any] = {"unique_key": own, "output_files_dir": own}
    html, resources = exporter.from_notebook_node(nbformat.reads(json.dumps(content), 4), resources)
    return html, files_of(book) | {f"{above}/{file}": data for file, data in resources["outputs"].items()}


@cache
def _exporter() -> Any:
    """nbconvert's smallest: bare elements, no scripts, no styles; pictures as files."""
    from nbconvert import HTMLExporter
    from traitlets.config import Config

    extract = {"enabled": True, "output_filename_template": "{cell_index}_{index}{extension}"}
    how = {"exclude_input_prompt": True, "exclude_output_prompt": True, "exclude_anchor_links": True}
    return HTMLExporter(Config({"ExtractOutputPreprocessor": extract}), template_name="basic", **how)


def _prepared(book: Book) -> dict[str, Any]:
    """A copy without its title, progress bars and widgets that need a kernel; every picture has words.

    Of what cells and results say about themselves nothing is taken along: it would get into the page as it is.
    """
    content = copy.deepcopy(book.content)
    first = content["cells"][0]
    first["source"] = re.sub(r"\A\s*# [^\n]*\n?", "", "".join(first["source"]))
    return content | {"metadata": PYTHON, "cells": [_cell(cell, book) for cell in content["cells"]]}


def _cell(cell: dict[str, Any], book: Book) -> dict[str, Any]:
    about = {"id": cell["id"], "metadata": {}, "source": "".join(cell["source"])}
    if cell["cell_type"] == "markdown":
        return about | {"cell_type": "markdown"}
    return about | {"cell_type": "code", "execution_count": None, "outputs": _outputs(cell, book)}


def _outputs(cell: dict[str, Any], book: Book) -> list[dict[str, Any]]:
    outputs = cell.get("outputs", [])
    errors = [o for o in outputs if o.get("name") == "stderr"]
    warned = dict.fromkeys(WARNING.findall("".join("".join(o["text"]) for o in errors)))
    kept = [o for o in outputs if o not in errors]
    for output in (o for o in kept if "data" in o):
        if moves := output["data"].get(MIME):
            output |= {"data": {"text/html": moving_html(moves, book, cell["id"])}, "metadata": {}}
            continue
        data = output["data"] = {kind: "".join(output["data"][kind]) for kind in SHOWN if kind in output["data"]}
        if "text/html" in data:
            data["text/html"] = harmless(data["text/html"])
        words = {"alt": words_of(cell, book)}
        output["metadata"] = {kind: words for kind in ("image/png", "image/jpeg") if kind in data}
    said = [{"output_type": "stream", "name": "stderr", "text": "\n".join(warned)}] if warned else []
    return [*(o for o in kept if o.get("data", True)), *said]


def words_of(cell: dict[str, Any], book: Book) -> str:
    """What a cell's picture shows: the title it is given, or the name under which it is kept, after the notebook's."""
    source = "".join(cell["source"])
    return _after_title(book, TITLE.findall(source) or [_words(name) for name in KEPT_AS.findall(source)])


def words_for(book: Book, kept: str) -> str:
    """What a picture shows that was kept under a name: the same, by the cell that keeps it."""
    cells = [c for c in book.content["cells"] if KEPT_AS.findall("".join(c["source"])) == [kept]]
    return words_of(cells[0], book) if cells else _after_title(book, [_words(kept)])


def _after_title(book: Book, given: list[str]) -> str:
    return ": ".join([without_markup(rendered_title(book.title)).replace(": ", ", "), *given[-1:]])


def _words(name: str) -> str:
    """fig_who_has_what as words."""
    return re.sub(r"^(fig(?=_)|\d+(?=_))", "", name).replace("_", " ").strip()


def _shown(book: Book, outputs: Outputs) -> list[Picture]:
    """The pictures of the executed cells."""
    told = caption(book.scale, book.runs)
    made = []
    for file in outputs:
        if OF_CELL.search(file):
            cell = book.content["cells"][int(file.rpartition("/")[2].split("_")[0])]
            made.append(Picture(file, words_of(cell, book), told, f"{book.url}#cell-id={cell['id']}"))
    return [*made, *first_pictures(book, told)]


def _crumbs(book: Book) -> str:
    up = f"papers/{address(book.paper)}.html"
    return (
        f'<nav class="crumbs" aria-label="Where this is"><a href="{href("notebooks.html", book.url)}">Notebooks</a>'
        + (f' › <a href="{href(up, book.url)}">{escape(book.paper)}</a>' if book.paper else "")
        + f" › {escape(book.name.rpartition('/')[2])}</nav>\n"
    )


def _status(book: Book) -> str:
    """Where the page is from."""
    command = f"<code>fednb notebook {escape(book.name)} --scale {book.scale or 'smoke'}</code>"
    lines = "".join(f'<p class="note bad">Not shown: {escape(line)}.</p>\n' for line in book.wrong)
    if not book.scale:
        return f'{lines}<p class="note">Not executed yet: text and code without results. {command} makes them.</p>\n'
    if book.shown:
        return f"{lines}{_from_kept(book, book.shown)}"
    if book.scale == SCALES[0] and book.paper:
        lines += '<p class="note">Smoke scale, no evidence: no results of a larger scale are kept.</p>\n'
    about, wrong = book.executed, book.errors
    if wrong:
        lines += f'<p class="note bad">{wrong} cell{"s" * (wrong != 1)} of this execution ended in an error.</p>\n'
    if book.stopped:
        lines += '<p class="note bad">This execution was interrupted; what it had not reached is missing.</p>\n'
    if book.outdated:
        lines += '<p class="note">The notebook was changed since; this is what was executed.</p>\n'
    told = {"executed": _when(about), "commit": short(about.get("commit"))} | dict(told_by(book.runs))
    escaped = {name: escape(value) for name, value in told.items()}
    shown = {"scale": f"<strong>{book.scale}</strong>"} | escaped | {"again": command}
    return f"{lines}{_folded_away(book, facts(shown))}"


def _folded_away(book: Book, told: str) -> str:
    """Where a page is from, behind a line with its scale, seeds and precision."""
    line = f"Where this page is from: {escape(caption(book.scale, book.runs))}"
    return f'<details class="from"><summary>{line}</summary>{told}</details>\n'


def _from_kept(book: Book, kept: KeptResults) -> str:
    """Where a page is from whose figures and tables were kept with the paper."""
    said = f"Figures and tables are those kept with the paper at {kept.scale} scale; nothing was executed here."
    return f'<p class="note">{said}</p>\n{_folded_away(book, _from(kept))}'


def _when(about: dict[str, Any]) -> str:
    """The day of an execution, and how long it took."""
    duration = about.get("duration")
    took = f", in {duration:.0f} s" if duration and isinstance(duration, int | float) else ""
    return day(about["start_time"]) + took if about.get("start_time") else ""


def _contents(body: str, kept: bool, claims: bool) -> str:
    heads = [(id, without_markup(text)) for level, id, text in HEADING.findall(body) if level == "2"]
    links = [f'<li><a href="#{address(id)}">{escape(text)}</a></li>' for id, text in heads]
    links += ['<li><a href="#kept">Kept results</a></li>'] * kept + ['<li><a href="#claims">Claims</a></li>'] * claims
    return f'<nav class="contents" aria-label="On this page"><ul>{"".join(links)}</ul></nav>\n' if links else ""


def _kept(book: Book) -> tuple[str, dict[str, Any], list[Picture]]:
    """What was kept and does not stand beneath the cells: its HTML, its files, its pictures for the gallery."""
    files: dict[str, Any] = {}
    pictures: list[Picture] = []
    parts = []
    above = {name for cell in book.content["cells"] for name in KEPT_AS.findall("".join(cell["source"]))}
    for kept in book.kept:
        name, told, own = f"kept-{kept.scale}", caption(kept.scale, kept.runs), kept is book.shown
        shown = ""
        for file in (file for file in kept.pictures if not own or file.stem not in above):
            url, place = f"{book.folder}/{kept.scale}_{address(file.name)}", f"{name}-{slug(file.stem)}"
            words = words_for(book, file.stem)
            files[url] = file
            pictures.append(Picture(url, words, told, f"{book.url}#{address(place)}"))
            shown += figure(href(url, book.url), words, told, place)
        if shown or not own:
            head = "" if own else f"{_from(kept)}{_verdicts(kept)}"
            parts.append(f'<h3 id="{name}">{kept.scale} scale</h3>\n{head}{shown}')
    text = f'<section id="kept"><h2>Kept results</h2>\n{"".join(parts)}</section>\n' if parts else ""
    return text, files, pictures


def _from(kept: KeptResults) -> str:
    command, _, remarks = kept.command.partition("\n")
    more = (
        f"<details><summary>How it was run</summary><pre>{escape(remarks.strip())}</pre></details>\n" if remarks else ""
    )
    told = {name: escape(value) for name, value in told_by(kept.runs)}
    return facts({"command": f"<code>{escape(command)}</code>", **told}) + more


def _verdicts(kept: KeptResults) -> str:
    rows = kept.verdicts.to_dict("records")
    cells = ([escape(r["says"]), badge(r["verdict"]), escape(str(r["n"])), escape(interval(r)),
              escape(shortened(r["printed"])), folded(r["ours"])] for r in rows)  # fmt: skip
    return table(("claim", "verdict", "n", "effect [interval]", "printed", "seen"), cells, "verdicts") if rows else ""


def _at_section(row: Row) -> str:
    return escape(str(row["section"]))


def _without_code(body: str) -> str:
    """The text that a person would search for: not the code, not the tables of numbers, not each picture's words."""
    body = re.sub(r'<figure[^>]* class="explorer".*?</figure>', " ", body, flags=re.DOTALL)
    body = re.sub(r'<div class="highlight.*?</div>', " ", body, flags=re.DOTALL)
    return re.sub(r'<table border="1" class="dataframe.*?</table>', " ", body, flags=re.DOTALL)


def _beside(book: Book, both: tuple[Book | None, Book | None]) -> str:
    """Links to the notebooks before and after this one."""
    links = [
        f'<a rel="{rel}" href="{href(other.url, book.url)}">'
        f"{sign[0]}{escape(without_markup(rendered_title(other.title)))}{sign[1]}</a>"
        for rel, other, sign in zip(("prev", "next"), both, (("← ", ""), ("", " →")), strict=True)
        if other
    ]
    return f'<nav class="beside" aria-label="Other notebooks">{"".join(links)}</nav>\n'
