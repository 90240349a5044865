"""Rounds, traffic and seconds to a target, from histories that are written out."""

from math import isnan, nan
from types import SimpleNamespace

import pandas as pd
import pytest

import fednb as fn
from fednb.metrics.cost import NoTarget, relative_communication, rounds_to, seconds_per_round, to_target


def history(*accuracies, seconds=None):
    return [
        {"round": t, "accuracy": a, "seconds": s}
        for t, (a, s) in enumerate(zip(accuracies, seconds or [1.0] * len(accuracies), strict=True))
    ]


SEEN = history(10.0, None, 40.0, 39.0, 55.0, nan)


@pytest.mark.parametrize("target, rounds", [(5, 1), (10, 1), (10.1, 3), (40, 3), (40.1, 5), (55, 5), (55.1, None)])
def test_rounds_are_counted_from_one_to_the_first_that_reaches_it(target, rounds):
    """The first round is t = 0; reaching is enough, passing not needed; what was not evaluated reaches nothing."""
    assert rounds_to(SEEN, target) == rounds
    assert rounds_to(pd.DataFrame(SEEN), target) == rounds
    assert rounds_to(SimpleNamespace(rows=SEEN), target) == rounds


def test_tuning_after_the_last_round_is_no_round():
    rows = [{**row, "tuned": 0} for row in history(10.0, 20.0, seconds=[2.0, 4.0])]
    rows.append({"round": 2, "accuracy": 90.0, "seconds": 99.0, "tuned": 1})
    assert rounds_to(rows, 50) is None and seconds_per_round(rows) == 3.0


@pytest.mark.parametrize("rounds, of, traffic, printed", [
    (465, 800, 1, 0.58),
    (718, 800, 1, 0.90),
    (312, 800, 2, 0.78),
])  # fmt: skip
def test_relative_communication_as_printed(rounds, of, traffic, printed):
    """FedFFT Table 4: FedSAM at alpha 0.6 and 0.1, and FedSMOO, which sends twice as much."""
    assert round(relative_communication(rounds, of, traffic), 2) == printed


def test_never_costs_nan():
    assert isnan(relative_communication(None, 800))


def test_seconds_are_the_median():
    """The first round loads and compiles."""
    assert seconds_per_round(history(1.0, 2.0, 3.0, seconds=[60.0, 2.0, 2.5])) == 2.5


class Made:
    """FedAvg and FedSMOO at two alphas, 4 rounds each; at alpha 0.6 FedSMOO stays below FedAvg."""

    def __iter__(self):
        seen = {
            (0.1, "FedAvg"): [10, 20, 50, 45], (0.1, "FedSMOO"): [30, 50, 60, 60],
            (0.6, "FedAvg"): [20, 40, 60, 80], (0.6, "FedSMOO"): [20, 30, 40, 50],
        }  # fmt: skip
        for (alpha, name), accuracies in seen.items():
            about = {"device_name": "abacus", "engine": "loop"}
            run = dict(method=fn.method(name), seed=1, key="k", rows=history(*accuracies, seconds=[9, 3, 3, 3]),
                       about=about, setting=SimpleNamespace(rounds=4), accuracy_best=max(accuracies))  # fmt: skip
            yield SimpleNamespace(tags={"alpha": alpha}, label=name), SimpleNamespace(**run)


def wide(table):
    return table.pivot(index=["alpha", "method"], columns="measure", values="value")


def test_targets_are_fedavgs_own_in_the_same_setting():
    """At 0.1 the target is 50, after 3 rounds, 3/4 of FedAvg's traffic; FedSMOO has it after 2, which cost 4 of 4."""
    table = to_target(Made())
    assert table.groupby("alpha")["target"].unique().map(list).to_dict() == {0.1: [50], 0.6: [80]}
    assert set(table["device"]) == {"abacus"} and len(table) == 4 * 5
    cells = wide(table)
    columns = ["rounds", "relative_comm", "relative_passes", "seconds_per_round", "seconds_total"]
    assert cells.loc[(0.1, "FedAvg"), columns].tolist() == [3, 0.75, 0.75, 3, 9]
    assert cells.loc[(0.1, "FedSMOO"), columns].tolist() == [2, 1.0, 1.0, 3, 6]
    never = cells.loc[(0.6, "FedSMOO")]
    assert never[["rounds", "relative_comm", "seconds_total"]].isna().all() and never["seconds_per_round"] == 3


def test_passes_are_counted_apart_from_traffic():
    """FedSAM sends what FedAvg sends and looks twice a step: 2 of 4 rounds are half the traffic and all the passes."""
    ours = [(cell, run) for cell, run in Made() if cell.tags["alpha"] == 0.1]
    ours[1][1].method = fn.method("FedSAM")
    needs = wide(to_target(ours)).loc[(0.1, "FedSMOO")]
    assert needs[["rounds", "relative_comm", "relative_passes"]].tolist() == [2, 0.5, 1.0]


class Swept(Made):
    """The same with a sweep that FedAvg has no part in, and the paper's name for a method."""

    def __iter__(self):
        for cell, run in super().__iter__():
            swept = {"rho": 0.1} if run.method.name != "FedAvg" else {}
            yield SimpleNamespace(tags=cell.tags | swept, label=f"{cell.label} (ours)"), run


def test_a_method_outside_the_sweep_is_the_target_of_those_inside():
    """By the method's own name or the paper's; rows have the paper's."""
    for target in ("FedAvg's best", "fedavg (ours)'s best"):
        table = to_target(Swept(), target)
        assert table[table["alpha"] == 0.1]["target"].unique().tolist() == [50]
        assert set(table["method"]) == {"FedAvg (ours)", "FedSMOO (ours)"}


def test_a_number_is_a_target_for_all():
    """SpecGradFilter Table VII: 57 percent on CIFAR-10, whatever FedAvg does."""
    cells = wide(to_target(Made(), 50))["rounds"]
    assert cells.tolist() == [3, 2, 3, 4]


class Aimed(Made):
    """The same, with a target in the case of alpha 0.6."""

    def __iter__(self):
        for cell, run in super().__iter__():
            aim = {"target": 40.0} if cell.tags["alpha"] == 0.6 else {}
            yield SimpleNamespace(tags=cell.tags | aim, label=cell.label), run


def test_a_case_may_have_a_target_of_its_own():
    """At 0.6 both must reach 40, after 2 and 3 rounds; at 0.1 FedAvg's best, as without it."""
    table = to_target(Aimed())
    assert table.groupby("alpha")["target"].unique().map(list).to_dict() == {0.1: [50], 0.6: [40]}
    assert wide(table)["rounds"].tolist() == [3, 2, 2, 3]


@pytest.mark.parametrize("target, said", [
    ("FedDyn's best", r"no run of FedDyn with \{'alpha': 0.1\} and seed 1; put it into the grid"),
    ("the best", "must be a number of percent, or a method's"),
])  # fmt: skip
def test_targets_that_are_not_there_are_refused(target, said):
    with pytest.raises(NoTarget, match=said):
        to_target(Made(), target)


def test_the_public_name():
    assert fn.to_target is to_target
