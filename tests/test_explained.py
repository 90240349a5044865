"""Shares of a gain: the ratio and Fieller's interval by hand, what is unbounded, and seeds that are missing."""

from math import inf, isnan
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

import fednb as fn
from fednb import plots
from fednb.study.claims.intervals import ratio_bounds
from fednb.study.measurements.explained import OF_A_SEED, SHARE, NothingToShare, shares_of
from fednb.study.measurements.registry import MEASUREMENTS
from fednb.study.paper import papers

T = 2.919986  # the 95% quantile of t with 2 degrees of freedom


def array(*numbers):
    return np.array(numbers, float)


def gains(**methods):
    """A table of gains from {method: gains of seeds 0, 1, ...}; None where a seed was not run."""
    rows = [
        {"method": method, "seed": seed, "measure": "gain", "value": value}
        for method, values in methods.items() for seed, value in enumerate(values) if value is not None
    ]  # fmt: skip
    return pd.DataFrame(rows)


def whole(table, method):
    """The row of all seeds of a method."""
    return table[(table["measure"] == SHARE) & (table["method"] == method)].iloc[0]


def test_over_a_certain_bottom_the_bounds_are_those_of_the_mean():
    """4, 5, 6 over 10: a tenth of 5 ± T / √3 = 5 ± 1.68585."""
    assert ratio_bounds(array(4, 5, 6), array(10, 10, 10)) == pytest.approx((0.331415, 0.668585), abs=1e-6)


def test_fieller_by_hand():
    """(4, 5, 6) over (9, 10, 11): all (co)variances of the means are 1/3, times T² 2.84211 =: q.

    (5 − 10 r)² = q (1 − r)², so 5 − 10 r = ±√q (1 − r), √q = 1.685855: r = (5 ∓ √q) / (10 ∓ √q).
    """
    q = T / 3**0.5
    expected = ((5 - q) / (10 - q), (5 + q) / (10 + q))
    assert ratio_bounds(array(4, 5, 6), array(9, 10, 11)) == pytest.approx(expected, abs=1e-6)


def test_at_both_bounds_the_t_test_is_at_its_level():
    top, bottom = array(3.52, 5.96, 3.27), array(21.94, 20.70, 20.99)
    for r, sign in zip(ratio_bounds(top, bottom), (1, -1), strict=True):
        left = top - r * bottom
        assert left.mean() / (left.std(ddof=1) / 3**0.5) == pytest.approx(sign * T, abs=1e-5)


def test_what_has_no_spread_has_no_width():
    assert ratio_bounds(array(21, 20, 22), array(21, 20, 22)) == pytest.approx((1, 1))
    assert ratio_bounds(array(1, 1, 1), array(4, 4, 4)) == pytest.approx((0.25, 0.25))


@pytest.mark.parametrize("bottom", [(-1, 1, 3), (1, 2, 12), (-9, -10, -11), (0, 0, 0), (10,), ()])
def test_unbounded_where_the_bottom_is_not_clearly_above_zero(bottom):
    """A mean of 1 or 5 with a standard error of 1.15 or 3.5; a loss; nothing; fewer than two seeds."""
    assert ratio_bounds(array(*range(len(bottom))), array(*bottom)) == (-inf, inf)


def test_the_interval_covers_as_often_as_it_says():
    """Gains of 5 and 10 with a common error of all runs with a seed; the ends err in 5% of cases each."""
    rng = np.random.default_rng(0)
    shared, own, other = rng.normal(size=(3, 4000, 3))
    ends = np.array([ratio_bounds(5 + a, 10 + b) for a, b in zip(shared + own, shared + other, strict=True)])
    assert np.mean(ends[:, 0] > 0.5) == pytest.approx(0.05, abs=0.012)
    assert np.mean(ends[:, 1] < 0.5) == pytest.approx(0.05, abs=0.012)


def test_the_lower_bound_says_what_the_claim_about_times_says():
    """ "At least 80% of the gain" is the rule a ≤ 1.25 b: it holds where the lower bound of b / a is 80% or more."""
    for other in (array(19, 18, 20), array(18, 16, 20)):
        table = gains(filter=[21.0, 20.0, 22.0], other=other)
        claim = fn.Claim("mine", "most", "s", "most of it", "at_most_times", "gain", 1.25, "filter", "other")
        holds = fn.verdict(table, claim, "paper")["verdict"].item() == "holds"
        assert holds == (whole(shares_of(table, "filter"), "other")["low"] >= 80)


