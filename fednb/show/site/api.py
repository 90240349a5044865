"""The API reference: one page with all public names by idea, and a page for each module among them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from doctest import Example
from html import escape

from fednb.show.site.pages import Found, SitePage, address, href, table
from fednb.show.site.reference import BEGIN, RESULTS, PublicName, public

URL = "api.html"
GROUPS = {
    "Run something": ("Setting", "run", "grid", "tune", "callbacks", "Federation", "replay", "Probe",
                      "__version__"),
    "Methods": ("method", "methods", "card", "cost", "spec_grad_filter", "Method", "Part", "part", "P", "L", "parts"),
    "Bring your own": ("add_data", "add_model", "add_partition", "add_loss", "add_metric"),
    "Filters": ("filters",),
    "Look at data and runs": ("class_counts", "skew", "list_runs", "histories", "gains", "to_target", "spectra",
                              "drift", "embed", "features", "cka", "hessian", "landscape"),
    "Pictures": ("plots",),
    "Papers": ("papers", "page", "compare", "verdict", "Claim"),
}  # fmt: skip
OTHERS = "More"  # names that no group has
SAID = """<p class="lead">Every public name of <code>import fednb as fn</code>: how it is called, what goes in, what
comes out, and an example that the tests run.</p>
"""
CODE = re.compile(r"`([^`\n]+)`")
NAMED = re.compile(r"(fn\.|fednb\.)?([A-Za-z_][\w.]*)(?:\(.*\))?")  # a name, or a call of it
PARAMETER = re.compile(r"\w+(?=[:,=)])")  # in a signature
EXPLAINED = re.compile(r"(?:(?<=^)|(?<=\. )|(?<=\.\n)|(?<=\n))\w+(?=: )")  # what a sentence is about
TABULAR = re.compile(r"^ |\S {3,}\S", re.MULTILINE)  # lines that are indented or have columns


def api_pages() -> list[SitePage]:
    """The page of all names, and one for each public module."""
    known = public()
    places = _places(known.values())
    pages = [_module_page(entry, places) for entry in known.values() if entry.kind == "module"]
    return [_first_page(known, places), *pages]


def grouped(names: Iterable[str]) -> dict[str, list[str]]:
    """Names by idea, in the order of `GROUPS`; those that no group has come last."""
    left = list(names)
    found = {title: [name for name in of if name in left] for title, of in GROUPS.items()}
    found[OTHERS] = [name for name in left if not any(name in of for of in GROUPS.values())]
    return {title: of for title, of in found.items() if of}


def _places(known: Iterable[PublicName]) -> dict[str, str]:
    """Where each name is described: the address of its page and of its place there."""
    out = {}
    for entry in known:
        module = entry.kind == "module"
        out[entry.name] = f"api/{address(entry.name)}.html" if module else f"{URL}#{address(entry.name)}"
        for each in entry.inside:
            page = out[entry.name] if module else URL
            out |= {e.name: f"{page}#{address(e.name)}" for e in (each, *each.inside)}
    return out


def _first_page(known: dict[str, PublicName], places: dict[str, str]) -> SitePage:
    groups = grouped(known)
    body = [f"<h1>API</h1>\n{SAID}{_beginning()}", _overview(groups, known, places)]
    for title, names in groups.items():
        cards = "".join(_card(known[name], places, URL) for name in names)
        body.append(f'<h2 id="{_anchor(title)}">{escape(title)}</h2>\n{cards}')
    found = [each for entry in known.values() if entry.kind != "module" for each in _found(entry, places)]
    return SitePage(URL, "API", "".join(body), tuple(found))


def _beginning() -> str:
    """What all examples begin with."""
    return (
        f"<p>Examples begin with</p>\n<pre>{escape(BEGIN)}</pre>\n"
        "<p>and <code>results</code> in them are the finished runs of a small grid, a second of training:</p>\n"
        f"<pre>{escape(RESULTS)}</pre>\n"
    )


def _overview(groups: dict[str, list[str]], known: dict[str, PublicName], places: dict[str, str]) -> str:
    """All names by idea, each with its first line."""
    lists = []
    for title, names in groups.items():
        lines = (
            f"{_link(name, places, URL)} {_inline(known[name].summary, places, URL, known[name])}" for name in names
        )
        items = "".join(f"<li>{line}</li>\n" for line in lines)
        lists.append(f'<p><a href="#{_anchor(title)}">{escape(title)}</a></p>\n<ul class="names">{items}</ul>\n')
    return "".join(lists)


def _module_page(module: PublicName, places: dict[str, str]) -> SitePage:
    url = places[module.name]
    errors = [each for each in module.inside if each.kind == "error"]
    others = [each for each in module.inside if each.kind != "error"]
    links = "".join(f"<li>{_link(each.name, places, url, each.short)}</li>" for each in others)
    body = (
        f'<p class="crumbs"><a href="{href(URL, url)}">API</a></p><h1>fn.{escape(module.name)}</h1>\n'
        f"{_text(module, places, url)}{_example(module.examples)}{_defined(module)}"
        f'<nav class="contents" aria-label="Names"><ul>{links}</ul></nav>\n'
        f"{''.join(_card(each, places, url) for each in others)}"
    )
    if errors:
        body += f"<h2>Errors</h2>\n{''.join(_card(each, places, url) for each in errors)}"
    found = [Found("api", module.name, url, module.summary)]
    found += [made for each in module.inside for made in _found(each, places)]
    return SitePage(url, f"fn.{module.name}", body, tuple(found))


def _card(entry: PublicName, places: dict[str, str], here: str) -> str:
    """Everything about one name; of a module the names in it, which have a page of their own."""
    top = f'<section class="card" id="{escape(entry.name)}"><h3><code>fn.{escape(entry.name)}</code></h3>\n'
    text = _text(entry, places, here)
    if entry.kind == "module":
        names = ", ".join(_link(each.name, places, here, each.short) for each in entry.inside if each.kind != "error")
        more = f"<p>{_link(entry.name, places, here)} has {names}.</p>\n"
        return f"{top}{text}{_example(entry.examples)}{more}{_defined(entry)}</section>\n"
    fields = _fields(entry, places, here) if entry.fields else ""
    inner = "".join(_inner(each, places, here) for each in entry.inside)
    methods = f'<dl class="members">{inner}</dl>\n' if inner else ""
    shown = f'<pre class="signature" tabindex="0">{escape(entry.signature)}</pre>\n' if entry.signature else ""
    return f"{top}{shown}{text}{_example(entry.examples)}{fields}{methods}{_defined(entry)}</section>\n"


def _fields(entry: PublicName, places: dict[str, str], here: str) -> str:
    """The explained fields of a class as a table."""
    rows = [
        [f"<code>{escape(name)}</code>", f"<code>{escape(default)}</code>", _inline(said, places, here, entry)]
        for name, default, said in entry.fields
    ]
    return table(("field", "default", "what it is"), rows)


def _inner(entry: PublicName, places: dict[str, str], here: str) -> str:
    """A method or property of a class."""
    text = _text(entry, places, here) + _example(entry.examples)
    return f'<dt id="{escape(entry.name)}"><code>.{escape(entry.signature)}</code></dt><dd>{text}</dd>\n'


def _defined(entry: PublicName) -> str:
    return f'<p class="quiet">{entry.kind}, {escape(entry.file)}, line {entry.line}</p>\n'


def _example(examples: Iterable[Example]) -> str:
    """Examples as they are typed and answered; prompts and answers stay behind when they are copied."""
    lines = []
    for each in examples:
        first, *others = each.source.splitlines()
        lines += [f"<b>&gt;&gt;&gt; </b>{escape(first)}", *(f"<b>... </b>{escape(line)}" for line in others)]
        lines += [f"<samp>{escape(line)}</samp>" for line in each.want.splitlines()]
    return f'<pre class="example" tabindex="0">{chr(10).join(lines)}</pre>\n' if lines else ""


def _text(entry: PublicName, places: dict[str, str], here: str) -> str:
    """A docstring's paragraphs; one with columns or indented lines stays as it was typed."""
    shown = []
    for block in filter(None, (each.strip("\n") for each in entry.text.split("\n\n"))):
        if TABULAR.search(block):
            shown.append(f'<pre tabindex="0">{escape(block)}</pre>\n')
        else:
            shown.append(f"<p>{_inline(block, places, here, entry)}</p>\n")
    return "".join(shown)


