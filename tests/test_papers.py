"""The papers' folders: complete, consistent, and able to become runs without touching any data."""

import csv
import re
from pathlib import Path

import pandas as pd
import pytest

import fednb as fn
from fednb import filters, parts
from fednb.base.files import Contents
from fednb.cli.commands import parsed
from fednb.core.rounds import Method, Part
from fednb.data import partition, sources
from fednb.engines.setting import Setting
from fednb.filters import Filter
from fednb.models import names as models
from fednb.runs.grid import SCALES, Grid
from fednb.study import notebooks
from fednb.study.measurements.registry import MEASUREMENTS
from fednb.study.page import StoredResults
from fednb.study.paper import UnknownPaper, papers, shelf

ROOT = Path(__file__).parent.parent
PAPERS = {"fedfft", "specgradfilter", "fedscam", "fedwmsam", "fedfsa"}
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


def test_the_shelf_lists_every_paper_and_knows_the_study():
    table = papers()
    assert set(table.index) == PAPERS and set(IDS) == PAPERS | {"across"}
    assert table["sections"].to_dict() == {id: len(papers(id).about["sections"]) for id in PAPERS}
    assert (table["sections"] >= 6).all() and papers("across").about["study"]
    assert table["title"].is_unique and table[["title", "venue"]].map(str.strip).all(axis=None)


def test_every_paper_says_what_it_is(paper):
    for name in ("title", "authors", "venue", "citation", "code"):
        assert paper.about[name].strip()
    assert paper.about["title"] in repr(paper) and paper.about["citation"] in repr(paper)
    assert isinstance(Setting(**paper.about["setting"]), Setting)


def test_no_setting_is_left_to_the_defaults_of_the_smoke_scale(paper):
    """Those fields whose default is chosen for a laptop: the paper's folder says its own."""
    said = {"data", "partition", "model", "clients", "participation", "rounds", "epochs", "batch", "lr", "lr_decay"}
    assert said | {"sampling", "weight_decay", "clip_norm", "report"} <= set(paper.about["setting"])


def test_every_section_has_a_notebook_and_a_grid(paper):
    for section, about in paper.about["sections"].items():
        assert about["notebook"] in notebooks.names() and about["title"]
        page = paper.page(section)
        assert page.notebook == about["notebook"]
        assert list(page.grids) == ([section] if about.get("grid", True) else [])
        assert all(grid.cells for grid in page.grids.values())
        assert set(paper.evidence(section)) <= set(MEASUREMENTS)


@pytest.mark.parametrize("scale", SCALES)
def test_every_grid_builds_at_every_scale(paper, scale):
    """Settings are valid, methods known, probes within the rounds that will be run, and no cell is there twice."""
    for name in names(paper.folder / "grids", "*.toml"):
        grid = paper.grid(name, scale)
        assert isinstance(grid, Grid) and grid.scale == scale and grid.cells
        assert len({(str(c.tags), c.label, c.seed) for c in grid.cells}) == len(grid.cells)
        assert all(max(grid.probe.rounds) < c.setting.rounds for c in grid.cells if grid.probe)
        assert {c.seed for c in paper.grid(name, scale, seeds=[41, 43]).cells} == {41, 43}


def test_paper_scale_is_run_in_one_precision_and_others_where_there_is_no_gpu(paper):
    """Each paper.toml names it, once for all grids; the comparison of precisions is about others."""
    for name in set(names(paper.folder / "grids", "*.toml")) - {"precision"}:
        assert {c.setting.precision for c in paper.grid(name, "paper").cells} == {"bf16"}
        for scale in ("smoke", "laptop"):
            assert {c.setting.precision for c in paper.grid(name, scale).cells} <= {"fp32", "fp64"}


def test_every_grid_belongs_to_a_section(paper):
    """So that a paper without sections has no grid, and a section no two."""
    sections = {name for name, about in paper.about["sections"].items() if about.get("grid", True)}
    assert set(names(paper.folder / "grids", "*.toml")) == sections


def test_smoke_runs_on_what_every_machine_has(paper):
    """Digits come with scikit-learn, stand-ins are made; nothing is downloaded to see a notebook work."""
    for name in names(paper.folder / "grids", "*.toml"):
        used = {c.setting.data for c in paper.grid(name, "smoke").cells}
        assert all(data == "digits" or data.endswith("-made") for data in used)


def test_every_claim_can_be_read_alone(paper):
    """In a report nobody sees the sentence before it."""
    leaning = re.compile(r"(The same|And|But|So|It|Its|They|Their|These|This|Then|Here|Also)\b")
    assert [claim.says for claim in paper.claims() if leaning.match(claim.says)] == []


