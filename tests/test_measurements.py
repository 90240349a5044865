"""What is measured on runs, from histories that are written out; and a page that measures without runs."""

import re
import shutil
import subprocess
import sys
from math import isnan
from pathlib import Path
from types import SimpleNamespace

import pytest

import fednb
from fednb.engines.problem import class_counts
from fednb.engines.setting import Setting
from fednb.study.measurements.accuracy import accuracy
from fednb.study.measurements.client_data import client_sizes
from fednb.study.measurements.curves import curves, early, last_round, late, peak, setbacks, thinned
from fednb.study.measurements.registry import MEASUREMENTS, UnknownEvidence, measurement, measurement_named
from fednb.study.page import Page


def made(accuracies, rounds=None):
    """One run as results have it: a cell and its run; None where a round was not evaluated."""
    rows = [{"round": t, "accuracy": a} for t, a in enumerate(accuracies)]
    known = [a for a in accuracies if a is not None]
    setting = SimpleNamespace(rounds=rounds or len(rows))
    cell = SimpleNamespace(tags={"alpha": 0.1}, label="Ours", setting=setting, tuned="")
    best, last = max(known, default=None), known[-1] if known else None
    three = {"accuracy_best": best, "accuracy_last": last, "accuracy_last_ten": last}
    return [(cell, SimpleNamespace(seed=2, key="k", rows=rows, accuracy=best, **three))]


def test_curves_have_the_evaluated_rounds_and_no_tuning():
    results = made([None, 20.0, None, 40.0])
    results[0][1].rows.append({"round": 4, "accuracy": 90.0, "tuned": 1})
    table = curves(results)
    assert table[["round", "value"]].to_numpy().tolist() == [[1, 20.0], [3, 40.0]]
    assert set(table["measure"]) == {"accuracy by round"} and set(table["method"]) == {"Ours"}
    assert accuracy(results)["value"].tolist() == [40.0]


def test_the_last_round_is_before_any_tuning():
    """Where a run stopped at the second of three rounds there is no last one."""
    results = made([70.0, None, 40.0])
    results[0][1].rows.append({"round": 3, "accuracy": 90.0, "tuned": 1})
    table = last_round(results)
    assert table["value"].tolist() == [40.0] and table["measure"].tolist() == ["accuracy"]
    assert isnan(last_round(made([70.0, 40.0], rounds=3))["value"].item())


def test_the_peak_is_before_any_tuning():
    """The best of the rounds, not the tuning after them; nothing where no round was evaluated."""
    results = made([70.0, None, 40.0])
    results[0][1].rows.append({"round": 3, "accuracy": 90.0, "tuned": 1})
    table = peak(results)
    assert table["value"].tolist() == [70.0] and table["measure"].tolist() == ["peak accuracy"]
    assert isnan(peak(made([None]))["value"].item())


@pytest.mark.parametrize("n, most, wanted", [
    (8, None, [0, 1, 2, 3, 4, 5, 6, 7]), (8, 8, [0, 1, 2, 3, 4, 5, 6, 7]), (8, 4, [1, 3, 5, 7]), (7, 3, [1, 3, 6]),
    (5, 1, [4]), (0, 3, []),
])  # fmt: skip
def test_thinning_is_even_and_keeps_the_last(n, most, wanted):
    assert thinned(list(range(n)), most) == wanted


def test_thinned_curves_keep_their_rounds():
    assert curves(made([1.0, 2.0, 3.0, 4.0]), most=2)["round"].tolist() == [1, 3]


@pytest.mark.parametrize("accuracies, share, wanted", [
    ([10, 20, 60, 90], 0.5, 15), ([10, 20, 60, 90], 0.25, 10), ([10, 20, 60, 90], 0.01, 10),
    ([None, 20, None, 90], 0.5, 20), ([10, 20, 60, 90], 1.0, 45),
])  # fmt: skip
def test_early_is_the_mean_of_the_first_rounds(accuracies, share, wanted):
    """A share of the rounds of the setting, not of those that were reached; at least the first."""
    assert early(made(accuracies), share)["value"].tolist() == [wanted]


