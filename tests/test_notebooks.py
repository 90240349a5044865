"""The anatomy of a notebook: parameters first, short cells, no outputs, smoke scale as it is opened."""

import ast
import json

import pytest

from fednb import notebooks
from fednb.grid import SCALES

NAMES = notebooks.names()


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


def test_one_parameters_cell_comes_first(name):
    tagged = [i for i, c in enumerate(notebooks.cells(name)) if "parameters" in c["metadata"].get("tags", [])]
    kinds = [c["cell_type"] for c in notebooks.cells(name)]
    assert tagged == [kinds.index("code")]


def test_defaults_are_smoke_scale(name):
    given = notebooks.parameters(name)
    assert given["scale"] == "smoke"
    assert given["device"] == "auto"


def test_cells_are_short_and_few(name):
    assert all(len(source.splitlines()) <= 12 for source in code(name))
    assert len(code(name)) <= 14
    assert sum(len(source.splitlines()) for source in code(name)) <= 90


def test_no_functions_and_no_loops(name):
    """A helper wanted in a notebook lives in fednb; rounds are looped over there too."""
    for source in code(name):
        kinds = {type(node) for node in ast.walk(ast.parse(source))}
        inventing = {ast.FunctionDef, ast.ClassDef} if name == "01_add_a_method" else set()  # that is its subject
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
        assert any("fn.verdict(" in source for source in code(name))


def test_names_are_found_by_their_beginning():
    assert notebooks.find("fedfft/01") == "fedfft/01_fig1_perturbation_spectra"
    assert notebooks.find("notebooks/00_start_here.ipynb") == "00_start_here"
    with pytest.raises(notebooks.UnknownNotebook, match="closest: fedfft/01_fig1"):
        notebooks.find("fedfft/99_fig1_perturbation")


def test_unknown_parameters_are_refused_before_anything_runs(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDNB_STORE", str(tmp_path))
    with pytest.raises(notebooks.BadNotebookParameter, match="no parameter 'scal'; it has: scale, seed"):
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


def test_results_are_kept_with_their_command(tmp_path, monkeypatch):
    """Tables, figures and provenance, and what to type for them; an older copy is replaced as a whole."""
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
    assert sorted(p.name for p in kept.iterdir()) == ["command.txt", "fig.png", "runs.json", "tab.csv"]
    assert (kept / "command.txt").read_text() == "fednb notebook made/01_x --scale laptop --keep\n"
    with pytest.raises(notebooks.UnknownNotebook, match="belongs to no paper"):
        notebooks.keep_results("00_start_here", "laptop", page, "")
