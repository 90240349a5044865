"""verify: every claim of a paper judged in one table, from runs or from what was kept."""

import json
import shutil
from math import isnan, nan

import pandas as pd
import pytest
import torch

from fednb.base.files import Contents, DamagedFile
from fednb.cli.commands import main
from fednb.data.dataset import DataNotFound
from fednb.data.identity import OtherSamples
from fednb.runs.grid import Grid
from fednb.study.folders import page_folder
from fednb.study.measured import JUDGED
from fednb.study.measurements.registry import MEASUREMENTS
from fednb.study.page import Page
from fednb.study.paper import Paper
from fednb.study.verdict_text import for_terminal
from fednb.study.verify import BEST, in_columns, recalled, verify, verify_kept

PAPER = """
title = "Made"
[setting]
rounds = 9
[smoke]
samples = 100
clients = 4
rounds = 1
epochs = 1
[sections.table1]
title = "Table 1"
notebook = "made/01_table1"
[sections.fig2]
title = "Figure 2"
notebook = "made/02_fig2"
grid = false
evidence = { made = { value = 7.0 } }
[sections.fig3]
title = "Figure 3, without a claim"
notebook = "made/02_fig2"
"""
CLAIMS = """
[[claim]]
id = "one"
section = "table1"
says = "FedSAM beats FedAvg"
kind = "above"
left = "FedSAM"
right = "Base"
[[claim]]
id = "two"
section = "fig2"
says = "a number is small"
kind = "at_most"
left = "A"
measure = "made"
tolerance = 7.0
"""
GRID = """
methods = [{ name = "FedAvg", label = "Base" }, "FedSAM"]
"""
TABLE = """method,dataset,model,setting,metric,value,std,note
Base,CIFAR-10,x,alpha=0.1,accuracy,50,,
FedSAM,CIFAR-10,x,alpha=0.1,accuracy,52.5,,
"""


