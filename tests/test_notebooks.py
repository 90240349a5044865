"""The anatomy of a notebook: parameters first, short cells, no outputs, smoke scale as it is opened."""

import ast
import json
import logging
import re
import subprocess
import sys
from contextlib import nullcontext

import pytest

import fednb as fn
from fednb.base.files import Contents, DamagedFile
from fednb.cli import commands
from fednb.cli.commands import main
from fednb.runs.grid import SCALES
from fednb.study import execution, notebooks
from fednb.study.claims import OUTCOMES
from fednb.study.folders import BadPage, page_folder
from fednb.study.parameters import BadNotebookParameter

NAMES = notebooks.names()
INVENTING = ("01_add_a_method", "02_your_own")  # code of one's own is their subject


@pytest.fixture(params=NAMES)
def name(request):
    return request.param


def code(name):
    return ["".join(c["source"]) for c in notebooks.cells(name) if c["cell_type"] == "code"]


def test_there_are_notebooks():
    assert {"00_start_here", "fedfft/01_fig1_perturbation_spectra"} <= set(NAMES)


def test_header_says_what_and_what_it_costs(name):
    first = notebooks.cells(name)[0]
    text = "".join(first["source"])
    assert first["cell_type"] == "markdown" and text.startswith("# ")
    for scale in SCALES:
        assert f"| {scale} |" in text
    if "/" in name and not name.startswith(("explore/", "across/")):
        assert "**Claim.**" in text


@pytest.mark.parametrize("scale", SCALES)
def test_header_counts_the_runs_of_its_grids(name, scale):
    """What two grids share, and what is tuned besides, may be counted or not."""
    said = re.search(rf"^\| {scale} \|.*?(\d+) runs\b", "".join(notebooks.cells(name)[0]["source"]), re.M)
    if said is None:
        return
    sections = re.findall(r"sections = \[(.*)\]|paper\.page\((.*), scale=", "\n".join(code(name)))[0]
    grids = (
        fn.papers(name.partition("/")[0]).page(*ast.literal_eval(f"[{''.join(sections)}]"), scale=scale).grids.values()
    )
    cells = [cell for grid in grids for cell in grid.cells]
    different = {repr((cell.setting, cell.method, cell.seed)) for cell in cells}
    assert len(different) <= int(said[1]) <= len(cells) + sum(len(grid.trials) for grid in grids)


def test_one_parameters_cell_comes_first(name):
    tagged = [i for i, c in enumerate(notebooks.cells(name)) if "parameters" in c["metadata"].get("tags", [])]
    kinds = [c["cell_type"] for c in notebooks.cells(name)]
    assert tagged == [kinds.index("code")]


def test_defaults_are_smoke_scale(name):
    given = notebooks.parameters(name)
    assert given["scale"] == "smoke"
    assert given["device"] == "auto"


def test_who_runs_a_grid_can_show_a_part_of_it(name):
    if any("page.run(" in source for source in code(name)):
        assert notebooks.parameters(name)["only"] is None and any("only=only" in source for source in code(name))


def test_cells_are_short_and_few(name):
    assert all(len(source.splitlines()) <= 12 for source in code(name))
    assert len(code(name)) <= 14
    assert sum(len(source.splitlines()) for source in code(name)) <= 90


def test_no_functions_and_no_loops(name):
    """A helper wanted in a notebook lives in fednb; rounds are looped over there too."""
    for source in code(name):
        kinds = {type(node) for node in ast.walk(ast.parse(source))}
        inventing = {ast.FunctionDef, ast.ClassDef} if name in INVENTING else set()
        assert not kinds & ({ast.FunctionDef, ast.ClassDef, ast.For, ast.While} - inventing)


def test_no_outputs_and_no_counts(name):
    for cell in notebooks.cells(name):
        if cell["cell_type"] == "code":
            assert cell["outputs"] == [] and cell["execution_count"] is None


def test_kernel_is_the_plain_one(name):
    about = json.loads(notebooks.path(name).read_text())["metadata"]
    assert about["kernelspec"]["name"] == "python3"


def test_paper_notebooks_end_in_a_verdict(name):
    if "/" in name and not name.startswith(("explore/", "across/")):
        assert any("page.verdict()" in source for source in code(name))
    assert not any("fn.verdict(" in source for source in code(name))


