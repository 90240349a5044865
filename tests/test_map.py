"""The evidence in words: committed pages are what `make evidence` gives, and prose beside it has no verdicts."""

import json
import re
from pathlib import Path

import pytest

from fednb.study import map as map_of_papers
from fednb.study import notebooks
from fednb.study.paper import papers
from fednb.study.verify import kept_verdicts

PAGE = Path(__file__).parent.parent / "papers" / "README.md"
README = PAGE.parent.parent / "README.md"
IDS = (*papers().index, "across")


VERDICT = re.compile(r"\b(holds?|does not|do not|not decided|seen|not clear|refuted|confirmed)\b")


@pytest.fixture(scope="module")
def every():
    return map_of_papers.lines_of_all()


@pytest.fixture(scope="module")
def page(every):
    return map_of_papers.page(every)


@pytest.fixture(scope="module")
def rows(every):
    """README's table, a row for each paper: its cells by the beginning of their heads."""
    lines = [line.strip("| ").split(" | ") for line in map_of_papers.papers_table(every).splitlines()]
    heads = [head.partition(":")[0] for head in lines[0]]
    return [dict(zip(heads, line, strict=True)) for line in lines[2:]]


def test_the_committed_pages_are_what_the_command_gives(page, every):
    """Both of them; then writing once more changes nothing."""
    assert PAGE.read_text(encoding="utf-8") == page, f"out of date: {map_of_papers.COMMAND}"
    text = README.read_text(encoding="utf-8")
    assert map_of_papers.readme(text, every) == text, f"out of date: {map_of_papers.COMMAND}"


def test_prose_beside_verdicts_has_none_of_its_own():
    """Remarks in paper.toml are dated, and have neither verdicts nor numbers of results."""
    remarks = [text for id in IDS for text in papers(id).about.get("found", {}).values()]
    assert len(remarks) > 10
    for text in remarks:
        assert not VERDICT.search(text) and not re.search(r"\*\*|±|points|[+−]\d|n = \d", text), text
        assert re.search(r"\(\d+ \w+ 20\d\d\)$", text), text


def test_a_headline_at_laptop_scale_is_told_before_a_detail_at_paper_scale():
    """Of what weighs the same, paper scale first, and of that what stands beside a printed number; no effect last."""
    none = float("nan")
    told = [(5.0, "paper", 2.0, 0), (5.0, "paper", none, 0), (5.0, "laptop", 2.0, 0), (5.0, "paper", 2.0, 2),
            (none, "paper", 2.0, 0)]  # fmt: skip
    ranks = [map_of_papers._rank({"best_effect": effect, "best_scale": scale, "best_printed": printed}, weight)
             for effect, scale, printed, weight in told]  # fmt: skip
    assert ranks == sorted(ranks) and len(set(ranks)) == 5


def test_every_notebook_is_on_the_page(page):
    assert all(f"(../notebooks/{name}.ipynb)" in page for name in notebooks.names())


def test_every_link_leads_somewhere(page):
    links = set(re.findall(r"\]\(([^)]+)\)", page))
    assert len(links) > 150
    assert [link for link in links if not (PAGE.parent / link).exists()] == []


def test_verdicts_and_evidence_are_those_of_the_kept_results():
    """FedFFT's Figure 1: judged on the kept table, at laptop scale, three seeds, on the device that its runs name."""
    first = map_of_papers.map_lines(papers("fedfft"))[0]
    cells = dict(zip(map_of_papers.COLUMNS, map_of_papers._cells(first), strict=True))
    kept = kept_verdicts(papers("fedfft"), first.notebook, "laptop")["verdict"]
    words = ("seen", "not seen", "not clear")
    assert cells["laptop scale"] == " / ".join(str(sum(kept.str.startswith(word))) for word in words)
    assert int(cells["claims"]) == len(kept) and cells["paper scale"] == "" and "`fig1-lowest-band` " in first.found
    runs = json.loads((first.results["laptop"] / "runs.json").read_text(encoding="utf-8"))
    (device,) = {about["device_name"] for about in runs.values()}
    assert cells["evidence"].startswith("[laptop, n = 3](fedfft/results/") and cells["evidence"].endswith(f", {device}")


def test_a_line_leads_to_every_scale_that_its_verdicts_rest_on(every):
    """Some sections of a notebook may be run at paper scale while the claims of others rest on laptop runs."""
    lines = [line for mine in every.values() for line in mine if len(line.judged)]
    for line in lines:
        assert {*line.judged["best_scale"]} <= {*line.results}, line.notebook
        links = re.findall(r"/results/(\w+)\)", map_of_papers._evidence(line))
        assert links == [folder.name for folder in line.results.values()]
    assert any(len(line.results) == 2 for line in lines)


def test_every_notebook_whose_claims_were_run_says_what_was_found(every):
    """Each claim once, with its verdict; remarks are about such notebooks."""
    for lines in every.values():
        assert all(bool(line.found) == bool(len(line.judged)) <= bool(line.results) for line in lines)
        assert all(line.found.count(f"`{claim}`") == 1 for line in lines for claim in line.judged.index)
        assert {line.notebook for line in lines if line.results} >= {e.notebook for e in lines if e.remark}


@pytest.mark.parametrize("id", IDS)
def test_every_claim_is_counted_in_one_notebook(id):
    assert sum(line.claims for line in map_of_papers.map_lines(papers(id))) == len(papers(id).claims())


def test_the_readme_counts_every_claim_once(rows, every):
    """All claims of a paper are for, against, neither, by construction or not run."""
    for row, (paper, lines) in zip(rows, every.items(), strict=True):
        counted = [row[name] for name in ("paper scale", "laptop scale", "by construction", "not run")]
        numbers = [int(number) for text in counted for number in text.split(" / ") if number.strip()]
        assert sum(numbers) == int(row["claims"]) == len(paper.claims()), paper.id
        assert int(row["not run"]) == len(paper.claims()) - sum(len(line.judged) for line in lines)


def test_the_site_shows_what_was_found():
    from fednb.show.site.front import paper_page

    shown = paper_page(papers("fedfft"), {}).body
    assert "Figure 3 (a): how many clients take part in a round<br>Figure 3 (b)" in shown
    assert re.search(r"<strong>seen[^<]*</strong>: <code>fig1-lowest-band</code> \d", shown)
