"""The pages made of kept results: written, compared, refused."""

from pathlib import Path

import pytest

from fednb.study import evidence
from fednb.study import map as map_of_papers
from fednb.study.paper import Paper, shelf

PAPERS = Path(__file__).parent.parent / "papers"


def test_the_command_writes_compares_or_refuses(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(evidence, "lines_of_all", lambda: {Paper(tmp_path / "papers/made"): []})
    monkeypatch.setattr(evidence, "page", lambda every: "a page\n")
    monkeypatch.setattr(evidence, "report", lambda every, accounts: "a report\n")
    monkeypatch.setattr(evidence, "pictures", lambda every: {tmp_path / "papers/made/results/forest.svg": "<svg/>\n"})
    monkeypatch.setattr(map_of_papers, "papers_table", lambda every: "a table\n")
    monkeypatch.setattr(map_of_papers, "chance", lambda every: "odds\n")
    monkeypatch.setattr(evidence, "shelf", lambda name: tmp_path / name)
    monkeypatch.setattr(evidence, "accounts_of", lambda paper, times: [paper.id])
    monkeypatch.setattr(evidence, "ledger", lambda accounts: f"a ledger of {accounts[0]}\n")
    (tmp_path / "papers/made/results").mkdir(parents=True)
    front = tmp_path / "README.md"
    front.write_text(f"Mine.\n\n{map_of_papers.BEGIN}\nold\n{map_of_papers.END}\n\nMine too.\n")
    assert evidence.main(["--check"]) == 1 and capsys.readouterr().err.count("is out of date: make evidence") == 5
    assert "old" in front.read_text() and evidence.main(["--write"]) == 0
    written = {"README.md": "a page", "REPORT.md": "a report", "made/results/README.md": "a ledger of made",
               "made/results/forest.svg": "<svg/>"}  # fmt: skip
    assert {name: (tmp_path / "papers" / name).read_text().strip() for name in written} == written
    assert front.read_text() == f"Mine.\n\n{map_of_papers.BEGIN}\na table\n\nodds\n{map_of_papers.END}\n\nMine too.\n"
    assert evidence.main(["--check"]) == 0
    front.write_text("no marks")
    with pytest.raises(ValueError, match="the table of papers must stand between"):
        evidence.main(["--write"])
    assert evidence.main([]) == evidence.main(["--other"]) == 2 and "--write" in capsys.readouterr().err
    assert shelf("papers") == PAPERS
