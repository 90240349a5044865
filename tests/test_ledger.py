"""The page of what was run at paper scale and what is missing, of a paper made for it."""

import json
import shutil

import pytest

from fednb.runs.experiment import run_of
from fednb.study.ledger import Bill, accounts_of, kept_keys, ledger, times_of_kept_runs
from fednb.study.paper import papers, run_folders, shelf

PAPER = """
title = "Made: a paper"
[setting]
data = "cifar10"
model = "resnet20-gn"
precision = "bf16"
rounds = 100
[sections.table1]
title = "Table 1 | all"
notebook = "made/01_x"
[sections.tuned]
title = "Table 1, tuned"
notebook = "made/01_x"
"""
CLAIMS = """
[[claim]]
id = "sam"
section = "table1"
says = "FedSAM is better at seed after seed"
kind = "above"
left = "FedSAM"
right = "FedAvg"
[[claim]]
id = "sixty"
section = "table1"
says = "FedAvg reaches sixty percent"
kind = "at_least"
left = "FedAvg"
tolerance = 60.0
[[claim]]
id = "with-its-own-rate"
section = "tuned"
says = "FedAvg reaches sixty percent with a rate of its own"
kind = "at_least"
left = "FedAvg"
tolerance = 60.0
"""


@pytest.fixture
def paper(tmp_path, monkeypatch):
    """Two methods with two seeds; and one method of which three rates are tried before its two runs."""
    monkeypatch.setenv("FEDNB_PAPERS", str(tmp_path / "papers"))
    monkeypatch.setenv("FEDNB_STORE", str(tmp_path / "store"))
    folder = tmp_path / "papers" / "made"
    (folder / "grids").mkdir(parents=True)
    (folder / "paper.toml").write_text(PAPER)
    (folder / "claims.toml").write_text(CLAIMS)
    (folder / "grids" / "table1.toml").write_text('methods = ["fedavg", "fedsam"]\n[paper]\nseeds = [0, 1]\n')
    tuned = 'methods = ["fedavg"]\ntune = { lr = [0.1, 0.2, 0.4] }\n[paper]\nseeds = [0, 1]\n'
    (folder / "grids" / "tuned.toml").write_text(tuned)
    return papers("made")


def rows(page):
    """The table's rows by section, its cells as texts; a bar that was escaped is none of the table's."""
    lines = [line.replace(r"\|", "") for line in page.splitlines() if line.startswith("| t")]
    return {cells[1]: cells[2:-1] for line in lines if (cells := [cell.strip() for cell in line.split("|")])}


def test_nothing_is_kept_at_first_and_the_cost_is_that_of_the_rounds(paper):
    """Seconds of a round by kept benchmarks, times rounds and runs."""
    found, times = rows(ledger(accounts_of(paper))), times_of_kept_runs()
    each = [times.of(c.setting, c.method).round * c.setting.rounds for c in paper.grid("table1", "paper").cells]
    assert found["table1"] == ["Table 1  all", "4", "0", f"4: {round(sum(each) / 60)} min"] and sum(each) > 90
    assert found["tuned"][1:3] == ["5", "0"] and found["tuned"][3].startswith("5: ")


def test_runs_that_are_kept_whole_or_in_results_are_not_missing(paper):
    keys = [run_of(c.setting, c.method, c.seed).key for c in paper.grid("table1", "paper").cells]
    (paper.folder / "runs" / keys[0]).mkdir(parents=True)
    for scale, key in (("paper", keys[1]), ("laptop", keys[2])):  # the second has no paper scale
        (paper.folder / "results" / f"01_x_{scale}").mkdir(parents=True)
        (paper.folder / "results" / f"01_x_{scale}" / "runs.json").write_text(json.dumps({key: {}}))
    assert kept_keys(paper) == {keys[0], keys[1]}
    found = rows(ledger(accounts_of(paper)))
    assert found["table1"][1:3] == ["4", "2"] and found["table1"][3].startswith("2: ")


