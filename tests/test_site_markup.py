"""Markup in every field that gets into a page stays text: no element, attribute, comment or script comes from data."""

import json
import re
from collections import Counter
from html import unescape
from html.parser import HTMLParser

import pandas as pd
import pytest
import test_site_publish as whole
from made_site import PNG, book, code, move_shelf, put, said, shown, text

from fednb.algorithms.catalogue import CATALOGUE, Listing
from fednb.core.rounds import Method
from fednb.show.site.api import api_pages
from fednb.show.site.claims import claims_page
from fednb.show.site.publish import publish
from fednb.study.measured import JUDGED
from fednb.study.paper import ANY, SECTION
from fednb.study.verify import BEST

# What each field is written in. In Markdown &lt; is a sign like any other; of HTML only words and tables stay; names of
# files have no slash; what is only looked for must not come through at all.
TEXTS = ("title", "authors", "venue", "citation", "code", "section-title", "claim-id", "says", "label", "measured",
         "seed", "device", "engine", "ended", "version-fednb",
         "version-torch", "version-python", "command", "remarks", "source", "stdout", "warning", "error", "traceback",
         "plain", "latex", "drawn", "start", "bench-column", "bench-value", "machine-key", "machine-value", "method",
         "method-paper", "site-version")  # fmt: skip
MARKDOWNS = ("heading", "subheading", "words", "markdown", "link", "link-title", "picture", "log-heading", "log-text")
FILES = ("paper", "notebook", "section", "kept-picture", "bench")
HTMLS = ("frame",)
SHORT = ("page-commit", "run-commit", "site-commit")  # cut to twelve letters
DROPPED = ("cell-id", "tag", "cell-metadata", "output-metadata", "javascript", "svg", "language", "fence", "formula",
           "script-link", "data-link")  # fmt: skip
ATTACK = """{0}<img src=x onerror={0}()>"><script>{0}()</script><!-- &lt;b&gt; ' onmouseover='{0}() \u00e9\u2603"""


def attack(field):
    """The markup that stands in a field, and can be told from that of any other."""
    name = "z" + re.sub(r"\W", "", field) + "z"
    if field in SHORT:
        return f"<i {name[1:9]}>"[:12]
    whole = ATTACK.format(name)
    return whole.replace("/", "#%41?") if field in FILES else whole


def harmless(field):
    """As many letters, and the same words."""
    return re.sub(r"[^\w ]", "z", attack(field))


def executed(say):
    """A notebook with something in every place of it."""
    odd = {"tags": [say("tag")], "raw_mimetype": "text/html", say("cell-metadata"): say("cell-metadata")}
    frame = pd.DataFrame({"a": [1]}).to_html() + f"<b>kept</b>{say('frame')}"
    results = [
        said(say("stdout") + "\n", "stdout"),
        said(f"x.py:3: UserWarning: {say('warning')}\n"),
        shown(html=frame),
        shown(plain=say("plain")),
        shown(png=PNG) | {"metadata": {"image/png": {"width": say("output-metadata"), "alt": say("output-metadata")}}},
        {"output_type": "error", "ename": "E", "evalue": say("error"), "traceback": [say("error"), say("traceback")]},
    ]
    for kind, field in [("text/markdown", "markdown"), ("text/latex", "latex"), ("image/svg+xml", "svg"),
                        ("application/javascript", "javascript")]:  # fmt: skip
        results.append({"output_type": "display_data", "metadata": {"text/html": {"isolated": True}},
                        "data": {kind: say(field)}})  # fmt: skip
    titled = say("link-title").replace("'", "\\'")
    links = (
        f"[{say('link')}](https://example.org '{titled}') ![{say('picture')}](https://example.org/a.png) "
        f"[run](javascript:{re.sub(r'[^a-z]', '', say('script-link'))}) "
        f"[load](data:text/html,{re.sub(r'[^a-z]', '', say('data-link'))}) [go](JAVASCRIPT:alert//x.ipynb)"
    )
    cells = [
        text(f"# Head {say('heading')}\n\n{say('words')}\n\n{links}", "head"),
        text(f"## Sub {say('subheading')}\n\n$\\text{{{say('formula')}}}$\n\n```mermaid\n{say('fence')}\n```", "sub"),
        code(f'x = 1  # {say("source")}\ntitle = "{say("drawn").replace(chr(34), "")}"', say("cell-id"), *results),
    ]
    cells[2]["metadata"] = odd
    return book(*cells, language_info={"name": say("language"), "pygments_lexer": say("language")},
                papermill={"start_time": say("start"), "end_time": "x", "duration": say("start")},
                fednb={"commit": say("page-commit")})  # fmt: skip


