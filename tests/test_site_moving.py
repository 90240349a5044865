"""Explorers on the site: native controls over pictures drawn beforehand, without a kernel, and the size of it all."""

import re
from pathlib import Path

import pytest
from bs4 import BeautifulSoup
from made_site import CELLS, HEAD, PNG, code, make, put, shown
from made_site import book as made_book
from moving import Powers

from fednb.show.explore.beforehand import drawn
from fednb.show.explore.moves import MIME, Moving
from fednb.show.site import publish as module
from fednb.show.site.book import Book
from fednb.show.site.notebook import notebook_page
from fednb.show.site.pages import SitePage
from fednb.show.site.publish import publish
from fednb.study.folders import page_folder
from fednb.study.paper import shelf as real_shelf

MOVING = drawn(Powers()).bundle()


def explorer(**changes):
    """A cell that shows an explorer, as it is executed for the site."""
    result = shown(png=PNG, plain="Powers, as pictures")
    return code("Powers()", "explorer", result | {"data": result["data"] | {MIME: MOVING[MIME] | changes}})


@pytest.fixture
def shelf(tmp_path, monkeypatch):
    root = make(tmp_path, monkeypatch)
    put(page_folder("made/01_one", "smoke") / "executed.ipynb", made_book(*CELLS, explorer()))
    return root


@pytest.fixture
def page(shelf):
    return notebook_page(Book.of("made/01_one"), [], ["made/01_one"], (None, None))


def test_every_state_is_in_the_page_and_one_is_shown(page):
    found = {each["data-at"]: each for each in BeautifulSoup(page.body, "html.parser").select(".explorer .state")}
    assert list(found) == ["x=0", "x=1", *(f"x={x} power={power}" for x in (2, 3) for power in (0, 1, 2))]
    assert [at for at, each in found.items() if not each.has_attr("hidden")] == ["x=2 power=0"]
    assert found["x=0"].text == "x < 0: choose another" and found["x=0"].img is None
    assert found["x=3 power=1"].text == "9" and found["x=3 power=1"].img["alt"] == "Powers; x 3, power 2. 9"
    pictures = [each.img for at, each in found.items() if at != "x=0"]
    assert {(each["width"], each["height"], each["loading"]) for each in pictures} == {("160", "80", "lazy")}
    files = [page.files[f"notebooks/made/{each['src']}"] for each in pictures]
    assert files == [state.picture for state in Moving.read(MOVING[MIME]).states[1:]]


def test_controls_are_native_and_named_and_wait_for_the_script(page):
    """A slider of four places with the label of each, a list of three; hidden until the script shows them."""
    whole = BeautifulSoup(page.body, "html.parser").select_one(".explorer")
    assert whole.select_one(".moves").has_attr("hidden") and "one of 8 pictures" in whole.select_one(".unmoved").text
    slider, chooser = whole.input, whole.select_one("select")
    assert [each["data-move"] for each in (slider, chooser)] == ["x", "power"]
    assert [whole.select_one(f"label[for={each['id']}]").text for each in (slider, chooser)] == ["x", "power"]
    assert [slider[name] for name in ("type", "min", "max", "value", "aria-valuetext")] == ["range", "0", "3", "2", "2"]
    assert [(each["value"], each["label"]) for each in whole.find(id=slider["list"]).select("option")] == [
        ("0", "-1"), ("1", "0"), ("2", "2"), ("3", "3")
    ]  # fmt: skip
    assert whole.output["for"] == [slider["id"]] and whole.output.text == "2"
    assert [(each.text, each.has_attr("selected")) for each in chooser.select("option")] == [
        ("1", True), ("2", False), ("3", False)
    ]  # fmt: skip


def test_the_grid_of_pictures_gives_way_and_the_gallery_shows_the_first(page):
    assert len(page.files) == 1 + 7  # the dot of the other cell
    last = page.pictures[-1]
    assert last.words == "Powers; x 2, power 1. 2" and last.url.endswith("#cell-id=explorer")
    assert last.file in page.files and f'id="{last.url.partition("#")[2]}"' in page.body
    assert "choose another" not in page.found[0].text


def test_what_an_explorer_says_is_only_text(shelf):
    bad = '<img src=x onerror=f()>"><script>f()</script>'
    moves = [each | {"label": bad, "options": [bad, *each["options"][1:]]} for each in MOVING[MIME]["moves"]]
    said = [each | {"words": f"<b>kept</b>{bad}"} for each in MOVING[MIME]["states"]]
    cell = explorer(title=bad, moves=moves, states=said)
    put(page_folder("made/01_one", "smoke") / "executed.ipynb", made_book(HEAD, cell))
    whole = BeautifulSoup(notebook_page(Book.of("made/01_one"), [], [], (None, None)).body, "html.parser")
    assert whole.script is None and whole.select("[onerror]") == [] and len(whole.select("img")) == 7
    figure = whole.select_one(".explorer")
    assert figure["aria-label"] == figure.label.text == figure.select_one("select option").text == bad
    assert figure.select_one(".state").b.text == "kept"


def test_an_explorer_with_a_missing_picture_is_damaged(shelf):
    some = explorer(states=MOVING[MIME]["states"][1:])
    put(page_folder("made/01_one", "smoke") / "executed.ipynb", made_book(*CELLS, some))
    assert "is not a whole notebook" in Book.of("made/01_one").wrong[0]
    assert "`fednb notebook made/01_one --scale smoke` makes it again" in Book.of("made/01_one").wrong[0]


def test_a_site_that_is_too_large_says_so(shelf, monkeypatch):
    heavy = SitePage("index.html", "Big", "", files={"big.png": bytes(200_000)})
    monkeypatch.setattr(module, "_pages", lambda *a: [heavy])
    publish(shelf / "site")
    total = sum(file.stat().st_size for file in (shelf / "site").rglob("*") if file.is_file())
    monkeypatch.setattr(module, "MOST_BYTES", total)
    assert publish(shelf / "site").wrong == ()
    monkeypatch.setattr(module, "MOST_BYTES", total - 1)
    (line,) = publish(shelf / "site").wrong
    assert re.match(r"the site has 0\.2 MB, more than 0 MB; the largest: big\.png 0\.2 MB, ", line)


def test_kept_pictures_leave_room_for_the_rest():
    """40 MB in all: pictures that are kept with the papers take less than a third, explorers at most 25 MB."""
    kept = [file.stat().st_size for file in Path(real_shelf("papers")).glob("*/results/*/*.png")]
    assert kept and sum(kept) < 13_000_000 and module.MOST_BYTES == 40_000_000
