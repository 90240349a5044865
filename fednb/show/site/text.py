"""Markdown as HTML: mathematics as MathML, so that no script is needed to show it; reading logs as lists."""

from __future__ import annotations

import re
from collections.abc import Iterable
from html import escape, unescape
from importlib.util import find_spec
from typing import Any
from xml.etree.ElementTree import Element, tostring

LABELS = ("printed", "released", "we run", "effect")  # of an entry of a reading log
SIZES = re.compile(r"\\[bB]igg?[lrm]?(?=\s*\\)")  # before a delimiter; MathML's stretch by themselves
TAG = re.compile(r"<[^>]*>")
SIGN = re.compile(r"&amp;(#x[0-9A-Fa-f]+|lt|gt|amp);")  # a sign that the converter wrote by its number or name
UNWANTED = ("href", "style", "class", "id")  # attributes that a formula can ask for
OUTSIDE = re.compile(r"(https?://|mailto:)", re.IGNORECASE)  # links that leave the site
NOTEBOOK = re.compile(r"(?<![\w/\"'])notebooks/([\w/]+)\.ipynb")


class NeedsSite(ImportError, ValueError):
    """The libraries that make pages are not installed."""


def needed() -> None:
    """Say at once, and not in the middle, that something is not installed."""
    for name in ("nbconvert", "latex2mathml", "griffe"):
        if find_spec(name) is None:
            raise NeedsSite(f"the site needs {name}; install it with: pip install 'fednb[notebooks]'")


def mathml(tex: str, display: bool = False) -> str:
    """A formula as MathML; what cannot be converted stays readable as it was typed."""
    from latex2mathml.converter import convert_to_element

    typed = f"$${tex}$$" if display else f"${tex}$"
    try:
        made = _written(convert_to_element(SIZES.sub("", tex), display="block" if display else "inline"))
    except Exception:  # of whatever kind: the library has no class of its own for all of them
        made = "\\"
    braces = [re.sub(r"\\[{}]", "", tex).count(brace) for brace in "{}"]
    if "\\" in TAG.sub("", made) or braces[0] != braces[1]:  # it copies commands that it does not know, and guesses
        return f'<code class="tex">{escape(typed)}</code>'
    return made.replace("<math ", f'<math alttext="{escape(" ".join(tex.split()))}" ', 1)


def _written(tree: Element) -> str:
    """A formula's tree as text in which all that was typed is escaped; the converter's own text unescapes it."""
    for element in tree.iter():
        for name in UNWANTED:
            element.attrib.pop(name, None)
    return SIGN.sub(r"&\1;", tostring(tree, encoding="unicode"))


def rendered(source: str, taken: set[str] | None = None) -> str:
    """Markdown as HTML; headings have names that links can use, told apart from those `taken` on the same page.

    HTML in the text is shown as it was typed. Pictures are named only: the site has those of executed cells.
    """
    from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath

    names = set() if taken is None else taken

    class Renderer(IPythonRenderer):
        """nbconvert's, with our mathematics, headings and links, and nothing that it would let through."""

        def inline_html(self, html: str) -> str:
            return escape(html)

        def block_html(self, html: str) -> str:
            return f"<p>{escape(html.strip())}</p>\n"

        def block_mermaidjs(self, code: str) -> str:
            return f"<pre><code>{escape(code)}</code></pre>\n"

        def image(self, text: str, url: str, title: str | None = None) -> str:
            return text

        def inline_math(self, body: str) -> str:
            return mathml(body)

        def block_math(self, body: str) -> str:
            return f'<span class="formula">{mathml(body, display=True)}</span>'

        def latex_environment(self, name: str, body: str) -> str:
            return self.block_math(f"\\begin{{{name}}}{body}\\end{{{name}}}")

        def heading(self, text: str, level: int, **attrs: Any) -> str:
            return f'<h{level} id="{unique(slug(without_markup(text)), names)}">{text}</h{level}>\n'

        def link(self, text: str, url: str, title: str | None = None) -> str:
            page, _, part = url.partition("#")
            if url.startswith("#") or OUTSIDE.match(url):
                return _link(text, url, title)
            if not page.endswith(".ipynb") or ":" in page or page.startswith(("/", "\\")):
                return text  # a file of the checkout, which the site does not have; or a script
            return _link(text, page.removesuffix(".ipynb") + ".html" + ("#" + part) * bool(part), title)

    html = MarkdownWithMath(renderer=Renderer(escape=False)).render(source)
    return html.replace("<table>", '<div class="scroll" tabindex="0"><table>').replace("</table>", "</table></div>")


def _link(text: str, url: str, title: str | None) -> str:
    """A link of a text; text: its HTML."""
    words = f' title="{escape(unescape(title))}"' if title else ""
    return f'<a href="{escape(url)}"{words}>{text}</a>'


def reading_log(source: str) -> str:
    """A paper's reading.md: under each heading a list of what is printed, released, what we run, its effect."""
    blocks = re.split(r"\n\s*\n", source)
    taken: set[str] = set()
    return "\n".join(_entry(block, taken) for block in blocks if block.strip())


def _entry(block: str, taken: set[str]) -> str:
    lines = block.strip("\n").splitlines()
    at = next((i for i, line in enumerate(lines) if _label(line)), len(lines))
    head = rendered("\n".join(lines[:at]), taken) if at else ""
    parts: list[list[str]] = []
    for line in lines[at:]:
        if label := _label(line):
            parts.append([label, line[len(label) :].strip()])
        else:
            parts[-1].append(line.strip())
    shown = (f"<dt>{label}</dt><dd>{_inline(' '.join(words))}</dd>" for label, *words in parts)
    return head + (f'<dl class="reading">{"".join(shown)}</dl>' if parts else "")


def _label(line: str) -> str:
    return next((label for label in LABELS if line.startswith(label + "  ")), "")


def _inline(source: str) -> str:
    """One paragraph's markdown, without the paragraph."""
    return rendered(source).strip().removeprefix("<p>").removesuffix("</p>")


def linked(html: str, names: Iterable[str], href: Any) -> str:
    """Notebooks that a text names, as links to their pages; href: from a notebook's name to an address."""
    known = set(names)

    def link(found: re.Match[str]) -> str:
        return f'<a href="{href(found[1])}">{found[0]}</a>' if found[1] in known else found[0]

    pieces = re.split(r"(<a .*?</a>|<[^>]*>)", html, flags=re.DOTALL)
    return "".join(each if each.startswith("<") else NOTEBOOK.sub(link, each) for each in pieces)


def slug(text: str) -> str:
    """A heading as a name for links: lower case, words joined by hyphens."""
    return re.sub(r"[^\w]+", "-", text.lower()).strip("-") or "part"


def unique(name: str, taken: set[str]) -> str:
    """The name, or the name with the first number that is free."""
    made, n = name, 2
    while made in taken:
        made, n = f"{name}-{n}", n + 1
    taken.add(made)
    return made


def without_markup(html: str) -> str:
    """The words of some HTML, a formula as it was typed."""
    html = re.sub(r'<math alttext="([^"]*)".*?</math>', r" \1 ", html, flags=re.DOTALL)
    html = re.sub(r"<(style|script)\b.*?</\1>", " ", html, flags=re.DOTALL)
    return " ".join(unescape(TAG.sub(" ", html)).split())
