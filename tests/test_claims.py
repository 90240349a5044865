"""Claims as rules: each kind on numbers made by hand, three outcomes, and the paper's own numbers beside them."""

from math import inf, nan

import pandas as pd
import pytest

from fednb.study.claims import RULES, Claim, verdict

FALLING, RISING = [4, 3, 2, 1], [1, 2, 3, 4]


def claim(kind, tolerance=0.0, measure="variance", printed=None, **more):
    described = dict(id="c", section="fig1", says="so", kind=kind, measure=measure, tolerance=tolerance, **more)
    return Claim.of("made", described, printed)


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
        ("lowest_band_largest", 0.0, [3, 1, 3, 2], True, "1.00x"),  # at least, not above
        ("lowest_band_largest", 0.0, [3, 1, 3.1, 2], False, "0.97x"),
        ("lowest_band_largest", 0.5, [3, 1, 2, 1], True, "1.50x"),
        ("lowest_band_largest", 0.5, [2.9, 1, 2, 1], False, "1.45x"),
        ("falls_with_band", 0.7, [9, 5, 2, 1], True, "-1.00"),
        ("falls_with_band", 0.7, [4, 3, 1, 2], True, "-0.80"),  # 1 − 6 (9 + 1 + 4 + 4) / (4 · 15)
        ("falls_with_band", 0.9, [4, 3, 1, 2], False, "-0.80"),
        ("falls_with_band", 0.7, [1, 2, 3, 9], False, "+1.00"),
    ],
)
def test_claims_about_one_curve(kind, tolerance, curve, true, said):
    """Compared with the largest of the other bands; Spearman's rank correlation 1 − 6 Σd² / (n (n² − 1))."""
    ((_, judged),) = claim(kind, tolerance).judge(tidy({(0.1, 0): curve}).assign(method="FedAvg")).items()
    assert judged[0] is true and said in judged[1]


@pytest.mark.parametrize(
    "skewed, true",
    [([3, 2], True), ([2.4, 2], True), ([2.3, 2], False), ([2, 2], False), ([0.9, 0.5], False)],
)
def test_claims_about_growing_skew(skewed, true):
    """Alpha 0.6 has (1, 1): the first band must grow, and 1.2 times as much as the last: 2.4 against 2, not 2.3."""
    curves = tidy({(0.1, 0): skewed, (0.6, 0): [1, 1]})
    ((where, (found, said)),) = claim("low_band_grows_with_skew", 0.2).judge(curves).items()
    assert found is true and where == "0.6 to 0.1" and said.startswith(f"first band x{skewed[0]:.2f}")


def test_every_kind_says_its_rule_with_the_tolerance():
    for kind in RULES:
        rule = claim(kind, 0.25, left=["A", "B"], right="C", along="rho", least=1.0, most=2.0).rule
        assert "{" not in rule
        assert "0.25" in rule or kind == "falls_along"


def test_an_unknown_kind_is_refused():
    with pytest.raises(ValueError, match=r"claim c: kind = 'highest', must be one of above, "):
        claim("highest")


@pytest.mark.parametrize(
    "seen, wanted",
    [
        ({(0.1, 0): FALLING, (0.1, 1): FALLING, (0.6, 0): FALLING, (0.6, 1): FALLING}, "holds"),
        ({(0.1, 0): FALLING, (0.1, 1): FALLING, (0.6, 0): RISING, (0.6, 1): RISING}, "does not hold"),
        ({(0.1, 0): FALLING, (0.1, 1): FALLING, (0.6, 0): FALLING, (0.6, 1): RISING}, "not decided"),
        ({(0.1, 0): FALLING, (0.1, 1): RISING, (0.6, 0): RISING, (0.6, 1): FALLING}, "not decided"),
        ({(0.1, 0): RISING, (0.1, 1): RISING, (0.6, 0): FALLING, (0.6, 1): RISING}, "does not hold"),
        ({(0.1, 0): RISING}, "does not hold"),
    ],
)
def test_three_outcomes(seen, wanted):
    """True for all settings and seeds; false in one setting for every seed; seeds that disagree decide nothing."""
    for kind in ("falls_with_band", "lowest_band_largest"):
        assert outcome(seen, claim(kind, 0.1)) == wanted