VERDICT_IN_BOLD = re.compile(rf"\*\*(?:{'|'.join(OUTCOMES)}|hold|do not hold|refuted)\b", re.IGNORECASE)


def test_prose_on_what_we_found_has_no_verdicts_of_its_own(name):
    """They are computed in the last code cell; a word typed beside it would stay when the rule or the runs change."""
    prose = "\n\n".join("".join(c["source"]) for c in notebooks.cells(name) if c["cell_type"] == "markdown")
    found = [part for part in re.split(r"(?m)^#+ ", prose) if part.startswith("What we found")]
    assert [bold for part in found for bold in VERDICT_IN_BOLD.findall(part)] == []


def test_names_are_found_by_their_beginning():
    assert notebooks.find("fedfft/01") == "fedfft/01_fig1_perturbation_spectra"
    assert notebooks.find("notebooks/00_start_here.ipynb") == "00_start_here"
    with pytest.raises(notebooks.UnknownNotebook, match="closest: fedfft/01_fig1"):
        notebooks.find("fedfft/99_fig1_perturbation")


def test_unknown_parameters_are_refused_before_anything_runs(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDNB_STORE", str(tmp_path))
    with pytest.raises(BadNotebookParameter, match="no parameter 'scal'; it has: scale, seed"):
        notebooks.execute("00_start_here", {"scal": "smoke"})
    assert list(tmp_path.iterdir()) == []


def made(*sources, tags=()):
    return [{"cell_type": "code", "source": [source], "metadata": {"tags": list(tags)}} for source in sources]


CELLS = [
    *made('scale = "smoke"\nx = 1\ndevice = "auto"', tags=["parameters"]),
    *made("import fednb as fn\nimport pandas as pd"),
    *made('fn.page("made/01_x", scale).keep("tab", pd.DataFrame({"x": [x]}))'),
]


def test_a_notebook_runs_as_a_plain_program(tmp_path, monkeypatch):
    """Where there is no Jupyter: given parameters replace the defaults, what it keeps goes to its page."""
    monkeypatch.setenv("FEDNB_STORE", str(tmp_path))
    monkeypatch.setattr(notebooks, "cells", lambda name: CELLS)
    folder = notebooks.execute_plainly("made/01_x", {"x": 5})
    assert (folder / "tab.csv").read_text().split() == [",x", "0,5"]
    monkeypatch.setattr(notebooks, "cells", lambda name: [*CELLS, *made("1 / 0")])
    with pytest.raises(notebooks.CellFailed, match=r"made/01_x stopped in cell 4: ZeroDivisionError"):
        notebooks.execute_plainly("made/01_x", {})


def test_a_plain_program_can_display(tmp_path, monkeypatch, capsys):
    """Jupyter gives every notebook a `display`; without it, it prints."""
    monkeypatch.setenv("FEDNB_STORE", str(tmp_path))
    monkeypatch.setattr(notebooks, "cells", lambda name: [*CELLS, *made("display(x, 'seen')")])
    notebooks.execute_plainly("made/01_x", {"x": 5})
    assert "5 seen" in capsys.readouterr().out


def test_results_are_kept_with_their_command(tmp_path, monkeypatch):
    """Tables, figures and provenance, and what to type for them; an older copy is replaced as a whole."""
    monkeypatch.setenv("FEDNB_STORE", str(tmp_path / "store"))
    monkeypatch.setattr(notebooks, "shelf", lambda name: tmp_path / name)
    page = tmp_path / "page"
    for folder in (page, tmp_path / "papers" / "made"):
        folder.mkdir(parents=True)
    for file in ("tab.csv", "runs.json", "fig.png", "executed.ipynb"):
        (page / file).write_text(file)
    old = tmp_path / "papers/made/results/01_x_laptop/old.csv"
    old.parent.mkdir(parents=True)
    old.write_text("")
    kept = notebooks.keep_results("made/01_x", "laptop", page, "fednb notebook made/01_x --scale laptop --keep")
    assert sorted(p.name for p in kept.iterdir()) == ["command.txt", "contents.json", "fig.png", "runs.json", "tab.csv"]
    assert len(list((tmp_path / "store" / "set-aside").rglob("old.csv"))) == 1  # it had no list: nothing is lost
    assert (kept / "command.txt").read_text() == "fednb notebook made/01_x --scale laptop --keep\n"
    with pytest.raises(notebooks.UnknownNotebook, match="belongs to no paper"):
        notebooks.keep_results("00_start_here", "laptop", page, "")


# Parameters are checked before anything is touched


def test_two_scales_are_refused(capsys):
    assert main(["notebook", "fedfft/01", "--scale", "paper", "-p", "scale", "laptop"]) == 2
    assert capsys.readouterr().err == "fednb: --scale 'paper' -p scale 'laptop': give it once\n"


@pytest.mark.parametrize("given", [["--scale", "laptop"], ["-p", "scale", "laptop"]])
def test_the_command_that_is_kept_says_the_scale_once(given):
    words = ["notebook", "made/01_x", *given, "-p", "seeds", "[0, 1]", "--plain", "--keep"]
    asked = commands.parser().parse_args(words)
    typed = commands._as_typed(asked, "made/01_x", "laptop")
    assert typed == "fednb notebook made/01_x --scale laptop -p seeds '[0, 1]' --plain --keep"


@pytest.mark.parametrize("scale", ["{folder}", "../../folder", "smoke/../folder"])
def test_a_scale_that_is_a_folder_is_left_alone(tmp_path, monkeypatch, capsys, scale):
    """Nothing in it is touched, nothing is made in the store."""
    monkeypatch.setenv("FEDNB_STORE", str(tmp_path / "store"))
    folder = tmp_path / "folder"
    folder.mkdir()
    for name in ("a.csv", "b.png", "c.txt", "runs.json"):
        (folder / name).write_text("mine")
    asked = ["notebook", "fedfft/01", "-p", "scale", scale.format(folder=folder), "--plain"]
    assert main(asked) == 2
    assert "must be one of smoke, laptop, paper" in capsys.readouterr().err
    assert sorted(p.name for p in folder.iterdir()) == ["a.csv", "b.png", "c.txt", "runs.json"]
    assert {p.read_text() for p in folder.iterdir()} == {"mine"} and not (tmp_path / "store").exists()


# The last good page stays until the next one is whole


@pytest.fixture
def made_page(tmp_path, monkeypatch):
    """A page made with x = 5, words of the reader's own beside its files."""
    monkeypatch.setenv("FEDNB_STORE", str(tmp_path))
    monkeypatch.setattr(notebooks, "cells", lambda name: CELLS)
    folder = notebooks.execute_plainly("made/01_x", {"x": 5})
    (folder / "remarks.txt").write_text("mine")
    return folder


def test_a_failing_notebook_leaves_the_last_good_page(made_page, monkeypatch):
    """What it made lies beside it; the next good one takes the page's place, and carries what is not fednb's."""
    before = {p.name: p.read_bytes() for p in made_page.iterdir()}
    monkeypatch.setattr(notebooks, "cells", lambda name: [*CELLS, *made("1 / 0")])
    with pytest.raises(notebooks.CellFailed, match="smoke-failed"):
        notebooks.execute_plainly("made/01_x", {"x": 6})
    assert {p.name: p.read_bytes() for p in made_page.iterdir()} == before
    failed = made_page.with_name("smoke-failed")
    assert failed == execution.failed_folder("made/01_x", "smoke") and "0,6" in (failed / "tab.csv").read_text()
    monkeypatch.setattr(notebooks, "cells", lambda name: CELLS)
    notebooks.execute_plainly("made/01_x", {"x": 7})
    assert "0,7" in (made_page / "tab.csv").read_text() and (made_page / "remarks.txt").read_text() == "mine"
    assert not [p for p in made_page.parent.iterdir() if p.suffix in (".new", ".old")]


def test_what_a_page_no_longer_shows_goes_and_only_that(made_page, monkeypatch):
    other = made('fn.page("made/01_x", scale).keep("other", pd.DataFrame({"x": [x]}))')
    monkeypatch.setattr(notebooks, "cells", lambda name: [*CELLS[:2], *other])
    notebooks.execute_plainly("made/01_x", {})
    assert sorted(p.name for p in made_page.iterdir()) == ["contents.json", "other.csv", "other.txt", "remarks.txt"]


def test_a_damaged_page_is_set_aside_when_the_new_one_is_there(made_page, capsys):
    (made_page / "tab.csv").write_text("changed by hand")
    (problem,) = execution.page_problems("made/01_x", "smoke")
    assert str(made_page / "tab.csv") in problem
    assert "`fednb notebook made/01_x --scale smoke` makes it again" in problem
    assert problem in execution.check_pages()
    notebooks.execute_plainly("made/01_x", {})
    aside = made_page.parents[3] / "set-aside" / "made-01_x-smoke-1"
    assert (aside / "tab.csv").read_text() == "changed by hand" and str(aside) in capsys.readouterr().err
    assert execution.page_problems("made/01_x", "smoke") == []


def test_a_file_that_is_in_the_way_is_set_aside(made_page, monkeypatch):
    """A table of the same name that fednb did not write."""
    (made_page / "new.csv").write_text("mine")
    monkeypatch.setattr(notebooks, "cells", lambda name: [*CELLS, *made(CELLS[2]["source"][0].replace("tab", "new"))])
    notebooks.execute_plainly("made/01_x", {})
    assert "0,1" in (made_page / "new.csv").read_text()
    (aside,) = (made_page.parents[3] / "set-aside").rglob("new.csv")
    assert aside.read_text() == "mine"


GOOD = {"cells": [{"cell_type": "code", "source": "", "metadata": {}}], "metadata": {}}


@pytest.mark.parametrize(
    "text, said",
    [
        (json.dumps(GOOD)[:-9], "is not JSON"), ("", "is not JSON"), ("\0" * 9, "is not JSON"),
        ("[" * 100_000, "is not JSON"), ("[]", "is not a notebook"), ("{}", "is not a notebook"),
        ('{"cells": [1], "metadata": {}}', "is not a notebook"),
        ('{"cells": [], "metadata": {"papermill": 3}}', "is not a notebook"),
    ],
    ids=range(8),
)  # fmt: skip
def test_a_torn_copy_is_named(tmp_path, monkeypatch, text, said):
    """An older one, without a digest; `is_current` says no and does not stop."""
    monkeypatch.setenv("FEDNB_STORE", str(tmp_path))
    path = page_folder("made/01_x", "smoke") / "executed.ipynb"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(GOOD))
    assert execution.read_executed("made/01_x", "smoke") == GOOD
    path.write_text(text)
    with pytest.raises(
        DamagedFile, match=f"{said}.*; `fednb notebook made/01_x --scale smoke` makes it again"
    ) as found:
        execution.read_executed("made/01_x", "smoke")
    assert found.value.path == path and not notebooks.is_current("made/01_x", "smoke")
    path.unlink()
    with pytest.raises(FileNotFoundError):
        execution.read_executed("made/01_x", "smoke")


