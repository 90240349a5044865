"""FedFSA's Eq. 7 to 11 on a quadratic whose layers have a known sharpness, and from runs."""

from math import isnan

import pytest
import torch
from pytest import approx
from quadratics import vector
from small_grid import small_results

from fednb.algorithms.parts.fsa import layer_moves, weights_only
from fednb.core.vectors import Layout
from fednb.engines.problem import problem_of
from fednb.study.measurements import sensitivity
from fednb.study.measurements.sensitivity import (
    CHANCE,
    EQ7,
    EQ8,
    EQ9,
    EQ10,
    MEAN,
    RELEASED,
    SHARPNESS,
    STEPS,
    SUM,
    client_losses,
    of_layers,
    rank_correlation,
    rows,
    scores,
    shared,
)

LAYOUT = Layout(("a.weight", "b.weight"), ((2, 1), (1, 2)))
W, W0 = vector(3, 0, 0, 1), vector(4, 0, 2, 1)


def bowl(w):
    """½ ‖a‖² + ½ · 4 ‖b‖²: the second layer bends four times as much as the first."""
    return 0.5 * (w[:2].square().sum() + 4 * w[2:].square().sum())


@pytest.mark.parametrize(
    "step, a, b",
    [
        (SHARPNESS, 0.5 * 3 + 0.5 * 0.25, 0.5 * 4 + 2 * 0.25),  # ρ ‖g_k‖ + ½ h ρ²
        (EQ7, 3 * 0.3 + 0.5 * 0.09, 4 * 0.4 + 2 * 0.16),  # g_k ε_k + ½ h ε_k²
        (EQ8, 3.3 * 0.3, 5.6 * 0.4),  # (g_k + h ε_k) ε_k
        (EQ9, 0.5 * (16 - 9), 2 * (5 - 1)),  # ½ h (‖w0_k‖² − ‖w_k‖²)
        (EQ10, 4 * 1, 8 * 2),  # h w0_k (w0_k − w_k)
        (SUM, 1, 4),
        (MEAN, 0.5, 2),
        (RELEASED, 0, 1),  # (3, 0) and (4, 0) are both (1, 0) when scaled; (0, 1) becomes (1, 0)
    ],
)
def test_every_step_by_hand(step, a, b):
    """w = (3, 0 | 0, 1), so g = (3, 0 | 0, 4), ‖g‖ = 5; ρ = ½, so ε = (0.3, 0 | 0, 0.4); w0 − w = (1, 0 | 2, 0)."""
    assert scores(bowl, W, W0, LAYOUT, rho=0.5)[step].tolist() == approx([a, b], rel=1e-6)


def test_taking_a_layer_away_is_not_perturbing_it_alone():
    """L = w_a w_b at (1, 1), ρ = √2: ε = (1, 1) and 4 − 2 = 2, while all of ρ in one layer gives √2."""
    found = scores(lambda w: w[0] * w[1], vector(1, 1), vector(1, 2), Layout(("a", "b"), ((1,), (1,))), rho=2**0.5)
    assert found[EQ7].tolist() == approx([2, 2]) and found[SHARPNESS].tolist() == approx([2**0.5] * 2)
    assert found[EQ8].tolist() == approx([2, 2])  # this loss is linear in each layer
    assert found[EQ9].tolist() == found[EQ10].tolist() == approx([0, 1])


def test_after_one_step_of_gradient_descent_eq_11_is_eq_10():
    """w = w0 − η ∇L(w0): both factors of Eq. 10 are along the gradient, so Σ (w − w0)² = η |∇_k L(w0) · (w0 − w)|."""
    w0 = torch.linspace(-1, 2, 4, dtype=torch.float64)
    w = w0 - 0.1 * sensitivity.gradient(lambda v: v.exp().sum() + bowl(v) ** 2, w0)
    found = scores(lambda v: v.exp().sum() + bowl(v) ** 2, w, w0, LAYOUT, rho=0.1)
    assert found[SUM].tolist() == approx((0.1 * found[EQ10]).tolist())


@pytest.mark.parametrize("x, y, r", [
    ([1, 2, 3, 4], [10, 20, 30, 99], 1.0), ([1, 2, 3, 4], [9, 5, 2, 1], -1.0), ([1, 2, 3, 4], [1, 2, 4, 3], 0.8),
    ([1, 1, 2], [1, 2, 3], 3**0.5 / 2),  # ranks 1½, 1½, 3 against 1, 2, 3
    ([1, 1, 1, 2, 3], [1, 2, 3, 4, 5], 2 / 5**0.5),  # ranks 2, 2, 2, 4, 5: 8 / √(8 · 10)
])  # fmt: skip
def test_rank_correlation(x, y, r):
    """Spearman's 1 − 6 Σd² / (n (n² − 1)): 1 − 12/60 where two neighbours are exchanged."""
    assert rank_correlation(vector(*x), vector(*y)) == approx(r)
    assert isnan(rank_correlation(vector(1, 1, 1), vector(1, 2, 3)))


