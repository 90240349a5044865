"""The printed numbers: how many each table has, some of them by hand, and how they become tidy."""

from math import isnan

import pytest

from fednb.paper import papers

COUNTS = {
    "fedfft": {
        "table1": 96, "table2": 32, "table3": 12, "table4": 60, "table5": 15, "table6": 21, "table7": 12, "table8": 8,
        "table9": 4, "table10": 12, "table11": 2, "table12": 2, "table13": 4, "text_numbers": 10,
    },
    "specgradfilter": {
        "table1": 60, "table2": 80, "table3": 14, "table4": 20, "table5": 30, "table6": 30, "table7": 108, "table8": 10,
        "table9": 24, "table10": 12, "text_numbers": 11,
    },
}  # fmt: skip


@pytest.mark.parametrize("id", COUNTS)
def test_every_table_is_there_with_all_its_numbers(id):
    paper = papers(id)
    tables = sorted(p.stem for p in (paper.folder / "tables").glob("*.csv"))
    assert {name: len(paper.reported(name)) for name in tables} == COUNTS[id]


@pytest.mark.parametrize(
    "id, table, where, value",
    [
        ("fedfft", "table1", ("FedAvg", "CIFAR-10", "alpha=0.1"), 76.00),
        ("fedfft", "table1", ("FedFFT-D", "CIFAR-10", "alpha=0.1"), 83.05),
        ("fedfft", "table1", ("FedLESAM-S", "CIFAR-10", "alpha=0.6"), 84.94),
        ("fedfft", "table2", ("FedSAM", "CIFAR-100", "alpha=0.6"), 53.70),
        ("fedfft", "table3", ("Low-frequency (Ours)", "CIFAR-10", "alpha=0.1"), 77.53),
        ("fedfft", "table8", ("Low-frequency Filtering (FedFFT-D)", "CIFAR-10", "alpha=0.1"), 81.24),
        ("fedfft", "table10", ("FedSAM", "CIFAR-10", "alpha=0.1;rho=0.20"), 58.49),
        ("fedfft", "table12", ("FedFFT-D", "Shakespeare", "LEAF natural split; 20% of devices"), 42.34),
        ("fedfft", "table13", ("FedDyn-GradFilter (Ours)", "CIFAR-10", "alpha=0.1"), 77.44),
        ("specgradfilter", "table1", ("SpecGradFilter (FedAvg+FFT)", "CIFAR-10", "alpha=0.1"), 78.05),
        ("specgradfilter", "table3", ("Gaussian Detrend", "CIFAR-100", "alpha=0.1"), 41.53),
        ("specgradfilter", "table4", ("2D FFT", "CIFAR-10", "alpha=0.1"), 74.93),
        ("specgradfilter", "table5", ("SGD", "CIFAR-10", "Centralized (IID)"), 92.87),
        ("specgradfilter", "table10", ("SCAFFOLD + SpecGradFilter", "FEMNIST", "active_ratio=0.05"), 77.57),
    ],
)
def test_numbers_as_printed(id, table, where, value):
    told = papers(id).reported(table)
    mine = told[(told["method"] == where[0]) & (told["dataset"] == where[1]) & (told["setting"] == where[2])]
    assert float(mine["value"].iloc[0]) == value


def test_settings_become_columns():
    """alpha=0.1;rho=0.15 is two numbers; a text without numbers stays one; words are left out."""
    radius = papers("fedfft").printed("table10")
    row = radius[(radius["method"] == "FedFFT") & (radius["rho"] == 0.15) & (radius["measure"] == "accuracy")]
    assert row[["alpha", "value"]].values.tolist() == [[0.1, 75.29]]
    when = papers("specgradfilter").printed("table5")
    assert set(when["setting"].dropna()) == {"Centralized (IID)"}
    assert sorted(when["alpha"].dropna().unique()) == [0.1, 0.6, 5.0, 100.0]
    assert isnan(when[when["method"] == "SGD"]["alpha"].iloc[0])
    assert papers("fedfft").printed("table6").empty
    spread = papers("specgradfilter").printed("table1")
    assert spread["std"].notna().all() and (spread["seed"] == "printed").all()
