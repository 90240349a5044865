"""The page of one notebook: what it keeps of an executed copy, what it leaves out, and what it says about it."""

import json
import re

import pytest
from made_site import CELLS, GIVEN, HEAD, PNG, bare, code, failed, make, put, shown
from made_site import book as made_book

from fednb.show.site.book import Book, short, told_by
from fednb.show.site.notebook import notebook_page, words_for
from fednb.show.site.text import without_markup
from fednb.study import notebooks
from fednb.study.folders import page_folder

NAMES = ["00_hello", "made/01_one", "made/02_two"]


@pytest.fixture
def shelf(tmp_path, monkeypatch):
    return make(tmp_path, monkeypatch)


def page(name, scale="", rows=(), beside=(None, None)):
    return notebook_page(Book.of(name, scale), list(rows), NAMES, beside)


def execute(*cells, **about):
    """Put an executed copy of made/01_one into the store."""
    put(page_folder("made/01_one", "smoke") / "executed.ipynb", made_book(*cells, **about))


def test_the_title_stands_once_above_where_the_page_is_from(shelf):
    body = page("made/01_one").body
    assert body.count("<h1") == 1 and "what <math" in body
    assert body.index("<h1") < body.index("Where this page is from") < body.index("It is <strong>shown")
    told = without_markup(body)
    assert "scale smoke executed 2026-11-15, in 3 s" in told and "1, n = 1 seed (0)" in told and "a CPU" in told
    assert "fednb notebook made/01_one --scale smoke" in told


def test_progress_bars_are_left_out_and_warnings_are_not(shelf):
    body = page("made/01_one").body
    assert "round/s" not in body and "█" not in body
    assert "UserWarning: dim" in body and "x.py" not in body


def test_pictures_are_files_with_words_and_a_place(shelf):
    made = page("made/01_one")
    (picture,) = made.pictures
    assert made.files[picture.file].startswith(b"\x89PNG") and "base64" not in made.body
    assert (picture.words, picture.told) == ("Made, Figure 1, what x^2 is: A dot", "smoke scale, n = 1")
    assert f'alt="{picture.words}"' in made.body
    assert f'id="{picture.url.partition("#")[2]}"' in made.body
    assert f'src="{picture.file.removeprefix("notebooks/made/")}"' in made.body


def test_styles_of_tables_and_widgets_that_nobody_can_move_are_left_out(shelf):
    execute(*CELLS, code("explorer", "e", shown(view={"model_id": "1"}, png=PNG, plain="a")), widgets={"state": {}})
    body = page("made/01_one").body
    assert "<style" not in body and "<script" not in body and "model_id" not in body
    assert body.count("<img") == 2


def test_an_error_is_shown_and_counted(shelf):
    assert Book.of("made/01_one").errors == 0
    execute(HEAD, GIVEN, code("1 / 0", "bad", failed("no <thing>")))
    body = page("made/01_one").body
    assert "1 cell of this execution ended in an error" in body
    assert "ValueError: no &lt;thing&gt;" in body


def test_an_interrupted_execution_says_so(shelf):
    assert "was interrupted" not in page("made/01_one").body
    execute(*CELLS, papermill={"start_time": "2026-11-15T11:15:32+00:00", "end_time": None, "duration": None})
    assert "was interrupted" in page("made/01_one").body


def test_a_notebook_that_was_neither_executed_nor_kept_says_so_and_how(shelf):
    body = page("00_hello").body
    assert "Not executed yet" in body and "<code>fednb notebook 00_hello --scale smoke</code>" in body
    assert "page" in body and "<img" not in body
    assert "Not executed yet" in page("made/01_one", scale="laptop").body


def test_the_largest_scale_is_shown_or_the_one_that_was_asked_for(shelf):
    put(page_folder("made/01_one", "laptop") / "executed.ipynb", made_book(*CELLS))
    assert Book.of("made/01_one").scale == "laptop"
    assert Book.of("made/01_one", "smoke").scale == "smoke"
    assert Book.of("made/02_two").scale == "laptop" and Book.of("made/02_two", "smoke").scale == ""
    put(page_folder("made/02_two", "smoke") / "executed.ipynb", made_book(*CELLS))
    assert Book.of("made/02_two").shown and not Book.of("made/02_two", "smoke").shown  # kept before smoke
    put(page_folder("made/02_two", "laptop") / "executed.ipynb", made_book(*CELLS))
    assert not Book.of("made/02_two").shown  # executed at that scale


def test_kept_results_stand_beneath_the_cells_that_keep_them(shelf):
    """A figure, a table and the verdicts, which are judged when the page is made; a name that was not kept, nothing."""
    keeping = [code(f'page.keep("{name}", x)', name) for name in ("tab", "verdict", "gone")]
    put(notebooks.path("made/02_two"), made_book(HEAD, GIVEN, *(bare(cell) for cell in (*CELLS[3:5], *keeping))))
    put(shelf / "papers/made/results/02_two_laptop/tab.csv", "method,accuracy\nA,71.5\n")
    made = page("made/02_two")
    top = made.body.split('<article class="notebook">')[0]
    assert "kept with the paper at laptop scale" in top and "Not executed yet" not in top
    assert "3, n = 3 seeds (0, 1, 2)" in top and "On a &lt;fast&gt; machine." in top
    (picture,) = made.pictures
    assert picture.told == "laptop scale, n = 3" and picture.words.endswith(": A dot")
    assert picture.file in made.files and picture.url.endswith("#cell-id=draw")
    told = without_markup(made.body)
    assert "method accuracy A 71.5" in told and "large seen 2" in told and 'id="kept"' not in made.body


