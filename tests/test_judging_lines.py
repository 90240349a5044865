"""Sentences about a whole line, all rivals or all settings, of which a part was run."""

from dataclasses import replace

import pandas as pd
import pytest

import fednb as fn
from fednb.study.claims import BadClaim, Claim

RHOS = (0.05, 0.1, 0.15, 0.2)
FALLS = {0.05: 80.0, 0.1: 75.0, 0.15: 70.0, 0.2: 60.0}


def rows(values, method="A", seeds=range(3), **more):
    """A number at each radius, hardly another with each seed."""
    return [{"method": method, "rho": rho, "seed": seed, "measure": "accuracy", "value": value + 0.01 * seed} | more
            for rho, value in values.items() for seed in seeds]  # fmt: skip


def planned(*methods, rhos=RHOS, **more):
    return pd.DataFrame([{"method": method, "rho": rho} | more for method in methods for rho in rhos])


def said(table, kind, asked, **described):
    claim = Claim(paper="made", id="c", section="s", says="so", kind=kind, along="rho", left="A", **described)
    return fn.verdict(pd.DataFrame(table), [replace(claim, planned=asked)], "paper").loc["c", "verdict"]


def part(of, *rhos):
    return {rho: of[rho] for rho in rhos}


def test_the_whole_line_is_judged_as_without_a_plan():
    for asked in (None, planned("A"), planned("A", "B"), planned("A").assign(alpha=0.1)):
        assert said(rows(FALLS), "falls_along", asked, tolerance=2.0) == "holds"
        assert said(rows(FALLS), "rises_along", asked, tolerance=2.0) == "does not hold"


def test_a_part_of_the_line_holds_where_run_and_cannot_fail():
    two = rows(part(FALLS, 0.05, 0.1))
    assert said(two, "falls_along", planned("A"), tolerance=2.0) == "holds where run (2 of 4 values of rho)"
    assert said(two, "rises_along", planned("A"), tolerance=2.0) == "not decided (2 of 4 values of rho)"


def test_one_place_where_it_fails_is_enough_for_what_is_said_of_every_place():
    """A gains 1 at 0.05 and loses 1 at 0.1; 0.15 and 0.2 cannot mend that, but they could undo a gain."""
    both = {"A": part(FALLS, 0.05, 0.1), "B": {0.05: 79.0, 0.1: 76.0}}
    table = [row for method, values in both.items() for row in rows(values, method)]
    asked = planned("A", "B")
    assert said(table, "gain_positive", asked, right="B") == "does not hold"
    won = [row for row in table if row["rho"] == 0.05]
    assert said(won, "gain_positive", asked, right="B") == "holds where run (1 of 4 values of rho)"
    assert said(won, "gain_positive", asked, right="B", most=0.07) == "holds"  # no other is asked for


def test_a_value_counts_where_all_seeds_have_it():
    steady = [row for method, line in (("A", dict.fromkeys(RHOS, 70.0)), ("B", FALLS)) for row in rows(line, method)]
    fewer = [row for row in steady if row["rho"] < 0.2 or row["seed"] == 0]
    assert said(fewer, "steadiest", planned("A", "B")) == "holds where run (3 of 4 values of rho)"


def test_the_setting_that_lacks_most_is_told_and_one_that_was_not_run_where_none_lacks_anything():
    table = rows(FALLS, dataset="CIFAR-10") + rows(part(FALLS, 0.05, 0.2), dataset="CIFAR-100")
    asked = pd.concat([planned("A", dataset=name) for name in ("CIFAR-10", "CIFAR-100", "EMNIST")])
    assert said(table, "falls_along", asked) == "holds where run (2 of 3 settings; 2 of 4 values of rho)"
    alone = [row for row in table if row["dataset"] == "CIFAR-10"]
    assert said(alone, "falls_along", asked) == "holds where run (1 of 3 settings)"
    only = Claim(paper="made", id="c", section="s", says="so", kind="falls_along", along="rho", left="A",
                 where={"dataset": "CIFAR-10"}, planned=asked)  # fmt: skip
    assert fn.verdict(pd.DataFrame(table), [only], "paper").loc["c", "verdict"] == "holds"


