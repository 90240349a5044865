"""The printed numbers: how many each table has, some of them by hand, and how they become tidy."""

import shutil
from math import isnan

import pytest

from fednb.study.paper import Paper, papers

COUNTS = {
    "fedfft": {
        "table1": 96, "table2": 32, "table3": 12, "table4": 60, "table5": 15, "table6": 21, "table7": 12, "table8": 8,
        "table9": 4, "table10": 12, "table11": 2, "table12": 2, "table13": 4, "text_numbers": 10,
    },
    "specgradfilter": {
        "table1": 60, "table2": 80, "table3": 14, "table4": 20, "table5": 30, "table6": 30, "table7": 108, "table8": 10,
        "table9": 24, "table10": 12, "text_numbers": 11,
    },
    "fedfsa": {
        "table1": 64, "table2": 32, "table4_appendix": 22, "table5_appendix": 15, "table6_appendix": 12, "fig3a": 8,
        "fig3b": 4, "fig4": 32, "fig5": 17, "text_numbers": 6,
    },
    "fedwmsam": {
        "table1": 108, "table2": 36, "table3": 66, "table4": 20, "table5": 14, "table6": 15, "figures_read": 82,
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


def test_fractions_become_percent():
    """FedWMSAM prints 0.7664 where others print 76.64; points gained and rounds are left as they are."""
    told = papers("fedwmsam").printed("table5")
    full = told[(told["Mom"] == 1) & (told["SAM"] == 1) & (told["Weighted"] == 1)]
    assert full.set_index("measure")["value"].to_dict() == {"accuracy": 76.64, "accuracy_gain_points": 4.35}
    assert set(papers("fedwmsam").printed("table3")["measure"]) == {"rounds", "client_seconds_per_round"}
    assert papers("fedwmsam").reported("table5")["value"].max() == 4.35  # as printed, untouched


def test_what_is_remembered_follows_the_files_and_is_nobodys_to_change(tmp_path):
    """A number written over in a table, or a file that was changed, does not live on in what is asked for next."""
    folder = shutil.copytree(papers("fedwmsam").folder, tmp_path / "fedwmsam", ignore=shutil.ignore_patterns("runs"))
    paper = Paper(folder)
    for table in (paper.printed("table5"), paper.claims("table5")[0].printed):
        table["value"] = 0.0
    assert paper.printed("table5")["value"].max() == paper.claims("table5")[0].printed["value"].max() == 76.64
    for name, before, after in (("tables/table5.csv", "0.7664", "0.9999"), ("claims.toml", "FedWMSAM is", "It is")):
        file = folder / name
        file.write_text(file.read_text(encoding="utf-8").replace(before, after), encoding="utf-8")
    assert paper.printed("table5")["value"].max() == paper.claims("table5")[0].printed["value"].max() == 99.99
    assert "beta 0.1 It is the best" in paper.claims("table1")[0].says


def test_dirichlet_and_pathological_splits_become_two_columns():
    """Table 1 of FedWMSAM: beta or gamma, never both."""
    told = papers("fedwmsam").printed("table1")
    assert told["beta"].notna().sum() == told["gamma"].notna().sum() == 54
    assert (told["beta"].isna() == told["gamma"].notna()).all()
    row = told[(told["method"] == "FedWMSAM") & (told["dataset"] == "CIFAR-100") & (told["gamma"] == 10)]
    assert row["value"].tolist() == [43.83]
    named = {
        "Fashion-MNIST": 0,
        "CIFAR-10": 36,
        "CIFAR-100": 36,
    }  # "not printed" and "ResNet-18-GN (repository default)"
    assert told.groupby("dataset")["model"].count().to_dict() == named and set(told["model"].dropna()) == {
        "ResNet-18-GN"
    }


def test_splits_become_a_column_and_dashes_are_left_out():
    """Pat(5) and Dir(0.5) in FedFSA's tables, with other numbers beside them or not; two dashes on Tiny-ImageNet."""
    told = papers("fedfsa").printed("table2")
    row = told[(told["method"] == "FedFSA") & (told["partition"] == "Dir(0.3)") & (told["clients"] == 50)]
    assert row["value"].tolist() == [36.90] and "setting" not in told
    assert sorted(told["partition"].unique()) == ["Dir(0.1)", "Dir(0.3)", "Dir(1)"] and len(told) == 32 - 3
    main = papers("fedfsa").printed("table1")
    assert main[main["partition"] == "Pat(50)"].set_index("method")["value"]["FedCR"] == 23.71
    swept = papers("fedfsa").printed("fig4")
    assert swept[swept["method"] == "MoFedSAM rho=0.1"]["rho_larger"].isna().all() and len(swept) == 32


def test_what_was_read_from_a_figure_says_which():
    """5% of the clients is 0.05; what the figure only implies is a remark, and goes."""
    told = papers("fedwmsam").printed("figures_read")
    assert told["figure"].value_counts().to_dict() == {"Fig 6 left": 30, "Fig 6 right": 30, "Fig 4 left": 11,
                                                       "Fig 4 right": 11}  # fmt: skip
    few = told[(told["figure"] == "Fig 6 right") & (told["participation"] == 0.05)]
    assert few.set_index("method")["value"]["FedWMSAM"] == 74.4
    assert set(told["dataset"]) == {"CIFAR-10", "CIFAR-100"} and set(told["model"]) == {"ResNet-18-GN"}
    assert "figure" not in papers("fedwmsam").printed("table1")


def test_a_target_domain_becomes_a_column():
    """ "target domain=Real World;10% sample;100% active" is a domain, and its accuracy is in percent."""
    table = papers("fedwmsam").printed("table2")
    assert list(table["domain"].unique()) == ["Art", "Clipart", "Product", "Real World"] and "setting" not in table
    mine = table[(table["method"] == "SCAFFOLD") & (table["domain"] == "Real World")]
    assert mine[["measure", "value"]].values.tolist() == [["accuracy", 97.49]]
