"""The report: who is counted where, what is told of each, and that what was written by hand is sound."""

import re
from datetime import datetime
from pathlib import Path

import pytest

from fednb.study import findings, notebooks
from fednb.study.findings import COUNTED, Written, contradiction, contradictions, counts, decided, missing, sentence
from fednb.study.ledger import Account, Bill, Price
from fednb.study.map import name_of
from fednb.study.paper import papers
from fednb.study.verdict_text import without_source

IDS = [*papers().index, "across"]


def row(claim, verdict, weight="headline", effect=1.5, n=3, scale="paper", section="table1"):
    return {"claim": claim, "says": f"{claim} is better (Table 1)", "verdict": verdict, "weight": weight, "n": n,
            "effect": effect, "low": 1.0, "high": 2.0, "printed": 3.0, "scale": scale, "section": section}  # fmt: skip


ROWS = [
    row("a", "holds where run (1 of 2 settings)"), row("b", "does not hold"), row("c", "not decided (untuned)"),
    row("d", "seen on average", scale="laptop"), row("e", "not run", n="", scale="", effect=""),
    row("f", "holds", weight="table"), row("g", "by construction: holds", scale="laptop"),
]  # fmt: skip


def test_headlines_are_counted_once_each():
    *_, line, _, chance = counts({papers("fedfft"): ROWS}).splitlines()
    cells = [cell.strip() for cell in line.split("|")[1:-1]]
    assert cells[:2] == ["FedFFT", "6"]
    assert dict(zip(COUNTED, cells[2:], strict=True)) == {
        "hold": "1", "do not": "1", "open": "1", "seen": "1", "not seen": "", "not clear": "", "by construction": "1",
        "not run": "1",
    }  # fmt: skip
    assert "3 of these verdicts are for or against" in chance and "at most 0.15 of them are wrong by chance" in chance


def test_only_headlines_at_paper_scale_are_decided():
    held, failed, undecided = decided({papers("fedfft"): ROWS})
    assert "a is better. **holds where run (1 of 2 settings)**, 1.5 [1, 2], printed 3, n = 3" in held
    assert held.count("\n- ") == failed.count("\n- ") == undecided.count("\n- ") == 1
    assert "- FedFFT: b is better" in failed and "- FedFFT: c is better" in undecided
    assert "None so far." in decided({papers("fedfft"): []})[0]


def test_a_claim_without_numbers_is_told_without_them():
    assert sentence(row("e", "not run", n="", effect="") | {"printed": "", "low": "", "high": ""}) == (
        "e is better. **not run**"
    )


@pytest.mark.parametrize(
    "says, told",
    [
        ("FedSCAM (WA), with 70.63, is above FedAvg (section 5.3: 69.68) and FedLW (Table 2)",
         "FedSCAM (WA), with 70.63, is above FedAvg"),
        ("It gains 8.26 points (abstract) there", "It gains 8.26 points"),
        ("FedSCAM (Full) and FedSCAM (SAM) are alike", "FedSCAM (Full) and FedSCAM (SAM) are alike"),
        ("It is the best (Fig. 5); judged on the mean. Layers by Eq. 11", "It is the best. Layers by Eq. 11"),
        ("It is the best (Fig. 5. Not Table 1), by far", "It is the best"),
    ],
)  # fmt: skip
def test_a_sentence_ends_where_its_source_is_told_not_at_a_name_and_a_second_one_stays(says, told):
    assert without_source(says) == told


def test_what_is_missing_is_what_open_headlines_need_each_run_once():
    """d and e need six runs of ten minutes together, two of them both; what c and f lack counts for nothing."""

    def bill(*keys):
        return Bill({*keys, "kept"}, {key: Price(600.0, True) for key in keys})

    claims = {"c": bill("8", "9"), "d": bill("1", "2", "3", "4"), "e": bill("3", "4", "5", "6"), "f": bill("7")}
    accounts = [
        Account("table1", "Table 1", Bill.of_all(claims.values()), claims),
        Account("table2", "2", bill("0"), {}),
    ]
    told = missing(papers("fedfft"), ROWS, accounts)
    assert "2 of 6 headline claims were not run at paper scale" in told  # d and e; g cannot be otherwise
    assert "6 more runs, about 60 min" in told or "6 more runs, about 1 h" in told


@pytest.mark.parametrize("id", IDS)
def test_every_paper_has_a_paragraph_with_a_day(id):
    written = Written.of(papers(id).folder / "summary.md")
    assert datetime(2026, 1, 1) < written.day < datetime(2100, 1, 1) and len(written.text) > 300
    assert not re.search(r"\bholds\b|\bdoes not hold\b|\bnot seen\b", written.text)  # verdicts are made, not written


def test_a_paragraph_without_a_day_is_refused(tmp_path):
    (tmp_path / "summary.md").write_text("No day.\nText.\n")
    with pytest.raises(ValueError, match="No day"):
        Written.of(tmp_path / "summary.md")


def test_contradictions_name_notebooks_that_there_are():
    known = contradictions(papers("across"))
    assert len(known) >= 10 and contradictions(papers("fedfft")) == []
    short = {"/".join([folder, name[:2]]) for folder, _, name in (each.partition("/") for each in notebooks.names())}
    for each in known:
        assert set(each) == {"about", "one", "other", "settled_by"}
        assert set(re.findall(r"\b[a-z]+/\d\d", each["settled_by"])) <= short
        assert contradiction(each).startswith(f"- **{each['about']}.** {each['one']} ")


def test_the_kept_report_shows_every_paper_and_its_picture():
    """Under the name of its method, FedFSA's too, whose title does not have it."""
    text = (Path(papers("fedfft").folder).parent / findings.REPORT).read_text()
    for id in papers().index:
        (heading,) = [line for line in text.splitlines() if line.endswith(papers(id).about["title"])]
        assert heading.startswith(f"## {name_of(papers(id))}: ")
        assert (f"({id}/results/forest.svg)" in text) == findings.forest_of(papers(id)).is_file()
    assert all(line.count("|") > 5 for line in text.splitlines() if line.startswith("| "))
