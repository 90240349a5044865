"""Claims as rules: each kind on numbers made by hand, the outcomes, and the paper's own numbers beside them."""

from dataclasses import replace
from math import inf, nan

import pandas as pd
import pytest

from fednb.study.claims import RULES, Claim, verdict
from fednb.study.claims.comparison import gathered
from fednb.study.claims.evidence import Evidence
from fednb.study.claims.judging import _in_words

FALLING, RISING = [4, 3, 2, 1], [1, 2, 3, 4]


def claim(kind, tolerance=0.0, measure="variance", printed=None, **more):
    described = dict(id="c", section="fig1", says="so", kind=kind, measure=measure, tolerance=tolerance, **more)
    return Claim.of("made", described, printed)


def judge(made, table):
    """One seed taken for the truth: {setting: (true or false, the numbers of its worst comparison in words)}."""
    evidence = Evidence(gathered([("one", made.seen(table))]), made.spare, certain=True)
    words = dict(zip(evidence.names.values(), _in_words(evidence, []).split("; "), strict=False))
    return {where: (true, words[where].partition(": ")[2]) for where, true in evidence.truth().items()}


def tidy(seen, measure="variance", t=0):
    """Rows from {(alpha, seed): [values of the bands]}."""
    return pd.DataFrame(
        {"alpha": alpha, "method": "FedAvg", "seed": seed, "round": t, "measure": measure, "band": band, "value": value}
        for (alpha, seed), values in seen.items()
        for band, value in enumerate(values, 1)
    )


def outcome(seen, made, scale="laptop"):
    return verdict(tidy(seen), (made,), scale).loc["c", "verdict"]


@pytest.mark.parametrize(
    "kind, tolerance, curve, true, said",
    [
        ("lowest_band_largest", 0.0, [4, 3, 2, 1], True, "1.33x"),
        ("lowest_band_largest", 0.0, [3, 1, 3, 2], True, "1x"),  # at least, not above
        ("lowest_band_largest", 0.0, [3, 1, 3.1, 2], False, "0.968x"),
        ("lowest_band_largest", 0.5, [3, 1, 2, 1], True, "1.5x"),
        ("lowest_band_largest", 0.5, [2.9, 1, 2, 1], False, "1.45x"),
        ("falls_with_band", 0.7, [9, 5, 2, 1], True, "correlation -1"),
        ("falls_with_band", 0.7, [4, 3, 1, 2], True, "correlation -0.8"),  # 1 − 6 (9 + 1 + 4 + 4) / (4 · 15)
        ("falls_with_band", 0.9, [4, 3, 1, 2], False, "correlation -0.8"),
        ("falls_with_band", 0.7, [1, 2, 3, 9], False, "correlation 1"),
    ],
)
def test_claims_about_one_curve(kind, tolerance, curve, true, said):
    """Compared with the largest of the other bands; Spearman's rank correlation 1 − 6 Σd² / (n (n² − 1))."""
    ((_, judged),) = judge(claim(kind, tolerance), tidy({(0.1, 0): curve}).assign(method="FedAvg")).items()
    assert judged[0] is true and said in judged[1]


@pytest.mark.parametrize(
    "skewed, true",
    [([3, 2], True), ([2.4, 2], True), ([2.3, 2], False), ([2, 2], False), ([0.9, 0.5], False)],
)
def test_claims_about_growing_skew(skewed, true):
    """Alpha 0.6 has (1, 1): the first band must grow, and 1.2 times as much as the last: 2.4 against 2, not 2.3."""
    curves = tidy({(0.1, 0): skewed, (0.6, 0): [1, 1]})
    ((where, (found, said)),) = judge(claim("low_band_grows_with_skew", 0.2), curves).items()
    assert found is true and where == "all" and said.startswith(f"first band x{skewed[0]:g}")


def test_bands_are_judged_in_each_data_set_where_skew_varies_too():
    """A grows from (1, 1) to (3, 2), B from (1, 1) to (2, 2): 1.5 times as much as the last band, and 1.0 times."""
    both = [tidy({(0.1, 0): skewed, (0.6, 0): [1, 1]}).assign(dataset=name)
            for name, skewed in (("A", [3, 2]), ("B", [2, 2]))]  # fmt: skip
    table, made = pd.concat(both), claim("low_band_grows_with_skew", 0.2)
    assert made.unfit(table) == ""
    assert {where: true for where, (true, _) in judge(made, table).items()} == {"dataset A": True, "dataset B": False}
    assert len(judge(claim("lowest_band_largest"), table)) == 4
    assert "not along dataset, model" in made.unfit(table.drop(columns="alpha").assign(model=table["value"]))


def test_every_kind_says_its_rule_with_the_tolerance():
    for kind in RULES:
        rule = claim(kind, 0.25, left=["A", "B"], right="C", along="rho", least=1.0, most=2.0).rule
        assert "{" not in rule
        assert "0.25" in rule or kind == "falls_along"


def test_an_unknown_kind_is_refused():
    with pytest.raises(ValueError, match=r"claim c: kind = 'highest', must be one of above, "):
        claim("highest")


def seeds_of(alpha, *curves):
    return {(alpha, seed): curve for seed, curve in enumerate(curves)}


