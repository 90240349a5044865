"""Tables that readers bring to `fn.verdict`: what must not matter does not, what is wrong is refused in one line."""

import numpy as np
import pandas as pd
import pytest
from every_kind import EVERY_KIND

import fednb as fn
from fednb.study.claims import BadClaim, BadTable, Claim

NUMBERS = ["effect", "low", "high", "bound"]


def claim(**described):
    return Claim(**dict(paper="made", id="c", section="s", says="so", kind="above", left="A", right="B") | described)


def table(n=3, methods="ABC"):
    """A is ahead by 2, with noise of 0.3, at two alphas."""
    rng = np.random.default_rng(1)
    return pd.DataFrame(
        {"alpha": alpha, "method": method, "seed": seed, "measure": "accuracy",
         "value": 50 + 2.0 * (method == "A") + 0.3 * rng.normal()}
        for alpha in (0.1, 0.6) for method in methods for seed in range(n)
    )  # fmt: skip


def noisy(kind):
    """The table of a kind with a little noise, so that there are intervals."""
    of, rows = EVERY_KIND[kind]
    made = pd.DataFrame(rows)
    made["value"] += np.random.default_rng(0).normal(scale=0.02, size=len(made))
    return claim(**dict(left=(), right=()) | of | {"kind": kind}), made


def judged(made, *claims, scale="paper"):
    return fn.verdict(made, claims or [claim()], scale).loc["c"]


def assert_alike(one, other):
    assert one[["verdict", "n", "settings_run", "settings_claimed"]].tolist() == (
        other[["verdict", "n", "settings_run", "settings_claimed"]].tolist()
    )
    np.testing.assert_allclose(one[NUMBERS].astype(float), other[NUMBERS].astype(float), rtol=1e-9)


UNTOUCHED = {
    "shuffled rows": lambda t: t.sample(frac=1, random_state=3),
    "rows twice": lambda t: pd.concat([t, t]),
    "an index that repeats": lambda t: t.set_index(pd.Index([0] * len(t))),
    "renamed seeds": lambda t: t.assign(seed=t["seed"].map({0: "x", 1: "a", 2: "m", 3: "k", 4: "b"})),
    "a constant column": lambda t: t.assign(dataset="digits"),
    "columns in another order": lambda t: t[sorted(t.columns, reverse=True)],
    "another measure": lambda t: pd.concat([t, t.assign(measure="loss", value=-1e6)]),
    "categories": lambda t: t.astype({"method": "category", "measure": "category"}),
}


@pytest.mark.parametrize("kind", EVERY_KIND)
@pytest.mark.parametrize("changed", UNTOUCHED)
def test_what_must_not_matter_does_not(kind, changed):
    asked, made = noisy(kind)
    assert_alike(judged(UNTOUCHED[changed](made), asked), judged(made, asked))


PAIRS = ("above", "below", "not_above", "near", "each_above", "at_most_times", "gain_grows", "gain_positive")


@pytest.mark.parametrize("kind", PAIRS)
def test_a_method_that_the_sentence_does_not_name_changes_nothing(kind):
    asked, made = noisy(kind)
    more = made[made["method"] == "A"].assign(method="Z", value=1e6)
    assert_alike(judged(pd.concat([made, more]), asked), judged(made, asked))


@pytest.mark.parametrize("unit", [0.01, 1000.0, 3.7])
@pytest.mark.parametrize(
    "tolerance, kind", [(0.0, "above"), (1.0, "above"), (2.5, "above"), (3.0, "near"), (0.1, "near")]
)
def test_the_unit_of_a_measure_changes_no_verdict(unit, tolerance, kind):
    """Percent or fractions: values and tolerance times a number give the effect times that number."""
    made = table()
    one, other = (judged(made.assign(value=made["value"] * by), claim(kind=kind, tolerance=tolerance * by))
                  for by in (1.0, unit))  # fmt: skip
    assert one["verdict"] == other["verdict"] and other["effect"] == pytest.approx(unit * one["effect"])


def test_left_and_right_as_a_name_or_several_and_claims_as_one_or_several():
    made = table()
    for left, right in (("A", "B"), (["A"], ("B",)), (["A", "A"], ["B", "B"])):
        assert_alike(judged(made, claim(left=left, right=right)), judged(made))
    assert_alike(fn.verdict(made, claim(), "paper").loc["c"], judged(made))
    assert_alike(fn.verdict((made, made.iloc[:0]), (c for c in [claim()]), "paper").loc["c"], judged(made))
    assert_alike(judged(made, claim(where={"alpha": (0.1,)})), judged(made, claim(where={"alpha": [0.1]})))


@pytest.mark.parametrize("n", [1, 2])
def test_fewer_than_three_seeds_decide_nothing(n):
    assert judged(table(n))["verdict"] == "not decided (fewer than 3 seeds)"


def test_seeds_that_only_one_side_has_are_no_pairs():
    """Three seeds of A and two of B are two pairs; without a common seed nothing is compared, and it says so."""
    made = table()
    assert judged(made[(made["method"] != "B") | (made["seed"] < 2)])["n"] == 2
    seen = judged(made.assign(seed=made["seed"] + 10 * (made["method"] == "B"), run=range(len(made))))
    assert seen["verdict"] == "not run at paper scale"
    assert seen["ours"] == "no seed has all that is compared in one setting; settings differ by alpha, run"


def test_one_missing_number_never_helps():
    made = table()
    made.loc[0, "value"] = np.nan
    assert judged(made)["verdict"] == "not decided"
    assert judged(made.astype({"value": "Float64"}))["verdict"] == "not decided"


def test_numbers_too_large_to_square_are_judged_without_a_warning():
    made = table()
    assert judged(made.assign(value=made["value"] * 1e300))["verdict"] == "not decided"


@pytest.mark.parametrize("wrong, said", [
    (lambda t: t["value"], "pandas.DataFrame, or a list of them, not on a Series"),
    (lambda t: t.to_dict("records"), "not on a dict"),
    (lambda t: t.set_index("seed"), "has no 'seed'; it needs method, seed, measure, value"),
    (lambda t: t.assign(seed=None), "the column 'seed' has empty places"),
    (lambda t: t.assign(value=t["value"].astype(str)), "make it numbers first, as by pandas.to_numeric"),
    (lambda t: t.assign(extra=[[1]] * len(t)), r"the column 'extra' has \[1\]"),
    (lambda t: pd.concat([t, t[["alpha"]]], axis=1), "has two columns 'alpha'"),
])  # fmt: skip
def test_tables_that_cannot_be_read_are_refused(wrong, said):
    with pytest.raises(BadTable, match=said) as error:
        judged(wrong(table()))
    assert len(str(error.value).splitlines()) == 1


@pytest.mark.parametrize("described, said", [
    (dict(kind="spread_below", tolerance=-2.0), "must be at least 0 for a spread"),
    (dict(printed=pd.DataFrame({"method": ["A"], "value": [1.0]})), "its printed table has no 'measure'"),
    (dict(right="A"), "'A' is on both sides"), (dict(left={"A"}), "must be a name, or a list of names"),
])  # fmt: skip
def test_claims_that_cannot_be_judged_are_refused(described, said):
    with pytest.raises(BadClaim, match=said):
        judged(table(), claim(**described))


def test_what_is_no_claim_and_what_is_no_scale_are_refused():
    with pytest.raises(BadClaim, match=r"is no claim; make one with fn\.Claim"):
        fn.verdict(table(), [{"kind": "above"}], "paper")
    with pytest.raises(ValueError, match="no scale 'Paper'; the scales are laptop, paper, smoke"):
        judged(table(), scale="Paper")