def test_the_share_of_layers_that_both_select():
    assert shared(vector(5, 4, 1, 0), vector(9, 0, 8, 1), top=2) == 0.5
    assert shared(vector(5, 4, 1, 0), vector(0, 1, 8, 9), top=2) == 0.0
    assert shared(vector(5, 4), vector(0, 1), top=3) == 1.0


def test_rows_are_means_over_clients_and_steps_follow_each_other():
    """Eq. 7 ranks like the sharpness at one client and the other way round at the second; Eq. 8 ranks like Eq. 7."""
    order, other = vector(3, 2, 1), vector(1, 2, 3)
    first = dict.fromkeys(STEPS, order)
    second = {step: order if step == SHARPNESS else other for step in STEPS}
    found = {(row["method"], row["measure"]): row["value"] for row in rows([first, second], top=1)}
    assert found[EQ7, "rank correlation"] == found[RELEASED, "rank correlation"] == approx(0)
    assert found[EQ7, "rank correlation with the step before"] == approx(0)
    assert found[EQ8, "rank correlation with the step before"] == approx(1)
    assert found[EQ7, "top layers shared"] == 0.5 and found[CHANCE, "top layers shared"] == approx(1 / 3)


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FEDNB_STORE", str(tmp_path_factory.mktemp("store")))
        how = dict(evaluation="personal", partition="dirichlet-equal(alpha=0.5)", tune_epochs=0, participation=0.5)
        yield small_results(methods=("FedFSA",), what=["model", "move"], **how)


def test_from_runs(results):
    """cnn-small has four weight layers; two clients in each of two rounds; seven steps besides the sharpness."""
    found = of_layers(results, radii=(0.05, 0.5))
    counts = found.groupby("measure").size().to_dict()
    assert counts == {"rank correlation": 28, "rank correlation with the step before": 28, "top layers shared": 32,
                      "share of all layers": 2 * 2 * 4 * 8}  # fmt: skip
    assert set(found["training"]) == {"FedFSA"} and found["value"].notna().all()
    moves = found[found["method"].isin([EQ9, EQ10, SUM, MEAN, RELEASED]) & (found["measure"] == "share of all layers")]
    by_rho = moves.drop(columns="rho").set_index([c for c in moves if c not in ("rho", "value")])["value"]
    assert by_rho.groupby(level=list(range(by_rho.index.nlevels))).nunique().max() == 1  # no radius in them


@pytest.mark.parametrize("step, reading", [(MEAN, "paper"), (RELEASED, "released")])
def test_scores_of_runs_are_those_that_the_method_selects_by(results, step, reading):
    """Eq. 11 from the probe of the first round is `FlexibleRadius`'s own number, a mean over its two clients."""
    (_, run), found = next(iter(results)), of_layers(results, radii=(0.1,))
    kept, objective = run.probed(0), problem_of(run.setting, run.seed).objective
    first, _ = objective.start(torch.float64, torch.device("cpu"))
    weights = torch.tensor(weights_only(kept.layout))
    each = [layer_moves(kept.layout, model, first, reading)[weights] for model in kept.vectors["model"]]
    wanted = torch.stack([scores / scores.sum() for scores in each]).mean(0)
    mine = found[(found["round"] == 0) & (found["measure"] == "share of all layers") & (found["method"] == step)]
    assert len(each) == 2 and mine["value"].tolist() == approx(wanted.tolist())
    assert mine["layer"].tolist() == ["conv1.weight", "conv2.weight", "fc1.weight", "fc2.weight"]


def test_losses_are_on_what_the_client_trained_on(results):
    """50 samples each, 35 to train on: none of them is in the client's own test split."""
    (_, run) = next(iter(results))
    (loss,) = client_losses(run, (2,), count=500, device="cpu")
    problem = problem_of(run.setting, run.seed)
    x, _ = problem.samples
    tested = problem.inputs(x[problem.own[2]]).double()
    assert len(loss.y) == 35 and len(tested) == 15
    assert (loss.x[:, None] - tested).flatten(2).abs().amax(-1).min() > 0
    assert len(client_losses(run, (2,), count=10, device="cpu")[0].y) == 10