@pytest.mark.parametrize(
    "seen, wanted",
    [
        (seeds_of(0.1, FALLING, FALLING, FALLING) | seeds_of(0.6, FALLING, FALLING, FALLING), "holds"),
        (seeds_of(0.1, FALLING, FALLING, FALLING) | seeds_of(0.6, RISING, RISING, RISING), "does not hold"),
        (seeds_of(0.1, FALLING, FALLING, FALLING) | seeds_of(0.6, FALLING, FALLING, RISING), "not decided"),
        (seeds_of(0.1, FALLING, FALLING) | seeds_of(0.6, FALLING, FALLING), "not decided (fewer than 3 seeds)"),
        (seeds_of(0.1, FALLING, FALLING, FALLING) | seeds_of(0.6, FALLING), "holds where run (1 of 2 settings)"),
        (seeds_of(0.1, RISING, RISING, RISING) | seeds_of(0.6, FALLING), "does not hold"),
    ],
)
def test_outcomes(seen, wanted):
    """In all settings; in one beyond doubt not; seeds that disagree, or fewer than three, decide nothing."""
    for kind in ("falls_with_band", "lowest_band_largest"):
        assert outcome(seen, claim(kind, 0.1), "paper") == wanted


def test_words_of_the_laptop_scale():
    """The numbers that hold at paper scale are seen at laptop scale."""
    seen = {"seen": FALLING, "not seen": RISING}
    for wanted, curve in seen.items():
        assert outcome(seeds_of(0.1, curve, curve, curve), claim("falls_with_band", 0.7)) == wanted
    assert outcome(seeds_of(0.1, FALLING), claim("falls_with_band", 0.7)) == "not clear (fewer than 3 seeds)"


def test_smoke_scale_decides_nothing():
    for curve in (FALLING, RISING):
        assert outcome({(0.1, 0): curve}, claim("falls_with_band", 0.7), "smoke") == "ran (smoke scale decides nothing)"


def test_rounds_are_averaged_and_other_measures_left_aside():
    """Round 0 has (5, 1), round 1 (1, 2): the mean (3, 1.5) falls, as 2 to 1; Std rises and is not asked."""
    parts = [tidy({(0.1, 0): [5, 1]}), tidy({(0.1, 0): [1, 2]}, t=1), tidy({(0.1, 0): [1, 9]}, measure="Std")]
    rows = verdict(pd.concat(parts), (claim("lowest_band_largest"),), "laptop").loc["c"]
    assert (rows["n"], rows["ours"]) == (1, "all: 3, 1.5: 2x")


@pytest.mark.parametrize("broken", [[nan] * 4, [4, nan, 2, 1]])
def test_numbers_that_are_not_there_cannot_make_a_claim_hold(broken):
    """A run that overflowed at alpha 0.1 has not shown that the claim is true "for every alpha"."""
    seen = seeds_of(0.6, FALLING, FALLING, FALLING) | seeds_of(0.1, broken, broken, broken)
    assert outcome(seen, claim("lowest_band_largest"), "paper") == "does not hold"


def scores(seen, seed=0, **columns):
    """Tidy rows from {(method, value of one column): value}."""
    (name,) = columns or ["alpha"]
    return pd.DataFrame(
        {name: at, "method": method, "seed": seed, "measure": "accuracy", "value": value}
        for (method, at), value in seen.items()
    )


def judged(table, kind, tolerance=0.0, **more):
    """Only true or false, by setting."""
    return [true for true, _ in judge(claim(kind, tolerance, "accuracy", **more), table).values()]


PAIR = dict(left="A", right="B")


@pytest.mark.parametrize(
    "kind, tolerance, a, b, true",
    [
        ("above", 0.0, 71, 70, True), ("above", 0.0, 70, 70, False), ("above", 1.0, 71, 70, False),
        ("above", 0.0, nan, 70, False), ("above", 0.0, 70, nan, True), ("above", 0.0, nan, nan, False),
        ("below", 0.0, 69, 70, True), ("below", 0.0, 70, 70, False), ("below", 0.5, 69.6, 70, False),
        ("not_above", 0.0, 70, 70, True), ("not_above", 0.0, 70.1, 70, False), ("not_above", 1.0, 71, 70, True),
        ("not_above", 0.0, 60, 70, True), ("not_above", 0.0, nan, 70, False),
        ("near", 0.5, 70.5, 70, True), ("near", 0.5, 69.4, 70, False), ("near", 0.5, nan, 70, False),
    ],
)  # fmt: skip
def test_pairs(kind, tolerance, a, b, true):
    assert judged(scores({("A", 0.1): a, ("B", 0.1): b}), kind, tolerance, **PAIR) == [true]


def test_pairs_setting_by_setting_and_every_left_with_every_right():
    """A beats B at 0.1 and loses at 0.6; C, which was not run, is not compared."""
    table = scores({("A", 0.1): 3, ("B", 0.1): 2, ("A", 0.6): 1, ("B", 0.6): 2})
    made = claim("above", 0, "accuracy", left=["A", "C"], right="B")
    assert judge(made, table) == {"alpha 0.1": (True, "3 against 2: +1"), "alpha 0.6": (False, "1 against 2: -1")}
    assert {seen.pair for seen in made.seen(table)} == {"A − B"}