@pytest.mark.parametrize("name", ["..", "../x", "/x", "x/../y", "", "x//y", ".x", "x/", "a\0b", "a\nb", None, 3])
def test_no_page_lies_elsewhere(name):
    with pytest.raises(BadPage, match="no notebook can be called"):
        page_folder(name, "smoke")


@pytest.mark.parametrize("scale", ["", ".", "..", "Smoke", "smoke/..", None, "smoke-failed"])
def test_no_page_has_another_scale(scale):
    with pytest.raises(BadPage, match="no scale"):
        page_folder("made/01_x", scale)


# What was kept stays until the new copy is whole


@pytest.fixture
def paper(made_page, tmp_path, monkeypatch):
    """Where results of the made page are kept: once, with words of the reader's own beside them."""
    monkeypatch.setattr(notebooks, "shelf", lambda name: tmp_path / name)
    (tmp_path / "papers" / "made").mkdir(parents=True)
    kept = notebooks.keep_results("made/01_x", "smoke", made_page, "fednb notebook made/01_x")
    (kept / "remarks.txt").write_text("mine")
    return kept


def test_hand_written_files_stay_with_kept_results(paper, made_page):
    (paper / "notes").mkdir()
    (paper / "notes" / "a.csv").write_text("mine")
    notebooks.execute_plainly("made/01_x", {"x": 8})
    notebooks.keep_results("made/01_x", "smoke", made_page, "")
    assert (paper / "remarks.txt").read_text() == (paper / "notes" / "a.csv").read_text() == "mine"
    assert "0,8" in (paper / "tab.csv").read_text() and set(Contents.of(paper).files) == {"command.txt", "tab.csv"}


