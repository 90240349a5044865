"""The whole site: every link leads somewhere, nothing comes from elsewhere, nothing is run or left half made."""

import json
import posixpath
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType
from urllib.parse import unquote

import pandas as pd
import pytest
from made_site import make, put, table

import fednb
from fednb.algorithms.catalogue import CATALOGUE
from fednb.cli.commands import main
from fednb.runs.bench import kept
from fednb.runs.store import home
from fednb.show.site import publish as module
from fednb.show.site.methods import anchor, uses
from fednb.show.site.pages import SitePage, href
from fednb.show.site.publish import NotASite, NothingExecuted, publish
from fednb.show.site.text import without_markup
from fednb.study import notebooks
from fednb.study.measurements.registry import MEASUREMENTS
from fednb.study.paper import papers
from fednb.study.verify import judged, kept_section, recalled

MODULES = [name for name in fednb.__all__ if isinstance(getattr(fednb, name), ModuleType)]


class Seen(HTMLParser):
    """What a page has: names, links, things that it loads, and pictures without words."""

    def __init__(self, text):
        super().__init__()
        self.names, self.links, self.loads, self.mute, self.opened = [], [], [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        about = dict(attributes)
        self.names += [about["id"]] if "id" in about else []
        self.links += [about["href"]] if tag == "a" else []
        self.loads += [about[a] for a in ("src", "href", "poster", "srcset") if a in about and tag != "a"]
        self.mute += [about["src"]] if tag == "img" and not about.get("alt", "").strip() else []
        self.opened.append(tag)


def stop(*args, **how):
    raise AssertionError("publishing runs nothing")


@pytest.fixture
def shelf(tmp_path, monkeypatch):
    return make(tmp_path, monkeypatch)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A site made once for all tests that only look at it; executing and running are forbidden meanwhile."""
    root = tmp_path_factory.mktemp("shelf")
    with pytest.MonkeyPatch.context() as patch:
        make(root, patch)
        put(
            root / "store" / "bench" / "engines.json",
            {"rows": [{"engine": "loop", "s": 0.123456, "nothing": None}], "machine": {"cores": 2}},
        )
        for thing in ("fednb.study.notebooks.execute", "fednb.study.notebooks.execute_all", "fednb.runs.grid.Grid.run"):
            patch.setattr(thing, stop)
        publish(root / "out" / "site")
    return root / "out" / "site"


def pages(site):
    return {path.relative_to(site).as_posix(): Seen(path.read_text()) for path in site.rglob("*.html")}


def test_all_pages_are_there(site):
    assert set(pages(site)) == {
        "index.html", "notebooks.html", "papers.html", "methods.html", "gallery.html", "benchmarks.html",
        "api.html", *(f"api/{name}.html" for name in MODULES),
        "papers/made.html", "notebooks/00_hello.html", "notebooks/made/01_one.html", "notebooks/made/02_two.html",
    }  # fmt: skip


def test_every_link_and_anchor_leads_somewhere(site):
    seen = pages(site)
    for here, page in seen.items():
        for link in (x for x in page.links if not x.startswith("http")):
            there, _, name = map(unquote, link.partition("#"))
            target = posixpath.normpath(posixpath.join(posixpath.dirname(here), there)) if there else here
            assert target in seen, f"{here}: {link}"
            assert not name or name in seen[target].names, f"{here}: {link}"


def test_nothing_comes_from_elsewhere_and_all_that_is_loaded_is_there(site):
    for here, page in pages(site).items():
        assert page.loads, here
        for thing in page.loads:
            assert not re.match(r"[a-z]+:|//", thing), f"{here}: {thing}"
            assert (site / posixpath.dirname(here) / unquote(thing)).is_file(), f"{here}: {thing}"
    for file in ("style.css", "filter.js", "search.js"):
        assert not re.search(r"https?:|@import|url\(", (site / file).read_text())


def test_names_are_used_once_and_pictures_have_words(site):
    for here, page in pages(site).items():
        assert sorted(page.names) == sorted(set(page.names)), here
        assert page.mute == [] and page.opened.count("h1") == 1 and page.opened.count("main") == 1, here


def test_the_front_page_has_every_claim_with_its_verdict_and_its_place(site):
    text = (site / "index.html").read_text()
    large, small = re.findall(r'<tr class="claim">.*?</tr>', text, re.DOTALL)
    assert "a &lt;b&gt;number&lt;/b&gt; is small" in small and ">not run</span>" in small and "ran (" not in text
    assert "fednb notebook made/01_one --scale laptop" in small and "all A: 5" not in small  # 5 is of smoke scale
    assert 'href="notebooks/made/01_one.html#claim-small"' in small
    assert '<span class="badge holds">seen</span> <span class="quiet">laptop scale</span>' in large
    assert re.findall(r'data-name="(effect [^"]+|n|settings)">([^<]*)<', large) == [
        ("effect [interval]", "2 [0.314, 3.69]"), ("n", "3"), ("settings", "1 of 1")
    ]  # fmt: skip
    (counts,) = re.findall(r'<table class="counts">.*?</table>', text, re.DOTALL)
    assert [(head, n) for head, n in re.findall(r'data-name="([^"]+)">(\d+)<', counts) if n != "0"] == [
        ("claims", "2"), ("seen", "1"), ("not run", "1")
    ]  # fmt: skip
    assert "1 verdicts here are for or against a claim" in text and "up to 1 of them" in text
    assert text.count("smoke") == text.split('id="how-to-run"')[1].count("smoke") == 1


def test_pages_lead_with_their_evidence(site):
    """On the front page claims that were not run come last; a notebook's page says its verdicts before all else."""
    front = (site / "index.html").read_text()
    assert front.index("another is not large") < front.index("number&lt;/b&gt; is small")
    told = without_markup((site / "notebooks" / "made" / "02_two.html").read_text().split("</h1>")[1])
    assert told.startswith("1 claim: 1 seen Figures and tables are those kept with the paper at laptop scale")
    assert "Where this page is from: laptop scale, n = 3" in told
    smoke = without_markup((site / "notebooks" / "made" / "01_one.html").read_text().split("</h1>")[1])
    assert smoke.startswith("1 claim: 1 only ran Smoke scale, no evidence")


def test_the_search_knows_claims_methods_notebooks_headings_and_readings(site):
    text = (site / "search-index.js").read_text()
    found = json.loads(text.removeprefix("window.fednbIndex = ").removesuffix(";\n"))
    kinds = {kind: [title for k, title, _, _ in found if k == kind] for kind in {row[0] for row in found}}
    assert kinds["claim"] == ["another is not large", "a <b>number</b> is small"]  # evidence first
    assert set(kinds["method"]) == set(CATALOGUE) and kinds["reading"] == ["made: sign"]
    assert len(kinds["notebook"]) == len(kinds["heading"]) == 3 and kinds["paper"] == ["Made & printed"]
    seen = pages(site)
    for _, title, url, _ in found:
        page, _, name = map(unquote, url.partition("#"))
        assert page in seen and (not name or name in seen[page].names), title


def test_every_method_has_a_card_its_costs_and_its_uses(site):
    text = (site / "methods.html").read_text()
    assert text.count('<section class="card"') == len(CATALOGUE) == text.count("each client, once  start")
    card = text.split(f'id="{anchor("FedFFT")}"')[1].split("</section>")[0]
    assert "FilterPerturbation" in card and 'href="notebooks/made/02_two.html"' in card
    row = re.search(rf'<tr><td><a href="#{anchor("SCAFFOLD")}">.*?</tr>', text)[0]
    assert re.findall(r"<td>([\d.]+)</td>", row) == ["1", "0", "2", "2", "2", "1"]


def test_the_paper_page_has_sections_and_the_reading_log(site):
    text = (site / "papers" / "made.html").read_text()
    assert 'href="../notebooks/made/02_two.html"' in text and '<h3 id="sign">' in text
    assert '<a href="../notebooks/made/01_one.html">notebooks/made/01_one.ipynb</a>' in text


def test_the_gallery_shows_both_scales_and_leads_to_their_places(site):
    figures = re.findall(r"<figure>.*?</figure>", (site / "gallery.html").read_text(), re.DOTALL)
    assert len(figures) == 2 and "smoke scale, n = 1" in figures[0] and "laptop scale, n = 3" in figures[1]


def test_benchmarks_of_this_machine_and_those_that_came_along(site):
    """Every row of every file; columns that nobody filled in are left out."""
    text = (site / "benchmarks.html").read_text()
    assert "<td>0.1235</td>" in text and "cores 2" in text and ">nothing</th>" not in text
    assert text.count("<tbody><tr>") == 1 + len(kept.results())
    assert all(f"<h2>{name}</h2>" in text for name in ("engines", *kept.results()))
    assert "<p>resnet20-gn on fashion-mnist, dirichlet(alpha=0.5), 100 clients" in text
    assert "<td>67.36, 72.51, 70.38</td>" in text


def test_every_page_says_what_it_was_made_from(site):
    for path in site.rglob("*.html"):
        assert "fednb 0." in path.read_text().split("<footer>")[1]


def test_where_nothing_was_executed_the_way_out_is_told(shelf, capsys):
    (home() / "notebooks" / "made" / "01_one" / "smoke" / "executed.ipynb").unlink()
    shutil.rmtree(shelf / "papers" / "made" / "results")
    assert main(["publish", "--out", str(shelf / "site")]) == 2
    assert "`make site`" in capsys.readouterr().err and not (shelf / "site").exists()
    with pytest.raises(NothingExecuted, match="at scale paper"):
        publish(shelf / "site", "paper")
    assert main(["publish", "--scale", "big"]) == 2


def test_a_folder_that_is_no_site_is_not_replaced(shelf):
    put(shelf / "mine" / "thesis.txt", "years of work")
    with pytest.raises(NotASite, match="not a site of fednb"):
        publish(shelf / "mine")
    assert (shelf / "mine" / "thesis.txt").read_text() == "years of work"


def test_an_interrupt_leaves_the_old_site_whole_and_nothing_beside_it(shelf, monkeypatch):
    out = shelf / "out" / "site"
    monkeypatch.setattr(module, "_pages", lambda *a: [SitePage("old.html", "Old", "old")])
    publish(out)
    monkeypatch.setattr(module, "_pages", lambda *a: [])
    write = module._write

    def interrupted(pages, folder):
        write(pages, folder)
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "_write", interrupted)
    with pytest.raises(KeyboardInterrupt):
        publish(out)
    assert "old" in (out / "old.html").read_text() and [p.name for p in out.parent.iterdir()] == ["site"]
    monkeypatch.setattr(module, "_write", write)
    publish(out)
    assert not (out / "old.html").exists() and [p.name for p in out.parent.iterdir()] == ["site"]


