"""Make the site from what is in the store and in the papers: nothing is executed, and no run is started."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from fednb import notebooks
from fednb.grid import SCALES
from fednb.paper import Paper, papers, shelf
from fednb.progress import Bar, bar_of
from fednb.site.book import Book, short
from fednb.site.claims import Row, static
from fednb.site.front import benchmarks_page, front_page, gallery_page, notebooks_page, paper_page, papers_page
from fednb.site.methods import methods_page
from fednb.site.notebook import notebook_page
from fednb.site.pages import Frame, Page, Picture, built
from fednb.site.text import needed
from fednb.store import home
from fednb.verify import recalled
from fednb.version import commit

if TYPE_CHECKING:
    import pandas as pd

STATIC = ("style.css", "filter.js", "search.js")


class NothingExecuted(ValueError):
    """The store has no executed notebook to show."""


class NotASite(ValueError):
    """A folder that the site would replace holds something else."""


def publish(out: Path, scale: str = "") -> Path:
    """Write the site into a folder, replacing an older one as a whole; returns its first page.

    scale: of the executed copies that are shown; without it, of each notebook the largest.
    """
    needed()
    _check(out)
    books = [Book.of(name, scale) for name in notebooks.names()]
    if not any(book.scale for book in books):
        at = f" at scale {scale}" if scale else ""
        raise NothingExecuted(
            f"no notebook was executed{at} into {home()}; `make site` does it, or `fednb notebook --all`"
        )
    with bar_of(len(books), "site", unit="notebook") as bar:
        pages = list(_pages(books, scale, bar))
    with _instead_of(out) as fresh:
        _write(pages, fresh)
    return out / "index.html"


def _pages(books: list[Book], scale: str, bar: Bar) -> Iterator[Page]:
    known = [papers(id) for id in papers().index] + _study()
    found = claims(known, {book.name: book for book in books}, scale)
    rows = found.reset_index().to_dict("records")
    pictures: list[Picture] = []
    for at, book in enumerate(books):
        bar.say(book.name)
        around = (books[at - 1] if at else None, books[at + 1] if at + 1 < len(books) else None)
        page = notebook_page(book, _of(book, rows), [b.name for b in books], around)
        pictures += page.pictures
        yield page
        bar.update()
    titles = {paper.id: paper.about["title"] for paper in known}
    yield front_page(found, known)
    yield notebooks_page(books, titles)
    yield papers_page(known)
    yield from (paper_page(paper, {book.name: book for book in books}) for paper in known)
    yield methods_page(known)
    yield gallery_page(pictures, titles)
    yield benchmarks_page(home() / "bench")


def _study() -> list[Paper]:
    """Our own study across the papers, which is not listed among them."""
    found = (papers(file.parent.name) for file in sorted(shelf("papers").glob("*/paper.toml")))
    return [each for each in found if each.about.get("study")]


def _of(book: Book, rows: list[Row]) -> list[Row]:
    return [row for row in rows if row["notebook"] == book.name]


def claims(known: list[Paper], books: dict[str, Book], scale: str) -> pd.DataFrame:
    """All claims, each judged at the scale at which its notebook is shown, on what that measured."""
    import pandas as pd

    todo = [(paper, name) for paper in known for name in dict.fromkeys(claim.section for claim in paper.claims())]
    tables = []
    with bar_of(len(todo), "claims", unit="section") as bar:
        for paper, name in todo:
            book = books.get(paper.about["sections"][name]["notebook"])
            tables.append(recalled(paper, name, (book and book.scale) or scale or SCALES[0]))
            bar.update()
    return pd.concat(tables)


def _write(pages: list[Page], folder: Path) -> None:
    now = datetime.now(UTC).strftime("%d %B %Y, %H:%M UTC")
    frame = Frame(frozenset(page.url for page in pages), built(short(commit()), now))
    for page in pages:
        _put(folder / page.url, frame.around(page).encode())
        for url, thing in page.files.items():
            _put(folder / url, thing if isinstance(thing, bytes) else thing.read_bytes())
    for name in STATIC:
        _put(folder / name, static(name).encode())
    found = [[f.kind, f.title, f.url, f.text] for page in pages for f in page.found]
    text = json.dumps(found, ensure_ascii=False, separators=(",", ":"))
    _put(folder / "search-index.js", f"window.fednbIndex = {text};\n".encode())


def _put(file: Path, data: bytes) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(data)


def _check(out: Path) -> None:
    """A folder that is not an older site is not replaced."""
    if out.exists() and not (out.is_dir() and (not any(out.iterdir()) or (out / "search-index.js").exists())):
        raise NotASite(f"{out} is not empty and not a site of fednb; name another folder with --out, or remove it")


@contextmanager
def _instead_of(out: Path) -> Iterator[Path]:
    """A fresh folder beside the old one, which takes its place once it is whole; an interrupt leaves the old one."""
    out.parent.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))
    try:
        yield fresh
        fresh.chmod(0o755)
        old = fresh.with_name(fresh.name + ".old")
        if out.exists():
            out.rename(old)
        fresh.rename(out)
        shutil.rmtree(old, ignore_errors=True)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