def test_each_above_its_own():
    """A beats its own B and X beats Y, though Y beats A; with Y gone X is not compared."""
    seen = {("A", 0.1): 3, ("B", 0.1): 2, ("X", 0.1): 9, ("Y", 0.1): 8}
    pairs = dict(left=["A", "X"], right=["B", "Y"])
    assert judged(scores(seen), "each_above", **pairs) == [True]
    assert judged(scores(seen), "each_above", 1.0, **pairs) == [False]
    assert judged(scores(seen | {("Y", 0.1): 9}), "each_above", **pairs) == [False]
    without = scores({k: v for k, v in seen.items() if k[0] != "Y"})
    assert [each.pair for each in claim("each_above", 0, "accuracy", **pairs).seen(without)] == ["A"]
    with pytest.raises(ValueError, match="shorter"):
        judged(scores(seen), "each_above", left=["A", "X"], right="B")


def test_each_not_above_its_own_by_more():
    """A gains 1 over B and X gains 4 over Y."""
    seen = {("A", 0.1): 3, ("B", 0.1): 2, ("X", 0.1): 9, ("Y", 0.1): 5}
    pairs = dict(left=["A", "X"], right=["B", "Y"])
    assert judged(scores(seen), "each_not_above", 1.0, **pairs) == [False]
    assert judged(scores(seen), "each_not_above", 4.0, **pairs) == [True]


@pytest.mark.parametrize("kind, best, sign", [("first", 3, 1), ("lowest", 1, -1)])
def test_first_and_lowest_of_all(kind, best, sign):
    others = {("B", 0.1): best - sign, ("C", 0.1): best - 2 * sign}
    assert judged(scores({("A", 0.1): best, **others}), kind, left="A") == [True]
    assert judged(scores({("A", 0.1): best, **others}), kind, 1.0, left="A") == [False]
    assert judged(scores({("A", 0.1): best - sign, **others}), kind, left="A") == [False]
    assert judged(scores({("A", 0.1): nan, **others}), kind, left="A") == [False]
    diverged = scores({("A", 0.1): best, ("B", 0.1): nan, ("C", 0.1): best - sign})
    assert judged(diverged, kind, left="A") == [kind == "first"]  # without accuracy B is behind, not above


@pytest.mark.parametrize("own, most, tolerance, true", [
    (4, 1, 0.0, True), (3, 1, 0.0, True), (2.5, 1, 0.0, False), (2.5, 1, 0.5, True), (2.5, 2, 0.0, True),
    (1.5, 2, 0.0, False), (nan, 2, 0.0, False),
])  # fmt: skip
def test_among_the_best(own, most, tolerance, true):
    """B has 3 and C 2: at 2.5 A is second, or on a par if half a point is; D, who diverged, is above nobody."""
    table = scores({("A", 0.1): own, ("B", 0.1): 3, ("C", 0.1): 2, ("D", 0.1): nan})
    assert judged(table, "top", tolerance, left="A", most=most) == [true]


def test_among_the_best_names_who_is_above():
    table = scores({("A", 0.1): 1, ("B", 0.1): 2, ("C", 0.1): 3})
    ((_, (_, said)),) = judge(claim("top", 0, "accuracy", left="A", most=2), table).items()
    assert said == "1, C 3: -2"


def test_best_at_one_setting():
    """A is best at 0.1, next 0.2, 1 behind; B, better everywhere, is not asked; a radius that diverged is behind."""
    table = scores({("A", 0.3): nan, ("A", 0.1): 3, ("A", 0.2): 2, ("B", 0.2): 9}, rho=1)
    found = judge(claim("best_at", 0, "accuracy", left="A", at="rho 0.1"), table)
    assert found == {"all": (True, "rho 0.1 3, rho 0.2 2: +1")}
    assert judged(table, "best_at", 1.0, left="A", at="rho 0.1") == [False]
    assert judged(table, "best_at", left="A", at="rho 0.2") == [False]
    assert judged(table, "best_at", left="A", at="rho 0.3") == [False]
    assert judged(table, "best_at", left="A", at="rho 0.7") == []  # not run at this scale


def test_steadiest_of_all():
    """A goes from 70 to 72 by way of 71, B from 50 to 53; C, run once, is no rival; D diverged."""
    seen = {("A", 5): 72, ("A", 1): 70, ("A", 2): 71, ("B", 1): 50, ("B", 2): 53, ("B", 5): 51, ("C", 1): 9}
    table = scores(seen, epochs=1)
    found = judge(claim("steadiest", 0, "accuracy", left="A", along="epochs"), table)
    assert found == {"all": (True, "2, B 3: +1")}
    assert judged(table, "steadiest", 1.0, left="A", along="epochs") == [False]
    assert judged(table, "steadiest", left="B", along="epochs") == [False]
    diverged = scores(seen | {("D", 1): 1, ("D", 2): nan, ("D", 5): 1}, epochs=1)
    assert judged(diverged, "steadiest", left="D", along="epochs") == [False]
    assert judged(diverged, "steadiest", left="A", along="epochs") == [False]


def test_one_place_has_nothing_that_varies():
    alone = scores({("A", 1): 70, ("B", 1): 50}, epochs=1)
    assert judged(alone, "steadiest", left="A", along="epochs") == []