def test_smoke_scale_decides_nothing():
    for curve in (FALLING, RISING):
        assert outcome({(0.1, 0): curve}, claim("falls_with_band", 0.7), "smoke") == "ran (smoke scale decides nothing)"


def test_rounds_are_averaged_and_other_measures_left_aside():
    """Round 0 has (5, 1), round 1 (1, 2): the mean (3, 1.5) falls, as 2 to 1; Std rises and is not asked."""
    parts = [tidy({(0.1, 0): [5, 1]}), tidy({(0.1, 0): [1, 2]}, t=1), tidy({(0.1, 0): [1, 9]}, measure="Std")]
    rows = verdict(pd.concat(parts), (claim("lowest_band_largest"),), "laptop").loc["c"]
    assert (rows["verdict"], rows["n"], rows["ours"]) == ("holds", 1, "FedAvg: 2.00x the next largest")


@pytest.mark.parametrize("broken", [[nan] * 4, [4, nan, 2, 1]])
def test_numbers_that_are_not_there_cannot_make_a_claim_hold(broken):
    """A run that overflowed at alpha 0.1 has not shown that the claim is true "for every alpha"."""
    assert outcome({(0.6, 0): FALLING, (0.1, 0): broken}, claim("lowest_band_largest")) != "holds"


def scores(seen, seed=0, **columns):
    """Tidy rows from {(method, value of one column): value}."""
    (name,) = columns or ["alpha"]
    return pd.DataFrame(
        {name: at, "method": method, "seed": seed, "measure": "accuracy", "value": value}
        for (method, at), value in seen.items()
    )


def judged(table, kind, tolerance=0.0, **more):
    """Only true or false, by setting."""
    return [true for true, _ in claim(kind, tolerance, "accuracy", **more).judge(table).values()]


PAIR = dict(left="A", right="B")


@pytest.mark.parametrize(
    "kind, tolerance, a, b, true",
    [
        ("above", 0.0, 71, 70, True), ("above", 0.0, 70, 70, False), ("above", 1.0, 71, 70, False),
        ("above", 0.0, nan, 70, False), ("above", 0.0, 70, nan, False),
        ("below", 0.0, 69, 70, True), ("below", 0.0, 70, 70, False), ("below", 0.5, 69.6, 70, False),
        ("not_above", 0.0, 70, 70, True), ("not_above", 0.0, 70.1, 70, False), ("not_above", 1.0, 71, 70, True),
        ("not_above", 0.0, 60, 70, True), ("not_above", 0.0, nan, 70, False),
        ("near", 0.5, 70.5, 70, True), ("near", 0.5, 69.4, 70, False), ("near", 0.5, nan, 70, False),
    ],
)  # fmt: skip
def test_pairs(kind, tolerance, a, b, true):
    assert judged(scores({("A", 0.1): a, ("B", 0.1): b}), kind, tolerance, **PAIR) == [true]


def test_pairs_setting_by_setting_and_every_left_with_every_right():
    """A beats B at 0.1 and loses at 0.6; C is not there, which counts against it."""
    table = scores({("A", 0.1): 3, ("B", 0.1): 2, ("A", 0.6): 1, ("B", 0.6): 2})
    found = claim("above", 0, "accuracy", left=["A", "C"], right="B").judge(table)
    assert {where: true for where, (true, _) in found.items()} == {
        "alpha 0.1 A − B": True, "alpha 0.1 C − B": False, "alpha 0.6 A − B": False, "alpha 0.6 C − B": False,
    }  # fmt: skip
    assert found["alpha 0.1 A − B"][1] == "3 against 2: +1"


