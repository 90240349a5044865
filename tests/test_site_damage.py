"""A site is made of what is whole: what is damaged is named with the command that makes it again, and left out."""

import json
from functools import cache

import pytest
from made_site import CELLS, RUN, book, code, make, put, shown

from fednb.base.files import Contents
from fednb.cli.commands import main
from fednb.show.site import publish as module
from fednb.show.site.api import api_pages
from fednb.show.site.pages import SitePage
from fednb.show.site.publish import NotASite, publish

AGAIN = "`fednb notebook made/01_one --scale smoke` makes it again"
KEEP = "`fednb notebook made/02_two --scale laptop --keep` makes it again"
PAGE, KEPT = "store/notebooks/made/01_one/smoke", "papers/made/results/02_two_laptop"


api_pages_once = cache(api_pages)  # they are made of the package alone, and the same in every site


@pytest.fixture
def shelf(tmp_path, monkeypatch):
    monkeypatch.setattr(
        module, "methods_page", lambda known: SitePage("methods.html", "Methods", "")
    )  # it reads no file
    monkeypatch.setattr(module, "api_pages", api_pages_once)
    return make(tmp_path, monkeypatch)


def published(shelf, capsys):
    """The exit status, and the lines about what is damaged."""
    capsys.readouterr()
    status = main(["publish", "--out", str(shelf / "site")])
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("fednb: ")]
    return status, list(dict.fromkeys(lines))


def listed(folder):
    contents = Contents(folder)
    for path in folder.iterdir():
        contents.add(path.name)
    contents.save()


def cut(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flip(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


DAMAGES = {
    "cut": cut,
    "flipped": flip,
    "empty": lambda path: path.write_text(""),
    "zeros": lambda path: path.write_bytes(bytes(path.stat().st_size)),
    "missing": lambda path: path.unlink(),
    "another": lambda path: path.write_text("{}"),
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize(
    "name, again",
    [(f"{PAGE}/executed.ipynb", AGAIN), (f"{PAGE}/runs.json", AGAIN), (f"{PAGE}/fig1_made.csv", AGAIN),
     (f"{KEPT}/runs.json", KEEP), (f"{KEPT}/fig2_made.csv", KEEP), (f"{KEPT}/fig1.png", KEEP)],
)  # fmt: skip
def test_a_damaged_file_is_named_and_the_others_are_published(shelf, capsys, damage, name, again):
    listed(shelf / PAGE)
    listed(shelf / KEPT)
    DAMAGES[damage](shelf / name)
    status, lines = published(shelf, capsys)
    assert status == 1 and len(lines) == 1
    assert str(shelf / name) in lines[0] and again in lines[0]
    for page in (
        "index",
        "notebooks",
        "gallery",
        "notebooks/00_hello",
        "notebooks/made/01_one",
        "notebooks/made/02_two",
    ):
        assert (shelf / "site" / f"{page}.html").exists()


def test_the_page_says_what_is_not_shown(shelf, capsys):
    cut(shelf / PAGE / "executed.ipynb")
    published(shelf, capsys)
    text = (shelf / "site" / "notebooks" / "made" / "01_one.html").read_text()
    assert "Not shown: " in text and "executed.ipynb: is not JSON" in text and "Not executed yet" in text


def test_damaged_results_are_not_shown(shelf, capsys):
    """Neither the figure nor the verdict of what was kept."""
    listed(shelf / KEPT)
    flip(shelf / KEPT / "runs.json")
    published(shelf, capsys)
    assert 'id="kept"' not in (shelf / "site" / "notebooks" / "made" / "02_two.html").read_text()
    assert not list((shelf / "site").rglob("laptop_*.png"))


@pytest.mark.parametrize("damage", ["cut", "empty", "another"])
@pytest.mark.parametrize("name", ["executed.ipynb", "fig1_made.csv"])
def test_what_was_written_before_there_were_lists_is_looked_at(shelf, capsys, damage, name):
    DAMAGES[damage](shelf / PAGE / name)
    status, lines = published(shelf, capsys)
    if (status, name) != (0, "fig1_made.csv"):  # half a table can be a table
        assert status == 1 and len(lines) == 1 and "`fednb notebook made/01_one --scale smoke` makes" in lines[0]


@pytest.mark.parametrize("cell", [
    {"cell_type": "code"}, 3, {"cell_type": "code", "source": "", "metadata": {}, "outputs": [{}]},
    {"cell_type": "markdown", "source": 3, "metadata": {}}, {"cell_type": "odd", "source": "", "metadata": {}},
    code("", "a", shown(png="no picture")), code("", "a", shown(html=3)), code("", "a", {"output_type": "stream"}),
    code("", "a", {"output_type": "error", "traceback": [1]}),
])  # fmt: skip
def test_a_copy_of_another_shape_is_damaged(shelf, capsys, cell):
    put(shelf / PAGE / "executed.ipynb", book(*CELLS, cell))
    status, lines = published(shelf, capsys)
    assert status == 1 and len(lines) == 1 and "executed.ipynb: is not a" in lines[0] and AGAIN in lines[0]


def test_kept_tables_of_another_shape(shelf, capsys):
    put(shelf / KEPT / "fig2_made.csv", ",method,seed\n0,A,0\n")
    status, lines = published(shelf, capsys)
    assert status == 1 and f"{shelf / KEPT / 'fig2_made.csv'}: has no column 'measure'; {KEEP}" in lines[0]
    assert all("`fednb notebook made/02_two" in line for line in lines)
    assert "not run" in (shelf / "site" / "index.html").read_text()


def test_a_damaged_notebook_of_the_checkout(shelf, capsys):
    cut(shelf / "notebooks" / "00_hello.ipynb")
    status, lines = published(shelf, capsys)
    assert status == 1 and len(lines) == 1
    assert "00_hello.ipynb: is not JSON; `git checkout -- " in lines[0]


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"rows": [1]}', '{"rows": [], "machine": 3}',
                                  '{"rows": [], "workload": 3}'])  # fmt: skip