def test_early_counts_rounds_that_were_planned():
    """Diverged after two of eight rounds: a quarter of eight is both of them."""
    assert early(made([10, 30], rounds=8), 0.25)["value"].tolist() == [20]
    assert isnan(early(made([None, 30]), 0.5)["value"].item())


def test_a_page_measures_a_section_without_runs(tmp_path, monkeypatch):
    """The function is told the scale, and options from paper.toml; the table is kept under the section's name."""
    monkeypatch.setenv("FEDNB_PAGE", str(tmp_path))
    how = {"partitions": ["iid"], "smoke": [{"dataset": "digits", "data": "digits", "clients": 4}]}
    page = Page("made/09_x", "smoke", evidence={"fig5": {"class_skew": how}})
    table = page.measure("class_skew", "fig5", seeds=[7])
    assert set(table["grid"]) == {"fig5"} and set(table["seed"]) == {7} and len(table) == 2
    assert (tmp_path / "fig5_class_skew.csv").exists() and not (tmp_path / "runs.json").exists()
    assert table.drop(columns="grid").equals(MEASUREMENTS["class_skew"]("smoke", seeds=[7], **how))


@pytest.mark.parametrize("accuracies, wanted", [
    ([10, 20, 30], 0), ([10, 30, 20, 40], 10 / 3), ([10, None, 4, None, 4], 3), ([50, 20], 30),
])  # fmt: skip
def test_setbacks_are_what_is_lost_between_evaluations(accuracies, wanted):
    """Rises do not make up for falls; rounds that were not evaluated do not count."""
    assert setbacks(made(accuracies))["value"].tolist() == [pytest.approx(wanted)]


def test_setbacks_need_two_evaluations_and_know_no_tuning():
    results = made([None, 30])
    results[0][1].rows.append({"round": 2, "accuracy": 10.0, "tuned": 1})
    assert isnan(setbacks(results)["value"].item())


def test_client_sizes_are_counted_once_for_all_methods():
    """Two methods on one split of 300 digits, and a second seed: each split once, with all of its samples."""
    setting = Setting(samples=300, clients=4, partition="dirichlet(alpha=0.5)")
    cells = [(SimpleNamespace(tags={"alpha": 0.5}, setting=setting), SimpleNamespace(seed=s)) for s in (0, 0, 1)]
    table = client_sizes(cells)
    assert table["seed"].tolist() == [0] * 4 + [1] * 4 and table["client"].tolist() == [0, 1, 2, 3] * 2
    assert table.groupby("seed")["value"].sum().tolist() == [300, 300]
    assert table["value"].tolist()[:4] == class_counts(setting, 0).sum(1).tolist()


@pytest.mark.parametrize("accuracies, share, wanted", [
    ([10, 20, 60, 90], 0.5, 75), ([10, 20, 60, 90], 0.25, 90), ([10, 20, 60, 90], 0.01, 90),
    ([10, 20, 60, None], 0.5, 60), ([10, 20, 60, 90], 1.0, 45),
])  # fmt: skip
def test_late_is_the_mean_of_the_last_rounds(accuracies, share, wanted):
    """Half of four rounds are the third and the fourth; at least the last."""
    table = late(made(accuracies), share)
    assert table["value"].tolist() == [wanted] and set(table["measure"]) == {"late accuracy"}


def test_late_counts_rounds_that_were_planned():
    """Diverged after two of eight rounds: it never got to the second half."""
    assert isnan(late(made([10, 30], rounds=8), 0.5)["value"].item())


def several(seen):
    """Runs from {(method, alpha): accuracies of seeds 0, 1, ...}."""
    return [
        (
            SimpleNamespace(tags={"alpha": alpha}, label=name, tuned=f"rho {alpha}"),
            SimpleNamespace(
                seed=seed, key=f"{name}{seed}", accuracy=a, accuracy_best=a, accuracy_last=1, accuracy_last_ten=2
            ),
        )
        for (name, alpha), accuracies in seen.items()
        for seed, a in enumerate(accuracies)
    ]