def test_each_above_its_own():
    """A beats its own B and X beats Y, though Y beats A; with Y gone X counts against it, with both gone not."""
    seen = {("A", 0.1): 3, ("B", 0.1): 2, ("X", 0.1): 9, ("Y", 0.1): 8}
    pairs = dict(left=["A", "X"], right=["B", "Y"])
    assert claim("each_above", 0, "accuracy", **pairs).judge(scores(seen))["all X"] == (True, "9 against 8: +1")
    assert judged(scores(seen), "each_above", **pairs) == [True, True]
    assert judged(scores(seen), "each_above", 1.0, **pairs) == [False, False]
    assert judged(scores({k: v for k, v in seen.items() if k[0] != "Y"}), "each_above", **pairs) == [True, False]
    assert judged(scores({k: v for k, v in seen.items() if k[0] in "AB"}), "each_above", **pairs) == [True]
    with pytest.raises(ValueError, match="shorter"):
        judged(scores(seen), "each_above", left=["A", "X"], right="B")


def test_each_not_above_its_own_by_more():
    """A gains 1 over B and X gains 4 over Y; who is missing counts against it."""
    seen = {("A", 0.1): 3, ("B", 0.1): 2, ("X", 0.1): 9, ("Y", 0.1): 5}
    pairs = dict(left=["A", "X"], right=["B", "Y"])
    assert judged(scores(seen), "each_not_above", 1.0, **pairs) == [True, False]
    assert judged(scores(seen), "each_not_above", 4.0, **pairs) == [True, True]
    assert judged(scores({k: v for k, v in seen.items() if k[0] != "Y"}), "each_not_above", 4.0, **pairs) == [
        True,
        False,
    ]


@pytest.mark.parametrize("kind, best, sign", [("first", 3, 1), ("lowest", 1, -1)])
def test_first_and_lowest_of_all(kind, best, sign):
    others = {("B", 0.1): best - sign, ("C", 0.1): best - 2 * sign}
    assert judged(scores({("A", 0.1): best, **others}), kind, left="A") == [True]
    assert judged(scores({("A", 0.1): best, **others}), kind, 1.0, left="A") == [False]
    assert judged(scores({("A", 0.1): best - sign, **others}), kind, left="A") == [False]
    assert judged(scores({("A", 0.1): nan, **others}), kind, left="A") == [False]
    assert judged(scores({("A", 0.1): best, ("B", 0.1): nan, ("C", 0.1): best - sign}), kind, left="A") == [True]


@pytest.mark.parametrize("own, most, tolerance, true", [
    (4, 1, 0.0, True), (3, 1, 0.0, True), (2.5, 1, 0.0, False), (2.5, 1, 0.5, True), (2.5, 2, 0.0, True),
    (1.5, 2, 0.0, False), (nan, 9, 0.0, False),
])  # fmt: skip
def test_among_the_best(own, most, tolerance, true):
    """B has 3 and C 2: at 2.5 A is second, or on a par if half a point is; D, who diverged, is above nobody."""
    table = scores({("A", 0.1): own, ("B", 0.1): 3, ("C", 0.1): 2, ("D", 0.1): nan})
    assert judged(table, "top", tolerance, left="A", most=most) == [true]


def test_among_the_best_names_who_is_above():
    table = scores({("A", 0.1): 1, ("B", 0.1): 2, ("C", 0.1): 3})
    ((_, (_, said)),) = claim("top", 0, "accuracy", left="A", most=2).judge(table).items()
    assert said == "1, C 3, B 2"


def test_best_at_one_setting():
    """A is best at 0.1, next 0.2, 1 behind; B, better everywhere, is not asked; a radius that diverged is behind."""
    table = scores({("A", 0.3): nan, ("A", 0.1): 3, ("A", 0.2): 2, ("B", 0.2): 9}, rho=1)
    found = claim("best_at", 0, "accuracy", left="A", at="rho 0.1").judge(table)
    assert found == {"rho 0.1": (True, "3, next rho 0.2 2")}
    assert judged(table, "best_at", 1.0, left="A", at="rho 0.1") == [False]
    assert judged(table, "best_at", left="A", at="rho 0.2") == [False]
    assert judged(table, "best_at", left="A", at="rho 0.3") == [False]
    assert judged(table, "best_at", left="A", at="rho 0.7") == []  # not run at this scale


