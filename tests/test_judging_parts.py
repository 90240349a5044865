"""Sentences that say "or", that are about the spread over seeds, or that count some of their comparisons twice."""

from math import log, nan

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import fednb as fn
from fednb.study.claims import BadClaim, Claim
from fednb.study.claims.variances import Spread, Variance

DRAWS = 600
CHANCE = 3 * np.sqrt(0.05 * 0.95 / DRAWS)


def judged(rows, scale="paper", **described):
    claim = Claim(**dict(paper="made", id="c", section="s", says="so", left="A", right="B") | described)
    return fn.verdict(pd.DataFrame(rows), [claim], scale).loc["c"]


def rows(values, alpha=0.1, **more):
    """From {(method, measure): numbers by seed}."""
    return [{"alpha": alpha, "method": method, "seed": seed, "measure": measure, "value": value} | more
            for (method, measure), several in values.items() for seed, value in enumerate(several)]  # fmt: skip


LOW, HIGH, SAME = [1.0, 1.1, 0.9], [5.0, 5.2, 4.9], [1.0, 0.9, 1.1]
EITHER = dict(kind="below", measure="memory", or_measure="traffic")


@pytest.mark.parametrize("memory, traffic, said", [
    ((LOW, HIGH), (HIGH, LOW), "holds"), ((HIGH, LOW), (LOW, HIGH), "holds"), ((LOW, HIGH), (LOW, HIGH), "holds"),
    ((HIGH, LOW), (HIGH, LOW), "does not hold"), ((HIGH, LOW), (LOW, SAME), "not decided"),
])  # fmt: skip
def test_one_of_two_measures_is_enough(memory, traffic, said):
    """Holds by either; fails only where both fail."""
    table = {
        (m, name): v
        for name, both in (("memory", memory), ("traffic", traffic))
        for m, v in zip("AB", both, strict=True)
    }
    seen = judged(rows(table), **EITHER)
    assert seen["verdict"] == said and "memory or traffic of A is below" in seen["rule"]
    assert (
        judged(rows(table), **EITHER | dict(by_construction=True))["verdict"]
        == (f"by construction: {'holds' if said == 'holds' else 'does not hold'}")
        or said == "not decided"
    )


def test_what_an_or_rests_on_is_the_part_that_holds():
    table = rows({("A", "memory"): HIGH, ("B", "memory"): LOW, ("A", "traffic"): LOW, ("B", "traffic"): HIGH})
    seen = judged(table, **EITHER)
    assert seen["rests_on"] == "all traffic" and seen["effect"] == pytest.approx(np.mean(HIGH) - np.mean(LOW))
    assert "traffic" in seen["ours"] and "memory" not in seen["ours"]


def test_a_part_that_was_not_measured_may_be_the_one_that_holds():
    """Without traffic a lost memory refutes nothing, and one that wins is tested as one of two."""
    assert judged(rows({("A", "memory"): HIGH, ("B", "memory"): LOW}), **EITHER)["verdict"] == "not decided"
    assert judged(rows({("A", "memory"): LOW, ("B", "memory"): HIGH}), **EITHER)["verdict"] == "holds"


def test_parts_are_corrected_and_keep_their_own_noise():
    """p = 0.05 for one part alone (t = 2.92 with 2 degrees of freedom) is 0.1 for one of two."""
    just = np.array([-1.0, 0.0, 1.0]) + 3.0 / np.sqrt(3)  # t = 3
    flat = {("A", "traffic"): [0.0, 50.0, -50.0], ("B", "traffic"): [0.0] * 3}
    table = {("A", "memory"): [0.0] * 3, ("B", "memory"): just}
    assert judged(rows(table), kind="below", measure="memory")["verdict"] == "holds"
    assert judged(rows(table | flat), **EITHER)["verdict"] == "not decided"
    table["B", "memory"] = just + 3.0 / np.sqrt(3)  # t = 6: p = 0.013
    assert judged(rows(table | flat), **EITHER)["verdict"] == "holds"


def test_an_or_of_a_kind_that_chooses_already_is_refused():
    with pytest.raises(BadClaim, match="peaks_inside has no `or_measure`"):
        judged([*rows({("A", "memory"): LOW})], kind="peaks_inside", right=(), along="rho", or_measure="traffic")


def scattered(a, b, n, settings, rng):
    return [row for s in range(settings) for row in rows(
        {("A", "accuracy"): a * rng.normal(size=n), ("B", "accuracy"): b * rng.normal(size=n)}, s)]  # fmt: skip


def test_spreads_of_three_seeds_in_one_setting_decide_nothing():
    table = rows({("A", "accuracy"): [1.0, 1.001, 1.002], ("B", "accuracy"): [0.0, 50.0, 100.0]})
    assert judged(table, kind="spread_below")["verdict"] == "not decided"
    assert judged(table, kind="spread_at_most", right=(), tolerance=9.0)["verdict"] == "not decided"


@pytest.mark.parametrize("a, b, n, settings, said", [
    (1, 40, 5, 1, "holds"), (40, 1, 5, 1, "does not hold"), (1, 1, 5, 1, "not decided"),
    (1, 2.5, 3, 12, "holds on average"), (2.5, 1, 3, 12, "does not hold"), (1, 1, 3, 12, "not decided"),
])  # fmt: skip
def test_spreads_over_seeds(a, b, n, settings, said):
    table = scattered(a, b, n, settings, np.random.default_rng(3))
    assert judged(table, kind="spread_below")["verdict"] == said
    assert judged(table, kind="spread_not_above")["verdict"] == said