def _inline(text: str, places: dict[str, str], here: str, of: PublicName) -> str:
    """Text about an entry in which `code` and its parameters are marked; code that is a public name is a link."""
    pieces = CODE.split(text)
    return "".join(_code(piece, places, here, of) if at % 2 else _words(piece, of) for at, piece in enumerate(pieces))


def _words(text: str, of: PublicName) -> str:
    """Words without code; a parameter that begins a sentence about itself, as in "seed: ...", is marked."""
    own = set(PARAMETER.findall(of.signature))
    return EXPLAINED.sub(lambda found: f"<code>{found[0]}</code>" if found[0] in own else found[0], escape(text))


def _code(code: str, places: dict[str, str], here: str, of: PublicName) -> str:
    """Code as it was typed; a link where it is a name, or a call of one, that is described somewhere."""
    name = NAMED.fullmatch(code)
    near = [of.name, of.name.rpartition(".")[0]]  # names inside the entry and beside it come before others
    known = [full for before in near if name and (full := f"{before}.{name[2]}") in places and not name[1]]
    known += [name[2]] if name and name[2] in places else []
    shown = f"<code>{escape(code)}</code>"
    return f'<a href="{_href(places[known[0]], here)}">{shown}</a>' if known else shown


def _link(name: str, places: dict[str, str], here: str, shown: str = "") -> str:
    return f'<a href="{_href(places[name], here)}"><code>{escape(shown or f"fn.{name}")}</code></a>'


def _href(target: str, here: str) -> str:
    """The address of a place as seen from a page; within the page its name alone."""
    page, sign, name = target.partition("#")
    return escape(sign + name) if page == here and name else href(target, here)


def _anchor(title: str) -> str:
    return "idea-" + title.lower().replace(" ", "-")


def _found(entry: PublicName, places: dict[str, str]) -> list[Found]:
    """What the search knows of a name and of what is inside it."""
    return [Found("api", each.name, places[each.name], each.summary) for each in (entry, *entry.inside)]