def test_steadiest_of_all():
    """A goes from 70 to 72 by way of 71, B from 50 to 53; C, run once, and D, who diverged, are no rivals."""
    seen = {("A", 5): 72, ("A", 1): 70, ("A", 2): 71, ("B", 1): 50, ("B", 2): 53, ("B", 5): 51, ("C", 1): 9}
    table = scores(seen | {("D", 1): 1, ("D", 2): nan, ("D", 5): 1}, epochs=1)
    found = claim("steadiest", 0, "accuracy", left="A", along="epochs").judge(table)
    assert found == {"all": (True, "2, next B 3")}
    assert judged(table, "steadiest", 1.0, left="A", along="epochs") == [False]
    assert judged(table, "steadiest", left="B", along="epochs") == [False]
    assert judged(table, "steadiest", left="D", along="epochs") == [False]


def test_a_setting_that_lacks_what_others_have_is_named_by_the_rest():
    """Half of FedWMSAM's Table 1 has a beta, the other half a gamma."""
    table = pd.concat([scores({("A", 0.1): 3, ("B", 0.1): 2}, beta=1), scores({("A", 6): 2, ("B", 6): 3}, gamma=1)])
    found = claim("above", 0, "accuracy", **PAIR).judge(table)
    assert {where: true for where, (true, _) in found.items()} == {"beta 0.1": True, "gamma 6": False}


def test_the_lowest_may_be_the_only_one_that_gets_there():
    assert judged(scores({("A", 0.1): 100, ("B", 0.1): nan}), "lowest", left="A") == [True]


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
    assert judged(scores(left | {("B", x): 50 for x in at}, rho=1), kind, tolerance, **SWEPT) == [true]
    assert judged(scores(left | {("B", nan): 50}, rho=1), kind, tolerance, **SWEPT) == [true]


def test_gains_between_two_ends():
    """At 0.1 and 0.9 A loses; between 0.2 and 0.8 it wins."""
    seen = {("A", 0.1): 1, ("A", 0.2): 9, ("A", 0.8): 9, ("A", 0.9): 1, ("B", nan): 5}
    assert judged(scores(seen, rho=1), "gain_positive", least=0.2, most=0.8, **SWEPT) == [True]
    assert judged(scores(seen, rho=1), "gain_positive", least=0.1, most=0.8, **SWEPT) == [False]
    assert judged(scores(seen, rho=1), "gain_gone", least=0.9, most=inf, **SWEPT) == [True]


def test_the_gain_is_least_at_one_place():
    """A gains 2 over B at v and 5 at r, X gains 3 over Y at v and 3 at r; half a pair counts against it."""
    seen = {("A", "v"): 42, ("B", "v"): 40, ("A", "r"): 75, ("B", "r"): 70, ("X", "v"): 43, ("Y", "v"): 40,
            ("X", "r"): 73, ("Y", "r"): 70}  # fmt: skip
    how = dict(left=["A", "X"], right=["B", "Y"], along="model", at=["v", "absent"])
    found = claim("gain_least_at", 0, "accuracy", **how).judge(scores(seen, model=1))
    assert found == {"all A": (True, "+2, elsewhere +5 or more"), "all X": (False, "+3, elsewhere +3 or more")}
    assert judged(scores(seen, model=1), "gain_least_at", 3.0, **how) == [False, False]
    more = seen | {("A", "s"): 90, ("B", "s"): 70}
    assert judged(scores(more, model=1), "gain_least_at", **how) == [True, False]
    half = scores({k: v for k, v in more.items() if k != ("B", "r")}, model=1)
    assert judged(half, "gain_least_at", **how) == [False, False]
    assert judged(scores({k: v for k, v in seen.items() if k[1] == "r"}, model=1), "gain_least_at", **how) == []


def test_falling_along_a_column():
    seen = scores({("A", 20): 69.4, ("A", 50): 70.0, ("A", 100): 57.1}, clients=1)
    assert judged(seen, "falls_along", 10.0, left="A", along="clients") == [True]
    assert judged(seen, "falls_along", 12.5, left="A", along="clients") == [False]
    assert judged(seen, "falls_along", left="B", along="clients") == []  # not run at this scale