@pytest.fixture
def paper(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDNB_STORE", str(tmp_path / "store"))
    folder = tmp_path / "made"
    for name in ("grids", "tables"):
        (folder / name).mkdir(parents=True)
    (folder / "paper.toml").write_text(PAPER)
    (folder / "claims.toml").write_text(CLAIMS)
    (folder / "grids" / "table1.toml").write_text(GRID)
    (folder / "tables" / "table1.csv").write_text(TABLE)
    monkeypatch.setitem(MEASUREMENTS, "made", made)
    return Paper(folder)


def made(scale, value):
    """Three seeds, all of them a little below the value."""
    return pd.DataFrame(
        [{"method": "A", "seed": s, "measure": "made", "value": value - 1 - s / 10, "note": scale} for s in range(3)]
    )


def scores(*gains, seeds=None):
    """Accuracies of the two methods of Table 1: of each seed what FedSAM gains."""
    rows = [{"dataset": "CIFAR-10", "alpha": 0.1, "method": method, "seed": seed, "key": f"{method} {seed}",
             "measure": "accuracy", "value": 50.0 + seed + gain * (method == "FedSAM"), "grid": "table1"}
            for seed, gain in zip(seeds or range(len(gains)), gains, strict=True)
            for method in ("Base", "FedSAM")]  # fmt: skip
    return pd.DataFrame(rows)


def keep(paper, name, scale, table, runs=None, listed=False):
    """Put a table into the kept results of a notebook."""
    folder = paper.folder / "results" / f"{name}_{scale}"
    folder.mkdir(parents=True, exist_ok=True)
    section, what = ("table1", "accuracy") if name == "01_table1" else ("fig2", "made")
    file = folder / f"{section}_{what}.csv"
    table.to_csv(file)
    if runs:
        (folder / "runs.json").write_text(json.dumps(runs))
    if listed:
        contents = Contents(folder)
        contents.add(file.name)
        contents.save()
    return file


def test_all_claims_in_one_table(paper):
    """Printed numbers, our numbers, n and a verdict for each claim; a section without claims runs nothing."""
    table = verify(paper)
    assert list(table.index) == ["one", "two"]
    assert table.loc["one", "paper"] == "all: 52.5 against 50: +2.5"
    assert " against " in table.loc["one", "ours"] and table.loc["one", "n"] == 1
    assert table.loc["two", "ours"].startswith("all A: 5.9") and table.loc["two", "n"] == 3
    assert table.loc["one", ["precision", "tuned", "protocol"]].tolist() == [
        "fp32", "", "rounds 1 of 9, 100 of 1,438 samples, clients 4 of 10, epochs 1 for 2"
    ]  # fmt: skip
    assert set(JUDGED[1:]) <= set(table.columns)
    assert set(table["verdict"]) == {"ran (smoke scale decides nothing)"}
    assert list(table["notebook"]) == ["made/01_table1", "made/02_fig2"]
    assert verify(paper, seeds=[1, 2]).loc["one", "n"] == 2


def test_paper_scale_without_a_gpu(paper, monkeypatch):
    """The reason stands where nothing was kept; else what the kept tables say, judged now."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    found = verify(paper, "paper")
    assert found.loc["one", "verdict"] == "not run" and "no GPU" in found.loc["one", "ours"]
    assert found.loc["two", "verdict"] == "holds"
    kept = keep(paper, "01_table1", "paper", scores(-2.0, -2.1, -1.9)).parent
    (kept / "verdict.csv").write_text("claim,n,verdict\none,9,holds\n")  # of an older version: nobody reads it
    assert verify(paper, "paper").loc["one", ["n", "verdict"]].tolist() == [3, "does not hold"]


def test_kept_tables_tell_how_they_were_run(paper, monkeypatch):
    """Precision and protocol are those of the runs that the table names, not of others in the folder."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    setting = paper.grid("table1", "paper").cells[0].setting.but(rounds=4, precision="bf16").plain()
    runs = {"Base 0": {"seed": 0, "setting": setting}, "other": {"setting": setting | {"precision": "fp64"}}}
    keep(paper, "01_table1", "paper", scores(2.0, 2.1, 1.9), runs)
    found = verify(paper, "paper").loc["one"]
    assert found[["verdict", "precision", "protocol"]].tolist() == ["holds", "bf16", "rounds 4 of 9"]
    assert found[["effect", "printed"]].tolist() == pytest.approx([2.0, 2.5])
    assert found[["best_precision", "best_protocol"]].tolist() == ["bf16", "rounds 4 of 9"]


def test_a_claim_whose_table_was_not_kept_is_not_run(paper, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    keep(paper, "01_table1", "paper", scores(2.0, 2.1, 1.9)).unlink()
    found = verify(paper, "paper").loc["one"]
    assert found[["verdict", "ours", "best_verdict"]].tolist() == ["not run", "table1_accuracy.csv is not there", ""]


def test_columns_hold_long_texts():
    """Every word is there, no line is longer than the columns together."""
    row = {"claim": "c", "paper_id": "made", "ours": "number " * 30, "n": 3, "verdict": "holds on average where run",
           "effect": 1.2345, "low": 0.5, "high": 2.0, "printed": -12.5, "settings_run": 2, "settings_claimed": 6,
           "best_verdict": "not decided", "best_scale": "paper", "best_n": "2"}  # fmt: skip
    text = in_columns(pd.DataFrame([row]).set_index("claim"))
    assert text.count("number") == 30 and "1.23 [0.5, 2]" in text and "-12.5" in text and "2 of 6" in text
    assert "not decided" in text and "n = 2)" in text
    assert max(map(len, text.splitlines())) <= 100


def test_a_claim_is_told_with_its_sentence_its_rule_and_how_it_was_run(paper):
    """Not only by its id; the general rule stands once, above all of them."""
    keep(paper, "01_table1", "laptop", scores(2.0, 2.1, 1.9), runs={"k": {"setting": {"precision": "bf16"}}})
    text = in_columns(verify_kept(paper))
    told = "accuracy of FedSAM is above that of Base by more than 0.0"
    assert "made one: seen\n    effect 2 [1.83, 2.17], printed 2.5, n = 3, 1 of 1 settings, laptop, bf16" in text
    assert f"    says: FedSAM beats FedAvg\n    rule: {told}\n" in text and text.count("one-sided 95% bound") == 1


def told_rows(count, **more):
    """So many claims of one paper that ran at smoke scale, and one that was seen, as a table of verdicts."""
    row = {"paper_id": "made", "ours": "", "n": 1, "verdict": "ran (smoke scale decides nothing)", "effect": nan,
           "low": nan, "high": nan, "printed": nan, "settings_run": 1, "settings_claimed": 1, "best_verdict": "holds",
           "best_scale": "paper", "best_n": 3} | more  # fmt: skip
    table = pd.DataFrame([row | {"claim": f"c{i}"} for i in range(count)] + [row | {"claim": "x", "verdict": "seen"}])
    return table.set_index("claim")


def test_many_claims_that_only_ran_are_counted():
    """A screen instead of hundreds of lines; those that say something are told, and --full tells all."""
    text = for_terminal(told_rows(30))
    assert "made x: seen" in text and "c7" not in text and "30 ran, 1 seen" in text and "31 holds" in text
    assert "c7" in for_terminal(told_rows(8)) and "c7" in for_terminal(told_rows(30), full=True)
    assert "--full" in text and "--full" not in for_terminal(told_rows(30), full=True)


@pytest.mark.parametrize("headlines", [5, 60])
def test_a_summary_is_a_screen_and_tells_headline_claims_with_sentence_and_rule(headlines):
    """Each line is cut at 100 letters; where they are too many, those that say something are left."""
    table = told_rows(200, says="word " * 40, rule="above " * 40)
    table["weight"] = ["headline" if i < headlines or i == 200 else "detail" for i in range(201)]
    lines = for_terminal(table).splitlines()
    assert len(lines) <= 50 and max(map(len, lines)) == 100
    assert ("made c0: ran" in "\n".join(lines)) == (headlines == 5) and "made c5" not in "\n".join(lines)
    seen = next(i for i, line in enumerate(lines) if line.startswith("made x: seen; kept: holds (paper, n = 3)"))
    assert lines[seen + 1].startswith("    says: word") and lines[seen + 2].startswith("    rule: above")


def test_every_claim_has_its_weight(paper):
    keep(paper, "01_table1", "laptop", scores(2.0, 2.1, 1.9))
    assert list(verify_kept(paper)["weight"]) == list(verify(paper)["weight"]) == ["table", "table"]


def test_what_is_kept_is_judged_and_nothing_is_run(paper, monkeypatch, capsys):
    """Each claim at its largest scale, or at the one that is named; options about runs do not fit."""
    keep(paper, "01_table1", "laptop", scores(2.0, 2.1, 1.9))
    keep(paper, "01_table1", "paper", scores(2.0))
    monkeypatch.setattr(Grid, "run", lambda *a, **k: pytest.fail("was run"))
    found = verify_kept(paper)
    assert found[["verdict", "scale"]].to_numpy().tolist() == [
        ["not decided (fewer than 3 seeds)", "paper"], ["not run", ""]]  # fmt: skip
    assert found.loc["two", "ours"] == "nothing is kept"
    assert verify_kept(paper, "laptop").loc["one", "verdict"] == "seen"
    monkeypatch.setattr("fednb.cli.tables.papers", lambda id: paper)
    assert main(["verify", "made", "--kept", "--scale", "laptop"]) == 0
    assert "made one: seen" in capsys.readouterr().out
    monkeypatch.setattr("fednb.study.verdict_text.SCREEN", 5)
    assert main(["verify", "made", "--kept", "--full"]) == 0 and "made two: not run" in capsys.readouterr().out
    assert main(["verify", "made", "--kept"]) == 0 and "made two" not in capsys.readouterr().out
    assert main(["verify", "made", "--kept", "--seeds", "0"]) == 2
    assert capsys.readouterr().err == "fednb: verify: --kept runs nothing, so --seeds does not belong to it\n"


def test_one_claim_by_its_id(paper, monkeypatch, capsys):
    """Only its section is looked at, only it is told; an id that no claim has is refused."""
    monkeypatch.setattr("fednb.cli.tables.papers", lambda id: paper)
    assert list(verify(paper, claims=["two"]).index) == list(verify_kept(paper, claims=["two"]).index) == ["two"]
    assert main(["verify", "made", "--claim", "two"]) == 0
    assert "made two: ran" in (said := capsys.readouterr().out) and "made one" not in said
    for more in ([], ["--kept"], ["--dry-run"], ["--for", "1s"]):
        assert main(["verify", "made", "--claim", "tow", *more]) == 2
        assert "fednb: no claim 'tow'; closest: two" in capsys.readouterr().err


def test_one_claim_is_judged_by_the_runs_that_it_needs(paper, monkeypatch):
    """The grid has a third method that the sentence does not name."""
    (paper.folder / "grids" / "table1.toml").write_text(GRID.replace('"FedSAM"]', '"FedSAM", "FedProx"]'))
    made, run = [], Grid.run
    monkeypatch.setattr(Grid, "run", lambda grid, **how: made.extend(c.label for c in grid.cells) or run(grid, **how))
    assert verify(paper, claims=["one"]).loc["one", "n"] == 1
    assert made == ["Base", "FedSAM"]


def test_a_dry_run_says_what_it_would_take(paper, monkeypatch, capsys):
    monkeypatch.setattr("fednb.cli.tables.papers", lambda id: paper)
    monkeypatch.setattr(Grid, "run", lambda *a, **k: pytest.fail("was run"))
    assert main(["verify", "made", "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert "nothing was run: 2 runs are missing at smoke scale, which take about " in said
    assert max(map(len, said.splitlines())) <= 100


@pytest.mark.parametrize("reason", [DataNotFound, OtherSamples])
def test_data_that_are_not_here_stop_one_section_only(paper, monkeypatch, reason):
    """The reason stands where the numbers would be; the other sections are judged."""

    def absent(self, **how):
        raise reason("no cifar10 here")

    monkeypatch.setattr(Grid, "run", absent)
    found = verify(paper, "laptop")
    assert found.loc["one", ["ours", "verdict"]].tolist() == ["no cifar10 here", "not run"]
    assert found.loc["two", "verdict"] == "seen"


def test_the_best_that_was_kept_stands_beside(paper):
    """Paper scale before laptop scale, claim by claim; a claim that was not run there keeps the smaller one's."""
    keep(paper, "01_table1", "laptop", scores(2.0, 2.1, 1.9))
    keep(paper, "01_table1", "paper", scores(2.0))
    keep(paper, "02_fig2", "laptop", made("laptop", 7.0))
    keep(paper, "02_fig2", "paper", made("paper", 7.0).assign(measure="another"))
    found = verify(paper)
    assert found["best_verdict"].tolist() == ["not decided (fewer than 3 seeds)", "seen"]
    assert found["best_scale"].tolist() == ["paper", "laptop"]
    assert found["best_n"].tolist() == [1, 3] and isnan(found.loc["one", "best_effect"])  # not that of laptop scale
    assert found.loc["two", "best_effect"] == pytest.approx(1.1)


def test_several_papers_in_one_table_and_on_one_page(paper, tmp_path, monkeypatch, capsys):
    """Every claim of both once, in CSV and HTML, wherever the reader wants them; texts cannot break the page."""
    second = Paper(tmp_path / "other")
    shutil.copytree(paper.folder, second.folder)
    claims = second.folder / "claims.toml"
    claims.write_text(claims.read_text().replace("FedSAM beats FedAvg", "a <b>bold</b> claim"))
    shelf = {"made": paper, "other": second}
    monkeypatch.setattr("fednb.cli.tables.papers", lambda id=None: shelf[id] if id else pd.DataFrame(index=list(shelf)))
    assert main(["verify", "--all"]) == 0
    said, files = capsys.readouterr().out, tmp_path / "store" / "verify"
    assert said.count("\nmade ") == said.count("\nother ") == 2
    table = pd.read_csv(files / "claims_smoke.csv")
    assert list(zip(table["paper_id"], table["claim"], strict=True)) == [(p, c) for p in shelf for c in ("one", "two")]
    page = (files / "claims_smoke.html").read_text()
    assert page.count('<tr class="claim">') == 4
    assert "a &lt;b&gt;bold&lt;/b&gt; claim" in page and "<b>bold" not in page
    assert main(["verify", "--all", "--html", str(tmp_path / "new" / "x.html")]) == 0
    assert (tmp_path / "new" / "x.html").exists()
    assert main(["verify"]) == main(["verify", "made", "--all"]) == 2


def test_the_command_writes_the_whole_table(paper, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("fednb.cli.tables.papers", lambda id: paper)
    assert main(["verify", "made", "--seeds", "0", "--csv", str(tmp_path / "out.csv")]) == 0
    assert "one" in capsys.readouterr().out
    assert {*JUDGED, "notebook", "scale", *(f"best_{name}" for name in BEST)} <= set(
        pd.read_csv(tmp_path / "out.csv").columns
    )


def test_a_section_that_fails_is_named_and_the_others_go_on(paper, monkeypatch, capsys):
    """Damaged files of its runs, a measurement that nobody knows: exit status 1, one line."""
    damaged = DamagedFile(paper.folder / "state.safetensors", "is cut short")

    def broken(self, **how):
        raise damaged

    monkeypatch.setattr("fednb.cli.tables.papers", lambda id: paper)
    monkeypatch.setattr(Grid, "run", broken)
    found = verify(paper, "laptop")
    assert found.loc["one", ["ours", "verdict", "failed"]].tolist() == [str(damaged), "not run", str(damaged)]
    assert found.loc["two", ["verdict", "failed"]].tolist() == ["seen", ""]
    assert main(["verify", "made"]) == 1
    assert capsys.readouterr().err.splitlines()[-1] == f"fednb: made table1: {damaged}"
    monkeypatch.delitem(MEASUREMENTS, "made")
    assert "evidence 'made'" in verify(paper, "laptop").loc["two", "failed"]


@pytest.mark.parametrize("damage", [lambda data: data[:-9], lambda data: b"", lambda data: bytes(len(data))])
def test_verdicts_of_damaged_tables_are_not_shown(paper, monkeypatch, capsys, damage):
    """Kept at paper scale and changed since: named, and not used for the best either."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    table = keep(paper, "01_table1", "paper", scores(2.0, 2.1, 1.9), listed=True)
    assert verify(paper, "paper").loc["one", ["verdict", "best_verdict"]].tolist() == ["holds", "holds"]
    table.write_bytes(damage(table.read_bytes()))
    found = verify(paper, "paper").loc["one"]
    assert found[["verdict", "best_verdict"]].tolist() == ["not run", ""]
    assert str(table) in found["failed"] and str(table) in capsys.readouterr().err


def test_tables_that_a_notebook_measured_are_checked(paper):
    Page("made/02_fig2", "smoke", evidence=paper.page("fig2").evidence).measure("made", "fig2")
    assert recalled(paper, "fig2", "smoke").loc["two", "ours"].startswith("all A: 5.9")
    (table,) = page_folder("made/02_fig2", "smoke").glob("*.csv")
    table.write_text(table.read_text().replace("5.9", "5.8"))
    found = recalled(paper, "fig2", "smoke").loc["two"]
    assert found["verdict"] == "not run" and str(table) in found["failed"]
    assert "`fednb notebook made/02_fig2 --scale smoke` makes it again" in found["failed"]


@pytest.mark.parametrize("option", ["--csv", "--html"])
def test_where_the_table_goes_is_looked_at_before_the_work(paper, tmp_path, monkeypatch, capsys, option):
    monkeypatch.setattr("fednb.cli.tables.papers", lambda id: paper)
    monkeypatch.setattr("fednb.cli.tables.verify", lambda *a: pytest.fail("was run"))
    (tmp_path / "file").write_text("")
    for place, said in (("", "is a folder"), ("file/x.csv", "cannot be made")):
        assert main(["verify", "made", option, str(tmp_path / place)]) == 2
        assert f"fednb: {option} {tmp_path / place}: " in (err := capsys.readouterr().err) and said in err
    assert main(["verify", "made", "--csv", str(tmp_path / "x"), "--html", str(tmp_path / "x")]) == 2


def test_unknown_scales_and_papers_are_refused(capsys):
    assert main(["verify", "fedfft", "--scale", "big"]) == 2
    assert main(["verify", "fedfff"]) == 2
    assert "no scale 'big'" in (said := capsys.readouterr().err) and "no paper 'fedfff'; closest: fedfft" in said