def test_claims_are_recalled_as_verify_judges_them(shelf, monkeypatch):
    """From the table that the notebook left; where it left none, "not run" with the command."""
    monkeypatch.setitem(MEASUREMENTS, "made", lambda scale: table(5.0))
    paper = papers("made")
    pd.testing.assert_frame_equal(recalled(paper, "fig1", "smoke"), judged(paper, "fig1", "smoke"))
    gone = recalled(paper, "fig2", "smoke").loc["large"]
    assert gone["verdict"] == "not run" and gone["best_verdict"] == "seen"


def test_kept_results_are_judged_once(shelf, monkeypatch):
    """Notebooks, claims and papers are shown with the same verdicts: nobody judges again."""
    asked = []
    monkeypatch.setattr(module, "methods_page", lambda known: SitePage("methods.html", "Methods", ""))
    monkeypatch.setattr(module, "kept_section", lambda *what: asked.append(what) or kept_section(*what))
    monkeypatch.setattr("fednb.study.verify.kept_section", stop)
    publish(shelf / "site")
    assert len(asked) == len(set(asked)) > 1


def test_uses_are_counted_by_method_whatever_its_parameters(shelf):
    found = uses([papers("made")])
    assert set(found) == {"FedSAM", "FedFFT"} and found["FedFFT"] == [("made", "Figure 2: another", "made/02_two")]