def test_rising_along_a_column_each_by_itself():
    """A rises by 4 from 1 to 5, whatever happens between; B falls; C is not there and not asked."""
    seen = scores({("A", 5): 54, ("A", 1): 50, ("A", 3): 10, ("B", 1): 99, ("B", 5): 98}, epochs=1)
    assert judged(seen, "rises_along", left=["A", "B", "C"], along="epochs") == [True, False]
    assert judged(seen, "rises_along", 4.0, left="A", along="epochs") == [False]


def test_falling_along_texts_each_by_itself():
    """Along Dir(0.1), Dir(1) in the order of their letters: A falls by 4, B rises, and D has one value only."""
    seen = {("A", "Dir(1)"): 50, ("A", "Dir(0.1)"): 54, ("B", "Dir(0.1)"): 98, ("B", "Dir(1)"): 99, ("D", "Dir(1)"): 1}
    how = dict(left=["A", "B", "C", "D"], along="partition")
    found = claim("each_falls_along", 0, "accuracy", **how).judge(scores(seen, partition=1))
    assert found["all A"] == (True, "Dir(0.1): 54, Dir(1): 50")
    assert [true for true, _ in found.values()] == [True, False, False]
    assert judged(scores(seen, partition=1), "each_falls_along", 4.0, **how) == [False, False, False]


@pytest.mark.parametrize("values, tolerance, true", [
    ([1, 5, 3, 4], 0.0, True), ([1, 5, 3, 4], 1.0, False), ([1, 2, 3, 4], 0.0, False), ([4, 3, 2, 1], 0.0, False),
    ([1, 5, nan, 4], 0.0, False), ([1, 5, 3, nan], 0.0, False), ([1, 5], 0.0, False),
])  # fmt: skip
def test_a_peak_inside(values, tolerance, true):
    """The best between the ends is 5, the better end 4; where a value is missing there may be no peak."""
    seen = scores({("A", 0.1 * i): value for i, value in enumerate(values)}, rho=1)
    assert judged(seen, "peaks_inside", tolerance, left="A", along="rho") == [true]


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
    """From 0 to 2, ends included; one verdict for all methods and settings, and a number that is missing is outside."""
    seen = scores({("AB"[i % 2], i): value for i, value in enumerate(values)})
    ((found, said),) = claim("within", tolerance, "accuracy", least=0.0, most=2.0).judge(seen).values()
    assert found is true and ("outside" in said) is not true and f"n = {len(values)}" in said


def test_within_names_what_is_outside():
    seen = scores({("A", 0.1): 1, ("B", 0.6): 7})
    assert claim("within", 0.0, "accuracy", most=2.0).judge(seen)["all"][1].endswith("1 outside, such as 7 (0.6, B)")


def test_a_claim_is_about_its_section_and_its_settings():
    """Rows of other grids, and of settings it does not name, are left aside."""
    here = scores({("A", 0.1): 3, ("B", 0.1): 2, ("A", 0.6): 1, ("B", 0.6): 2}).assign(grid="fig1")
    there = scores({("A", 0.1): 0, ("B", 0.1): 2}).assign(grid="table9")
    made = claim("above", 0, "accuracy", where={"alpha": 0.1}, **PAIR)
    found = verdict([here, there], [made], "laptop").loc["c"]
    assert (found["verdict"], found["n"]) == ("holds", 1)
    assert "(alpha 0.1)" in made.rule
    assert "(alpha 0.1 or 0.6)" in claim("above", 0, "accuracy", where={"alpha": [0.1, 0.6]}, **PAIR).rule
    empty = claim("above", 0, "accuracy", where={"alpha": [5.0]}, **PAIR)
    assert verdict([here, there], [empty], "laptop").loc["c", "verdict"] == "not run at laptop scale"


def test_numbers_that_are_all_missing_count_against_the_claim():
    """Every run diverged, or one seed alone where a spread is asked for: false, not an error."""
    none = scores({("A", 0.1): nan, ("B", 0.1): nan}).assign(grid="fig1")
    assert verdict(none, [claim("above", 0, "accuracy", **PAIR)], "laptop").loc["c", "verdict"] == "does not hold"