def make(root, patch, say):
    """A shelf and a store in which every field says something."""
    move_shelf(root, patch)
    patch.setattr(
        "fednb.study.folders.PART", re.compile(".+")
    )  # such names are refused there; the site does not lean on it
    patch.setitem(SECTION, "notebook", ANY)
    patch.setenv("FEDNB_COMMIT", say("site-commit"))
    patch.setattr("fednb.show.site.pages.__version__", say("site-version"))
    old = CATALOGUE["FedSAM"].method
    patch.setitem(CATALOGUE, say("method"), Listing(Method(say("method"), *old.parts), say("method-paper")))
    id, section, name = say("paper"), say("section"), say("paper") + "/" + say("notebook")
    quoted = {field: json.dumps(say(field), ensure_ascii=False) for field in TEXTS} | {"section": json.dumps(section)}
    paper, page = root / "papers" / id, root / "store" / "notebooks" / name / "laptop"
    head = "".join(f"{field} = {quoted[field]}\n" for field in ("title", "authors", "venue", "citation", "code"))
    put(paper / "paper.toml", f"{head}[sections.{quoted['section']}]\ntitle = {quoted['section-title']}\n"
        f"notebook = {json.dumps(name)}\ngrid = false\nevidence = {{ made = {{}} }}\n")  # fmt: skip
    put(paper / "claims.toml", f"[[claim]]\nid = {quoted['claim-id']}\nsection = {quoted['section']}\n"
        f'says = {quoted["says"]}\nkind = "at_most"\nleft = {quoted["label"]}\nmeasure = {quoted["measured"]}\n'
        "tolerance = 7.0\n")  # fmt: skip
    put(paper / "reading.md", f"# Log\n\n## {say('log-heading')}\nprinted   {say('log-text')}\n")
    made = executed(say)
    put(root / "notebooks" / f"{name}.ipynb", made)
    put(page / "executed.ipynb", made)
    versions = {name: say(f"version-{name}") for name in ("fednb", "torch", "python")} | {"commit": say("run-commit")}
    about = {"seed": say("seed"), "device_name": say("device"), "engine": say("engine"), "ended": say("ended"),
             "versions": versions}  # fmt: skip
    put(page / "runs.json", {"0": about})
    row = {"method": say("label"), "seed": 0, "measure": say("measured"), "value": 5.0, "grid": section}
    put(page / f"{section}_made.csv", pd.DataFrame([row]).to_csv())
    kept = paper / "results" / f"{say('notebook')}_laptop"
    rows = [row | {"seed": seed} for seed in range(3)]
    put(kept / f"{section}_made.csv", pd.DataFrame(rows).to_csv())
    put(kept / "command.txt", f"{say('command')}\n\n{say('remarks')}\n")
    (kept / f"{say('kept-picture')}.png").write_bytes(b"")
    rows, machine = [{say("bench-column"): say("bench-value")}], {say("machine-key"): say("machine-value")}
    put(root / "store" / "bench" / f"{say('bench')}.json", {"rows": rows, "machine": machine})


class Parsed(HTMLParser):
    """A page as a browser takes it: elements with the names of their attributes, words, and what attributes say."""

    def __init__(self, page):
        super().__init__()
        self.elements, self.words, self.values, self.scripts, self.other = [], [], [], [], []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, *sorted(name for name, _ in attributes)))
        self.values += [value or "" for _, value in attributes]

    def handle_data(self, data):
        (self.scripts if self.cdata_elem else self.words).append(data)

    def handle_comment(self, data):
        self.other.append(data)

    handle_pi = unknown_decl = handle_comment