@pytest.mark.parametrize("damage", [lambda p: p.unlink(), lambda p: p.write_text("x,y")], ids=["missing", "changed"])
def test_nothing_is_kept_from_a_damaged_page(paper, made_page, damage):
    before = {p.name: p.read_bytes() for p in paper.iterdir()}
    damage(made_page / "tab.csv")
    with pytest.raises(DamagedFile, match=r"tab\.csv.*makes it again"):
        notebooks.keep_results("made/01_x", "smoke", made_page, "")
    assert {p.name: p.read_bytes() for p in paper.iterdir()} == before


def test_an_empty_page_replaces_nothing(paper, made_page, monkeypatch):
    monkeypatch.setattr(notebooks, "cells", lambda name: CELLS[:2])
    notebooks.execute_plainly("made/01_x", {})
    with pytest.raises(execution.NothingToKeep, match="no table, figure or runs"):
        notebooks.keep_results("made/01_x", "smoke", made_page, "")
    assert (paper / "tab.csv").exists()


def runs_of(*seeds, key="", **setting):
    """A runs.json: FedAvg with some seeds. key: what keys begin with."""
    about = {"method": "FedAvg", "parts": "Method('FedAvg')", "setting": {"data": "digits", "lr": 0.1} | setting}
    return json.dumps({f"{key}{seed}": about | {"seed": seed} for seed in seeds})


