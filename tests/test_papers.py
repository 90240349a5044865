"""The papers' folders: complete, consistent, and able to become runs without touching any data."""

import csv
import re

import pandas as pd
import pytest

from fednb import notebooks
from fednb.data import sources
from fednb.grid import SCALES, Grid
from fednb.papers import UnknownPaper, papers, shelf
from fednb.setting import Setting

IDS = sorted(p.name for p in shelf("papers").iterdir() if p.is_dir())
COLUMNS = ["method", "dataset", "model", "setting", "metric", "value", "std", "note"]


@pytest.fixture(params=IDS)
def paper(request):
    return papers(request.param)


@pytest.fixture(autouse=True)
def no_data(monkeypatch):
    monkeypatch.setattr(sources, "held", lambda *a: pytest.fail("data were loaded"))


def names(folder, pattern):
    return sorted(p.stem for p in folder.glob(pattern))


def test_the_shelf_lists_every_folder():
    table = papers()
    assert {"fedfft", "specgradfilter"} <= set(IDS) == set(table.index)
    assert (table["sections"] >= 1).all()


def test_every_paper_says_what_it_is(paper):
    for name in ("title", "authors", "venue", "citation", "code"):
        assert paper.about[name].strip()
    assert paper.about["title"] in repr(paper) and paper.about["citation"] in repr(paper)
    assert isinstance(Setting(**paper.about["setting"]), Setting)


def test_every_section_has_a_notebook_and_a_grid(paper):
    for section, about in paper.about["sections"].items():
        assert about["notebook"] in notebooks.names() and about["title"]
        page = paper.page(section)
        assert page.notebook == about["notebook"] and page.grid.cells


@pytest.mark.parametrize("scale", SCALES)
def test_every_grid_builds_at_every_scale(paper, scale):
    """Settings are valid, methods known, probes within the rounds that will be run, and no cell is there twice."""
    for name in names(paper.folder / "grids", "*.toml"):
        grid = paper.grid(name, scale)
        assert isinstance(grid, Grid) and grid.scale == scale and grid.cells
        assert len({(repr(c.setting), repr(c.method), c.seed) for c in grid.cells}) == len(grid.cells)
        assert all(max(grid.probe.rounds) < c.setting.rounds for c in grid.cells if grid.probe)
        assert {c.seed for c in paper.grid(name, scale, seeds=[41, 43]).cells} == {41, 43}


def test_every_grid_belongs_to_a_section(paper):
    assert set(names(paper.folder / "grids", "*.toml")) == set(paper.about["sections"])


def test_smoke_runs_on_what_every_machine_has(paper):
    """Digits come with scikit-learn; nothing is downloaded to see a notebook work."""
    for section in paper.about["sections"]:
        assert {c.setting.data for c in paper.grid(section, "smoke").cells} == {"digits"}


def test_every_claim_belongs_to_a_section(paper):
    claims = paper.claims()
    assert claims and {c.section for c in claims} <= set(paper.about["sections"])
    assert len({c.id for c in claims}) == len(claims)
    assert all(c.says and c.measure and c.tolerance >= 0 and c.paper == paper.id for c in claims)
    by_section = [c for section in paper.about["sections"] for c in paper.page(section).claims]
    assert sorted(c.id for c in by_section) == sorted(c.id for c in claims)


def test_every_table_has_the_same_columns(paper):
    """A number a row, and what it measures; where the paper prints none, the note says why."""
    tables = names(paper.folder / "tables", "*.csv")
    assert tables
    for name in tables:
        with open(paper.folder / "tables" / f"{name}.csv", newline="", encoding="utf-8") as f:
            header, *rows = csv.reader(f)
        assert header == COLUMNS and rows
        assert all(len(row) == len(COLUMNS) and row[4] and (row[5] or row[7]) for row in rows)
        assert list(paper.reported(name).columns) == COLUMNS and len(paper.reported(name)) == len(rows)


def test_accuracies_are_percentages(paper):
    for name in names(paper.folder / "tables", "*.csv"):
        table = paper.reported(name)
        shown = pd.to_numeric(table[table["metric"] == "accuracy"]["value"])
        assert shown.between(0, 100).all()


def test_every_reading_has_four_lines(paper):
    """printed, released, we run, effect: in this order, once each, under every heading."""
    _, *entries = re.split(r"^## ", paper.readings, flags=re.MULTILINE)
    assert entries
    for entry in entries:
        title, *lines = entry.splitlines()
        heads = re.findall(r"^(printed|released|we run|effect)\s{2,}\S", "\n".join(lines), flags=re.MULTILINE)
        assert heads == ["printed", "released", "we run", "effect"], title


@pytest.mark.parametrize(
    "ask, said",
    [
        (lambda: papers("fedftt"), r"no paper 'fedftt'; closest: fedfft"),
        (lambda: papers("fedfft").reported("tabel4"), r"no table of fedfft 'tabel4'; closest: table4"),
        (lambda: papers("fedfft").page("figure1"), r"no section of fedfft 'figure1'; closest: fig1"),
        (lambda: papers("fedfft").grid("fig11"), r"no grid of fedfft 'fig11'; closest: fig1"),
        (lambda: papers("fedfft").grid("fig1", "papr"), r"no scale 'papr'; the scales are smoke, laptop, paper"),
        (lambda: papers("fedfft").page("fig1", "huge"), r"no scale 'huge'; the scales are smoke, laptop, paper"),
    ],
)
def test_what_is_not_there_is_refused_with_the_closest(ask, said):
    with pytest.raises(UnknownPaper, match=said) as refused:
        ask()
    assert not str(refused.value).startswith("'")


def test_papers_are_found_in_any_case():
    assert papers("FedFFT").id == "fedfft"


def test_table_4_of_fedfft_is_rounds_over_all_rounds():
    """Relative cost = rounds / T x (2 for FedSMOO, which sends twice as much, else 1), to the two printed digits.

    FedAvg runs all its T rounds: 800 on CIFAR-10 and CIFAR-100, 300 on Tiny-ImageNet. 5 methods x 3 sets x 2 alphas.
    """
    T = {"CIFAR-10": 800, "CIFAR-100": 800, "Tiny-ImageNet": 300}
    table = papers("fedfft").reported("table4")
    cells = table.pivot(index=["method", "dataset", "setting"], columns="metric", values="value")
    assert len(cells) == 30 and not cells.isna().any(axis=None)
    for (name, dataset, _), cell in cells.iterrows():
        cost = cell["rounds"] / T[dataset] * (2 if name == "FedSMOO" else 1)
        assert abs(cost - cell["relative_comm"]) <= 0.005 + 1e-9, (name, dataset)