def test_a_setting_that_lacks_what_others_have_is_named_by_the_rest():
    """Half of FedWMSAM's Table 1 has a beta, the other half a gamma."""
    table = pd.concat([scores({("A", 0.1): 3, ("B", 0.1): 2}, beta=1), scores({("A", 6): 2, ("B", 6): 3}, gamma=1)])
    found = judge(claim("above", 0, "accuracy", **PAIR), table)
    assert {where: true for where, (true, _) in found.items()} == {"beta 0.1": True, "gamma 6": False}


def test_rounds_to_a_target_are_compared_as_logarithms():
    """100 against 110 and 200 rounds are factors of 1.1 and 2; who never gets there comes one round past the latest."""
    seen = scores({("A", 0.1): 100, ("B", 0.1): 110, ("C", 0.1): 200, ("D", 0.1): nan}).assign(measure="rounds")
    made = claim("lowest", 0, "rounds", left="A")
    assert [round(each.d, 4) for each in made.seen(seen)] == [0.0953, 0.6931, 0.6981]  # log 1.1, log 2, log 2.01
    assert judge(made, seen) == {"all": (True, "100, B 110: 1.1x")}
    assert round(made.seen(seen.assign(end=999))[-1].d, 4) == 2.3026  # the table knows the end: log 10
    assert not judge(claim("lowest", 0, "rounds", left="D"), seen)["all"][0]
    assert judge(claim("lowest", 10, "rounds", left="A"), seen)["all"][0] is False  # 100 + 10 is not below 110


def test_where_nobody_reaches_the_target_nothing_is_said():
    nobody = scores({("A", 0.1): nan, ("B", 0.1): nan}).assign(measure="rounds")
    for kind in ("below", "at_most_times", "not_above"):
        assert claim(kind, 1.0, "rounds", **PAIR).seen(nobody) == []
    assert claim("lowest", 0, "rounds", left="A").seen(nobody) == []
    assert not judge(claim("at_most", 500, "rounds", left="A"), nobody)["all"][0]


def test_the_lowest_may_be_the_only_one_that_gets_there():
    seen = scores({("A", 0.1): 100, ("B", 0.1): nan}).assign(measure="rounds")
    assert judge(claim("lowest", 0, "rounds", left="A"), seen)["all"][0]


SWEPT = dict(left="A", right="B", along="rho")


@pytest.mark.parametrize(
    "kind, tolerance, gains, true",
    [
        ("gain_grows", 0.0, [1, 2, 5], True), ("gain_grows", 0.0, [1, 3, 2], False),
        ("gain_grows", 1.5, [1, 3, 2], True), ("gain_grows", 9.0, [3, 2, 1], False),
        ("gain_shrinks", 0.0, [5, 2, 1], True), ("gain_shrinks", 0.0, [5, 1, 2], False),
        ("gain_positive", 0.0, [1, 2, 1], True), ("gain_positive", 1.0, [1, 2, 1], False),
        ("gain_positive", 0.0, [1, nan, 1], False),
        ("gain_gone", 0.0, [0, -1, -2], True), ("gain_gone", 0.0, [0, 1, -2], False),
        ("gain_flat", 1.0, [1, 2, 1.5], True), ("gain_flat", 0.5, [1, 2, 1.5], False),
        ("gain_flat", 1, [-1, -1, -1], False),
    ],
)  # fmt: skip
def test_gains_along_a_column(kind, tolerance, gains, true):
    """B is 50 at every rho, or one number without a rho: the gains are the same. Rows may come in any order."""
    at = [0.3, 0.1, 0.2]
    ordered = dict(zip([0.1, 0.2, 0.3], gains, strict=True))
    left = {("A", x): 50 + ordered[x] for x in at}
    assert all(judged(scores(left | {("B", x): 50 for x in at}, rho=1), kind, tolerance, **SWEPT)) is true
    assert all(judged(scores(left | {("B", nan): 50}, rho=1), kind, tolerance, **SWEPT)) is true


def test_gains_between_two_ends():
    """At 0.1 and 0.9 A loses; between 0.2 and 0.8 it wins."""
    seen = {("A", 0.1): 1, ("A", 0.2): 9, ("A", 0.8): 9, ("A", 0.9): 1, ("B", nan): 5}
    assert judged(scores(seen, rho=1), "gain_positive", least=0.2, most=0.8, **SWEPT) == [True, True]
    assert judged(scores(seen, rho=1), "gain_positive", least=0.1, most=0.8, **SWEPT) == [False, True, True]
    assert judged(scores(seen, rho=1), "gain_gone", least=0.9, most=inf, **SWEPT) == [True]


def test_the_gain_is_least_at_one_place():
    """A gains 2 over B at v and 5 at r, X gains 3 over Y at v and 3 at r; where half a pair was run nothing is said."""
    seen = {("A", "v"): 42, ("B", "v"): 40, ("A", "r"): 75, ("B", "r"): 70, ("X", "v"): 43, ("Y", "v"): 40,
            ("X", "r"): 73, ("Y", "r"): 70}  # fmt: skip
    how = dict(left=["A", "X"], right=["B", "Y"], along="model", at=["v", "absent"])
    made = claim("gain_least_at", 0, "accuracy", **how)
    assert [(each.pair, each.d) for each in made.seen(scores(seen, model=1))] == [("A, r", 3), ("X, r", 0)]
    assert judge(made, scores(seen, model=1)) == {"all": (False, "gain 3, elsewhere 3: +0")}
    more = seen | {("A", "s"): 90, ("B", "s"): 70}
    half = scores({k: v for k, v in more.items() if k != ("B", "r")}, model=1)
    assert [(each.pair, each.d) for each in made.seen(half)] == [("A, s", 18), ("X, r", 0)]
    assert judged(scores({k: v for k, v in seen.items() if k[1] == "r"}, model=1), "gain_least_at", **how) == []


