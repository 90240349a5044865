"""HTML that others made, with only words and tables left of it: what runs, loads, links or leaves its place goes."""

from __future__ import annotations

import re
from html import escape
from html.parser import HTMLParser

WORDS = frozenset({"b", "blockquote", "br", "caption", "code", "col", "colgroup", "dd", "details", "div", "dl", "dt",
                   "em", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "i", "li", "ol", "p", "pre", "s", "small", "span",
                   "strong", "sub", "summary", "sup", "table", "tbody", "td", "tfoot", "th", "thead", "tr", "u",
                   "ul"})  # fmt: skip  # elements that stay
EMPTY = frozenset({"br", "col", "hr"})  # elements that nothing closes
UNSEEN = frozenset({"script", "style", "template", "title", "noscript", "textarea", "iframe", "noembed", "noframes",
                    "xmp", "object", "svg", "math", "select"})  # fmt: skip  # go with all that is in them
ATTRIBUTES = {
    "border": re.compile(r"\d{1,2}"),
    "class": re.compile(r"dataframe"),
    "colspan": re.compile(r"\d{1,4}"),
    "rowspan": re.compile(r"\d{1,4}"),
    "scope": re.compile(r"col|row"),
    "style": re.compile(r"text-align: ?(left|right|center);?"),
}  # and what they may say


def harmless(html: str) -> str:
    """Some HTML with only words and tables left; every element is closed, and none that it did not open.

    >>> harmless('<td onclick="f()">1 < 2<script>f()</script><img src=x></div>')
    '<td>1 &lt; 2</td>'
    """
    reader = _Reader()
    reader.feed(html)
    reader.close()
    return "".join(reader.out) + "".join(f"</{tag}>" for tag in reversed(reader.open))


class _Reader(HTMLParser):
    """Writes down what may stay, as it is read."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.out: list[str] = []
        self.open: list[str] = []
        self.unseen: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        if tag in UNSEEN:
            self.unseen.append(tag)
        elif tag in WORDS and not self.unseen:
            fit = [(name, said) for name, said in attributes if said and _fits(name, said)]
            self.out.append(f"<{tag}{''.join(f' {name}={chr(34)}{escape(said)}{chr(34)}' for name, said in fit)}>")
            self.open += [tag] if tag not in EMPTY else []

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        if tag not in UNSEEN:
            self.handle_starttag(tag, attributes)

    def handle_endtag(self, tag: str) -> None:
        if tag in self.unseen:
            del self.unseen[self.unseen.index(tag) :]
        elif tag in self.open and not self.unseen:
            while (last := self.open.pop()) != tag:
                self.out.append(f"</{last}>")
            self.out.append(f"</{tag}>")

    def handle_data(self, data: str) -> None:
        if not self.unseen:
            self.out.append(escape(data, quote=False))


def _fits(name: str, said: str) -> bool:
    return name in ATTRIBUTES and ATTRIBUTES[name].fullmatch(said) is not None