def test_every_claim_belongs_to_a_section(paper):
    claims = paper.claims()
    assert bool(claims) == bool(paper.about["sections"]), "claims come with their sections, and sections with claims"
    assert {c.section for c in claims} <= set(paper.about["sections"])
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


@pytest.mark.parametrize("metric, most", [("accuracy", 100), ("accuracy_fraction", 1)])
def test_accuracies_are_percentages_or_called_fractions(paper, metric, most):
    """A cell is empty only where the paper has a dash, which its note says."""
    for name in names(paper.folder / "tables", "*.csv"):
        table = paper.reported(name)
        table = table[table["metric"] == metric]
        shown = pd.to_numeric(table["value"])
        assert (shown.between(0, most) | (shown.isna() & table["note"].notna())).all()


def test_every_reading_has_four_lines(paper):
    """printed, released, we run, effect: in this order, once each, under every heading."""
    _, *entries = re.split(r"^## ", paper.readings, flags=re.MULTILINE)
    assert entries
    for entry in entries:
        title, *lines = entry.splitlines()
        heads = re.findall(r"^(printed|released|we run|effect)\s{2,}\S", "\n".join(lines), flags=re.MULTILINE)
        assert heads == ["printed", "released", "we run", "effect"], title


def test_readings_have_names_of_their_own(paper):
    titles = re.findall(r"^## (.*)$", paper.readings, flags=re.MULTILINE)
    assert all(re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", title) for title in titles)
    assert len(set(titles)) == len(titles)


KINDS = {
    **{name: x for name, x in vars(filters).items() if isinstance(x, type) and issubclass(x, Filter)},
    **{name: getattr(parts, name) for name in parts.__all__},
}


def switch(text: str) -> object:
    """What a text between backticks in a reading log stands for, built; an error where there is no such thing.

    A part or a filter, fn.method(...), a field of the setting with a value, a partition or a model.
    """
    if re.match(r"fn\.method\(|[A-Z]\w*\(", text):
        return eval(text, {"__builtins__": {}, "fn": fn, **KINDS})
    if field := re.fullmatch(r"(\w+) = (.+)", text):
        return Setting().but(**{field[1]: parsed(field[2])})
    return text if text in models() else partition.parse(text)


def switches(paper) -> list[str]:
    """The texts between backticks, each on one line."""
    return [" ".join(text.split()) for text in re.findall(r"`([^`]*)`", paper.readings)]


def test_every_switch_in_a_reading_exists(paper):
    """Names, fields and values are built, so that a log cannot speak of what the code does not have."""
    found = switches(paper)
    assert found and paper.readings.count("`") == 2 * len(found)
    for text in found:
        made = switch(text)
        assert isinstance(made, Part | Filter | Method | Setting | partition.Partition | str), text


def test_a_switch_gives_the_other_reading(paper):
    """A log names the default in words and the other as code: what it names differs from the default."""
    for text in switches(paper):
        made = switch(text)
        if isinstance(made, Part | Filter):
            assert made != type(made)(), text
        if isinstance(made, Method) and "+" not in made.name:
            assert made != fn.method(made.name), text


@pytest.mark.parametrize(
    "text",
    [
        'Lesam(reading="poster")', "Lesam(radius=1.0)", "Nobody(rho=0.1)", 'fn.method("fedlesam", beta=1.0)',
        'fn.method("fednobody")', "clips = 1.0", "clip_norm = -1", "dirichlett(alpha=0.1)", "resnet19-gn",
        "reading", 'open("paper.toml")',
    ],
)  # fmt: skip
def test_a_switch_that_does_not_exist_is_noticed(text):
    with pytest.raises((ValueError, KeyError, TypeError, NameError)):
        switch(text)


def test_what_a_reading_cites_is_there(paper):
    """Tests, notebooks and other logs are named with their path."""
    cited = re.findall(r"\b(?:tests|notebooks|papers)/[\w/.]*\w", paper.readings)
    assert [path for path in cited if not (ROOT / path).exists()] == []


def test_every_method_with_two_readings_is_in_a_log():
    """A part that has a `reading` is written about, by name or through a method that it is in."""
    logged = [switch(text) for id in IDS for text in switches(papers(id))]
    seen = {type(p) for x in logged for p in (x.parts if isinstance(x, Method) else [x])}
    assert {kind for kind in KINDS.values() if issubclass(kind, Part) and kind.readings} <= seen


@pytest.mark.parametrize(
    "ask, said",
    [
        (lambda: papers("fedftt"), r"no paper 'fedftt'; closest: fedfft"),
        (lambda: papers("fedfft").reported("tabel4"), r"no table of fedfft 'tabel4'; closest: table4"),
        (lambda: papers("fedfft").page("figure1"), r"no section of fedfft 'figure1'; closest: fig1"),
        (lambda: papers("fedfft").grid("fig11"), r"no grid of fedfft 'fig11'; closest: fig1"),
        (lambda: papers("fedfft").grid("fig1", "papr"), r"no scale 'papr'; the scales are smoke, laptop, paper"),
        (lambda: papers("fedfft").page("fig1", scale="huge"), r"no scale 'huge'; the scales are smoke, laptop, paper"),
    ],
)
def test_what_is_not_there_is_refused_with_the_closest(ask, said):
    with pytest.raises(UnknownPaper, match=said) as refused:
        ask()
    assert not str(refused.value).startswith("'")


KEPT = sorted(p for p in shelf("papers").glob("*/results/*") if p.is_dir())


@pytest.mark.parametrize("folder", KEPT, ids=lambda folder: f"{folder.parts[-3]}/{folder.name}")
def test_what_was_kept_is_listed_and_as_it_was(folder):
    """Every file but those written by hand, which are texts other than the command; and each has its digest."""
    contents = Contents.of(folder)
    contents.check()
    by_hand = {p.name for p in folder.iterdir() if p.suffix in (".md", ".txt")} - {"command.txt"}
    assert set(contents.files) == {p.name for p in folder.iterdir()} - by_hand - {"contents.json"}
    assert "runs.json" not in contents.files or StoredResults(folder, None).runs


def test_papers_are_found_in_any_case():
    assert papers("FedFFT").id == "fedfft"


def test_table_4_of_fedfft_is_rounds_over_all_rounds():
    """Relative cost = rounds / T x the method's traffic, seen by running it, to the two printed digits.

    FedAvg runs all its T rounds: 800 on CIFAR-10 and CIFAR-100, 300 on Tiny-ImageNet. 5 methods x 3 sets x 2 alphas.
    """
    T = {"CIFAR-10": 800, "CIFAR-100": 800, "Tiny-ImageNet": 300}
    table = papers("fedfft").reported("table4")
    cells = table.pivot(index=["method", "dataset", "setting"], columns="metric", values="value")
    assert len(cells) == 30 and not cells.isna().any(axis=None)
    for (name, dataset, _), cell in cells.iterrows():
        relative = cell["rounds"] / T[dataset] * fn.cost(fn.method(name)).traffic
        assert abs(relative - cell["relative_comm"]) <= 0.005 + 1e-9, (name, dataset)


def scores_of_layers(id: str, scale: str) -> dict[str, set[str]]:
    """How layers are chosen, by the label of a method, in all grids of a paper."""
    found: dict[str, set[str]] = {}
    for name in names(papers(id).folder / "grids", "*.toml"):
        for cell in papers(id).grid(name, scale).cells:
            for part in cell.method.parts:
                if isinstance(part, parts.FlexibleRadius):
                    found.setdefault(cell.label, set()).add(part.layer_score)
    return found


@pytest.mark.parametrize("scale", SCALES)
def test_fedfsa_runs_the_codes_score_and_the_printed_one_says_so(scale):
    """The mean of raw squares is in neither paper nor code; where it was run, across the papers, grids write it out."""
    found = scores_of_layers("fedfsa", scale)
    assert found["FedFSA"] == {"released"} and len(found) > 5
    assert all(scores == {"sum" if label.endswith(", sum") else "released"} for label, scores in found.items())
    assert set().union(*scores_of_layers("across", scale).values(), {"mean"}) == {"mean"}


def test_every_claim_about_the_printed_score_has_one_about_the_codes():
    """The two differ in the names of methods and in their words, and in nothing else."""
    claims = {c.id: c for c in papers("fedfsa").claims()}
    printed = [id for id in claims if id.endswith("-sum")]
    assert len(printed) > 15
    for id in printed:
        mine, other = claims[id], claims[id.removesuffix("-sum")]
        same = ("section", "kind", "measure", "tolerance", "along", "at", "least", "most", "table", "weight")
        assert [getattr(mine, name) for name in same] == [getattr(other, name) for name in same], id
        renamed = {"FedFSA": "FedFSA, sum", "Reverse": "Reverse, sum", "Eq. 11, released": "Eq. 11, sum"}
        for side in ("left", "right"):
            assert [renamed.get(name, name) for name in getattr(other, side)] == list(getattr(mine, side)), id
