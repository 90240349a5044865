"""Printed accuracies beside ours: which count, how often, and what is told and drawn of them."""

import re
import xml.etree.ElementTree as ET
from dataclasses import replace

import pandas as pd
import pytest

from fednb.study.beside import SIDE, Beside, all_beside, beside, scatter
from fednb.study.map import lines_of_all
from fednb.study.paper import Paper, papers

TITLE = 'title = "Made: a paper"\nauthors = "A"\nvenue = "V"\n'
PRINTED = """method,dataset,model,setting,metric,value,std,note
FedAvg,CIFAR-10,,alpha=0.1,accuracy,70.0,,
FedAvg,CIFAR-10,,alpha=0.6,accuracy,80.0,,
FedSAM,CIFAR-10,,alpha=0.1,accuracy,71.0,,
FedSAM,CIFAR-10,,alpha=0.6,accuracy,81.0,,Fig 2; read off by eye
FedSAM,CIFAR-10,,alpha=0.1,rounds,400,,
"""
NUMBERS = {("FedAvg", 0.1): (69.0, 70.0, 71.3), ("FedAvg", 0.6): (77.0, 78.0), ("FedSAM", 0.1): (72.5, 73.5, 74.5),
           ("FedSAM", 0.6): (80.0, 81.0, 82.0), ("ours alone", 0.1): (1.0, 2.0, 3.0)}  # fmt: skip


@pytest.fixture
def made(tmp_path):
    """A paper of two sections on one notebook, one of them tuned, with results that are kept."""
    folder = tmp_path / "made"
    (folder / "tables").mkdir(parents=True)
    (folder / "paper.toml").write_text(TITLE + "".join(
        f'[sections.{name}]\ntitle = "T"\nnotebook = "made/01_table"\n' for name in ("table1", "table1-tuned", "other")
    ))  # fmt: skip
    (folder / "claims.toml").write_text("")
    (folder / "tables" / "table1.csv").write_text(PRINTED)
    kept = folder / "results" / "01_table_paper"
    kept.mkdir(parents=True)
    rows = [{"dataset": "CIFAR-10", "alpha": alpha, "method": method, "seed": i, "key": f"{method}{alpha}{i}",
             "measure": "accuracy", "value": value}
            for (method, alpha), values in NUMBERS.items() for i, value in enumerate(values)]  # fmt: skip
    pd.DataFrame(rows).to_csv(kept / "table1_accuracy.csv")
    tuned = pd.DataFrame(rows).query("alpha == 0.1 and method != 'ours alone'")
    tuned.assign(value=tuned["value"] + (tuned["method"] == "FedAvg")).to_csv(kept / "table1-tuned_accuracy.csv")
    pd.DataFrame(rows).to_csv(kept / "other_accuracy.csv")
    return Paper(folder)


def lines_of(paper):
    from fednb.study.map import map_lines

    return {paper: map_lines(paper)}


def test_a_number_counts_once_where_it_is_printed_in_a_table_and_run_with_three_seeds(made):
    """Two seeds are too few, figures are left out, and the tuned FedSAM is the run that counts already."""
    found = all_beside(lines_of(made))
    assert [(each.section, each.method, each.where, each.printed, each.ours, each.n) for each in found] == [
        ("table1", "FedAvg", "CIFAR-10, alpha 0.1", 70.0, pytest.approx(70.1), 3),
        ("table1", "FedSAM", "CIFAR-10, alpha 0.1", 71.0, 73.5, 3),
        ("table1-tuned", "FedAvg", "CIFAR-10, alpha 0.1", 70.0, pytest.approx(71.1), 3),
    ]
    assert found[1].std == 1.0 and found[1].difference == 2.5


def test_the_report_counts_the_met_and_names_the_farthest(made):
    told = "\n".join(beside(all_beside(lines_of(made))))
    assert "| Made | 3 | 1 | 3 | +1.1 | FedSAM, CIFAR-10, alpha 0.1: 73.5 for 71 |" in told
    assert "| Made | table1 | CIFAR-10, alpha 0.1 | FedAvg | 70.00 | 70.10 | 1.15 | +0.10 |" in told
    assert "![3 printed accuracies and ours at paper scale" in told and beside([]) == []
    level = [replace(each, ours=each.printed - 0.01) for each in all_beside(lines_of(made))]
    assert "| +0.0 |" in "\n".join(beside(level))


def test_a_study_of_ours_prints_nothing(made):
    text = (made.folder / "paper.toml").read_text()
    (made.folder / "paper.toml").write_text("study = true\n" + text)
    assert all_beside(lines_of(Paper(made.folder))) == []


def test_the_picture_has_equal_numbers_on_the_line(made):
    """Its dots: printed to the right, ours upwards; a name with an ampersand is written as XML asks."""
    found = [
        Beside(made, "table1", "", "A & B", 50.0, 50.0, 0.5, 3),
        Beside(made, "table1", "x", "C", 45.0, 55.0, 2.0, 3),
    ]
    tree = ET.fromstring(scatter(found))
    dots = [(float(dot.get("cx")), float(dot.get("cy"))) for dot in tree.findall(".//{*}g/{*}circle")]
    (x, y), (left, up) = dots
    axis = next(path for path in tree.iter() if path.get("stroke") == "#666").get("d")
    x0, y0, x1, y1 = map(float, re.findall(r"[0-9.]+", axis))
    assert (x - x0) / (x1 - x0) == pytest.approx((y - y0) / (y1 - y0)) and x1 - x0 == SIDE
    assert left < x and up < y
    assert [title.text for title in tree.findall(".//{*}g/{*}title")] == [
        "A & B: 50.00 for 50.00",
        "C, x: 55.00 for 45.00",
    ]
    assert scatter([]) == ""


def test_kept_results_are_told_with_the_numbers_of_their_tables():
    """FedFFT's FedAvg, 76.00 in its Table 1, once though other tables and figures have it, too."""
    found = all_beside(lines_of_all())
    mine = [each for each in found if each.paper.id == "fedfft" and each.printed == 76.0]
    assert len(mine) == 1 and mine[0].section == "table1" and mine[0].n == 3
    kept = pd.read_csv(papers("fedfft").folder / "results/02_table1_main_results_paper/table1_accuracy.csv")
    assert mine[0].ours == pytest.approx(kept.query("method == 'FedAvg'")["value"].mean())
    assert len({(each.paper.id, each.printed, each.ours) for each in found}) == len(found)
