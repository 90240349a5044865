"""Rounds, traffic and seconds to a target, from histories that are written out."""

from math import isnan, nan
from types import SimpleNamespace

import pandas as pd
import pytest

import fednb as fn
from fednb.metrics.cost import (
    NoTarget,
    per_round,
    relative_communication,
    rounds_to,
    seconds_per_round,
    to_target,
    to_targets,
)


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
    assert set(table["device"]) == {"abacus"} and set(table["end"]) == {4} and len(table) == 4 * 5
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


class Counted(Made):
    """The runs of alpha 0.1, of two clients each in 10 gradients a round, 20 with two looks a step; at some scale."""

    def __init__(self, scale):
        self.grid = SimpleNamespace(scale=scale)

    def __iter__(self):
        for cell, run in super().__iter__():
            passes = 2 if cell.label == "FedSMOO" else 1
            run.rows = [{**row, "clients": 2, "gradient_evaluations": 10 * passes} for row in run.rows]
            if cell.tags["alpha"] == 0.1:
                yield cell, run


def by_accuracy(table, measure):
    mine = table[table["measure"] == measure]
    return mine.pivot(index="method", columns="accuracy", values="value")


def test_several_targets_as_printed_at_paper_scale():
    """FedAvg: 10, 20, 50, 45; FedSMOO: 30, 50, 60, 60. 0.3 is 30 percent; nobody has 70."""
    table = to_targets(Counted("paper"), [0.3, 0.5, 0.7], best=0.25)
    rounds, gradients = by_accuracy(table, "rounds"), by_accuracy(table, "gradients")
    assert rounds.loc["FedAvg", [0.3, 0.5]].tolist() == [3, 3] and rounds.loc["FedSMOO", [0.3, 0.5]].tolist() == [1, 2]
    assert gradients.loc["FedAvg", [0.3, 0.5]].tolist() == [30, 30]
    assert gradients.loc["FedSMOO", [0.3, 0.5]].tolist() == [20, 40]
    assert rounds[0.7].isna().all() and gradients[0.7].isna().all()


def test_several_targets_as_shares_of_fedavgs_best_at_smaller_scales():
    """Where the paper's FedAvg has 0.75: 0.60 is 0.8 of it, here 0.8 of 50 = 40; 0.90 is 1.2 of it, here 60."""
    table = to_targets(Counted("laptop"), [0.60, 0.75, 0.90], best=0.75)
    assert table.groupby("accuracy")["target"].unique().map(lambda x: x.round(9).tolist()).to_dict() == {
        0.60: [40], 0.75: [50], 0.90: [60]
    }  # fmt: skip
    rounds = by_accuracy(table, "rounds")
    assert rounds.loc["FedSMOO"].tolist() == [2, 2, 3] and rounds.loc["FedAvg", [0.60, 0.75]].tolist() == [3, 3]
    assert isnan(rounds.loc["FedAvg", 0.90])


def test_a_runs_own_costs_have_no_target():
    """Rounds of 9, 3, 3 and 3 seconds for two clients: 1.5 a client; FedSMOO looks twice a step."""
    table = to_targets(Counted("smoke"), [0.5], best=0.5)
    own = table[table["accuracy"].isna()].pivot(index="method", columns="measure", values="value")
    assert own["client_seconds_per_round"].tolist() == [1.5, 1.5]
    assert own["gradients_per_step"].to_dict() == {"FedAvg": 1, "FedSMOO": 2}


class Spent:
    """FedSAM and FedLESAM of seeds 1 and 2 at two alphas, two rounds each; FedLESAM is not run at alpha 0.6."""

    def __iter__(self):
        seconds = {(0.1, "FedSAM"): [4, 6], (0.1, "FedLESAM"): [3, 3], (0.6, "FedSAM"): [9, 9]}
        for (alpha, name), each in seconds.items():
            for seed in (1, 2):
                rows = [
                    {"round": t, "accuracy": 1.0, "seconds": s * seed**2 if name == "FedSAM" else s * seed,
                     "gradient_evaluations": 10 * (t + 1), "bytes_down": 100, "bytes_up": 20 * t}
                    for t, s in enumerate(each)
                ]  # fmt: skip
                rows.append(rows[-1] | {"seconds": 99, "gradient_evaluations": 999, "bytes_up": 999, "tuned": 1})
                about = {"device_name": "abacus", "engine": "loop"}
                run = SimpleNamespace(method=fn.method(name), seed=seed, key=f"{name}{seed}", rows=rows, about=about)
                yield SimpleNamespace(tags={"alpha": alpha}, label=name), run


