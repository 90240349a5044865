"""One curve read in three ways; and the four protocols of one FedAvg, which are the papers' own."""

from math import isnan
from types import SimpleNamespace

import pytest

from fednb.algorithms.catalogue import method
from fednb.engines.setting import Setting
from fednb.runs.experiment import Run
from fednb.study.measurements.readouts import readouts
from fednb.study.paper import papers


def made(accuracies, status="finished"):
    """One run as results have it, with a setting that reports the best round."""
    rows = [{"round": t, "accuracy": a} for t, a in enumerate(accuracies)]
    entry = SimpleNamespace(key="k", history=lambda: rows, about=lambda: {"status": status})
    run = Run(entry, Setting(report="best"), method("fedavg"), 2)
    return [(SimpleNamespace(tags={"dataset": "digits"}, label="base"), run)]


def test_a_curve_is_read_in_three_ways():
    """1 to 12, then 90, then 7: best 90, last 7, and the last ten, 5 to 12, 90 and 7, have the mean 16.5."""
    table = readouts(made([*range(1, 13), 90, 7])).set_index("method")["value"]
    assert table.to_dict() == {"best round": 90, "last round": 7, "mean of the last ten": 16.5}


def test_rounds_that_were_not_evaluated_do_not_count():
    table = readouts(made([None, 20.0, None, 40.0, 30.0]))
    assert table["value"].tolist() == [40, 30, 30] and set(table["run"]) == {"base"} and set(table["seed"]) == {2}


def test_a_diverged_run_has_no_accuracy():
    """Neither the best nor the last nor the mean of the last ten: a method that diverges has no result to compare."""
    assert all(map(isnan, readouts(made([10.0, 30.0], status="diverged"))["value"]))


NOT_ALIKE = {"fedscam": {"batch", "rounds"}}  # its paper.toml has the Fashion-MNIST study


@pytest.mark.parametrize("id", ["fedfft", "specgradfilter", "fedwmsam", "fedscam"])
def test_protocols_are_the_papers_own(id):
    """All fields but the data, which is CIFAR-10, and SpecGradFilter's first backbone."""
    (cell,) = [c for c in papers("across").grid("protocols", "paper", seeds=[0]).cells if c.label.lower() == id]
    about = papers(id).about
    theirs, ours = Setting(**about["setting"] | about["paper"]).plain(), cell.setting.plain()
    differ = {name for name in ours if ours[name] != theirs[name]}
    assert differ <= {"data", "model"} | NOT_ALIKE.get(id, set())
    assert ours["data"] == "cifar10" and ours["model"].startswith("resnet18-gn")


@pytest.mark.parametrize(
    "id, table, where, value",
    [
        ("fedfft", "table1", {"dataset": "CIFAR-10", "alpha": 0.1}, 76.00),
        ("specgradfilter", "table2", {"dataset": "CIFAR-10", "model": "ResNet-18-GN"}, 71.28),
        ("fedscam", "table2", {"dataset": "CIFAR-10", "alpha": 0.1}, 50.36),
    ],
)
def test_printed_base_lines_are_those_of_the_papers_tables(id, table, where, value):
    shown = papers(id).printed(table)
    for column, wanted in {**where, "method": "FedAvg", "measure": "accuracy"}.items():
        shown = shown[shown[column] == wanted]
    ours = papers("across").printed("protocols").set_index("method")["value"]
    assert shown["value"].tolist() == [value] == [ours[name] for name in ours.index if name.lower() == id]


def test_fedwmsams_base_line_is_printed_as_a_fraction():
    rows = papers("fedwmsam").reported("table1")
    mine = rows[
        (rows["method"] == "FedAvg") & (rows["dataset"] == "CIFAR-10") & rows["setting"].str.endswith("beta=0.1")
    ]
    ours = papers("across").printed("protocols").set_index("method")["value"]
    assert 100 * float(mine["value"].item()) == pytest.approx(ours["FedWMSAM"])


def test_single_changes_are_single():
    """Every run of the base lines differs from the base in one thing; a crowd of ten takes two fields."""
    for scale in ("smoke", "laptop", "paper"):
        base, *others = papers("across").grid("baselines", scale, seeds=[0]).cells
        assert base.label == "base"
        for cell in others:
            differ = {n for n, v in cell.setting.plain().items() if v != base.setting.plain()[n]}
            assert len(differ) == 1 or differ == {"clients", "participation"}, cell.label