def test_every_run_that_came_with_a_paper_is_where_it_is_looked_for():
    """A run in a folder further down is found by nobody: its cost stayed a guess, and its section incomplete."""
    files = sorted(shelf("papers").glob("*/runs/**/run.json"))
    assert [file.parent for file in files] == run_folders() and len(files) > 100
    assert all(json.loads(file.read_text())["key"] == file.parent.name for file in files)


def test_a_claim_lacks_the_runs_that_it_is_about_and_those_that_tune_them(paper):
    """Of FedSAM nothing is kept; FedAvg alone has one run of two, or two that wait for three trials."""
    key = next(run_of(c.setting, c.method, c.seed).key for c in paper.grid("table1", "paper").cells)
    (paper.folder / "runs" / key).mkdir(parents=True)
    table1, tuned = accounts_of(paper)
    lacking = {claim: (len(bill.wanted), len(bill.missing)) for claim, bill in (table1.claims | tuned.claims).items()}
    assert lacking == {"sam": (4, 3), "sixty": (2, 1), "with-its-own-rate": (5, 4)}  # a trial is the run that is kept
    both = Bill.of_all([table1.claims["sam"], table1.claims["sixty"]])
    assert (len(both.wanted), both.seconds) == (4, table1.claims["sam"].seconds)


def test_a_run_of_two_sections_is_missing_once_in_all(paper):
    """Four runs, then three trials and two runs that wait for them; a trial at rate 0.1 is one of the four."""
    page = ledger(accounts_of(paper))
    assert "\nAll that is missing: 8 runs, " in page and page.endswith(", each counted once.\n")


def test_what_is_kept_with_another_paper_is_not_missing(paper):
    key = next(run_of(c.setting, c.method, c.seed).key for c in paper.grid("table1", "paper").cells)
    (paper.folder.parent / "other" / "runs" / key).mkdir(parents=True)
    assert rows(ledger(accounts_of(paper)))["table1"][1:3] == ["4", "1"]


def test_a_section_that_is_complete_lacks_nothing_and_what_nobody_measured_has_a_star(paper):
    for c in paper.grid("table1", "paper").cells:
        (paper.folder / "runs" / run_of(c.setting, c.method, c.seed).key).mkdir(parents=True)
    assert rows(ledger(accounts_of(paper)))["table1"][1:] == ["4", "4", "none"]
    grid = paper.folder / "grids" / "table1.toml"
    grid.write_text(grid.read_text() + 'setting = { model = "cnn5" }\n')
    assert rows(ledger(accounts_of(paper)))["table1"][3].endswith(" *")


def test_what_kept_runs_have_tuned_is_known_without_the_store(paper, tmp_path, monkeypatch):
    """Three trials and the two runs with the rate that they chose: all made elsewhere, and kept with the paper."""
    small = 'data = "digits", model = "cnn-small", samples = 60, clients = 3, batch = 20, epochs = 1, rounds = 1'
    grid = paper.folder / "grids" / "tuned.toml"
    grid.write_text(f'{grid.read_text()}setting = {{ {small}, precision = "fp32" }}\n')
    before = rows(ledger(accounts_of(paper)))
    tuned = paper.grid("tuned", "paper")
    tuned.tuning.run(device="cpu")
    assert rows(ledger(accounts_of(paper))) == before  # what only this machine's store has is nobody's
    tuned.settled().run(device="cpu")
    shutil.copytree(tmp_path / "store" / "runs", paper.folder / "runs")
    monkeypatch.setenv("FEDNB_STORE", str(tmp_path / "empty"))
    assert paper.grid("tuned", "paper").waiting
    assert rows(ledger(accounts_of(paper)))["tuned"][1:] == ["4", "4", "none"]  # one of the two was a trial, too


def test_the_store_of_this_machine_counts_nothing(paper, tmp_path):
    before = ledger(accounts_of(paper))
    cell = paper.grid("table1", "paper").cells[0]
    folder = tmp_path / "store" / "runs" / run_of(cell.setting, cell.method, cell.seed).key
    folder.mkdir(parents=True)
    (folder / "run.json").write_text(json.dumps({"device_name": "NVIDIA H200", "setting": cell.setting.plain()}))
    assert ledger(accounts_of(paper)) == before