def test_what_was_kept_at_other_scales_stands_below(shelf):
    put(page_folder("made/02_two", "paper") / "executed.ipynb", made_book(*CELLS))
    made = page("made/02_two")
    kept = made.body.split('id="kept"')[1]
    assert "3, n = 3 seeds (0, 1, 2)" in kept and '<span class="badge holds">seen</span>' in kept
    assert [picture.told for picture in made.pictures] == ["laptop scale, n = 3", "paper scale"]
    assert f'id="{made.pictures[0].url.partition("#")[2]}"' in kept


def test_smoke_scale_is_said_to_be_no_evidence(shelf):
    assert "Smoke scale, no evidence" in page("made/01_one").body
    assert "Smoke scale, no evidence" not in page("made/02_two").body


def test_a_copy_of_an_older_notebook_says_so(shelf):
    signed = {"fednb": {"made_from": notebooks.made_from("made/01_one")}}
    execute(*CELLS, **signed)
    assert not Book.of("made/01_one").outdated
    put(notebooks.path("made/01_one"), made_book(HEAD, GIVEN))
    assert Book.of("made/01_one").outdated
    assert "changed since" in page("made/01_one").body


def test_figures_are_named_by_the_cell_that_keeps_them(shelf):
    book = Book.of("made/01_one")
    assert words_for(book, "fig1").endswith(": A dot")
    assert words_for(book, "fig_other_thing").endswith(": other thing")


def test_search_finds_text_and_headings_and_not_code(shelf):
    found = page("made/01_one").found
    assert [(f.kind, f.title) for f in found] == [("notebook", "Made, Figure 1: what x^2 is"), ("heading", "The idea")]
    assert "It is shown" in found[0].text and "dot(title" not in found[0].text
    assert found[1].url == "notebooks/made/01_one.html#the-idea"


def test_the_pages_before_and_after_are_linked(shelf):
    body = page("made/01_one", beside=(Book.of("00_hello"), Book.of("made/02_two"))).body
    assert re.findall(r'<a rel="(\w+)" href="([^"]+)"', body) == [("prev", "../00_hello.html"), ("next", "02_two.html")]


def test_runs_in_words():
    about = {"seed": 1, "device_name": "D", "engine": "pool", "ended": "2026-01-02T00:00:00Z",
             "versions": {"commit": "b" * 40, "torch": "2"}}  # fmt: skip
    told = dict(told_by({str(i): about | {"seed": i} for i in range(8)}))
    assert told["runs"] == "8, n = 8 seeds (0, 1, 2, 3, 4, 5 and 2 more)"
    assert told["commit of the runs"] == "b" * 12 and told["runs made"] == "2026-01-02"
    assert short("c" * 40 + "-dirty") == "c" * 12 + "-dirty" and short(None) == ""
    assert dict(told_by({})) == {}


# Which executed copies are up to date, and making the others


def test_a_copy_is_current_until_something_that_decides_it_changes(shelf):
    """Signed, executed as it is, from the present notebook; anything else is executed again."""
    papermill = {"parameters": {"scale": "smoke"}}
    signed = {"made_from": notebooks.made_from("made/01_one")}
    assert not notebooks.is_current("made/02_two", "smoke")
    for about, current in [
        ({"papermill": papermill, "fednb": signed}, True),
        ({"papermill": papermill}, False),
        ({"papermill": {"parameters": {"scale": "smoke", "seeds": [1]}}, "fednb": signed}, False),
        ({"papermill": papermill, "fednb": {"made_from": "other"}}, False),
    ]:
        execute(*CELLS, **about)
        assert notebooks.is_current("made/01_one", "smoke") == current
    execute(*CELLS, papermill=papermill, fednb=signed)
    put(notebooks.path("made/01_one"), made_book(HEAD, GIVEN))
    assert not notebooks.is_current("made/01_one", "smoke")


def test_a_changed_paper_makes_every_copy_old(shelf):
    notebooks._library.cache_clear()
    before = notebooks.made_from("00_hello")
    (shelf / "papers" / "made" / "claims.toml").write_text("")
    notebooks._library.cache_clear()
    assert notebooks.made_from("00_hello") != before
    notebooks._library.cache_clear()


def test_an_executed_copy_is_signed(shelf):
    path = page_folder("made/01_one", "smoke") / "executed.ipynb"
    notebooks._sign(path, "made/01_one")
    assert notebooks.is_current("made/01_one", "smoke")
    assert json.loads(path.read_text())["cells"] == CELLS


@pytest.mark.parametrize("jobs", [1, 2])
def test_one_that_fails_does_not_stop_the_others(shelf, monkeypatch, jobs):
    programs = {
        "a": "pass",
        "b": "import sys; print('bar\\rfednb: b stopped', file=sys.stderr); sys.exit(1)",
        "c": "1 / 0",
    }
    monkeypatch.setattr(notebooks, "_command", lambda name, scale: [notebooks.sys.executable, "-c", programs[name]])
    done = dict(notebooks.execute_all(["a", "b", "c"], "smoke", jobs))
    assert done["a"] == "" and done["b"] == "b stopped" and "ZeroDivisionError" in done["c"]


def test_an_interrupt_ends_those_at_work(shelf, monkeypatch, tmp_path):
    """The process that would sleep for a minute is gone when the loop is left."""
    started = []
    popen = notebooks.subprocess.Popen
    monkeypatch.setattr(notebooks.subprocess, "Popen", lambda *a, **k: started.append(popen(*a, **k)) or started[-1])
    programs = {"quick": "pass", "slow": "import time; time.sleep(600)"}
    monkeypatch.setattr(notebooks, "_command", lambda name, scale: [notebooks.sys.executable, "-c", programs[name]])
    running = notebooks.execute_all(["slow", "quick"], "smoke", 2)
    assert next(running) == ("quick", "")
    running.close()
    assert sorted(p.wait(timeout=120) for p in started) == [-15, 0]