def test_another_method_of_the_plan_that_the_sentence_is_not_about_may_lack_values():
    table = rows(FALLS) + rows(part(FALLS, 0.1), "B")
    assert said(table, "falls_along", planned("A", "B")) == "holds"
    steady = rows(dict.fromkeys(RHOS, 70.0)) + rows(FALLS, "B")
    assert said(steady, "steadiest", planned("A", "B"), tolerance=2.0) == "holds"
    fewer = [row for row in steady if row["rho"] <= 0.15]
    assert said(fewer, "steadiest", planned("A", "B")) == "holds where run (3 of 4 values of rho)"


@pytest.mark.parametrize("scale", ["laptop", "paper"])
def test_what_a_page_plans_is_the_whole_grid(scale):
    """A page with a part of its grids knows what the grid has."""
    page = fn.papers("fedfft").page("table10", scale=scale, only={"rho": [0.1]})
    claim = next(page._planned(claim) for claim in page.claims if claim.id == "table10-stable")
    assert sorted(set(claim.planned["rho"])) == list(RHOS) and {"FedFFT", "FedSAM"} <= set(claim.planned["method"])
    seen = pd.DataFrame(rows({0.1: 70.0}, "FedFFT") + rows({0.1: 71.0}, "FedSAM")).assign(grid="table10")
    assert fn.verdict(seen, [claim], scale).loc["table10-stable", "verdict"] == f"not run at {scale} scale"


def test_the_first_of_all_names_rivals_that_were_run_in_some_of_its_settings():
    """B was run at 0.1 alone; a control of ours is no rival, and B is none where A was not run."""
    values = {("A", 0.1): 80.0, ("A", 0.6): 90.0, ("B", 0.1): 70.0, ("C", 0.1): 60.0, ("C", 0.6): 60.0}
    table = [{"method": method, "alpha": alpha, "seed": seed, "measure": "accuracy", "value": value + 0.01 * seed}
             for (method, alpha), value in values.items() for seed in range(3)]  # fmt: skip
    names = ("A", "B", "C", "D (our control)")
    asked = pd.DataFrame([{"method": name, "alpha": alpha} for name in names for alpha in (0.1, 0.6, 5.0)])
    made = Claim(paper="made", id="c", section="s", says="so", kind="first", left="A")

    def judged(rows, planned):
        return fn.verdict(pd.DataFrame(rows), [replace(made, planned=planned)], "paper").loc["c"]

    assert judged(table, None)["verdict"] == "holds"
    seen = judged(table, asked)
    assert seen["verdict"] == "holds where run (2 of 3 settings; without B in some settings)"
    assert "not run: B in some settings" in seen["ours"]
    assert judged(table, asked[asked["alpha"] != 0.6])["verdict"] == "holds where run (2 of 3 settings)"
    alone = [row for row in table if row["alpha"] == 0.1]
    assert judged(alone, asked)["verdict"] == "holds where run (1 of 3 settings)"
    assert judged(alone, asked[asked["alpha"] == 0.1])["verdict"] == "holds"
    lost = [row | {"value": 50.0} if row["method"] == "A" else row for row in table]
    assert judged(lost, asked)["verdict"] == "does not hold"


def test_the_best_of_all_settings_says_how_many_of_them_were_run():
    asked = planned("A")
    best = dict(id="c", section="s", says="so", kind="best_at", left="A", at="rho 0.05", paper="made", planned=asked)
    some = pd.DataFrame(rows(part(FALLS, 0.05, 0.1)))
    assert fn.verdict(some, [Claim(**best)], "paper").loc["c", "verdict"] == "holds where run (2 of 4 settings)"
    assert fn.verdict(pd.DataFrame(rows(FALLS)), [Claim(**best)], "paper").loc["c", "verdict"] == "holds"
    worse = Claim(**best | {"at": "rho 0.1"})
    assert fn.verdict(some, [worse], "paper").loc["c", "verdict"] == "does not hold"


def test_a_plan_without_methods_is_refused():
    with pytest.raises(BadClaim, match="planned table has no 'method'"):
        said(rows(FALLS), "falls_along", pd.DataFrame({"rho": RHOS}))


