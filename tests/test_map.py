"""The map of the papers: the committed page is what its generator gives, and every link in it leads somewhere."""

import re
from pathlib import Path

import pytest

from fednb.study import map as map_of_papers
from fednb.study import notebooks
from fednb.study.paper import papers, shelf

PAGE = Path(__file__).parent.parent / "papers" / "README.md"
README = PAGE.parent.parent / "README.md"
IDS = (*papers().index, "across")


@pytest.fixture(scope="module")
def page():
    return map_of_papers.page()


def test_the_committed_page_is_what_the_generator_gives(page):
    assert PAGE.read_text(encoding="utf-8") == page, f"out of date: {map_of_papers.COMMAND}"


def test_every_notebook_is_on_the_page(page):
    assert all(f"(../notebooks/{name}.ipynb)" in page for name in notebooks.names())


def test_every_link_leads_somewhere(page):
    links = set(re.findall(r"\]\(([^)]+)\)", page))
    assert len(links) > 150
    assert [link for link in links if not (PAGE.parent / link).exists()] == []


def test_verdicts_and_evidence_are_those_of_the_kept_results():
    """FedFFT's Figure 1: two claims, one holds and one does not, at laptop scale with three seeds on a GPU."""
    first = map_of_papers.map_lines(papers("fedfft"))[0]
    cells = dict(zip(map_of_papers.COLUMNS, map_of_papers._cells(first), strict=True))
    assert [cells[name] for name in ("claims", "hold", "do not hold", "not decided")] == ["2", "1", "1", "0"]
    assert cells["evidence"].startswith("[laptop, n = 3](fedfft/results/") and cells["evidence"].endswith("NVIDIA H200")


@pytest.mark.parametrize("id", IDS)
def test_every_notebook_with_kept_results_says_what_was_found(id):
    lines = map_of_papers.map_lines(papers(id))
    assert {e.notebook for e in lines if e.found} == {e.notebook for e in lines if e.results_folder}
    assert {e.notebook for e in lines if e.found} == set(papers(id).about.get("found", {}))


@pytest.mark.parametrize("id", IDS)
def test_every_claim_is_counted_in_one_notebook(id):
    assert sum(line.claims for line in map_of_papers.map_lines(papers(id))) == len(papers(id).claims())


def test_the_command_prints_writes_or_refuses(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(map_of_papers, "page", lambda: "a page\n")
    monkeypatch.setattr(map_of_papers, "shelf", lambda name: tmp_path / name)
    (tmp_path / "papers").mkdir()
    assert map_of_papers.main([]) == 0 and capsys.readouterr().out == "a page\n"
    assert map_of_papers.main(["--write"]) == 0 and (tmp_path / "papers/README.md").read_text() == "a page\n"
    assert map_of_papers.main(["--other"]) == 2 and "only --write" in capsys.readouterr().err
    assert shelf("papers") == PAGE.parent


def test_the_readme_counts_the_claims_as_the_map_does():
    """Its table: "FedFFT | 53: 8 / 5 / 17 / 23" is all claims, and those that hold, do not, are open, were not run."""
    told = re.findall(r"^\| (\S+|across the papers) \| (\d+): ([\d /]+) \|", README.read_text(), re.MULTILINE)
    assert len(told) == len(IDS)
    for name, every, counted in told:
        lines = map_of_papers.map_lines(papers(name.split()[0]))
        verdicts = [verdict for line in lines for verdict in line.judged["best_verdict"]]
        begun = [sum(v.startswith(begin) for v in verdicts) for begin in map_of_papers.VERDICTS.values()]
        claims = sum(line.claims for line in lines)
        assert [int(n) for n in counted.split(" / ")] == [*begun, claims - sum(begun)] and int(every) == claims, name


def test_the_site_shows_what_was_found():
    from fednb.show.site.front import paper_page

    shown = paper_page(papers("fedfft"), {}).body
    assert "Figure 3 (a): how many clients take part in a round<br>Figure 3 (b)" in shown
    assert "<strong>holds</strong> (3.6 to 4.8 times the next)" in shown
