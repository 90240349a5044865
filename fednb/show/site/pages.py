"""A page of the site: what it says, what it brings along, and the frame around all of them."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from urllib.parse import quote

from fednb.base.version import __version__

NAVIGATION = {
    "index.html": "Claims", "report.html": "Report", "notebooks.html": "Notebooks", "papers.html": "Papers",
    "methods.html": "Methods", "gallery.html": "Gallery", "benchmarks.html": "Benchmarks", "api.html": "API",
}  # fmt: skip


@dataclass(frozen=True)
class Found:
    """Something that the search can find."""

    kind: str  # notebook, heading, claim, method, paper, reading, api
    title: str
    url: str
    text: str = ""


@dataclass(frozen=True)
class Picture:
    """A figure of the gallery: its file, what it shows, from what runs, and the place on a page where it stands."""

    file: str
    words: str
    told: str
    url: str


@dataclass(frozen=True)
class SitePage:
    """One page: its address in the site, its title as text, its body as HTML, and what it brings along.

    Addresses are quoted (see `address`). files: what is copied beside it, by address: a path, or the bytes themselves.
    """

    url: str
    title: str
    body: str
    found: tuple[Found, ...] = ()
    pictures: tuple[Picture, ...] = ()
    files: dict[str, Path | bytes] = field(default_factory=dict)
    wide: bool = False


@dataclass(frozen=True)
class Frame:
    """What all pages share: which addresses of the navigation exist, and what the site was made from."""

    urls: frozenset[str]
    made: str  # for the footer: version, commit, date

    def around(self, page: SitePage) -> str:
        """A page's body with header, navigation and footer around it: the HTML file."""
        root = "../" * page.url.count("/")
        return (
            '<!doctype html>\n<html lang="en">\n<head><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            f"<title>{escape(page.title)} · fednb</title>"
            f'<link rel="stylesheet" href="{root}style.css"><script src="{root}filter.js" defer></script>'
            f'<script src="{root}search.js" defer></script><script src="{root}moves.js" defer></script></head>\n'
            f'<body data-root="{root}"><a class="skip" href="#main">To the text</a>\n{self._header(page, root)}'
            f'<main id="main"{" class=wide" * page.wide}>\n{page.body}\n</main>\n'
            f"<footer><p>{escape(self.made)}</p></footer>\n</body></html>\n"
        )

    def _header(self, page: SitePage, root: str) -> str:
        links = "".join(
            f'<li><a href="{root}{url}"{_current(url, page.url)}>{name}</a></li>'
            for url, name in NAVIGATION.items()
            if url in self.urls
        )
        return (
            f'<header><a class="home" href="{root}index.html">fednb</a><nav aria-label="Pages"><ul>{links}</ul></nav>\n'
            '<form class="search" role="search" onsubmit="return false"><input id="search" type="search" '
            'role="combobox" aria-label="Search all pages" aria-expanded="false" aria-controls="results" '
            'aria-autocomplete="list" autocomplete="off" placeholder="Search, or press /">'
            '<ul id="results" role="listbox" aria-label="Results" hidden></ul></form></header>\n'
        )


def _current(url: str, here: str) -> str:
    """Marks the navigation's link to this page, or to the list that it belongs to."""
    if url == here:
        return ' aria-current="page"'
    return ' aria-current="true"' if url.removesuffix(".html") == here.split("/")[0] else ""


def built(commit: str, date: str) -> str:
    """Version and commit, for the footer."""
    return f"fednb {__version__}{f', commit {commit}' if commit else ''}, published {date}. Works without a network."


def address(name: str) -> str:
    """A file's or a place's name as it stands in an address: letters, digits, slashes; the rest by number."""
    return quote(name, errors="replace")


def href(target: str, here: str) -> str:
    """The address of a page of the site as seen from another; what follows # stays."""
    page, sign, part = target.partition("#")
    return escape(posixpath.relpath(page, posixpath.dirname(here) or ".") + sign + part)


def table(heads: Iterable[str], rows: Iterable[Iterable[str]], kind: str = "") -> str:
    """A table in a box of its own, in which it scrolls where the screen is narrow; cells are HTML."""
    top = "".join(f'<th scope="col">{escape(head)}</th>' for head in heads)
    lines = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>\n" for row in rows)
    named = f' class="{kind}"' if kind else ""
    return (
        f'<div class="scroll" tabindex="0"><table{named}><thead><tr>{top}</tr></thead>\n'
        f"<tbody>{lines}</tbody></table></div>\n"
    )


def facts(told: dict[str, str]) -> str:
    """Names and values as a list; values are HTML, and empty ones are left out."""
    rows = "".join(f"<dt>{escape(name)}</dt><dd>{value}</dd>" for name, value in told.items() if value)
    return f'<dl class="facts">{rows}</dl>\n'


def figure(src: str, words: str, told: str, name: str = "") -> str:
    """A picture with what it shows, and from what, below it; src: as `href` gives it."""
    own = f' id="{escape(name)}"' if name else ""
    return (
        f'<figure{own}><img src="{src}" alt="{escape(words)}"><figcaption>{escape(words)} '
        f'<span class="quiet">{escape(told)}</span></figcaption></figure>\n'
    )