def test_bands_grow_with_skew_where_there_are_two_alphas():
    """One alpha alone says nothing; two of three cannot fail, and hold where run."""

    def judged(curves, alphas=(0.1, 0.6, 100.0)):
        table = [{"alpha": alpha, "method": "FedAvg", "seed": seed, "measure": "variance", "band": band, "value": value}
                 for alpha, curve in curves.items() for seed in range(3)
                 for band, value in enumerate([curve[0] + 0.01 * seed, *curve[1:]], 1)]  # fmt: skip
        made = Claim(paper="made", id="c", section="s", says="so", kind="low_band_grows_with_skew", measure="variance",
                     planned=pd.DataFrame({"method": "FedAvg", "alpha": alphas}))  # fmt: skip
        return fn.verdict(pd.DataFrame(table), [made], "paper").loc["c", "verdict"]

    grown = {0.1: [9.0, 1.0], 0.6: [2.0, 1.0]}
    assert judged(grown) == "holds where run (2 of 3 values of alpha)"
    assert judged(grown, (0.1, 0.6)) == "holds"
    assert judged(grown | {0.1: [1.0, 1.0]}) == "not decided (2 of 3 values of alpha)"
    assert judged(grown | {0.1: [1.0, 1.0]}, (0.1, 0.6)) == "does not hold"
    assert judged({0.1: [9.0, 1.0]}) == "not run at paper scale"


def test_being_second_of_two_decides_nothing():
    """Best or second best of A and B is A whatever it has; of A, B and C it is where it is above one of them."""

    def judged(**values):
        table = [{"method": method, "seed": seed, "measure": "accuracy", "value": value + 0.01 * seed}
                 for method, value in values.items() for seed in range(3)]  # fmt: skip
        made = Claim(paper="made", id="c", section="s", says="so", kind="top", left="A", most=2.0)
        return fn.verdict(pd.DataFrame(table), [made], "paper").loc["c", "verdict"]

    assert judged(A=80.0, B=70.0) == judged(A=60.0, B=70.0) == "not decided (too few rivals)"
    assert judged(A=80.0, B=90.0, C=70.0) == "holds"
    assert judged(A=80.0, B=90.0, C=95.0) == "does not hold"


def test_at_least_one_of_several_fails_where_all_were_run():
    """A is below its base. So may be X, or not, as long as nobody has run it."""

    def judged(**values):
        table = [{"method": method, "seed": seed, "measure": "accuracy", "value": value + 0.01 * seed}
                 for method, value in values.items() for seed in range(3)]  # fmt: skip
        made = Claim(paper="made", id="c", section="s", says="so", kind="some_above", left=["A", "X"], right=["B", "C"])
        return fn.verdict(pd.DataFrame(table), [made], "paper").loc["c", "verdict"]

    assert judged(A=60.0, B=70.0) == "not decided (without X, C)"
    assert judged(A=60.0, B=70.0, X=60.0, C=70.0) == "does not hold"
    assert judged(A=80.0, B=70.0) == "holds where run (without X, C)"


SETTINGS = [{"dataset": dataset, "alpha": alpha} for dataset in ("CIFAR-10", "CIFAR-100") for alpha in (0.1, 0.6)]


def above(table, printed=None):
    """The verdict on "A is above B", in settings of which four are to be run."""
    asked = pd.DataFrame([{"method": method} | setting for method in "AB" for setting in SETTINGS])
    claim = Claim(paper="made", id="c", section="s", says="so", kind="above", left="A", right="B", printed=printed)
    return fn.verdict(pd.DataFrame(table), [replace(claim, planned=asked)], "paper").loc["c", "verdict"]


def test_where_nothing_is_printed_the_settings_that_are_to_be_run_are_claimed():
    """One of four: it holds there, or it fails, which is enough; printed settings come first where there are any."""
    ran = [{"method": method, "seed": seed, "measure": "accuracy", "value": value + 0.1 * seed} | SETTINGS[0]
           for method, value in (("A", 80.0), ("B", 75.0)) for seed in range(3)]  # fmt: skip
    assert above(ran) == "holds where run (1 of 4 settings)"
    assert above([row | {"method": "AB"[row["method"] == "A"]} for row in ran]) == "does not hold"
    everywhere = [row | setting for row in ran for setting in SETTINGS]
    assert above(everywhere) == "holds"
    printed = pd.DataFrame([{"method": method, "measure": "accuracy", "value": value} | setting
                            for method, value in (("A", 82.0), ("B", 76.0)) for setting in SETTINGS[:2]])  # fmt: skip
    assert above(ran, printed) == "holds where run (1 of 2 settings)"
    assert above([row for row in everywhere if row["dataset"] == "CIFAR-10"], printed) == "holds"