def spent(measure, **how):
    table = per_round(Spent(), **how)
    mine = table[table["measure"] == measure]
    return {(alpha, name, seed): v for alpha, name, seed, v in mine[["alpha", "method", "seed", "value"]].to_numpy()}


def test_what_a_round_costs_is_counted_and_timed():
    """Gradients (10 + 20) / 2, bytes (100 + 120) / 2; FedLESAM keeps the model it last received. Tuning is no round."""
    assert set(spent("gradients_per_round").values()) == {15} and set(spent("bytes_per_round").values()) == {110}
    assert spent("seconds_per_round")[0.1, "FedSAM", 1] == 5 and spent("seconds_per_round")[0.6, "FedSAM", 2] == 36
    kept = spent("kept_per_client")
    assert kept[0.1, "FedSAM", 1] == 0 and kept[0.1, "FedLESAM", 1] == 1 and len(kept) == 6


def test_seconds_are_compared_in_the_same_setting_with_the_same_seed():
    """Seed 1: 3 against 5 seconds, 3/5 − 1 = −0.4; seed 2: 6 against 20, −0.7. At alpha 0.6 there is one alone."""
    found = spent("relative_speed", pairs=[["FedSAM", "FedLESAM"]])
    assert found == {
        (0.1, "FedSAM vs FedLESAM", 1): pytest.approx(-0.4), (0.1, "FedSAM vs FedLESAM", 2): pytest.approx(-0.7)
    }  # fmt: skip
    assert spent("relative_speed") == {}


def test_twelve_percent_is_what_the_slower_takes_longer():
    """FedLESAM 112 seconds, FedSCAM 100: 0.12, as FedSCAM prints it."""

    def one(name, s):
        rows = [{"round": 0, "seconds": s, "gradient_evaluations": 1, "bytes_down": 1, "bytes_up": 1}]
        about = {"device_name": "abacus", "engine": "loop"}
        run = SimpleNamespace(method=fn.method(name), seed=0, key=name, rows=rows, about=about)
        return SimpleNamespace(tags={}, label=name), run

    table = per_round([one("FedSCAM", 100), one("FedLESAM", 112)], pairs=[["FedSCAM", "FedLESAM"]])
    assert table.query("measure == 'relative_speed'")["value"].tolist() == [pytest.approx(0.12)]


@pytest.mark.parametrize(
    "device, times", [("cuda:0", {"FedSCAM": 3}), ("cpu", {"FedAvg": 1, "FedSAM": 2, "FedSCAM": 3})]
)
def test_runs_that_shared_a_gpu_have_no_seconds(device, times):
    """FedAvg from 10:00 to 10:05 beside FedSAM from 10:04 on; FedSCAM begins when FedSAM ends. Counts stay."""

    def one(name, s, began, ended):
        rows = [{"round": 0, "seconds": s, "gradient_evaluations": 1, "bytes_down": 1, "bytes_up": 1}]
        about = {"device": device, "device_name": "abacus", "engine": "loop", "started": began, "ended": ended}
        run = SimpleNamespace(method=fn.method(name), seed=0, key=name, rows=rows, about=about)
        return SimpleNamespace(tags={}, label=name), run

    made = [one("FedAvg", 1, "10:00", "10:05"), one("FedSAM", 2, "10:04", "10:09"), one("FedSCAM", 3, "10:09", "10:12")]
    table = per_round(made)
    assert table.query("measure == 'seconds_per_round'").set_index("method")["value"].to_dict() == times
    assert len(table.query("measure == 'gradients_per_round'")) == 3