def test_the_best_of_several_stands_under_their_common_name():
    """At 0.1 X has a mean of 50 and Y of 51, though X has the best run; at 0.6 it is X; a run that diverged is last."""
    seen = {("X", 0.1): [90, 10], ("Y", 0.1): [51, 51], ("X", 0.6): [60, 60], ("Y", 0.6): [None, 70], ("Z", 0.1): [99]}
    table = accuracy(several(seen), best_of={"X or Y": ["X", "Y"]})
    best = table[table["method"] == "X or Y"]
    assert best[["alpha", "seed", "value"]].values.tolist() == [[0.1, 0, 51], [0.1, 1, 51], [0.6, 0, 60], [0.6, 1, 60]]
    assert best["key"].tolist() == ["Y0", "Y1", "X0", "X1"]
    assert table["method"].tolist() == [*4 * ["X or Y"], "Z"]


def test_the_best_of_equals_or_of_nobody_is_one_run_or_none():
    table = accuracy(
        several({("X", 0.1): [50], ("Y", 0.1): [50]}), best_of={"X or Y": ["X", "Y"], "V or W": ["V", "W"]}
    )
    assert table["method"].tolist() == ["X or Y"] and table["key"].tolist() == ["X0"]
    lost = accuracy(several({("X", 0.1): [None], ("Y", 0.1): [None]}), best_of={"X or Y": ["X", "Y"]})
    assert lost["method"].tolist() == ["X or Y"] and lost["value"].isna().all()


def test_gains_are_over_the_same_setting_and_seed():
    """X over Y at 0.1: 50 − 30 and 60 − 20; at 0.6 Y was not run with seed 1, and Y itself has no row."""
    seen = {("Y", 0.1): [30, 20], ("X", 0.1): [50, 60], ("Y", 0.6): [10], ("X", 0.6): [15, 99]}
    table = MEASUREMENTS["gained"](several(seen), over="Y")
    assert table[["alpha", "seed", "value"]].fillna(-1).values.tolist() == [
        [0.1, 0, 20], [0.1, 1, 40], [0.6, 0, 5], [0.6, 1, -1]
    ]  # fmt: skip
    assert set(table["method"]) == {"X"} and set(table["measure"]) == {"gain"}


def test_a_measurement_is_registered_where_it_is_written(monkeypatch):
    """The function stays as it is; a name is given once; asking for another name lists those that there are."""
    monkeypatch.setattr("fednb.study.measurements.registry.MEASUREMENTS", known := {})

    @measurement("mine")
    def mine(results):
        return results

    assert known == {"mine": mine} and measurement_named("mine") is mine
    with pytest.raises(ValueError, match="two measurements are called 'mine'"):
        measurement("mine")(accuracy)
    with pytest.raises(UnknownEvidence, match="no evidence 'other'; there is mine"):
        measurement_named("other")


def test_a_new_file_is_all_that_a_measurement_needs(tmp_path):
    """A copy of the package with one more file in measurements/: its name is known."""
    package = Path(fednb.__file__).parent
    shutil.copytree(package, tmp_path / "fednb", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "fednb/study/measurements/new.py").write_text(
        "from fednb.study.measurements.registry import measurement\n"
        '@measurement("brand_new")\ndef brand_new(results):\n    return results\n'
    )
    code = "from fednb.study.measurements.registry import MEASUREMENTS; print(*MEASUREMENTS)"
    known = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert set(known.stdout.split()) == {*MEASUREMENTS, "brand_new"}


@pytest.mark.parametrize("name", sorted(MEASUREMENTS))
def test_a_measurement_says_which_figure_it_is_for(name):
    """In its docstring, or beside the line that registers a function of `metrics`."""
    folder = Path(fednb.__file__).parent / "study/measurements"
    beside = re.findall(
        rf'^measurement\("{name}"\)\(.*\)  # (.+)$', "\n".join(p.read_text() for p in folder.glob("*.py")), re.M
    )
    said = " ".join([getattr(MEASUREMENTS[name], "__doc__", ""), *beside])
    assert re.search(
        r"(FedFFT|SpecGradFilter|FedSCAM|FedWMSAM|FedFSA|notebooks/across/\d|tables of all papers)", said
    ), name