def test_shares_by_hand():
    """Mean gains 10 and 5: half, 40% and 60% of it with single seeds; the filter's share of its own gain is all."""
    table = shares_of(gains(filter=[10.0, 10.0, 10.0], other=[4.0, 5.0, 6.0]), "filter")
    seeds = table[(table["measure"] == OF_A_SEED) & (table["method"] == "other")]
    assert seeds[["seed", "value"]].values.tolist() == [[0, 40], [1, 50], [2, 60]]
    row = whole(table, "other")
    assert row[["seed", "value", "n", "gain"]].tolist() == ["all", 50, 3, 5]
    assert row[["low", "high"]].tolist() == pytest.approx([33.1415, 66.8585], abs=1e-4)
    assert row[["gain_low", "gain_high"]].tolist() == pytest.approx([3.31415, 6.68585], abs=1e-4)
    assert whole(table, "filter")[["value", "low", "high"]].tolist() == pytest.approx([100, 100, 100])


def test_only_seeds_that_both_have_count():
    """Of 4, 5 and 90 the last has no partner; one common seed has a share and no bounds; none has no row."""
    table = shares_of(gains(filter=[10.0, 10.0], other=[4.0, 5.0, 90.0], late=[None, 5.0], alone=[None, None, 7.0]),
                      "filter")  # fmt: skip
    assert whole(table, "other")[["value", "n"]].tolist() == [45, 2]
    assert whole(table, "late")[["value", "low", "high", "n"]].tolist() == [50, -inf, inf, 1]
    assert "alone" not in set(table["method"])


def test_no_share_of_nothing_and_none_of_who_diverged():
    lost = whole(shares_of(gains(filter=[-1.0, -2.0], other=[4.0, 5.0]), "filter"), "other")
    assert isnan(lost["value"]) and lost[["low", "high", "gain"]].tolist() == [-inf, inf, 4.5]
    gone = whole(shares_of(gains(filter=[10.0, 9.0], other=[4.0, np.nan]), "filter"), "other")
    assert gone[["value", "low", "high", "gain"]].isna().all() and gone["n"] == 2
    with pytest.raises(NothingToShare, match="no gain of 'filter' is there"):
        shares_of(gains(other=[4.0]), "filter")


def test_settings_are_kept_apart():
    one, two = gains(filter=[10.0], other=[5.0]).assign(model="a"), gains(filter=[10.0], other=[9.0]).assign(model="b")
    only = gains(other=[1.0]).assign(model="c")
    table = shares_of(pd.concat([one, two, only]), "filter")
    others = table[(table["method"] == "other") & (table["measure"] == SHARE)]
    assert others[["model", "value"]].values.tolist() == [["a", 50], ["b", 90]]


def test_the_measurement_begins_with_accuracies():
    """60, 80 and 70 percent: gains of 20 and 10 over the first."""
    runs = [
        (SimpleNamespace(tags={"alpha": 0.1}, label=name, tuned=""),
         SimpleNamespace(seed=0, key=name, accuracy=a, accuracy_best=a, accuracy_last=a, accuracy_last_ten=a))
        for name, a in (("none", 60), ("filter", 80), ("other", 70))
    ]  # fmt: skip
    table = MEASUREMENTS["explained"](runs, of="filter", over="none")
    assert set(table["method"]) == {"filter", "other"} and whole(table, "other")["value"] == 50


def test_the_figure_has_a_row_for_each_method_and_says_which_was_not_run():
    table = shares_of(gains(filter=[10.0, 10.0, 10.0], other=[4.0, 5.0, 6.0], sole=[3.0]), "filter")
    (ax,) = (figure := plots.shares(table, of="filter", rows=["filter", "other", "sole", "absent"])).axes
    assert [label.get_text() for label in ax.get_yticklabels()] == ["absent", "sole", "other"]
    assert [text.get_text() for text in ax.texts] == ["not run", "30% unbounded, n = 1", "50% [33, 67], n = 3"]
    assert {tuple(line.get_xdata()) for line in ax.lines[:2]} == {(0, 0), (100, 100)}
    dashed = [line for line in ax.lines if line.get_linestyle() == "--"]
    assert [tuple(line.get_ydata()) for line in dashed] == [(1, 1)] and ax.get_xlim()[1] > 100
    assert len(figure.legends) == 1


def test_the_figure_of_no_gain_says_so():
    table = shares_of(gains(filter=[-1.0, -2.0], other=[4.0, 5.0], gone=[1.0, np.nan]), "filter")
    (ax,) = plots.shares(table, of="filter").axes
    assert [text.get_text() for text in ax.texts] == ["diverged", "no gain to share"]


def test_the_runs_of_table_iii_are_runs_of_this_page():
    """One setting, method and seed, one run: strategies and centralisation on CIFAR-10 are found under their keys."""
    ours = {run.key for run in papers("across").grid("explained", "paper").runs()}
    theirs = papers("specgradfilter").grid("table3", "paper").only({"dataset": ["CIFAR-10"]}).runs()
    assert len(theirs) == 24 and {run.key for run in theirs} <= ours and len(ours) == 45
