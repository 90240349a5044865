"""No claim holds on a number that is missing, not finite or no number, whatever its kind and wherever the number is."""

from math import inf, nan

import pandas as pd
import pytest
from every_kind import EVERY_KIND

from fednb.study.claims import RULES, BadClaim, BadTable, Claim, judging, verdict


@pytest.fixture(scope="module", autouse=True)
def judged_once():
    """Judge a table once, however often it comes: whatever is no number is read as nan, so that many tables are one."""
    judge, known = judging._row, {}

    def row(table, claim, scale):
        about = (repr((claim, claim.printed)), scale, str(table.dtypes.to_dict()), repr(table.to_dict("split")))
        if about not in known:
            known[about] = judge(table, claim, scale)
        return dict(known[about])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(judging, "_row", row)
        yield


def claim(of, **more):
    described = dict(id="c", section="s", says="so", kind=of, measure="accuracy")
    return Claim.of("made", described | EVERY_KIND[of][0] | more)


def outcome(kind, table):
    return verdict(table, [claim(kind)], "paper").loc["c"]


def same_place(rows, at):
    """The rows that differ from one by their seed alone."""
    place = [{name: value for name, value in row.items() if name not in ("seed", "value")} for row in rows]
    return tuple(i for i in range(len(rows)) if place[i] == place[at])


def test_there_is_a_table_for_every_kind_on_which_it_holds():
    assert set(EVERY_KIND) == set(RULES)
    assert {outcome(kind, pd.DataFrame(rows))["verdict"] for kind, (_, rows) in EVERY_KIND.items()} == {"holds"}


RIVALS = {
    "above": "B",
    "each_above": "B",
    "some_above": "B",
    "first": "BC",
    "first_on_average": "BC",
    "top": "BC",
    "gain_positive": "B",
}


@pytest.mark.parametrize("kind", EVERY_KIND)
@pytest.mark.parametrize("bad", [nan, inf, -inf, None, "text", "", 10**400])
def test_a_number_that_is_none_never_makes_a_claim_hold(kind, bad):
    """In every row in turn, for one seed and for all; but a rival that diverged is behind."""
    _, rows = EVERY_KIND[kind]
    whole = pd.DataFrame(rows).astype({"value": object})
    for places in sorted({each for at in range(len(rows)) for each in ((at,), same_place(rows, at))}):
        table = whole.copy()
        for place in places:
            table.at[place, "value"] = bad
        seen, where = outcome(kind, table), rows[places[0]]
        if where["method"] in RIVALS.get(kind, "") or (kind == "best_at" and where["rho"] > 0):
            assert seen["verdict"] == "holds"
        else:
            assert seen["verdict"].startswith(("not decided", "does not hold")), places
            assert "not finite" in seen["ours"]


@pytest.mark.parametrize("kind", EVERY_KIND)
def test_an_empty_table_decides_nothing(kind):
    _, rows = EVERY_KIND[kind]
    assert outcome(kind, pd.DataFrame(rows).iloc[:0])["verdict"] == "not run at paper scale"
    assert verdict([], [claim(kind)], "paper").loc["c", "verdict"] == "not run at paper scale"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", EVERY_KIND)
def test_a_table_without_a_column_is_refused_or_decides_nothing(kind):
    _, rows = EVERY_KIND[kind]
    for column in rows[0]:
        table = pd.DataFrame(rows).drop(columns=column)
        if column in ("method", "seed", "measure", "value"):
            with pytest.raises(BadTable, match=f"has no '{column}'; it needs method, seed, measure, value"):
                outcome(kind, table)
        elif column in (claim(kind).along, "band"):
            seen = outcome(kind, table)
            assert (seen["verdict"], seen["ours"]) == (
                "not decided (cannot be judged)",
                f"cannot be judged: the table has no column {column!r}",
            )


@pytest.mark.parametrize("kind", [kind for kind in EVERY_KIND if EVERY_KIND[kind][0].get("along") == "rho"])
def test_a_column_with_words_among_numbers_decides_nothing(kind):
    table = pd.DataFrame(EVERY_KIND[kind][1]).astype({"rho": object})
    table.at[0, "rho"] = "much"
    assert outcome(kind, table)["verdict"] == "not decided (cannot be judged)"


def test_a_number_that_a_claim_does_not_depend_on_decides_nothing():
    """B is not asked about; A at rho 9 lies beyond the largest that is."""
    beside = pd.DataFrame(EVERY_KIND["at_most"][1])
    beside = pd.concat([beside, beside.assign(method="B", value=nan)])
    assert outcome("at_most", beside)["verdict"] == "holds"
    swept = pd.DataFrame(EVERY_KIND["gain_positive"][1])
    beyond = pd.concat([swept, swept[swept["rho"] == 2].assign(rho=9, value=nan)])
    bounded = claim("gain_positive", most=2.0)
    assert verdict(beyond, [bounded], "paper").loc["c", "verdict"] == "holds"


@pytest.mark.parametrize(
    "wrong, said",
    [
        (dict(tolerance=nan), "claim c: tolerance = nan, must be a finite number"),
        (dict(tolerance="0.5"), "claim c: tolerance = '0.5', must be a finite number"),
        (dict(tolerance=True), "claim c: tolerance = True, must be a finite number"),
        (dict(most=nan), "claim c: most = nan, must be a number"),
        (dict(left=3), "claim c: left = 3, must be a name, or a list of names"),
        (dict(left=[]), "claim c: left = [], must be a name, or a list of names"),
        (dict(left=[["A"]]), "claim c: left = [['A']], must be a name, or a list of names"),
        (dict(where=3), "claim c: where = 3, must be a table of values"),
        (dict(where={"alpha": {}}), "must be a table of values, or of lists of them"),
        (dict(lefft="A"), "claim c: no field 'lefft'; closest: left"),
        (dict(printed=3), "claim c: no field 'printed'"),
        (dict(kind=3), "claim c: kind = 3, must be a text of one line"),
        (dict(says=""), "claim c: says = '', must be a text"),
        (dict(id=3), "claim 3: id = 3, must be a text of one line"),
    ],
)
def test_a_field_that_is_not_as_it_should_be_is_named(wrong, said):
    with pytest.raises(BadClaim) as refused:
        claim("above", **wrong)
    assert said in str(refused.value)


@pytest.mark.parametrize(
    "kind, lacking",
    [("above", "right"), ("first", "left"), ("gain_grows", "along"), ("best_at", "at"), ("falls_along", "along")],
)
def test_a_claim_without_what_its_kind_looks_at_is_refused(kind, lacking):
    described = {name: value for name, value in EVERY_KIND[kind][0].items() if name != lacking}
    short = Claim.of("made", dict(id="c", section="s", says="so", kind=kind, measure="accuracy") | described)
    with pytest.raises(BadClaim, match=f"claim c: a claim of the kind {kind} needs `{lacking}`"):
        verdict(pd.DataFrame(EVERY_KIND[kind][1]), [short], "paper")


def test_left_and_right_two_by_two_are_as_many():
    with pytest.raises(BadClaim, match="each_above takes left and right two by two, not 2 and 1 names"):
        claim("each_above", left=["A", "B"]).check()
