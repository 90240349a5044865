"""Make the site from what is in the store and in the papers: nothing is executed, and no run is started."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from fednb.base import files
from fednb.base.files import DamagedFile
from fednb.base.locks import lock
from fednb.base.progress import Bar, bar_of
from fednb.base.version import commit
from fednb.runs.grid import SCALES
from fednb.runs.store import home
from fednb.show.site.api import api_pages
from fednb.show.site.book import Book, short
from fednb.show.site.claims import Row, static
from fednb.show.site.front import benchmarks_page, front_page, gallery_page, notebooks_page, paper_page, papers_page
from fednb.show.site.methods import methods_page
from fednb.show.site.notebook import notebook_page
from fednb.show.site.pages import Frame, Picture, SitePage, built
from fednb.show.site.report import report_page
from fednb.show.site.sound import Reading
from fednb.show.site.text import needed
from fednb.study import notebooks
from fednb.study.measured import not_run
from fednb.study.paper import Paper, papers, shelf
from fednb.study.verify import BEST, Judge, kept_section, recalled

if TYPE_CHECKING:
    import pandas as pd

STATIC = ("style.css", "filter.js", "search.js", "moves.js")
LIST = "site.json"  # every file of the site
MOST_BYTES = 40_000_000  # of a site: it is downloaded, copied and put on the web as a whole
UNREADABLE = (DamagedFile, OSError, LookupError, ValueError, TypeError, AttributeError)  # of tables that are damaged


class NothingExecuted(ValueError):
    """There are neither kept results nor executed notebooks to show."""


class NotASite(ValueError):
    """A folder that the site would replace holds something else."""


@dataclass(frozen=True)
class Site:
    """A site that was made: its first page; what is wrong: a line for each damaged file, left out, and for its size."""

    first: Path
    wrong: tuple[str, ...]


def publish(out: Path, scale: str = "") -> Site:
    """Write the site into a folder, replacing an older one as a whole; files that others put there stay.

    scale: of the executed copies that are shown; without it, of each notebook the largest. What is damaged is left
    out, and told.
    """
    needed()
    out = out.resolve()
    with lock(home() / "publish.lock", "another process publishes from this store; waiting for it"):
        files.sweep(out.parent, of=out.name)
        return _publish(out, scale)


def _publish(out: Path, scale: str) -> Site:
    others, judge = _others(out), cache(kept_section)
    books = [Book.of(name, scale, judge) for name in notebooks.names()]
    if not any(book.scale or book.wrong for book in books):
        at = f" at scale {scale}" if scale else ""
        raise NothingExecuted(
            f"nothing is kept and no notebook was executed{at} into {home()}; `make site` does it, or `fednb notebook "
            "--all`"
        )
    seen = Reading([line for book in books for line in book.wrong])
    with bar_of(len(books), "site", unit="notebook") as bar:
        pages = list(_pages(books, scale, bar, seen, judge))
    with _instead_of(out) as fresh:
        _write(pages, fresh)
        seen.wrong += _too_large(fresh)
        _carry(others, out, fresh)
    return Site(out / "index.html", tuple(dict.fromkeys(seen.wrong)))


def _pages(books: list[Book], scale: str, bar: Bar, seen: Reading, judge: Judge) -> Iterator[SitePage]:
    known = [papers(id) for id in papers().index] + _study()
    found = claims(known, {book.name: book for book in books}, scale, seen, judge)
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
    yield from report_page(known, [book.name for book in books])
    yield notebooks_page(books, titles)
    yield papers_page(known)
    yield from (paper_page(paper, {book.name: book for book in books}, found) for paper in known)
    yield methods_page(known)
    yield gallery_page(pictures, titles)
    yield benchmarks_page(home() / "bench", seen)
    yield from api_pages()


def _study() -> list[Paper]:
    """Our own study across the papers, which is not listed among them."""
    found = (papers(file.parent.name) for file in sorted(shelf("papers").glob("*/paper.toml")))
    return [each for each in found if each.about.get("study")]


def _of(book: Book, rows: list[Row]) -> list[Row]:
    return [row for row in rows if row["notebook"] == book.name]


def claims(known: list[Paper], books: dict[str, Book], scale: str, seen: Reading, judge: Judge) -> pd.DataFrame:
    """All claims, judged on what executed notebooks measured, each beside what was kept. judge: of what was kept."""
    import pandas as pd

    todo = [(paper, name) for paper in known for name in dict.fromkeys(claim.section for claim in paper.claims())]
    tables = []
    with bar_of(len(todo), "claims", unit="section") as bar:
        for paper, name in todo:
            book = books.get(paper.about["sections"][name]["notebook"])
            executed = book.scale if book and not book.shown else ""
            tables.append(_recalled(paper, name, executed or scale or SCALES[0], judge))
            bar.update()
    found = pd.concat(tables)
    seen.wrong += dict.fromkeys(_failure(row) for row in found.to_dict("records") if row["failed"])
    return found


def _failure(row: Row) -> str:
    """Why a section has no verdicts; with the command that makes its tables again, where the reason brings none."""
    again = f"`fednb notebook {row['notebook']} --scale {row['scale']}` makes its tables again"
    whole = f"{row['paper_id']} {row['section']}: {row['failed']}; {again}"
    return row["failed"] if "`fednb " in row["failed"] else whole


def _recalled(paper: Paper, name: str, scale: str, judge: Judge) -> pd.DataFrame:
    """The claims of one section; where a table behind them cannot be read at all, none of them is judged."""
    try:
        return recalled(paper, name, scale, judge)
    except UNREADABLE as error:
        why = " ".join(f"its tables cannot be read ({type(error).__name__}: {error})".split())
    about = {"section": name, "notebook": paper.about["sections"][name]["notebook"], "paper_id": paper.id,
             "scale": scale, "failed": why} | {f"best_{column}": "" for column in BEST}  # fmt: skip
    claims = paper.claims(name)
    return not_run(claims, {claim.id: why for claim in claims}).assign(**about)


def _write(pages: list[SitePage], folder: Path) -> None:
    now = datetime.now(UTC).strftime("%d %B %Y, %H:%M UTC")
    frame = Frame(frozenset(page.url for page in pages), built(short(commit()), now))
    for page in pages:
        _put(folder / unquote(page.url), _bytes(frame.around(page)))
        for url, thing in page.files.items():
            _put(folder / unquote(url), thing if isinstance(thing, bytes) else thing.read_bytes())
    for name in STATIC:
        _put(folder / name, static(name).encode())
    found = [[f.kind, f.title, f.url, f.text] for page in pages for f in page.found]
    _put(folder / "search-index.js", _bytes(f"window.fednbIndex = {script_json(found)};\n"))
    written = sorted(file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file())
    files.write_json(folder / LIST, {"files": [*written, LIST]})


def _too_large(folder: Path) -> list[str]:
    """A line that says how large a site is and which files make it so, where it has more than MOST_BYTES."""
    sizes = {file.relative_to(folder).as_posix(): file.stat().st_size for file in folder.rglob("*") if file.is_file()}
    if (total := sum(sizes.values())) <= MOST_BYTES:
        return []
    largest = sorted(sizes, key=lambda name: -sizes[name])[:3]
    told = ", ".join(f"{name} {sizes[name] / 1e6:.1f} MB" for name in largest)
    return [f"the site has {total / 1e6:.1f} MB, more than {MOST_BYTES / 1e6:.0f} MB; the largest: {told}"]


def script_json(what: object) -> str:
    """JSON for a script: nothing in it ends the script, begins a comment, or breaks a line.

    >>> script_json(["</script>"])
    '["\\\\u003c/script>"]'
    """
    text = json.dumps(what, ensure_ascii=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _bytes(text: str) -> bytes:
    """As UTF-8; half of a pair of surrogates, which a notebook's JSON can hold, as a question mark."""
    return text.encode(errors="replace")