def test_a_spread_by_hand():
    """Deviations 1 and 6 of five seeds: F = 36 with (4, 4) degrees of freedom, and the interval of its root."""
    at = np.array([-1.0, 0.0, 0.0, 0.0, 1.0]) * np.sqrt(2)
    seen = judged(rows({("A", "accuracy"): 7 + at, ("B", "accuracy"): 3 + 6 * at}), kind="spread_below")
    edge = np.sqrt(stats.f(4, 4).ppf(0.95))
    assert seen["verdict"] == "holds" and (seen["effect"], seen["bound"]) == (pytest.approx(6), 1)
    assert (seen["low"], seen["high"]) == (pytest.approx(6 / edge), pytest.approx(6 * edge))
    assert seen["ours"] == f"all: sd 1 against sd 6: 6x [{6 / edge:.3g}, {6 * edge:.3g}]"
    spread = Spread(2.0, Variance.of([at]))
    assert spread.p_smaller(0.0) == pytest.approx(stats.chi2(4).cdf(4 / 4.0)) and spread.log == pytest.approx(log(2))
    assert spread.p_larger(0.0) == pytest.approx(1 - stats.chi2(4).cdf(4 / 4.0))


def test_one_printed_number_of_each_has_no_spread():
    """The paper's setting is known from it, and nothing that ours could be a multiple of."""
    at = np.array([-1.0, 0.0, 0.0, 0.0, 1.0])
    printed = pd.DataFrame(rows({("A", "accuracy"): [65.0], ("B", "accuracy"): [52.0]})).assign(seed="printed")
    table = rows({("A", "accuracy"): 7 + at, ("B", "accuracy"): 3 + 6 * at})
    seen = judged(table, kind="spread_below", printed=printed)
    assert seen["paper"] == "no spread printed" and np.isnan([seen["printed"], seen["ratio"]]).all()
    assert seen["verdict"] == "holds" and seen["settings_claimed"] == 1


@pytest.mark.parametrize("n", [3, 5])
@pytest.mark.parametrize("settings", [1, 6, 12])
def test_spreads_err_in_five_percent(n, settings):
    """Two that scatter alike, by other amounts in each setting, and one that scatters as much as is allowed."""
    rng = np.random.default_rng(0)
    both = rng.normal(size=(DRAWS, 2, settings, n)) * rng.choice([1.0, 5.0], size=(DRAWS, 1, settings, 1))
    alone = rng.normal(size=(DRAWS, 1, settings, n))
    for made, most in ((both, 0.0), (alone, 1.0)):
        spreads = [Spread(most, *map(Variance.of, each)) for each in made]
        p = np.array([[spread.p_smaller(0.0), spread.p_larger(0.0)] for spread in spreads])
        assert ((p <= 0.05).mean(0) <= 0.05 + CHANCE).all() and ((p <= 0.05).mean(0) >= 0.05 - CHANCE).all()


def test_a_name_that_stands_twice_on_the_left_makes_two_comparisons():
    """A is above B and below C; the pairs must not be averaged."""
    table = rows({("A", "accuracy"): SAME, ("B", "accuracy"): [-4.0, -4.1, -3.9], ("C", "accuracy"): HIGH})
    seen = judged(table, kind="each_above", left=["A", "A"], right=["B", "C"])
    assert (seen["verdict"], seen["n"], seen["rests_on"]) == ("does not hold", 3, "all A − C")
    assert judged(table, kind="each_above", left=["A", "A"], right=["B", "B"])["n"] == 3
    assert judged(table, kind="above", left=["A", "A"], right=["B", "B"])["n"] == 3


def test_a_trend_over_two_levels_is_one_comparison():
    """A gain that falls by 2.2 sd: t = -3.8 has p = 0.031, which would be 0.062 if the step counted as well."""
    fall = np.array([-1.0, 0.0, 1.0]) - 2.2
    table = [*rows({("A", "accuracy"): [0.0] * 3, ("B", "accuracy"): [0.0] * 3}, 0.1),
             *rows({("A", "accuracy"): fall, ("B", "accuracy"): [0.0] * 3}, 0.6)]  # fmt: skip
    assert judged(table, kind="gain_grows", along="alpha")["verdict"] == "does not hold"


def test_nobody_who_gets_to_a_target_decides_nothing():
    table = rows({(m, "rounds"): [nan] * 3 for m in "AB"}, end=100)
    assert judged(table, kind="below", measure="rounds")["verdict"] == "not decided (nobody gets to the target)"
    table = rows({("A", "rounds"): [60.0, 61.0, 62.0], ("B", "rounds"): [nan] * 3}, end=200)
    seen = judged(table, kind="below", measure="rounds")
    assert seen["verdict"] == "holds" and seen["effect"] == pytest.approx(201 / 61, rel=1e-3)
    share = rows({("A", "relative_comm"): [0.30, 0.31, 0.32], ("B", "relative_comm"): [nan] * 3}, end=200)
    seen = judged(share, kind="below", measure="relative_comm")  # B has sent what FedAvg sends, and a round more
    assert seen["verdict"] == "holds" and seen["effect"] == pytest.approx((201 / 200) / 0.31, rel=1e-3)


def test_a_name_on_both_sides_is_refused():
    with pytest.raises(BadClaim, match="'B' is on both sides; left and right must differ"):
        judged(rows({("A", "accuracy"): LOW, ("B", "accuracy"): HIGH}), kind="above", left=["A", "B"], right="B")