def test_falling_along_a_column():
    """69.4, 70 and 57.1: the line that fits best falls by 2 · 6.15 = 12.3."""
    seen = scores({("A", 20): 69.4, ("A", 50): 70.0, ("A", 100): 57.1}, clients=1)
    assert judged(seen, "falls_along", 10.0, left="A", along="clients") == [True]
    assert judged(seen, "falls_along", 12.5, left="A", along="clients") == [False]
    assert judged(seen, "falls_along", left="B", along="clients") == []  # not run at this scale


def test_rising_along_a_column_each_by_itself():
    """A rises by 4 from 1 to 5, B falls by 1; C is not there and not asked."""
    seen = scores({("A", 5): 54, ("A", 1): 50, ("A", 3): 10, ("B", 1): 99, ("B", 5): 98}, epochs=1)
    found = claim("rises_along", 0, "accuracy", left=["A", "B", "C"], along="epochs").seen(seen)
    assert [(each.pair, each.d) for each in found] == [("A", 4), ("B", -1)]
    assert judged(seen, "rises_along", left=["A", "B"], along="epochs") == [False]
    assert judged(seen, "rises_along", 4.0, left="A", along="epochs") == [False]
    assert judged(seen, "rises_along", 3.9, left="A", along="epochs") == [True]


def test_falling_along_texts_each_by_itself():
    """Along Dir(0.1), Dir(1) in the order of their letters: A falls by 4, B rises, and D has one value only."""
    seen = {("A", "Dir(1)"): 50, ("A", "Dir(0.1)"): 54, ("B", "Dir(0.1)"): 98, ("B", "Dir(1)"): 99, ("D", "Dir(1)"): 1}
    how = dict(left=["A", "B", "C", "D"], along="partition")
    found = claim("each_falls_along", 0, "accuracy", **how).seen(scores(seen, partition=1))
    assert [(each.pair, each.d) for each in found] == [("A", 4), ("B", -1)]
    alone = judge(claim("each_falls_along", 0, "accuracy", left="A", along="partition"), scores(seen, partition=1))
    assert alone == {"all": (True, "Dir(0.1): 54, Dir(1): 50: -4")}


@pytest.mark.parametrize("values, tolerance, true", [
    ([1, 5, 3, 4], 0.0, True), ([1, 5, 3, 4], 1.0, False), ([1, 2, 3, 4], 0.0, False), ([4, 3, 2, 1], 0.0, False),
    ([1, 5, nan, 4], 0.0, False), ([1, 5, 3, nan], 0.0, False),
])  # fmt: skip
def test_a_peak_inside(values, tolerance, true):
    """The best between the ends is 5, the better end 4; where a value is missing there may be no peak."""
    seen = scores({("A", 0.1 * i): value for i, value in enumerate(values)}, rho=1)
    assert judged(seen, "peaks_inside", tolerance, left="A", along="rho") == [true]


def test_two_values_have_no_inside():
    assert judged(scores({("A", 0.1): 1, ("A", 0.2): 5}, rho=1), "peaks_inside", left="A", along="rho") == []


def test_a_bound():
    assert judged(scores({("A", 0.1): 1.0, ("A", 0.6): 1.1}), "at_most", 1.0, left="A") == [True, False]


def test_at_least_counts_equality():
    """Each method by itself; a missing number is not enough."""
    assert judged(scores({("A", 0.1): 1.0, ("A", 0.6): 0.9}), "at_least", 1.0, left="A") == [True, False]
    assert judged(scores({("A", 0.1): nan}), "at_least", 0.0, left="A") == [False]


@pytest.mark.parametrize("a, b, true", [(11, 10, True), (11.1, 10, False), (nan, 10, False), (10, nan, False)])
def test_a_bound_relative_to_another(a, b, true):
    """1.1 times 10 is 11, whatever the unit."""
    seen = scores({("A", 0.1): a, ("B", 0.1): b})
    assert judged(seen, "at_most_times", 1.1, **PAIR) == [true]
    assert judged(seen.assign(value=seen["value"] / 1024), "at_most_times", 1.1, **PAIR) == [true]


@pytest.mark.parametrize("values, tolerance, true", [
    ([0, 1, 2], 0.0, True), ([0, 1, 2.1], 0.0, False), ([-0.1, 1], 0.0, False), ([-0.1, 2.1], 0.1, True),
    ([1, nan], 0.0, False), ([1, inf], 0.0, False),
])  # fmt: skip
def test_within_two_bounds_everywhere(values, tolerance, true):
    """From 0 to 2, ends included, for all methods and settings; a number that is missing is outside."""
    seen = scores({("AB"[i % 2], i): value for i, value in enumerate(values)})
    found = judge(claim("within", tolerance, "accuracy", least=0.0, most=2.0), seen)
    assert len(found) == len(values) and all(each for each, _ in found.values()) is true


