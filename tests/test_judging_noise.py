"""Verdicts where settings scatter unequally: a noisier one is seen, has its own spread, and misleads less often."""

import numpy as np
import pandas as pd
import pytest

import fednb as fn
from fednb.study.claims import Claim, outcome_class
from fednb.study.claims.intervals import Noise, noisier, pooled
from fednb.study.claims.simulation import made_runs, outcomes

DRAWS = 2000
QUIET, NOISY = np.array([1.0, 2.0, 3.0]), np.array([-40.0, 0.0, 40.0])


def allowed(rate):
    """A rate with three standard errors of its simulation."""
    return rate + 3 * np.sqrt(rate * (1 - rate) / DRAWS)


def unequal(ratio, n=3, settings=6, noisy=1):
    """Made runs without any effect; the last settings scatter `ratio` times as much as the others."""
    scale = np.array([1.0] * (settings - noisy) + [ratio] * noisy)[:, None, None]
    return made_runs("above", np.random.default_rng(0), DRAWS, settings, n, 0.0) * scale


LEFT = np.array([1, 0])[:, None]


@pytest.mark.parametrize("settings, noisy", [(6, 1), (6, 2), (6, 3), (12, 1)])
@pytest.mark.parametrize("ratio", [2.0, 4.0, 8.0, 16.0])
def test_unequal_noise_hardly_misleads(ratio, settings, noisy):
    """Three seeds: no effect "on average" in 6.5%, a printed effect of half the pooled sd "does not hold" in 6.5%."""
    runs = unequal(ratio, settings=settings, noisy=noisy)
    half = 0.5 * np.sqrt((settings - noisy + noisy * ratio**2) / settings)
    assert np.isin(outcomes("above", runs), ["holds", "average"]).mean() <= allowed(0.065)
    assert (outcomes("above", runs + half * LEFT, printed=half) == "fails").mean() <= allowed(0.065)


@pytest.mark.parametrize(
    "ratio, n, most", [(3.0, 3, 0.17), (8.0, 3, 0.085), (3.0, 5, 0.115), (8.0, 5, 0.055), (3.0, 10, 0.06)]
)
def test_a_noisy_setting_without_effect_among_large_ones(ratio, n, most):
    """Five settings far ahead, the noisy one level: "holds" by chance; one spread for all would say so in 20 to 26%."""
    ahead = 99 * np.array([1] * 5 + [0])[:, None, None] * LEFT
    assert (outcomes("above", unequal(ratio, n) + ahead) == "holds").mean() <= allowed(most)


@pytest.mark.parametrize("n", [3, 5])
@pytest.mark.parametrize("settings", [2, 6, 12])
def test_settings_that_scatter_alike_are_rarely_taken_apart(n, settings):
    """In 1% for all settings together."""
    variances = np.random.default_rng(0).normal(size=(4 * DRAWS, settings, n)).var(-1, ddof=1)
    assert noisier(variances, n - 1).any(-1).mean() <= 0.01 + 3 * np.sqrt(0.01 * 0.99 / (4 * DRAWS))


def test_several_noisier_ones_are_found_one_after_another():
    """400 hides 10,000 from nobody: without the larger it is 200 times the mean of the others itself."""
    assert list(noisier([1.0, 2.0, 1e4, 1.0, 400.0, 3.0, 2.0], 4)) == [False, False, True, False, True, False, False]
    assert not noisier([0.0, 0.0], 2).any() and not noisier([5.0], 2).any()


def test_a_noisier_block_has_its_own_deviation_and_the_others_keep_that_of_all():
    """QUIET has the variance 1, NOISY 1600; the mean of six has the variances' sum over 36 · 3, df by Satterthwaite."""
    samples, blocks = [QUIET] * 5 + [NOISY], [*"abcdef"]
    noise = Noise.of(samples, blocks)
    assert noise.apart == {"f"} and noise.at("f") == (pytest.approx(40.0), 2.0)
    assert noise.at("a") == pooled(samples, blocks) == (pytest.approx(np.sqrt(1605 / 6)), 12.0)
    se, df = noise.of_sum(dict.fromkeys(blocks, 1 / (36 * 3)))
    assert se == pytest.approx(np.sqrt(1605 / 108)) and df == pytest.approx(2 * 1605**2 / (1600**2 + 5))
    alike = Noise.of([QUIET] * 3, [*"abc"])
    assert not alike.apart and alike.of_sum({"a": 0.25, "b": 0.25}) == (pytest.approx(np.sqrt(0.5)), 6.0)


def test_verdicts_and_simulation_agree_where_noise_is_unequal():
    """Through `fn.verdict` as through the arrays, in draws of which some have a noisier setting and some have not."""
    runs = unequal(9.0)[:12] + 4 * LEFT
    claim = Claim(paper="made", id="c", section="s", says="so", kind="above", left="r0", right="r1")
    found = []
    for each in runs:
        rows = [{"alpha": s, "method": f"r{r}", "seed": i, "measure": "accuracy", "value": float(each[s, r, i])}
                for s, r, i in np.ndindex(*each.shape)]  # fmt: skip
        found.append(outcome_class(fn.verdict(pd.DataFrame(rows), [claim], "paper").loc["c", "verdict"]))
    assert found == list(outcomes("above", runs)) and len(set(found)) > 1