def test_a_damaged_benchmark(shelf, capsys, text):
    put(shelf / "store" / "bench" / "mine.json", text)
    status, lines = published(shelf, capsys)
    assert status == 1 and len(lines) == 1 and "mine.json: is not a benchmark" in lines[0]
    assert "fednb bench ... --out" in lines[0] and "<h1>Benchmarks" in (shelf / "site/benchmarks.html").read_text()


@pytest.mark.parametrize("seed", [[0, 1], 1.5, -1, "a", None, {}, True])
def test_runs_with_what_is_no_seed_are_shown(shelf, capsys, seed):
    """Such runs were once taken; each counts as it is."""
    put(shelf / PAGE / "runs.json", {"a": RUN, "b": RUN | {"seed": seed}, "c": {}})
    assert published(shelf, capsys) == (0, [])
    text = (shelf / "site" / "notebooks" / "made" / "01_one.html").read_text()
    assert f"3, n = {len({'0', str(seed), 'None'})} seeds (0, " in text


@pytest.mark.parametrize(
    "odd", [{"versions": 3}, {"device_name": ["a"]}, {"ended": "soon"}, {"ended": 3}, {"engine": {}}]
)
def test_runs_that_say_odd_things_are_shown(shelf, capsys, odd):
    put(shelf / PAGE / "runs.json", {"a": RUN | odd, "b": RUN})
    assert published(shelf, capsys) == (0, [])


def test_half_of_a_pair_of_surrogates_can_be_written(shelf, capsys):
    put(shelf / PAGE / "runs.json", json.dumps({"a": RUN | {"device_name": "\ud800"}}))
    assert published(shelf, capsys) == (0, [])


# The folder of the site


def test_what_others_put_into_the_site_stays(shelf, capsys):
    assert published(shelf, capsys) == (0, [])
    put(shelf / "site" / "CNAME", "example.org")
    put(shelf / "site" / "notes" / "a.txt", "mine")
    assert published(shelf, capsys) == (0, [])
    assert (shelf / "site" / "CNAME").read_text() == "example.org"
    assert (shelf / "site" / "notes" / "a.txt").read_text() == "mine"


def test_a_page_that_is_no_longer_made_goes(shelf, monkeypatch):
    out = shelf / "site"
    monkeypatch.setattr(module, "_pages", lambda *a: [SitePage("old.html", "Old", "")])
    publish(out)
    monkeypatch.setattr(module, "_pages", lambda *a: [SitePage("new.html", "New", "")])
    publish(out)
    assert sorted(p.name for p in out.glob("*.html")) == ["new.html"]


def test_a_file_of_others_is_not_written_over(shelf, monkeypatch):
    out = shelf / "site"
    monkeypatch.setattr(module, "_pages", lambda *a: [])
    publish(out)
    put(out / "new.html", "mine")
    monkeypatch.setattr(module, "_pages", lambda *a: [SitePage("new.html", "New", "")])
    with pytest.raises(NotASite, match="was not written by fednb"):
        publish(out)
    assert (out / "new.html").read_text() == "mine" and [p.name for p in shelf.glob("*site*")] == ["site"]


@pytest.mark.parametrize("name, text", [("search-index.js", ""), ("site.json", "{}"), ("site.json", "["), (".git", "")])
def test_a_folder_without_a_list_of_the_sites_files_is_not_replaced(shelf, capsys, name, text):
    put(shelf / "site" / name, text)
    status, lines = published(shelf, capsys)
    assert status == 2 and len(lines) == 1 and "not a site of fednb" in lines[0]
    assert [p.name for p in (shelf / "site").iterdir()] == [name]


def test_a_file_in_the_place_of_the_site_stays(shelf, capsys):
    put(shelf / "site", "mine")
    assert published(shelf, capsys)[0] == 2 and (shelf / "site").read_text() == "mine"


def test_a_site_that_was_cut_short_between_old_and_new_comes_back(shelf, monkeypatch):
    """The old folder was taken away, the new one was not yet in place."""
    out = shelf / "out" / "site"
    monkeypatch.setattr(module, "_pages", lambda *a: [])
    publish(out)
    put(out / "CNAME", "example.org")
    out.rename(out.with_name(".site.123-0123abcd.old"))
    publish(out)
    assert (out / "CNAME").exists() and [p.name for p in out.parent.iterdir()] == ["site"]