def test_within_one_bound():
    seen = scores({("A", 0.1): 1, ("B", 0.6): 7})
    assert judged(seen, "within", most=2.0) == [True, False]
    assert judged(seen, "within", least=2.0) == [False, True]
    assert list(judge(claim("within", 0.0, "accuracy", most=2.0), seen)) == [
        "alpha 0.1, method A",
        "alpha 0.6, method B",
    ]


def test_a_claim_is_about_its_section_and_its_settings():
    """Rows of other grids, and of settings it does not name, are left aside."""
    here = scores({("A", 0.1): 3, ("B", 0.1): 2, ("A", 0.6): 1, ("B", 0.6): 2}).assign(grid="fig1")
    there = scores({("A", 0.1): 0, ("B", 0.1): 2}).assign(grid="table9")
    made = claim("above", 0, "accuracy", where={"alpha": 0.1}, **PAIR)
    found = verdict([here, there], [made], "laptop").loc["c"]
    assert (found["ours"], found["n"]) == ("all: 3 against 2: +1", 1)
    assert "(alpha 0.1)" in made.rule
    assert "(alpha 0.1 or 0.6)" in claim("above", 0, "accuracy", where={"alpha": [0.1, 0.6]}, **PAIR).rule
    empty = claim("above", 0, "accuracy", where={"alpha": [5.0]}, **PAIR)
    assert verdict([here, there], [empty], "laptop").loc["c", "verdict"] == "not run at laptop scale"


def test_a_setting_that_no_table_tells_apart_is_named():
    """A misspelt column of `where` would else be passed over, and the claim judged on all settings."""
    made = claim("above", 0, "accuracy", where={"alhpa": 0.1}, **PAIR)
    row = found(seeds(scores({("A", 0.1): 3, ("B", 0.1): 2})), made)
    assert row["ours"] == "cannot be judged: the table has no column 'alhpa', which `where` names"
    assert row["verdict"] == "not decided (cannot be judged)"
    printed = pd.DataFrame({"method": ["A", "B"], "measure": "accuracy", "value": [3.0, 2.0], "alhpa": 0.1, "seed": 0})
    assert found(seeds(scores({("A", 0.1): 3, ("B", 0.1): 2})), replace(made, printed=printed))["verdict"] == "holds"


def seeds(table, n=3):
    """The same numbers for several seeds."""
    return pd.concat([table.assign(seed=seed) for seed in range(n)])


def found(table, made, scale="paper"):
    return verdict(table, [made], scale).loc["c"]


def test_numbers_that_are_all_missing_count_against_the_claim():
    """Every run diverged: false, not an error; but a single seed decides nothing."""
    none = scores({("A", 0.1): nan, ("B", 0.1): nan}).assign(grid="fig1")
    assert found(seeds(none), claim("above", 0, "accuracy", **PAIR))["verdict"] == "does not hold"
    assert found(none, claim("above", 0, "accuracy", **PAIR))["verdict"] == "not decided (fewer than 3 seeds)"


def test_the_papers_own_numbers_stand_beside_ours_and_may_fail():
    printed = scores({("A", 0.1): 77.53, ("B", 0.1): 74.92, ("A", 0.6): 80.0, ("B", 0.6): 81.0}, seed="printed")
    made = claim("above", 0, "accuracy", printed=printed, **PAIR)
    said = verdict(scores({("A", 0.1): 3, ("B", 0.1): 2}), [made], "laptop").loc["c", "paper"]
    assert "alpha 0.1: 77.53 against 74.92: +2.61" in said
    assert "its own numbers fail the rule: alpha 0.6" in said
    silent = claim("above", 0, "accuracy", **PAIR)
    assert verdict(scores({("A", 0.1): 3, ("B", 0.1): 2}), [silent], "laptop").loc["c", "paper"] == "no numbers printed"


def test_a_left_that_diverged_once_cannot_hold():
    """A has no number at 0.6 with seed 1: nothing holds, in all settings or on average; B without one is behind."""
    table = seeds(scores({("A", 0.1): 3, ("B", 0.1): 2, ("A", 0.6): 3, ("B", 0.6): 2}))
    broken = (table["alpha"] == 0.6) & (table["seed"] == 1)
    for method, wanted in {"A": "not decided", "B": "holds"}.items():
        lost = table.assign(value=table["value"].mask(broken & (table["method"] == method)))
        assert found(lost, claim("above", 0, "accuracy", **PAIR))["verdict"] == wanted


def test_methods_that_were_not_run_are_not_covered():
    """A wins over B, C was not run: it holds where it was run. What loses is lost all the same."""
    made = claim("above", 0, "accuracy", left=["A", "C"], right="B")
    won = found(seeds(scores({("A", 0.1): 3, ("B", 0.1): 2})), made)
    assert won["verdict"] == "holds where run (without C)" and "(not run: C)" in won["ours"]
    assert found(seeds(scores({("A", 0.1): 1, ("B", 0.1): 2})), made)["verdict"] == "does not hold"
    assert found(seeds(scores({("A", 0.1): 1, ("C", 0.1): 2})), made)["verdict"].startswith("not run")
    pairs = claim("each_above", 0, "accuracy", left=["A", "C"], right=["B", "D"])
    assert found(seeds(scores({("A", 0.1): 3, ("B", 0.1): 2})), pairs)["verdict"] == "holds where run (without C, D)"