@pytest.mark.parametrize("kept, shown, lost", [
    (runs_of(0, 1), runs_of(0, 1, 2), ""),  # more than before
    (runs_of(0, 1), runs_of(0, 1, key="new", precision="fp32"), ""),  # the same with a newer version's keys and fields
    (runs_of(0, 1, precision="fp32"), runs_of(0, 1), ""),
    (runs_of(0, 1, 2), runs_of(0), "2 of 3, the first FedAvg with seed 1"),
    (runs_of(0, lr=0.2), runs_of(0), "1 of 1, the first FedAvg with seed 0"),  # another rate is another run
    (runs_of(5), "", "1 of 1, the first FedAvg with seed 5"),
    ("", runs_of(0), ""),
    ("no JSON", runs_of(0), ""),
])  # fmt: skip
def test_kept_runs_do_not_go_unasked(paper, made_page, kept, shown, lost):
    """A page drawn from fewer runs does not take the place of one with more, unless one says so."""
    for folder, runs in ((paper, kept), (made_page, shown)):
        if runs:
            (folder / "runs.json").write_text(runs)
            listed = Contents.of(folder)
            listed.add("runs.json")
            listed.save()
    before = {p.name: p.read_bytes() for p in paper.iterdir()}
    with pytest.raises(execution.KeepsFewer, match=lost) if lost else nullcontext():
        notebooks.keep_results("made/01_x", "smoke", made_page, "")
    if lost:
        assert {p.name: p.read_bytes() for p in paper.iterdir()} == before
    notebooks.keep_results("made/01_x", "smoke", made_page, "", fewer=True)
    assert (paper / "runs.json").exists() == bool(shown)
    assert not shown or (paper / "runs.json").read_text() == shown


def test_fewer_comes_with_keep(capsys):
    assert main(["notebook", "fedfft/01", "--fewer"]) == 2
    assert "comes with it" in capsys.readouterr().err


