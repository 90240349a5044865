"""verify: every claim of a paper judged in one table, from runs or from what was kept."""

import shutil

import pandas as pd
import pytest
import torch

from fednb.base.files import Contents, DamagedFile
from fednb.cli.commands import main
from fednb.data.dataset import DataNotFound
from fednb.data.identity import OtherSamples
from fednb.runs.grid import Grid
from fednb.study.measurements.registry import MEASUREMENTS
from fednb.study.page import Page, page_folder
from fednb.study.paper import Paper
from fednb.study.verify import in_columns, recalled, verify

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
    return pd.DataFrame([{"method": "A", "seed": 0, "measure": "made", "value": value, "note": scale}])


def test_all_claims_in_one_table(paper):
    """Printed numbers, our numbers, n and a verdict for each claim; a section without claims runs nothing."""
    table = verify(paper)
    assert list(table.index) == ["one", "two"]
    assert table.loc["one", "paper"] == "all: 52.5 against 50: +2.5"
    assert " against " in table.loc["one", "ours"] and table.loc["one", "n"] == 1
    assert table.loc["two", "ours"] == "all A: 7"
    assert set(table["verdict"]) == {"ran (smoke scale decides nothing)"}
    assert list(table["notebook"]) == ["made/01_table1", "made/02_fig2"]
    assert verify(paper, seeds=[1, 2]).loc["one", "n"] == 2


def test_paper_scale_without_a_gpu(paper, monkeypatch):
    """The reason stands where nothing was kept; else the kept verdict."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    found = verify(paper, "paper")
    assert found.loc["one", "verdict"] == "not run" and "no GPU" in found.loc["one", "ours"]
    assert found.loc["two", "verdict"] == "holds"
    kept = paper.folder / "results" / "01_table1_paper"
    kept.mkdir(parents=True)
    row = {"claim": "one", "says": "x", "rule": "r", "paper": "p", "ours": "o", "n": 3, "verdict": "does not hold"}
    pd.DataFrame([row]).to_csv(kept / "verdict.csv", index=False)
    assert verify(paper, "paper").loc["one", ["n", "verdict"]].tolist() == [3, "does not hold"]


def test_columns_hold_long_texts():
    """Every word is there, no line is longer than the columns together."""
    row = {"claim": "c", "paper_id": "made", "paper": "word " * 40, "ours": "number " * 30, "n": 3, "verdict": "holds",
           "best_verdict": "not decided", "best_scale": "paper", "best_n": "2"}  # fmt: skip
    text = in_columns(pd.DataFrame([row]).set_index("claim"))
    assert text.count("word") == 40 and text.count("number") == 30
    assert "not decided" in text and "n = 2)" in text
    assert max(map(len, text.splitlines())) <= 152


@pytest.mark.parametrize("reason", [DataNotFound, OtherSamples])
def test_data_that_are_not_here_stop_one_section_only(paper, monkeypatch, reason):
    """The reason stands where the numbers would be; the other sections are judged."""

    def absent(self, **how):
        raise reason("no cifar10 here")

    monkeypatch.setattr(Grid, "run", absent)
    found = verify(paper, "laptop")
    assert found.loc["one", ["ours", "verdict"]].tolist() == ["no cifar10 here", "not run"]
    assert found.loc["two", "verdict"] == "holds"


def test_the_best_that_was_kept_stands_beside(paper):
    """Paper scale before laptop scale, claim by claim; a claim that was not run there keeps the smaller one's."""
    for scale, verdicts in {"laptop": ("holds", "holds"), "paper": ("does not hold", "not run at paper scale")}.items():
        for notebook, claim, said in zip(("01_table1", "02_fig2"), ("one", "two"), verdicts, strict=True):
            folder = paper.folder / "results" / f"{notebook}_{scale}"
            folder.mkdir(parents=True)
            row = {"claim": claim, "ours": f"seen at {scale}", "n": 3, "verdict": said}
            pd.DataFrame([row, row | {"claim": "gone"}]).to_csv(folder / "verdict.csv", index=False)
    found = verify(paper)
    assert found["best_verdict"].tolist() == ["does not hold", "holds"]
    assert found["best_scale"].tolist() == ["paper", "laptop"]
    assert found["best_ours"].tolist() == ["seen at paper", "seen at laptop"]


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
    assert {"rule", "says", "notebook", "scale"} <= set(pd.read_csv(tmp_path / "out.csv").columns)


def test_a_section_that_fails_is_named_and_the_others_go_on(paper, monkeypatch, capsys):
    """Damaged files of its runs, a measurement that nobody knows: exit status 1, one line."""
    damaged = DamagedFile(paper.folder / "state.safetensors", "is cut short")

    def broken(self, **how):
        raise damaged

    monkeypatch.setattr("fednb.cli.tables.papers", lambda id: paper)
    monkeypatch.setattr(Grid, "run", broken)
    found = verify(paper, "laptop")
    assert found.loc["one", ["ours", "verdict", "failed"]].tolist() == [str(damaged), "not run", str(damaged)]
    assert found.loc["two", ["verdict", "failed"]].tolist() == ["holds", ""]
    assert main(["verify", "made"]) == 1
    assert capsys.readouterr().err.splitlines()[-1] == f"fednb: made table1: {damaged}"
    monkeypatch.delitem(MEASUREMENTS, "made")
    assert "evidence 'made'" in verify(paper, "laptop").loc["two", "failed"]


@pytest.mark.parametrize("damage", [lambda data: data[:-9], lambda data: b"", lambda data: bytes(len(data))])
def test_damaged_verdicts_are_not_shown(paper, monkeypatch, capsys, damage):
    """Kept at paper scale and changed since: named, and not used for the best either."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    kept = paper.folder / "results" / "01_table1_paper"
    kept.mkdir(parents=True)
    row = {"claim": "one", "says": "x", "rule": "r", "paper": "p", "ours": "o", "n": 3, "verdict": "holds"}
    pd.DataFrame([row]).to_csv(kept / "verdict.csv", index=False)
    contents = Contents(kept)
    contents.add("verdict.csv")
    contents.save()
    assert verify(paper, "paper").loc["one", ["verdict", "best_verdict"]].tolist() == ["holds", "holds"]
    (kept / "verdict.csv").write_bytes(damage((kept / "verdict.csv").read_bytes()))
    found = verify(paper, "paper").loc["one"]
    assert found[["verdict", "best_verdict"]].tolist() == ["not run", ""]
    assert str(kept / "verdict.csv") in found["failed"] and str(kept / "verdict.csv") in capsys.readouterr().err


def test_tables_that_a_notebook_measured_are_checked(paper):
    Page("made/02_fig2", "smoke", evidence=paper.page("fig2").evidence).measure("made", "fig2")
    assert recalled(paper, "fig2", "smoke").loc["two", "ours"] == "all A: 7"
    (table,) = page_folder("made/02_fig2", "smoke").glob("*.csv")
    table.write_text(table.read_text().replace("7.0", "6.0"))
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