def test_the_first_of_all_is_the_first_of_all_that_the_paper_has():
    printed = scores({("A", 0.1): 3, ("B", 0.1): 2, ("C", 0.1): 1}, seed="printed")
    made = claim("first", 0, "accuracy", left="A", printed=printed)
    part, whole = {("A", 0.1): 3, ("B", 0.1): 2}, {("A", 0.1): 3, ("B", 0.1): 2, ("C", 0.1): 1}
    assert found(seeds(scores(part)), made)["verdict"] == "holds where run (without C)"
    assert found(seeds(scores(whole)), made)["verdict"] == "holds"
    listed = claim("first", 0, "accuracy", left="A", where={"method": ["A", "B", "C"]})  # no numbers printed
    assert found(seeds(scores(part)), listed)["verdict"] == "holds where run (without C)"
    assert found(seeds(scores(whole)), listed)["verdict"] == "holds"


def test_settings_claimed_are_those_printed():
    """Printed for three alphas, run for one: the verdict and the counts say so; a setting of another name is none."""
    printed = scores({(m, x): v for x in (0.1, 0.6, 1.0) for m, v in (("A", 3), ("B", 2))}, seed="printed")
    made = claim("above", 0, "accuracy", printed=printed, **PAIR)
    row = found(seeds(scores({("A", 0.1): 5, ("B", 0.1): 2})), made)
    assert row["verdict"] == "holds where run (1 of 3 settings)"
    assert (row["settings_run"], row["settings_claimed"], row["printed"], row["ratio"]) == (1, 3, 1.0, 3.0)
    other = found(seeds(scores({("A", 7): 5, ("B", 7): 2})), made)
    assert other["verdict"] == "holds where run (1 setting, none of the 3 claimed)"


def noisy(gains):
    """B has 50 in every setting, A so much more with each seed: {alpha: [gain of each seed]}."""
    rows = [scores({("A", x): 50 + g, ("B", x): 50}, seed=i) for x, each in gains.items() for i, g in enumerate(each)]
    return pd.concat(rows)


def test_holds_on_average_by_hand():
    """Gains (1, 2, 3) and (-1, 0, 1): sd 1 with 4 degrees of freedom, mean 1 ± 2.132 / √6; at 0.6 it is 0 ± 1.23."""
    row = found(noisy({0.1: [1, 2, 3], 0.6: [-1, 0, 1]}), claim("above", 0, "accuracy", **PAIR))
    assert row["verdict"] == "holds on average" and row["rests_on"] == "mean of 2"
    assert [row[name] for name in ("effect", "low", "high")] == pytest.approx([1, 1 - 0.8703, 1 + 0.8703], abs=1e-3)
    assert found(noisy({0.1: [1, 2, 3], 0.6: [-9, -8, -7]}), claim("above", 0, "accuracy", **PAIR))["verdict"] == (
        "does not hold"
    )


@pytest.mark.parametrize("printed, wanted", [(None, "not decided"), (2.0, "not decided"), (8.0, "does not hold")])
def test_a_quarter_of_what_is_printed_has_to_be_ruled_out(printed, wanted):
    """Gains (-0.5, 0, 0.5): at most 0.84 with certainty; that is less than a quarter of 8, not less than one of 2."""
    table = None if printed is None else scores({("A", 0.1): printed, ("B", 0.1): 0}, seed="printed")
    row = found(noisy({0.1: [-0.5, 0, 0.5]}), claim("above", 0, "accuracy", printed=table, **PAIR))
    assert row["verdict"] == wanted and row["high"] == pytest.approx(2.92 * 0.5 / 3**0.5, abs=1e-3)


def test_the_quarter_is_of_what_is_printed_beyond_the_tolerance():
    """More than 3 is claimed and 3.2 printed: 3.05 has to be ruled out, not 3.8, which 3.2 is below."""
    table = scores({("A", 0.1): 3.2, ("B", 0.1): 0}, seed="printed")
    made = claim("above", 3.0, "accuracy", printed=table, **PAIR)
    assert found(noisy({0.1: [3.19, 3.2, 3.21]}), made)["verdict"] == "holds"
    assert found(noisy({0.1: [2.95, 3.0, 3.05]}), made)["verdict"] == "not decided"
    assert found(noisy({0.1: [2.9, 2.91, 2.92]}), made)["verdict"] == "does not hold"


def test_first_but_not_beyond_doubt_is_among_the_best():
    table = noisy({0.1: [-1, 0, 2]})
    assert found(table, claim("first", 0, "accuracy", left="A"))["verdict"] == "not decided (among the best)"
    assert found(table, claim("first", 0, "accuracy", left="A"), "laptop")["verdict"] == "not clear (among the best)"