def test_who_belongs_to_no_paper_is_told_before_the_work(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("FEDNB_STORE", str(tmp_path))
    monkeypatch.setattr(notebooks, "execute", lambda *a: pytest.fail("was executed"))
    assert main(["notebook", "00_start_here", "--keep"]) == 2
    assert "belongs to no paper" in capsys.readouterr().err and list(tmp_path.iterdir()) == []


def test_all_names_a_damaged_page_and_goes_on(tmp_path, monkeypatch, capsys):
    """It counts as not executed; the others are looked at too."""
    monkeypatch.setenv("FEDNB_STORE", str(tmp_path))
    path = page_folder("00_start_here", "smoke") / "executed.ipynb"
    path.parent.mkdir(parents=True)
    path.write_text('{"cells": [')
    asked = []
    monkeypatch.setattr(notebooks, "execute_all", lambda todo, *a: [(name, asked.append(name) or "") for name in todo])
    assert main(["notebook", "--all"]) == 0
    assert asked == NAMES and f"fednb: {path}: is not JSON; " in capsys.readouterr().err


def test_notebooks_are_executed_without_the_current_folder():
    """On the path of the process, and of the kernel."""
    assert "-P" in notebooks._command("made/01_x", "smoke")
    assert notebooks._modules()["PYTHONSAFEPATH"] == "1" and "" not in notebooks._modules()["PYTHONPATH"].split(":")


def test_the_kernel_does_not_tell_its_own_errors(made_page, monkeypatch):
    """Errors of cells come by messages; what the kernel logs about a closed socket after Ctrl-C is nobody's concern."""
    given = {}
    monkeypatch.setattr("papermill.execute_notebook", lambda *a, **how: given.update(how) or 1 / 0)
    monkeypatch.setattr(notebooks, "path", lambda name: made_page)
    with pytest.raises(ZeroDivisionError):
        notebooks.execute("made/01_x", {})
    level = next(text for text in given["extra_arguments"] if "log_level" in text)
    assert int(level.partition("=")[2]) > logging.ERROR


def test_who_does_not_hear_the_end_is_killed(tmp_path, monkeypatch):
    """A process that ignores SIGTERM is waited for only so long; none is left and none is started afterwards."""
    there = tmp_path / "there"
    deaf = f"import signal, time; signal.signal(15, signal.SIG_IGN); open({str(there)!r}, 'w'); time.sleep(600)"
    quick = f"import os, time\nwhile not os.path.exists({str(there)!r}): time.sleep(0.05)"
    programs = {"deaf": deaf, "quick": quick, "later": "pass"}
    monkeypatch.setattr(notebooks, "_command", lambda name, scale: [sys.executable, "-c", programs[name]])
    monkeypatch.setattr(notebooks.AtWork, "PATIENCE", 0.2)
    started, popen = [], subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", lambda *a, **k: started.append(popen(*a, **k)) or started[-1])
    running = notebooks.execute_all(["deaf", "quick"], "smoke", 2)
    assert next(running) == ("quick", "")
    running.close()
    assert sorted(p.returncode for p in started) == [-9, 0]
    at_work = notebooks.AtWork()
    at_work.end()
    assert at_work.run(programs["later"]) == (130, "interrupted") and len(started) == 2


@pytest.mark.parametrize("error", [RuntimeError("Kernel died"), OSError(28, "No space left on device")], ids=str)
def test_a_kernel_that_dies_leaves_the_page(made_page, monkeypatch, error):
    """Or a full disk in the middle of the executed copy; the next execution works."""

    def torn(source, target, **how):
        target.write_text('{"cells": [')
        raise error

    before = {p.name: p.read_bytes() for p in made_page.iterdir()}
    monkeypatch.setattr("papermill.execute_notebook", torn)
    monkeypatch.setattr(notebooks, "path", lambda name: made_page)
    with pytest.raises((notebooks.CellFailed, OSError), match=str(error.args[-1])):
        notebooks.execute("made/01_x", {})
    assert {p.name: p.read_bytes() for p in made_page.iterdir()} == before
    assert (made_page.with_name("smoke-failed") / "executed.ipynb").read_text() == '{"cells": ['
    notebooks.execute_plainly("made/01_x", {"x": 9})
    assert "0,9" in (made_page / "tab.csv").read_text()


@pytest.mark.parametrize(
    "text, said",
    [
        ("{", "is not JSON"), ("[]", "is not a notebook with cells"), ('{"cells": [], "metadata": {}}', "and has 0"),
        (json.dumps({"cells": [CELLS[0] | {"source": "x = y"}], "metadata": {}}), "must be written as"),
    ],
    ids=range(4),
)  # fmt: skip
def test_a_notebook_that_cannot_be_read_is_named(tmp_path, monkeypatch, text, said):
    monkeypatch.setattr(notebooks, "path", lambda name: tmp_path / "made.ipynb")
    (tmp_path / "made.ipynb").write_text(text)
    with pytest.raises(notebooks.BadNotebook, match=f"made.ipynb: .*{said}"):
        notebooks.parameters("made")
