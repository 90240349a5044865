"""The page of one notebook: its executed copy, where that is from, what was kept from larger scales, its claims."""

from __future__ import annotations

import copy
import json
import re
from functools import cache
from html import escape
from typing import Any

from fednb.site.book import Book, KeptResults, day, seeds, short, told_by
from fednb.site.claims import Row, badge, claims_table, folded
from fednb.site.pages import Found, Page, Picture, facts, figure, href, table
from fednb.site.text import linked, plain, rendered, slug

WARNING = re.compile(r"\w*Warning: .*")
HEADING = re.compile(r'<h([23]) id="([^"]+)">(.*?)</h\1>', re.DOTALL)
TITLE = re.compile(r'\btitle ?= ?"([^"{]+)"')  # of a figure, in the cell that draws it
KEPT_AS = re.compile(r'page\.keep\(\s*"([^"]+)"')
Outputs = dict[str, bytes]  # pictures, by address


def notebook_page(book: Book, rows: list[Row], names: list[str], beside: tuple[Book | None, Book | None]) -> Page:
    """The whole page. rows: its claims; names: of all notebooks; beside: the one before and the one after."""
    taken = {"main", "claims", "kept", "search", "results"}
    body, outputs = converted(book, taken)
    pictures = _shown(book, outputs)
    kept, files, more = _kept(book)
    body = linked(body, names, lambda name: href(f"notebooks/{name}.html", book.url))
    table_of = claims_table(rows, _at_section, "section", named=True)
    own = f'<section id="claims"><h2>Claims</h2>\n{table_of}</section>' if rows else ""
    top = f"{_crumbs(book)}<h1>{rendered_title(book.title)}</h1>\n{_status(book)}"
    text = (
        f"{top}{_contents(body, bool(kept), bool(rows))}"
        f'<article class="notebook">\n{body}</article>\n{kept}{own}{_beside(book, beside)}'
    )
    found = [Found("notebook", plain(rendered_title(book.title)), book.url, plain(_without_code(body))[:6000])]
    found += [Found("heading", plain(h), f"{book.url}#{id}", book.title) for _, id, h in HEADING.findall(body)]
    return Page(book.url, book.title, text, tuple(found), (*more, *pictures), files | outputs)


def rendered_title(title: str) -> str:
    return rendered(title).strip().removeprefix("<p>").removesuffix("</p>")


def converted(book: Book, taken: set[str]) -> tuple[str, Outputs]:
    """The notebook's cells as HTML, without the title, and its pictures as files beside the page."""
    import nbformat

    content = _prepared(book)
    exporter = _exporter()
    exporter.register_filter("markdown2html", lambda source: rendered(source, taken))
    short = book.folder.rpartition("/")[2]
    resources: dict[str, Any] = {"unique_key": short, "output_files_dir": short}
    html, resources = exporter.from_notebook_node(nbformat.reads(json.dumps(content), 4), resources)
    above = book.folder.rpartition("/")[0]
    return html, {f"{above}/{file}": data for file, data in resources["outputs"].items()}


@cache
def _exporter() -> Any:
    """nbconvert's smallest: bare elements, no scripts, no styles; pictures as files."""
    from nbconvert import HTMLExporter
    from traitlets.config import Config

    extract = {"enabled": True, "output_filename_template": "{cell_index}_{index}{extension}"}
    how = {"exclude_input_prompt": True, "exclude_output_prompt": True, "exclude_anchor_links": True}
    return HTMLExporter(Config({"ExtractOutputPreprocessor": extract}), template_name="basic", **how)


def _prepared(book: Book) -> dict[str, Any]:
    """A copy without its title, progress bars and widgets that nobody can move; every picture has words."""
    content = copy.deepcopy(book.content)
    content["metadata"].pop("widgets", None)
    first = content["cells"][0]
    first["source"] = re.sub(r"\A\s*# [^\n]*\n?", "", "".join(first["source"]))
    for cell in (c for c in content["cells"] if c["cell_type"] == "code"):
        cell["outputs"] = _outputs(cell, book)
    return content


def _outputs(cell: dict[str, Any], book: Book) -> list[dict[str, Any]]:
    errors = [o for o in cell["outputs"] if o.get("name") == "stderr"]
    warned = dict.fromkeys(WARNING.findall("".join("".join(o["text"]) for o in errors)))
    kept = [o for o in cell["outputs"] if o not in errors]
    for output in kept:
        data = output.get("data", {})
        if "text/html" in data:
            data["text/html"] = re.sub(r"<style scoped>.*?</style>", "", "".join(data["text/html"]), flags=re.DOTALL)
        if "image/png" in data:
            output["metadata"] = {"image/png": {"alt": words_of(cell, book)}}
    said = [{"output_type": "stream", "name": "stderr", "text": "\n".join(warned)}] if warned else []
    return [*kept, *said]


def words_of(cell: dict[str, Any], book: Book) -> str:
    """What a cell's picture shows: the title it is given, or the name under which it is kept, after the notebook's."""
    source = "".join(cell["source"])
    given = TITLE.findall(source) or [_words(name) for name in KEPT_AS.findall(source)]
    return ": ".join([plain(rendered_title(book.title)).replace(": ", ", "), *given[-1:]])


def words_for(book: Book, kept: str) -> str:
    """What a picture shows that was kept under a name: the same, by the cell that keeps it."""
    cells = [c for c in book.content["cells"] if KEPT_AS.findall("".join(c["source"])) == [kept]]
    return words_of(cells[0] if cells else {"source": f'page.keep("{kept}"'}, book)


def _words(name: str) -> str:
    """fig_who_has_what as words."""
    return re.sub(r"^(fig(?=_)|\d+(?=_))", "", name).replace("_", " ").strip()