def test_behind_one_of_many_but_not_beyond_doubt_is_not_called_among_the_best():
    """Of six rivals one is ahead by its own interval, and not where six are looked at."""
    noise = [(0, 1, 0, -1, 0, 1, 0), (0, 0, -1, 0, 1, -1, 1), (0, -1, 1, 1, -1, 0, -1)]
    means = {name: 70 + 1.5 * (name == "B") for name in "ABCDEFG"}
    rows = [
        scores({(name, 0.1): mean + more for (name, mean), more in zip(means.items(), each, strict=True)}, seed)
        for seed, each in enumerate(noise)
    ]
    table = pd.concat(rows)
    row = found(table, claim("first", 0, "accuracy", left="A"))
    assert row["effect"] == pytest.approx(-1.5) and row["high"] < 0 and row["rests_on"].endswith("B")
    assert row["verdict"] == "not decided (behind, not beyond doubt)"


@pytest.mark.parametrize("gains, said, wanted", [
    ([1, 2, 3], "untuned", "holds (untuned)"), ([-3, -2, -1], "untuned", "not decided (untuned)"),
    ([1, 2, 3], "lr, rho", "holds"), ([-3, -2, -1], "lr, rho", "does not hold"),
])  # fmt: skip
def test_untuned_runs_do_not_refute_a_sentence_about_tuned_methods(gains, said, wanted):
    made = claim("above", 0, "accuracy", tuned=True, **PAIR)
    row = found(noisy({0.1: gains}).assign(tuned=said, precision="bf16", protocol="100 rounds"), made)
    assert row["verdict"] == wanted
    assert (row["tuned"], row["precision"], row["protocol"]) == (said, "bf16", "100 rounds")
    assert found(noisy({0.1: [1, 2, 3]}), made)["tuned"] == ""


def test_who_loses_untuned_is_not_called_among_the_best():
    made = claim("first", 0, "accuracy", left="A", tuned=True)
    assert found(noisy({0.1: [-3, -2, -1]}).assign(tuned="untuned"), made)["verdict"] == "not decided (untuned)"


def test_what_is_fixed_by_construction_is_counted_apart():
    """One seed is enough, and one seed can break it."""
    made = claim("at_most", 1.0, "accuracy", left="A", by_construction=True)
    assert found(scores({("A", 0.1): 1.0}), made)["verdict"] == "by construction: holds"
    table = pd.concat([scores({("A", 0.1): 1.0}), scores({("A", 0.1): 1.1}, seed=1)])
    assert found(table, made)["verdict"] == "by construction: does not hold"
    assert found(table, made, "smoke")["verdict"].startswith("ran")


def test_gains_over_one_base_share_its_error():
    """B, one number for all rho, is wrong by the same at each: four levels say no more about it than one."""
    rows = [scores({("A", rho): 51 for rho in range(4)} | {("B", nan): 50 + e}, seed=i, rho=1)
            for i, e in enumerate((-2, 0, 2))]  # fmt: skip
    row = found(pd.concat(rows), claim("gain_positive", 0, "accuracy", **SWEPT))
    assert row["verdict"] == "not decided" and row["low"] == pytest.approx(1 - 2.92 * 2 / 3**0.5, abs=1e-3)


def test_a_step_back_beyond_doubt_contradicts_steady_growth():
    """Gains 0, 5, 4, 9 grow; the step back by 1 is certain, unless 1 is tolerated."""
    rows = [scores({("A", x): g + 50 + (-1) ** (i + x) * 0.01 for x, g in enumerate((0, 5, 4, 9))} |
                   {("B", x): 50 for x in range(4)}, seed=i, rho=1) for i in range(3)]  # fmt: skip
    assert found(pd.concat(rows), claim("gain_grows", 0, "accuracy", **SWEPT))["verdict"] == "does not hold"
    assert found(pd.concat(rows), claim("gain_grows", 1.1, "accuracy", **SWEPT))["verdict"] == "holds"


def test_first_on_average_is_about_the_mean_along_a_column():
    """A has 5 and 1, B 2 and 3: A is first at 0.1 alone and on average, 3 against 2.5, but not by more than 1."""
    seen = scores({("A", 0.1): 5, ("A", 0.6): 1, ("B", 0.1): 2, ("B", 0.6): 3})
    judged = judge(claim("first_on_average", 0, "accuracy", left="A", along="alpha"), seen)
    assert judged == {"all": (True, "3, B 2.5: +0.5")}
    assert not judge(claim("first_on_average", 1, "accuracy", left="A", along="alpha"), seen)["all"][0]
    by_itself = judge(claim("first", 0, "accuracy", left="A"), seen)
    assert [true for true, _ in by_itself.values()] == [True, False]
    lost = scores({("A", 0.1): 5, ("A", 0.6): nan, ("B", 0.1): 2, ("B", 0.6): 3})
    assert not judge(claim("first_on_average", 0, "accuracy", left="A", along="alpha"), lost)["all"][0]


@pytest.mark.parametrize("named, verdict_said", [({}, "holds"), ({"right": "Centred (our control)"}, "does not hold")])
def test_a_control_of_ours_is_a_rival_only_where_it_is_named(named, verdict_said):
    values = {"FedFFT": 80.0, "FedSAM": 70.0, "Centred (our control)": 90.0}
    table = pd.DataFrame(
        {"method": name, "seed": seed, "measure": "variance", "value": value + 0.1 * seed * (name == "FedFFT")}
        for name, value in values.items()
        for seed in range(3)
    )
    made = claim("first", left="FedFFT", **named)
    assert verdict(table, [made], "paper").loc["c", "verdict"] == verdict_said