def test_addresses_are_relative():
    assert href("index.html#a", "notebooks/made/01.html") == "../../index.html#a"
    assert href("notebooks/made/02.html", "notebooks/made/01.html") == "02.html"
    assert href("papers/made.html", "index.html") == "papers/made.html"


@pytest.mark.parametrize("argv, says", [
    (["notebook"], "name one"),
    (["notebook", "00_hello", "--all"], "name one"),
    (["notebook", "--all", "-p", "seeds", "[1]"], "belong to one notebook"),
    (["notebook", "--all", "--jobs", "0"], "jobs = 0"),
])  # fmt: skip
def test_mistakes_with_all_notebooks(shelf, argv, says, capsys):
    assert main(argv) == 2
    assert says in capsys.readouterr().err


def test_all_notebooks_are_executed_but_those_that_are_current(shelf, monkeypatch, capsys):
    monkeypatch.setattr(notebooks, "is_current", lambda name, scale: name == "00_hello")
    monkeypatch.setattr(
        notebooks, "execute_all", lambda which, scale, jobs: ((n, "it broke" * (n[-3:] == "two")) for n in which)
    )
    assert main(["notebook", "--all", "--jobs", "2"]) == 1
    told = capsys.readouterr()
    assert "1 notebooks are up to date, 2 to execute" in told.out
    assert "made/02_two: it broke" in told.err and "01_one" not in told.err
    assert main(["notebook", "--all", "--unless-kept"]) == 0  # of made/02_two results of laptop scale are kept
    assert "1 notebooks are up to date, 1 are kept, 1 to execute" in capsys.readouterr().out
    assert main(["notebook", "--all", "--unless-kept", "--scale", "laptop"]) == 1
    monkeypatch.setattr(notebooks, "is_current", lambda name, scale: True)
    assert main(["notebook", "--all"]) == 0


def test_what_the_pages_need_travels_with_the_package():
    """The wheel takes the package's folder as it is."""
    static = Path(module.__file__).parent / "static"
    assert {file.name for file in static.iterdir()} == set(module.STATIC)
