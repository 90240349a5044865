"""Verdicts where one of several rivals scatters far more than the others, such as one that learns nothing at times."""

import numpy as np
import pandas as pd
import pytest

import fednb as fn
from fednb.study.claims import Claim, outcome_class
from fednb.study.claims.intervals import Noise, pooled
from fednb.study.claims.simulation import made_runs, outcomes, with_noisy_rival

DRAWS = 2000
QUIET, ALSO, WILD = np.array([1.0, 2.0, 3.0]), np.array([2.0, 1.0, 3.5]), np.array([-4000.0, 0.0, 4000.0])
FIRST = Claim(paper="made", id="c", section="s", says="so", kind="first", left="left")


def allowed(rate):
    """A rate with three standard errors of its simulation."""
    return rate + 3 * np.sqrt(rate * (1 - rate) / DRAWS)


def with_noisy(ratio, rival, n=3, settings=1, noisy=1):
    """Made runs: left and the first of five rivals level, the others far behind; one scatters more in some settings."""
    runs = made_runs("first", np.random.default_rng(0), DRAWS, settings, n, 0.0)
    return np.concatenate([with_noisy_rival(runs[:, :noisy], rival, ratio), runs[:, noisy:]], axis=1)


@pytest.mark.parametrize("settings, noisy, n", [(1, 1, 3), (6, 6, 3), (6, 1, 3), (1, 1, 5), (6, 6, 5), (6, 1, 5)])
@pytest.mark.parametrize("ratio", [2.0, 4.0, 8.0, 16.0, 40.0])
def test_a_noisy_rival_far_behind_misleads_nobody(ratio, settings, noisy, n):
    """Left is level with another: it is the first by chance in 5.5% at most, and is not the first in 5.5% at most."""
    found = outcomes("first", with_noisy(ratio, 2, n, settings, noisy))
    assert np.isin(found, ["holds", "average"]).mean() <= allowed(0.055)
    assert (found == "fails").mean() <= allowed(0.055)


@pytest.mark.parametrize(
    "settings, noisy, n, most", [(1, 1, 3, 0.145), (6, 6, 3, 0.09), (6, 1, 3, 0.1), (6, 6, 5, 0.075)]
)
@pytest.mark.parametrize("ratio", [2.0, 4.0, 8.0, 16.0, 40.0])
def test_a_noisy_rival_that_is_level_misleads_less(ratio, settings, noisy, n, most):
    """One spread for all rivals said in up to 22% that left is the first, and in up to 41% that it is not."""
    found = outcomes("first", with_noisy(ratio, 1, n, settings, noisy))
    assert np.isin(found, ["holds", "average"]).mean() <= allowed(most)
    assert (found == "fails").mean() <= allowed(most)


def test_a_noisy_comparison_is_no_part_of_the_others():
    """In one block, in all of several, in one of several: it has its own deviation, the others theirs without it."""
    one = Noise.of([QUIET, ALSO, QUIET, WILD], ["a"] * 4, [*"pqrs"])
    assert one.at("a", "s") == (pytest.approx(4000.0), 2.0)
    assert one.at("a", "p") == one.at("a", "q") == pooled([QUIET, ALSO, QUIET], ["a"] * 3)
    labels = [(block, pair) for block in "ab" for pair in "pqrs"]
    blocks, pairs = zip(*labels, strict=True)
    all_ = Noise.of([QUIET, ALSO, QUIET, WILD] * 2, blocks, pairs)
    assert all_.at("a", "s") == all_.at("b", "s") == (pytest.approx(4000.0), 4.0)
    assert all_.of_sum({"a": 1 / 12, "b": 1 / 12}, "s") == (pytest.approx(4000 / np.sqrt(6)), 4.0)
    quiet = pooled([QUIET, ALSO, QUIET] * 2, [*"aaabbb"])
    assert all_.at("a", "p") == quiet and all_.of_sum({"a": 0.5, "b": 0.5}, "q") == quiet
    rare = Noise.of([QUIET, ALSO, QUIET, WILD, QUIET, ALSO, QUIET, 20 * ALSO], blocks, pairs)
    assert rare.at("a", "s") == (pytest.approx(4000.0), 2.0) and rare.at("b", "s") != rare.at("a", "s")
    assert rare.at("a", "p")[0] < 2