def _shown(book: Book, outputs: Outputs) -> list[Picture]:
    """The pictures of the executed cells."""
    told = f"{book.scale} scale, n = {seeds(book.runs)}" if book.runs else f"{book.scale} scale"
    made = []
    for file in outputs:
        if file.endswith(".png"):
            cell = book.content["cells"][int(file.rpartition("/")[2].split("_")[0])]
            made.append(Picture(file, words_of(cell, book), told, f"{book.url}#cell-id={cell['id']}"))
    return made


def _crumbs(book: Book) -> str:
    up = f"papers/{book.paper}.html" if book.paper else "notebooks.html"
    return (
        f'<nav class="crumbs" aria-label="Where this is"><a href="{href("notebooks.html", book.url)}">Notebooks</a>'
        + (f' › <a href="{href(up, book.url)}">{book.paper}</a>' if book.paper else "")
        + f" › {escape(book.name.rpartition('/')[2])}</nav>\n"
    )


def _status(book: Book) -> str:
    """Where the page is from."""
    command = f"<code>fednb notebook {escape(book.name)} --scale {book.scale or 'smoke'}</code>"
    if not book.scale:
        return f'<p class="note">Not executed yet: text and code without results. {command} makes them.</p>\n'
    about, wrong = book.executed, book.errors
    lines = ""
    if wrong:
        lines += f'<p class="note bad">{wrong} cell{"s" * (wrong != 1)} of this execution ended in an error.</p>\n'
    if book.stopped:
        lines += '<p class="note bad">This execution was interrupted; what it had not reached is missing.</p>\n'
    if book.outdated:
        lines += '<p class="note">The notebook was changed since; this is what was executed.</p>\n'
    told = {"scale": f"<strong>{book.scale}</strong>", "executed": _when(about), "commit": short(about.get("commit"))}
    told |= {name: escape(value) for name, value in told_by(book.runs)} | {"again": command}
    return f'{lines}<details class="from" open><summary>Where this page is from</summary>{facts(told)}</details>\n'


def _when(about: dict[str, Any]) -> str:
    """The day of an execution, and how long it took."""
    took = f", in {about['duration']:.0f} s" if about.get("duration") else ""
    return day(about["start_time"]) + took if about.get("start_time") else ""


def _contents(body: str, kept: bool, claims: bool) -> str:
    links = [f'<li><a href="#{id}">{plain(text)}</a></li>' for level, id, text in HEADING.findall(body) if level == "2"]
    links += ['<li><a href="#kept">Kept from larger scales</a></li>'] * kept + [
        '<li><a href="#claims">Claims</a></li>'
    ] * claims
    return f'<nav class="contents" aria-label="On this page"><ul>{"".join(links)}</ul></nav>\n' if links else ""


def _kept(book: Book) -> tuple[str, dict[str, Any], list[Picture]]:
    """What was kept from larger scales: its HTML, its files, its pictures for the gallery."""
    files: dict[str, Any] = {}
    pictures: list[Picture] = []
    parts = []
    for kept in book.kept:
        name, n = f"kept-{kept.scale}", seeds(kept.runs)
        told = f"{kept.scale} scale" + f", n = {n}" * bool(n)
        shown = ""
        for file in kept.pictures:
            address = f"{book.folder}/{kept.scale}_{file.name}"
            words = words_for(book, file.stem)
            files[address] = file
            pictures.append(Picture(address, words, told, f"{book.url}#{name}-{slug(file.stem)}"))
            shown += figure(href(address, book.url), words, told, f"{name}-{slug(file.stem)}")
        parts.append(f'<h3 id="{name}">{kept.scale} scale</h3>\n{_from(kept)}{_verdicts(kept)}{shown}')
    text = f'<section id="kept"><h2>Kept from larger scales</h2>\n{"".join(parts)}</section>\n' if parts else ""
    return text, files, pictures


def _from(kept: KeptResults) -> str:
    command, _, remarks = kept.command.partition("\n")
    more = (
        f"<details><summary>How it was run</summary><pre>{escape(remarks.strip())}</pre></details>\n" if remarks else ""
    )
    told = {name: escape(value) for name, value in told_by(kept.runs)}
    return facts({"command": f"<code>{escape(command)}</code>", **told}) + more


def _verdicts(kept: KeptResults) -> str:
    import pandas as pd

    file = kept.folder / "verdict.csv"
    if not file.exists():
        return ""
    rows = pd.read_csv(file).fillna("").to_dict("records")
    cells = ([escape(str(r["says"])), badge(r["verdict"]), str(r["n"]), folded(r["ours"])] for r in rows)
    return table(("claim", "verdict", "n", "seen"), cells, "verdicts")


def _at_section(row: Row) -> str:
    return escape(str(row["section"]))


def _without_code(body: str) -> str:
    """The text that a person would search for: not the code, not the tables of numbers."""
    body = re.sub(r'<div class="highlight.*?</div>', " ", body, flags=re.DOTALL)
    return re.sub(r'<table border="1" class="dataframe.*?</table>', " ", body, flags=re.DOTALL)


def _beside(book: Book, both: tuple[Book | None, Book | None]) -> str:
    """Links to the notebooks before and after this one."""
    links = [
        f'<a rel="{rel}" href="{href(other.url, book.url)}">{sign[0]}{plain(rendered_title(other.title))}{sign[1]}</a>'
        for rel, other, sign in zip(("prev", "next"), both, (("← ", ""), ("", " →")), strict=True)
        if other
    ]
    return f'<nav class="beside" aria-label="Other notebooks">{"".join(links)}</nav>\n'