def made_site(tmp_path_factory, say):
    root = tmp_path_factory.mktemp("shelf")
    with pytest.MonkeyPatch.context() as patch:
        make(root, patch, say)
        publish(root / "out" / "site")
    return root / "out" / "site"


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Markup in every field."""
    return made_site(tmp_path_factory, attack)


@pytest.fixture(scope="module")
def clean(tmp_path_factory):
    """Letters in every field."""
    return made_site(tmp_path_factory, harmless)


def parsed(site):
    return {path.relative_to(site).as_posix(): Parsed(path.read_text()) for path in sorted(site.rglob("*.html"))}


def spaced(words):
    return " ".join(words.split())


@pytest.mark.parametrize("field", [*TEXTS, *MARKDOWNS, *FILES, *HTMLS, *SHORT, *DROPPED])
def test_what_a_field_says_is_only_text(site, field):
    """No element, attribute, script or comment has the field's name; and what was typed can be read."""
    name, pages = "z" + re.sub(r"\W", "", field) + "z", parsed(site)
    if field in SHORT:
        name = name[1:9]
    for where, page in pages.items():
        live = [*(part for element in page.elements for part in element), *page.scripts, *page.other]
        assert not [each for each in live if name in each], where
        assert not [value for value in page.values if value.strip() == f"{name}()"], where
    read = spaced(" ".join("".join(page.words) for page in pages.values()))
    typed = attack(field)
    if field in (*TEXTS, *FILES, *SHORT):
        assert spaced(typed.replace('"', "") if field == "drawn" else typed) in read
    elif field == "link-title":
        assert unescape(typed) in [value for page in pages.values() for value in page.values]
    elif field in MARKDOWNS:
        assert spaced(unescape(typed)) in read
    elif field in HTMLS:
        assert name in read and f"{name}()</script>" not in read


def test_the_pages_are_built_as_with_letters_only(site, clean):
    """The same elements with the same attributes, as often, on every page."""

    def count(page):
        return sorted(Counter(page.elements).items())

    marked, lettered = parsed(site), parsed(clean)
    assert len(marked) == len(lettered) == 8 + len(api_pages())
    assert sum((Counter(p.elements) for p in marked.values()), Counter()) == sum(
        (Counter(p.elements) for p in lettered.values()), Counter()
    )
    assert sorted(map(count, marked.values())) == sorted(map(count, lettered.values()))
    handlers = [name for page in marked.values() for element in page.elements for name in element if name[:2] == "on"]
    assert handlers == ["onsubmit"] * len(marked)  # the search box


def test_links_lead_somewhere_and_nothing_is_loaded_from_elsewhere(site):
    whole.test_every_link_and_anchor_leads_somewhere(site)
    whole.test_nothing_comes_from_elsewhere_and_all_that_is_loaded_is_there(site)
    whole.test_names_are_used_once_and_pictures_have_words(site)
    links = [link for page in whole.pages(site).values() for link in page.links]
    assert {link.partition(":")[0] for link in links if re.match(r"[\w\s]+:", link)} == {"https"}


def test_the_search_index_ends_no_script(site):
    text = (site / "search-index.js").read_text()
    assert "<" not in text and "\u2028" not in text
    found = json.loads(text.removeprefix("window.fednbIndex = ").removesuffix(";\n"))
    told = spaced(" ".join(part for entry in found for part in entry))
    for field in ("title", "authors", "says", "method", "method-paper"):
        assert spaced(attack(field)) in told


def test_the_page_of_claims_alone():
    """What `fednb verify --html` writes."""

    def written(say):
        names = (*JUDGED, "section", "notebook", "paper_id", "scale", *(f"best_{name}" for name in BEST))
        rows = pd.DataFrame([{name: say(name) for name in names}]).set_index("claim")
        return Parsed(claims_page(rows, {say("paper_id"): say("title")}))

    marked = written(attack)
    assert Counter(marked.elements) == Counter(written(harmless).elements) and marked.other == []
    read = spaced("".join(marked.words))
    for field in ("claim", "says", "rule", "paper", "ours", "n", "verdict", "notebook", "paper_id", "scale", "title",
                  "settings_run", "settings_claimed", "precision", "tuned", "protocol", "best_verdict",
                  "best_ours"):  # fmt: skip
        assert spaced(attack(field)) in read