def _put(file: Path, data: bytes) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(data)


def _others(out: Path) -> list[Path]:
    """What others put into a site's folder; a folder that is not a site, or not one with a list, is refused."""
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return []
    try:
        mine = set(files.read_json(out / LIST)["files"])
    except (OSError, DamagedFile, LookupError, TypeError):
        raise NotASite(
            f"{out} is not empty and not a site of fednb (it has no list {LIST} of the files that are its own); name "
            "another folder with --out, or remove it"
        ) from None
    return sorted(path for path in out.rglob("*") if not path.is_dir() and path.relative_to(out).as_posix() not in mine)


def _carry(others: list[Path], out: Path, fresh: Path) -> None:
    """Take along what others put into the old site."""
    for path in others:
        target = fresh / path.relative_to(out)
        if target.exists():
            raise NotASite(f"{path} was not written by fednb, and the site has a file of that name; move it elsewhere")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, target, follow_symlinks=False)


@contextmanager
def _instead_of(out: Path) -> Iterator[Path]:
    """A fresh folder beside the old one, which takes its place once it is whole; an interrupt leaves the old one."""
    files.new_folder(out.parent)
    fresh = files.new_folder(files.beside(out))
    try:
        yield fresh
        files.swap(fresh, out)
    except BaseException:
        shutil.rmtree(fresh, ignore_errors=True)
        files.restore(out)
        raise
