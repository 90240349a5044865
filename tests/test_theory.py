"""Theorem IV.1 on quadratics: rounds that can be worked out by hand, and what the filter does to each band."""

from math import sqrt

import pytest
import torch
from pytest import approx

from fednb.algorithms.catalogue import method
from fednb.filters import HighPass
from fednb.study.measurements import theorem as theory
from fednb.study.measurements.theorem import CLIENTS, SIZE, STEPS, Quadratics, made, of_band, path

FEDAVG, FILTERED = method("fedavg"), method("specgradfilter")
CASES = [(clients, gradient) for clients in ("low", "high") for gradient in ("low", "high")]


def test_gradients_are_those_of_the_losses():
    """f_k(w) = ½⟨w, H_k w⟩ + ⟨b_k, w⟩, and F = ½⟨w, H̄ w⟩ because the b_k cancel."""
    problem, w = made(0, "high", "low")
    rows = w.expand(CLIENTS, -1).clone().requires_grad_()
    curved = torch.fft.irfft(problem.curvature * torch.fft.rfft(rows), n=SIZE)
    losses = 0.5 * (rows * curved).sum(-1) + (problem.pull * rows).sum(-1)
    (g,) = torch.autograd.grad(losses.sum(), rows)
    assert torch.allclose(problem.gradients(rows.detach()), g)
    assert torch.allclose(problem.gradient(w), g.mean(0))
    assert problem.loss(w) == approx(losses.mean().item())
    assert problem.gradient(torch.zeros_like(w)).abs().max() < 1e-12


@pytest.mark.parametrize("clients, gradient", CASES)
def test_problems_are_of_their_bands(clients, gradient):
    """δ² = 1 in one band, ‖∇F(w⁰)‖ = 1 in the other; the bands are what the filter removes and what it keeps."""
    problem, w = made(1, clients, gradient)
    other = {"low": "high", "high": "low"}
    assert problem.pull.square().sum(-1).mean().item() == approx(1.0)
    assert problem.pull.sum(0).abs().max() < 1e-12
    assert of_band(problem.pull, other[clients]).abs().max() < 1e-12
    assert problem.gradient(w).norm().item() == approx(1.0)
    assert of_band(problem.gradient(w), other[gradient]).abs().max() < 1e-12
    assert torch.equal(of_band(w, "high"), HighPass(0.05)(w))


def test_one_curvature_for_all_is_gradient_descent():
    """H_k = h: the mean of the clients goes (1 − ηh)^E w, and client k is b_k (1 − (1 − ηh)^E) / h beside it."""
    h, lr = 0.5, 0.1
    problem, w = made(0, "high", "high")
    problem = Quadratics(torch.full_like(problem.curvature, h), problem.pull)
    seen = path(FEDAVG, problem, w, 3, lr)
    shrunk = (1 - lr * h) ** STEPS
    assert seen.squared == approx([(h * shrunk**t) ** 2 * w.square().sum().item() for t in range(4)])
    assert seen.apart == approx([((1 - shrunk) / (h * lr * STEPS)) ** 2] * 3)
    assert seen.mean == approx(sum(seen.squared[:3]) / 3)


def test_a_low_frequency_gradient_is_a_fixed_point_of_the_filter_alone():
    """Where all clients' gradients have low frequencies only, the filtered algorithm stands still; FedAvg descends."""
    problem, w = made(0, "low", "low")
    assert path(FILTERED, problem, w, 4, 0.1).squared == approx([1.0] * 5, abs=1e-9)
    assert path(FEDAVG, problem, w, 4, 0.1).squared[-1] < 0.5


def test_the_filter_takes_the_drift_of_low_frequencies_and_leaves_that_of_high_ones():
    """At the optimum gradients differ by b_k: δ² = 1 in the limit of small rates, and none of it where b_k is low."""
    for clients, left in (("low", 0.0), ("high", 1.0)):
        problem, w = made(2, clients, "high")
        assert path(FEDAVG, problem, 0 * w, 1, 1e-4).apart == approx([1.0], abs=1e-3)
        assert path(FILTERED, problem, 0 * w, 1, 1e-4).apart == approx([left], abs=1e-3)


def test_drift_moves_the_fixed_point_by_the_square_of_the_rate():
    """‖∇F‖² at FedAvg's fixed point is of the order η² E² δ²: half the rate, a quarter (to a tenth of it)."""
    problem, w = made(0, "high", "high")
    slow, fast = (path(FEDAVG, problem, 0 * w, rounds, lr).squared[-1] for rounds, lr in ((400, 0.005), (200, 0.01)))
    assert slow > 0 and fast / slow == approx(4.0, rel=0.1)
    problem, _ = made(0, "low", "high")
    assert path(FILTERED, problem, 0 * w, 50, 0.01).squared[-1] < 1e-20


@pytest.fixture(scope="module")
def table():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(theory, "ROUNDS", {"smoke": (4, 16)})
        patch.setattr(theory, "FIXED", 3)
        return theory.theorem("smoke")


def test_the_table_has_every_measure_in_every_case(table):
    counts = table.groupby("measure").size().to_dict()
    each = 4 * 2  # cases, methods
    assert counts == {"squared gradient": each * 16, "mean squared gradient": each * 2 + 4 * 2, "growth": each,
                      "gradient left": each, "drift": each, "residual": each}  # fmt: skip
    assert table["value"].notna().all() and set(table["seed"]) == {0}
    assert set(table["clients"]) == {"differ low", "differ high"}
    assert set(table["gradient"]) == {"starts low", "starts high"}


def test_growth_is_of_the_mean_times_the_root_of_the_rounds(table):
    """Standing still keeps the mean at 1, so that √T times it grows by √(16 / 4) = 2; the first term does not grow."""
    stuck = table[(table["method"] == "SpecGradFilter") & (table["clients"] == "differ low")]
    stuck = stuck[stuck["gradient"] == "starts low"].set_index("measure")["value"]
    assert stuck["growth"] == approx(2.0) and stuck["gradient left"] == approx(1.0)
    first = table[table["method"] == theory.FIRST_TERM].groupby("T")["value"].mean()
    assert first[4] == approx(2 * first[16])


def test_the_first_term_bounds_fedavg_where_nothing_drifts():
    """With one curvature FedAvg is gradient descent: mean ‖∇F‖² ≤ 2 L (F(w⁰) − F*) / √T, the theorem's first term."""
    problem, w = made(0, "low", "high")
    same = Quadratics(problem.curvature[:1].expand_as(problem.curvature), problem.pull)
    for T in (4, 16, 64):
        seen = path(FEDAVG, same, w, T, 1 / (sqrt(T) * STEPS))
        assert seen.mean <= 2 * same.loss(w) / sqrt(T)