def test_the_papers_own_numbers_stand_beside_ours_and_may_fail():
    printed = scores({("A", 0.1): 77.53, ("B", 0.1): 74.92, ("A", 0.6): 80.0, ("B", 0.6): 81.0}, seed="printed")
    made = claim("above", 0, "accuracy", printed=printed, **PAIR)
    said = verdict(scores({("A", 0.1): 3, ("B", 0.1): 2}), [made], "laptop").loc["c", "paper"]
    assert "alpha 0.1: 77.53 against 74.92: +2.61" in said
    assert "its own numbers fail the rule: alpha 0.6" in said
    silent = claim("above", 0, "accuracy", **PAIR)
    assert verdict(scores({("A", 0.1): 3, ("B", 0.1): 2}), [silent], "laptop").loc["c", "paper"] == "no numbers printed"


def test_seeds_that_lack_a_setting_count_against_it():
    """Seed 1 has no run at 0.6: the claim is not shown there."""
    table = pd.concat([
        scores({("A", 0.1): 3, ("B", 0.1): 2, ("A", 0.6): 3, ("B", 0.6): 2}),
        scores({("A", 0.1): 3, ("B", 0.1): 2, ("A", 0.6): nan, ("B", 0.6): nan}, seed=1),
    ])  # fmt: skip
    assert verdict(table, [claim("above", 0, "accuracy", **PAIR)], "laptop").loc["c", "verdict"] == "not decided"


def test_methods_that_were_not_run_leave_a_claim_undecided():
    """A wins over B, C was not run: nothing is shown about C. What loses is lost all the same."""
    made = claim("above", 0, "accuracy", left=["A", "C"], right="B")
    won = verdict(scores({("A", 0.1): 3, ("B", 0.1): 2}), [made], "laptop").loc["c"]
    assert won["verdict"] == "not decided" and "(not run: C)" in won["ours"]
    assert verdict(scores({("A", 0.1): 1, ("B", 0.1): 2}), [made], "laptop").loc["c", "verdict"] == "does not hold"
    assert verdict(scores({("A", 0.1): 1, ("C", 0.1): 2}), [made], "laptop").loc["c", "verdict"].startswith("not run")
    pairs = claim("each_above", 0, "accuracy", left=["A", "C"], right=["B", "D"])
    assert verdict(scores({("A", 0.1): 3, ("B", 0.1): 2}), [pairs], "laptop").loc["c", "verdict"] == "not decided"


def test_the_first_of_all_needs_all_that_the_paper_has():
    printed = scores({("A", 0.1): 3, ("B", 0.1): 2, ("C", 0.1): 1}, seed="printed")
    made = claim("first", 0, "accuracy", left="A", printed=printed)
    assert verdict(scores({("A", 0.1): 3, ("B", 0.1): 2}), [made], "laptop").loc["c", "verdict"] == "not decided"
    whole = scores({("A", 0.1): 3, ("B", 0.1): 2, ("C", 0.1): 1})
    assert verdict(whole, [made], "laptop").loc["c", "verdict"] == "holds"


def test_first_on_average_is_about_the_mean_along_a_column():
    """A has 5 and 1, B 2 and 3: A is first at 0.1 alone and on average, 3 against 2.5, but not by more than 1."""
    seen = scores({("A", 0.1): 5, ("A", 0.6): 1, ("B", 0.1): 2, ("B", 0.6): 3})
    judged = claim("first_on_average", 0, "accuracy", left="A", along="alpha").judge(seen)
    assert judged == {"all": (True, "3, next B 2.5")}
    assert not claim("first_on_average", 1, "accuracy", left="A", along="alpha").judge(seen)["all"][0]
    by_itself = claim("first", 0, "accuracy", left="A").judge(seen)
    assert [true for true, _ in by_itself.values()] == [True, False]
    lost = scores({("A", 0.1): 5, ("A", 0.6): nan, ("B", 0.1): 2, ("B", 0.6): 3})
    assert not claim("first_on_average", 0, "accuracy", left="A", along="alpha").judge(lost)["all"][0]