def test_a_comparison_is_set_aside_in_the_one_block_where_it_is_noisy():
    """Its sum over blocks takes the variance of each; what never varies makes nothing else noisy."""
    labels = [(block, pair) for block in "abcdef" for pair in "pqrs"]
    samples = [QUIET, ALSO, QUIET, ALSO] * 6
    samples[3] = np.array([-40.0, 0.0, 40.0])
    blocks, pairs = zip(*labels, strict=True)
    noise = Noise.of(samples, blocks, pairs)
    assert noise.at("a", "s") == (pytest.approx(40.0), 2.0) and noise.at("a", "p")[0] == pytest.approx(1.1, abs=0.2)
    se, df = noise.of_sum(dict.fromkeys("abcdef", 1 / (36 * 3)), "s")
    assert se == pytest.approx(np.sqrt(1600 / 108), rel=0.01) and df == pytest.approx(2.0, abs=0.1)
    still = Noise.of([0 * QUIET, 0 * QUIET, QUIET], ["a"] * 3, [*"pqr"])
    assert not still.pairs and not still.alone and still.at("a", "p") == still.at("a", "r") == (still.sd, still.df)


@pytest.mark.parametrize("settings, noisy", [(1, 1), (3, 3), (3, 1)])
def test_verdicts_and_simulation_agree_with_a_noisy_rival(settings, noisy):
    """Through `fn.verdict` as through the arrays, in draws of which some have a noisier rival and some have not."""
    runs = np.concatenate([with_noisy(ratio, rival, settings=settings, noisy=noisy)[:4] for ratio in (1.0, 9.0, 40.0)
                           for rival in (1, 2)])  # fmt: skip
    runs[::2, :, 0] += 4
    found = []
    for each in runs:
        rows = [{"alpha": s, "method": "left" if r == 0 else f"r{r}", "seed": i, "measure": "accuracy",
                 "value": float(each[s, r, i])} for s, r, i in np.ndindex(*each.shape)]  # fmt: skip
        found.append(outcome_class(fn.verdict(pd.DataFrame(rows), [FIRST], "paper").loc["c", "verdict"]))
    assert found == list(outcomes("first", runs)) and len(set(found)) > 1


def test_who_learns_nothing_with_two_of_three_seeds_leaves_the_other_comparisons_sharp():
    """60 against 52 ± 0.7 is decided; against 50, 9 and 10 it is not, and only that keeps the sentence open."""
    values = {"left": (59.6, 60.5, 60.6), "steady": (52.3, 53.2, 51.8), "other": (50.4, 49.4, 50.3)}
    rows = [{"method": name, "seed": seed, "measure": "accuracy", "value": each[seed]}
            for name, each in values.items() for seed in range(3)]  # fmt: skip
    alone = fn.verdict(pd.DataFrame(rows), [FIRST], "paper").loc["c"]
    collapsed = [{"method": "stuck", "seed": seed, "measure": "accuracy", "value": value}
                 for seed, value in enumerate((50.5, 8.7, 9.5))]  # fmt: skip
    beside = fn.verdict(pd.DataFrame(rows + collapsed), [FIRST], "paper").loc["c"]
    assert alone["verdict"] == "holds" and beside["verdict"].startswith("not decided")
    assert beside["rests_on"].endswith("stuck") and beside["effect"] == pytest.approx(60.23 - 22.9, abs=0.01)
    ahead = fn.verdict(pd.DataFrame(rows + collapsed), [Claim(**vars(FIRST) | {"tolerance": 8.0})], "paper").loc["c"]
    assert ahead["rests_on"].endswith("steady") and ahead["high"] - ahead["low"] < 3


def test_only_the_named_rival_is_made_noisier():
    """Ten times as far from the mean of all that it has, which stays; all others are as they were."""
    runs = made_runs("first", np.random.default_rng(0), 50, 3, 3, 0.0)
    noisy = with_noisy_rival(runs, 2, 10.0)
    assert noisy[:, :, 2].mean() == pytest.approx(runs[:, :, 2].mean())
    assert noisy[:, :, 2].std() == pytest.approx(10 * runs[:, :, 2].std())
    assert np.array_equal(np.delete(noisy, 2, axis=2), np.delete(runs, 2, axis=2))
