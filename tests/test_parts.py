"""Every part on a quadratic small enough to work out by hand: L_k(w) = ½ (w − a_k)ᵀ H (w − a_k), η = 0.1."""

import pytest
import torch
from pytest import approx
from quadratics import QuadraticRounds, heterogeneous, one_round, quadratic, vector

from fednb.algorithms.parts import (
    ClientMomentum,
    Dyn,
    FilterGradient,
    FilterPerturbation,
    Prox,
    Sam,
    Scaffold,
    WmsamMomentum,
)
from fednb.core.rounds import BadReading, Method, Part, part
from fednb.core.vectors import Layout, norm
from fednb.filters import HighPass, Rescale

FEDAVG = Method("FedAvg")


def only(*parts) -> Method:
    return Method("m", *parts)


# Algorithm 0 itself


def test_fedavg_steps_towards_each_clients_minimum():
    """a = 1 and 3 from 0: w_k = 0.1 and 0.3, so w = 0.2; the second round gives 0.28 and 0.48, w = 0.38."""
    f = QuadraticRounds(FEDAVG, quadratic(1.0, 3.0))
    assert f.round().w.view(-1).tolist() == approx([0.1, 0.3])
    assert f.s.w.item() == approx(0.2)
    f.round()
    assert f.s.w.item() == approx(0.38)


def test_curvature_scales_the_step():
    """x₁ = w − η H (w − a): from (0, 0) with H = diag(1, 4) and a = (1, 1), (0.1, 0.4)."""
    k, _ = one_round(FEDAVG, quadratic([1.0, 1.0], curvature=[1.0, 4.0]))
    assert k.w[0].tolist() == approx([0.1, 0.4])


def test_clients_count_by_size():
    """Moves 0.1 and 0.3 of clients with 1 and 3 samples: 0.25 · 0.1 + 0.75 · 0.3 = 0.25."""
    _, s = one_round(FEDAVG, quadratic(1.0, 3.0), n=(1, 3))
    assert s.w.item() == approx(0.25)


def test_a_part_may_weigh_clients_otherwise():
    """Moves 0.1 and 0.3; weights in proportion to a_k² = 1 and 9 give 0.1 · 0.1 + 0.9 · 0.3 = 0.28, as `k.p` says."""

    @part
    class BySquare(Part):
        def weigh(self, k, s, p):
            """p_k ∝ Δ_k²"""
            return k.delta**2 / (k.delta**2).sum(0)

    k, s = one_round(only(BySquare()), quadratic(1.0, 3.0))
    assert s.w.item() == approx(0.28)
    assert k.p.view(-1).tolist() == approx([0.1, 0.9])


def test_server_rate_scales_the_mean_move():
    """η_g = ½ halves 0.2."""
    _, s = one_round(FEDAVG, quadratic(1.0, 3.0), server_lr=0.5)
    assert s.w.item() == approx(0.1)


def test_weight_decay_is_added_behind_the_clip():
    """From w = 30 at its minimum's side a = 10: g = 20 is clipped to 2, wd · w = 3 is not: 30 − 0.1 · 5 = 29.5."""
    k, _ = one_round(FEDAVG, quadratic(10.0), w=30.0, clip_norm=2.0, weight_decay=0.1)
    assert k.w.item() == approx(29.5, abs=1e-6)


# Sam


def test_sam_takes_the_gradient_uphill():
    """H = diag(1, 4), a = 0, w = (3, 1): g = (3, 4), δ = 0.1 (0.6, 0.8), H(w + δ) = (3.06, 4.32)."""
    k, _ = one_round(only(Sam(rho=0.1)), quadratic([0.0, 0.0], curvature=[1.0, 4.0]), w=[3.0, 1.0])
    assert k.w[0].tolist() == approx([3 - 0.306, 1 - 0.432], abs=1e-8)
    assert k.evaluations.item() == 2


def test_sam_has_fl_simulators_epsilon():
    """δ = ρ g / (‖g‖ + 1e-7): at ‖g‖ = 1e-7 half the radius, so the step is η (1e-7 + ρ/2); at g = 0 nothing."""
    k, _ = one_round(only(Sam(rho=0.1)), quadratic(0.0), w=1e-7)
    assert k.delta.item() == approx(-0.1 * (1e-7 + 0.05), rel=1e-12)
    k, _ = one_round(only(Sam(rho=0.1)), quadratic(5.0), w=5.0)
    assert k.delta.item() == 0.0


def test_sams_norm_is_over_the_whole_model_and_per_client():
    """Two layers with g = 3 and 4 share ‖g‖ = 5; the second client, with g = (30, 40), has the same δ."""
    layout = Layout(("a", "b"), ((1,), (1,)))
    k, _ = one_round(only(Sam(rho=1.0)), quadratic([-3.0, -4.0], [-30.0, -40.0]), layout=layout)
    assert k.w[0].tolist() == approx([-0.36, -0.48], abs=1e-7)
    assert k.w[1].tolist() == approx([-3.06, -4.08], abs=1e-7)


def test_sam_ascends_on_the_raw_gradient():
    """Clip and weight decay have no part in δ. w = (3, 4), a = (0, 4): g = (3, 0), δ = (1, 0), g(w + δ) = (4, 0).

    Weight decay 1 adds (3, 4): w_k = w − 0.1 (7, 4). A clip at 2 acts on (4, 0) alone: w_k = w − 0.1 (5, 4).
    """
    clients, numbers = quadratic([0.0, 4.0]), dict(w=[3.0, 4.0], weight_decay=1.0)
    free, _ = one_round(only(Sam(rho=1.0)), clients, **numbers)
    clipped, _ = one_round(only(Sam(rho=1.0)), clients, clip_norm=2.0, **numbers)
    assert free.w[0].tolist() == approx([2.3, 3.6], abs=1e-7)
    assert clipped.w[0].tolist() == approx([2.5, 3.6], abs=1e-6)


# FilterPerturbation


def test_filtered_perturbation_is_not_scaled_up_again():
    """g = (1, 1, 1, −1) has ‖g‖ = 2, δ = (0.05, 0.05, 0.05, −0.05); one frequency of three, the mean 0.025, goes.

    H = 1, so the step is −η (g + δ̃) = −0.1 (1.025, 1.025, 1.025, −1.075).
    """
    method = only(Sam(rho=0.1), FilterPerturbation(HighPass(0.5)))
    k, _ = one_round(method, quadratic([-1.0, -1.0, -1.0, 1.0]))
    assert k.w[0].tolist() == approx([-0.1025, -0.1025, -0.1025, 0.1075], abs=1e-8)
    assert k.evaluations.item() == 2


def test_perturbation_is_filtered_layer_by_layer():
    """Layers (1, 1) and (1, −1) of the same g: at 0.5 the first loses all of δ, the second, without mean, nothing."""
    layout = Layout(("a", "b"), ((2,), (2,)))
    method = only(Sam(rho=0.1), FilterPerturbation(HighPass(0.5)))
    k, _ = one_round(method, quadratic([-1.0, -1.0, -1.0, 1.0]), layout=layout)
    assert k.w[0].tolist() == approx([-0.1, -0.1, -0.105, 0.105], abs=1e-8)


def test_filters_chosen_by_layer():
    """`where` leaves the other layers' perturbation as it was: δ = ±0.05 in the first."""
    layout = Layout(("a", "b"), ((2,), (2,)))
    method = only(Sam(rho=0.1), FilterPerturbation(HighPass(1.0, where="b")))
    k, _ = one_round(method, quadratic([-1.0, -1.0, -1.0, 1.0]), layout=layout)
    assert k.w[0].tolist() == approx([-0.105, -0.105, -0.1, 0.1], abs=1e-8)


def test_rescaling_the_perturbation():
    """To radius 0.05, half of ρ: δ = (0.03, 0.04) instead of (0.06, 0.08)."""
    method = only(Sam(rho=0.1), FilterPerturbation(Rescale(0.05)))
    k, _ = one_round(method, quadratic([-3.0, -4.0]))
    assert k.w[0].tolist() == approx([-0.303, -0.404], abs=1e-8)


# FilterGradient


def test_filtered_gradient():
    """g = (1, 2, 3, 6) loses its mean 3: w = −0.1 (−2, −1, 0, 3)."""
    k, _ = one_round(only(FilterGradient(HighPass(0.5))), quadratic([-1.0, -2.0, -3.0, -6.0]))
    assert k.w[0].tolist() == approx([0.2, 0.1, 0.0, -0.3])
    assert k.evaluations.item() == 1


def test_weight_decay_is_not_filtered():
    """The filter stops the gradient from moving the mean of w, 1; weight decay moves it to 1 − 0.1 · 0.5 = 0.95."""
    k, _ = one_round(only(FilterGradient(HighPass(0.5))), quadratic([0.0, -1.0, -2.0, -5.0]), w=1.0, weight_decay=0.5)
    assert k.w.mean().item() == approx(0.95)
    assert (k.w[0] - k.w.mean()).tolist() == approx([0.2, 0.1, 0.0, -0.3])


@pytest.mark.parametrize("prox_in_clip", [False, True])
def test_corrections_are_not_filtered(prox_in_clip):
    """All of g goes at ratio 1; the pull towards w stays, but is zero at the first step, so that nobody moves.

    FedDyn's dual h = 1, a constant, would be lost in the filter; it is not: w = −η h/β = −0.05 in every coordinate.
    """
    stay, _ = one_round(only(FilterGradient(HighPass(1.0)), Prox(0.5, prox_in_clip)), quadratic([3.0, 4.0]), w=2.0)
    assert stay.w[0].tolist() == approx([2.0, 2.0], abs=1e-15)
    f = QuadraticRounds(
        only(FilterGradient(HighPass(1.0)), Dyn(beta=2.0, prox_in_clip=prox_in_clip)), quadratic([3.0, 4.0])
    )
    f.table.scatter([0], {"h": torch.ones(1, 2, dtype=torch.float64)})
    assert f.round().w[0].tolist() == approx([-0.05, -0.05])


def test_variates_are_made_of_the_filtered_gradient():
    """c_k⁺ = −Δ_k / (K η): with one step and c = c_k = 0, the filtered g = (−2, −1, 0, 3)."""
    k, _ = one_round(only(FilterGradient(HighPass(0.5)), Scaffold()), quadratic([-1.0, -2.0, -3.0, -6.0]))
    assert k.c_k[0].tolist() == approx([-2, -1, 0, 3])


def test_filter_acts_on_the_perturbed_gradient_not_on_the_ascent():
    """g = (1, 1, 1, −1), δ = 0.05 g; g(w + δ) = 1.05 g; without its mean 0.525: (0.525, 0.525, 0.525, −1.575)."""
    k, _ = one_round(only(FilterGradient(HighPass(0.5)), Sam(rho=0.1)), quadratic([-1.0, -1.0, -1.0, 1.0]))
    assert k.w[0].tolist() == approx([-0.0525, -0.0525, -0.0525, 0.1575], abs=1e-8)


# Prox


@pytest.mark.parametrize("prox_in_clip", [False, True])
def test_prox_pulls_back_to_the_received_model(prox_in_clip):
    """a = 3, w = 1, μ = ½. First step: g = −2, no pull yet, w_k = 1.2. Second: −1.8 + ½ · 0.2 = −1.7, w_k = 1.37."""
    k, s = one_round(only(Prox(0.5, prox_in_clip)), quadratic(3.0), w=1.0, steps=2)
    assert k.w.item() == approx(1.37)
    assert s.w.item() == approx(1.37)


def test_prox_settles_between_the_model_and_the_minimum():
    """Many steps: g + μ (w_k − w) = 0 at w_k = (a + μ w) / (1 + μ) = (3 + 0.5) / 1.5."""
    k, _ = one_round(only(Prox(0.5)), quadratic(3.0), w=1.0, steps=200)
    assert k.w.item() == approx(3.5 / 1.5)


def test_clip_splits_the_released_prox():
    """At its minimum w = a = 30, g = 0, a client should stand still. μ = ½, clip 10:

    inside the clip it does; as released −μ w = −15 is clipped to −10 and +μ w = 15 is not: w_k = 30 − 0.1 · 5.
    """
    inside, _ = one_round(only(Prox(0.5, prox_in_clip=True)), quadratic(30.0), w=30.0, clip_norm=10.0)
    released, _ = one_round(only(Prox(0.5)), quadratic(30.0), w=30.0, clip_norm=10.0)
    assert inside.w.item() == 30.0
    assert released.w.item() == approx(29.5, abs=1e-6)


PULLS = [
    ((Prox(0.5),), 0.5),
    ((Prox(0.5, prox_in_clip=True),), 0.0),
    ((Dyn(beta=2.0),), 0.5),
    ((Dyn(beta=2.0, prox_in_clip=True),), 0.0),
    ((Sam(0.05), Dyn(beta=2.0)), 0.5),
    ((Scaffold(),), 0.0),
    ((ClientMomentum(0.9),), 0.0),
    ((FilterGradient(HighPass(0.5)),), 0.0),
]


@pytest.mark.parametrize("parts, extra", PULLS, ids=[str(p) for p, _ in PULLS])
def test_an_active_clip_fixes_the_length_of_the_step(parts, extra):
    """‖v‖ > c: ‖x₁ − w + η wd_eff w‖ = η c, with wd_eff = wd + λ where the prox is split, wd where it is not."""
    clients, w, wd = heterogeneous(P=4), vector(4, -3, 2, 6), 0.01
    k, _ = one_round(only(*parts), clients, w=w, clip_norm=0.5, weight_decay=wd)
    moved = norm(k.w - w + 0.1 * (wd + extra) * w).view(-1)
    assert moved.tolist() == approx([0.1 * 0.5] * 4, rel=2e-6)


@pytest.mark.parametrize("make", [lambda inside: Prox(0.5, inside), lambda inside: Dyn(2.0, prox_in_clip=inside)])
def test_split_and_whole_prox_agree_until_the_clip_acts(make):
    """Two rounds on unequal clients: 1e-12 with a clip too long to act, and with none; not with one that acts."""

    def end(inside: bool, clip_norm: float | None):
        f = QuadraticRounds(only(make(inside)), heterogeneous(), w=1.0, steps=(3, 5, 2, 4), clip_norm=clip_norm)
        f.round([0, 2, 3])
        f.round([0, 1, 2])
        return f.s.w

    for idle in (None, 1e3):
        assert torch.allclose(end(True, idle), end(False, idle), atol=1e-12, rtol=0)
    assert not torch.allclose(end(True, 1.0), end(False, 1.0), atol=1e-3, rtol=0)


# Dyn


@pytest.mark.parametrize("prox_in_clip", [False, True])
def test_dyn_by_hand(prox_in_clip):
    """a = 1, w = 0, β = 2, one step, one client.

    Round 0: g = −1, w_k = 0.1, h = 0.1, w = 0 + 0.1 + 0.1 = 0.2.
    Round 1: g = −0.8, v = −0.8 + 0.1/2 = −0.75, w_k = 0.275, h = 0.175, w = 0.2 + 0.075 + 0.175 = 0.45.
    """
    f = QuadraticRounds(only(Dyn(beta=2.0, prox_in_clip=prox_in_clip)), quadratic(1.0))
    k = f.round()
    assert (k.w.item(), k.h.item(), f.s.h.item(), f.s.w.item()) == approx((0.1, 0.1, 0.1, 0.2))
    k = f.round()
    assert (k.w.item(), k.h.item(), f.s.h.item(), f.s.w.item()) == approx((0.275, 0.175, 0.175, 0.45))


@pytest.mark.parametrize("prox_in_clip", [False, True])
def test_dyn_as_printed_has_the_other_sign(prox_in_clip):
    """Round 1 with −h: v = −0.8 − 0.05 = −0.85, w_k = 0.285, h = 0.185, w = 0.2 + 0.085 + 0.185 = 0.47."""
    f = QuadraticRounds(only(Dyn(beta=2.0, reading="printed", prox_in_clip=prox_in_clip)), quadratic(1.0))
    f.round()
    k = f.round()
    assert (k.w.item(), k.h.item(), f.s.w.item()) == approx((0.285, 0.185, 0.47))


@pytest.mark.parametrize("prox_in_clip", [False, True])
def test_dyn_pulls_back_within_a_round(prox_in_clip):
    """a = 3, w = 1, β = 2 is μ = ½ and h = 0: as `Prox`, 1.2 and then 1.37; h = Δ = 0.37, w = 1 + 0.37 + 0.37."""
    k, s = one_round(only(Dyn(beta=2.0, prox_in_clip=prox_in_clip)), quadratic(3.0), w=1.0, steps=2)
    assert k.w.item() == approx(1.37)
    assert s.w.item() == approx(1.74)


def test_dyns_server_counts_all_clients_not_only_the_present():
    """One of N = 4 moves by 0.1: h = 0.1 / 4 for the server, and w = 0.1 + 0.025."""
    f = QuadraticRounds(only(Dyn(beta=2.0)), quadratic(1.0, 1.0, 1.0, 1.0))
    f.round([2])
    assert f.s.w.item() == approx(0.125)
    assert f.kept("h").view(-1).tolist() == approx([0, 0, 0.1, 0])


def test_dyn_does_not_heed_the_servers_rate():
    _, slow = one_round(only(Dyn(beta=2.0)), quadratic(1.0), server_lr=0.1)
    assert slow.w.item() == approx(0.2)


# Scaffold


def test_scaffold_variate_is_the_gradient_after_one_step():
    """L(w) = ½(w − 1)², w0 = 0, η = 0.1: g = −1, w = 0.1, so c_k⁺ = (0 − 0.1) / 0.1 = −1 = ∇L(w0)."""
    k, _ = one_round(only(Scaffold()), quadratic(1.0))
    assert k.c_k.item() == approx(-1.0)


def test_scaffold_by_hand():
    """a = 1 and 3 from 0. Round 0: w_k = 0.1 and 0.3, c_k = −1 and −3, c = −2, w = 0.2.

    Round 1: g = −0.8 and −2.8; v = g − c_k + c = −1.8 for both; w = 0.38; c_k = g = −0.8 and −2.8, c = −1.8.
    """
    f = QuadraticRounds(only(Scaffold()), quadratic(1.0, 3.0))
    k = f.round()
    assert k.c_k.view(-1).tolist() == approx([-1, -3])
    assert (f.s.c.item(), f.s.w.item()) == approx((-2.0, 0.2))
    k = f.round()
    assert k.w.view(-1).tolist() == approx([0.38, 0.38])
    assert k.c_k.view(-1).tolist() == approx([-0.8, -2.8])
    assert (f.s.c.item(), f.s.w.item()) == approx((-1.8, 0.38))


def test_scaffold_variates_cancel_after_one_step():
    """K = 1: c_k⁺ = H (w − a_k) whatever c and c_k were."""
    clients = heterogeneous()
    f = QuadraticRounds(only(Scaffold()), clients, w=2.0)
    f.s.c = vector(5, -6, 7)
    f.table.scatter(range(4), {"c_k": torch.arange(12.0, dtype=torch.float64).view(4, 3)})
    k = f.round()
    assert torch.allclose(
        k.c_k, clients.gradient(torch.full((4, 3), 2.0, dtype=torch.float64), [0, 1, 2, 3]), atol=1e-12
    )


def test_scaffold_variate_is_the_mean_of_the_path():
    """Towards 1 the gradients are −0.9^j; after K steps c_k = −(1 − 0.9^K) / (0.1 K), each client with its own K."""
    k, _ = one_round(only(Scaffold()), quadratic(1.0, 1.0), steps=(6, 2))
    assert k.c_k.view(-1).tolist() == approx([-(1 - 0.9**6) / 0.6, -0.95])


def test_scaffold_variate_absorbs_the_weight_decay():
    """Without a clip c_k⁺ is the mean of g + wd w: −1 + 0.5 · 2 at w = 2, a = 3."""
    k, _ = one_round(only(Scaffold()), quadratic(3.0), w=2.0, weight_decay=0.5)
    assert k.c_k.item() == approx(0.0, abs=1e-14)


def test_scaffold_server_divides_by_all_clients():
    """One of N = 4 brings Δc = −1: c = −¼."""
    f = QuadraticRounds(only(Scaffold()), quadratic(1.0, 1.0, 1.0, 1.0))
    f.round([1])
    assert f.s.c.item() == approx(-0.25)


def test_scaffold_as_released_counts_a_real_number_of_steps():
    """n = 10, batch 4, 2 epochs: 2 · 10/4 = 5 for FL-Simulator, while 2 · ⌈10/4⌉ = 6 steps are made.

    The same path and the same Δ_k in round 0, so that its c_k is 6/5 of the mean gradient.
    """
    numbers = dict(steps=(6, 6), nominal_steps=5.0)
    own, _ = one_round(only(Scaffold()), quadratic(1.0, 3.0), **numbers)
    released, s = one_round(only(Scaffold(reading="released")), quadratic(1.0, 3.0), **numbers)
    mean = -(1 - 0.9**6) / 0.6
    assert own.c_k.view(-1).tolist() == approx([mean, 3 * mean])
    assert released.c_k.view(-1).tolist() == approx([1.2 * mean, 3.6 * mean])
    assert s.c.item() == approx(1.2 * 2 * mean)


def test_scaffold_readings_agree_where_the_batch_divides():
    numbers = dict(steps=6, nominal_steps=6.0)
    own, _ = one_round(only(Scaffold()), quadratic(1.0, 3.0), **numbers)
    released, _ = one_round(only(Scaffold(reading="released")), quadratic(1.0, 3.0), **numbers)
    assert torch.equal(own.c_k, released.c_k)


def test_scaffold_as_printed_by_hand():
    """Round 0 as above: c_k = −1 and −3, c = Σ c_k / N = −2. Then v = g + c_k − c = −0.8 − 1 + 2 and −2.8 − 3 + 2."""
    f = QuadraticRounds(only(Scaffold(reading="printed")), quadratic(1.0, 3.0))
    f.round()
    assert f.s.c.item() == approx(-2.0)
    k = f.round()
    assert k.w.view(-1).tolist() == approx([0.2 - 0.02, 0.2 + 0.38])
    now = [-1 + 2 + 0.2, -3 + 2 - 3.8]  # c_k − c − Δ_k/η
    assert k.c_k.view(-1).tolist() == approx(now)
    assert f.s.c.item() == approx(-2.0 + sum(now) / 2)


# ClientMomentum


def test_client_momentum_by_hand():
    """a = 1, w = 0, α = 0.1. Round 0: v = 0.1 · (−1), w = 0.01, m = −0.01 / 0.1 = −0.1.

    Round 1: v = 0.1 · (−0.99) + 0.9 · (−0.1) = −0.189, w = 0.0289, m = −0.189.
    """
    f = QuadraticRounds(only(ClientMomentum(alpha=0.1)), quadratic(1.0))
    f.round()
    assert (f.s.w.item(), f.s.m.item()) == approx((0.01, -0.1))
    f.round()
    assert (f.s.w.item(), f.s.m.item()) == approx((0.0289, -0.189))


def test_weight_decay_is_not_scaled_by_alpha():
    """g = 0 at w = a = 1: w_k = 1 − 0.1 · 0.5, whatever α is."""
    k, _ = one_round(only(ClientMomentum(alpha=0.1)), quadratic(1.0), w=1.0, weight_decay=0.5)
    assert k.w.item() == approx(0.95)


def test_momentum_is_the_mean_direction_of_each_clients_own_steps():
    """α = 1, K = 1 and 2, towards 1: Δ = 0.1 and 0.19; m = −½ (0.1 / 0.1 + 0.19 / 0.2) = −0.975.

    As released both are divided by client 0's one step: −½ (1 + 1.9) = −1.45.
    """
    _, own = one_round(only(ClientMomentum(alpha=1.0)), quadratic(1.0, 1.0), steps=(1, 2))
    assert own.m.item() == approx(-0.975)
    _, released = one_round(only(ClientMomentum(alpha=1.0, reading="released")), quadratic(1.0, 1.0), steps=(1, 2))
    assert released.m.item() == approx(-1.45)


def test_momentum_weighs_clients_as_the_average_does():
    """Sizes 1 and 3, gradients −1 and −3: m = −(0.25 + 2.25)."""
    _, s = one_round(only(ClientMomentum(alpha=1.0)), quadratic(1.0, 3.0), n=(1, 3))
    assert s.m.item() == approx(-2.5)


def test_momentum_does_not_know_the_servers_rate():
    """m is the mean local direction; η_g scales the move of w alone."""
    _, s = one_round(only(ClientMomentum(alpha=1.0)), quadratic(1.0), server_lr=0.5)
    assert (s.w.item(), s.m.item()) == approx((0.05, -1.0))


# Where they end: heterogeneous quadratics, everyone takes part


def distance(method: Method, rounds: int, steps=(3, 5, 2, 4), **numbers) -> float:
    """How far from the minimum of Σ L_k a method ends; clients make unequal numbers of steps."""
    clients = heterogeneous()
    f = QuadraticRounds(method, clients, steps=steps, lr=0.2, **numbers)
    for _ in range(rounds):
        f.round()
    return norm(f.s.w - clients.optimum).item()


@pytest.mark.parametrize(
    "method",
    [
        only(Scaffold()),
        only(Dyn(beta=2.0)),
        only(Dyn(beta=2.0, prox_in_clip=True)),
        only(Dyn(beta=0.5)),
    ],
    ids=repr,
)
def test_corrected_readings_reach_the_global_optimum(method):
    """At w*, c_k = ∇L_k(w*) and h_k = −β ∇L_k(w*) make every client stand still, for any number of steps."""
    assert distance(method, 140) < 1e-10


def test_scaffold_as_released_reaches_it_too():
    """Δc_k = −c − Δ_k / (5 η) after 6 steps: a wrong number of steps, but still zero where Δ_k = c = 0."""
    assert distance(only(Scaffold(reading="released")), 60, steps=6, nominal_steps=5.0) < 1e-10


@pytest.mark.parametrize("method", [FEDAVG, only(Prox(0.5)), only(ClientMomentum(0.5)), only(Sam(0.1))], ids=repr)
def test_without_a_correction_the_end_is_biased(method):
    """Clients with more steps or more curvature pull harder: the method converges, but not to w*."""
    for steps in ((3, 5, 2, 4), 4):
        end = distance(method, 40, steps)
        assert end == approx(distance(method, 60, steps), abs=1e-6), "it has converged"
        assert end > 0.05


PRINTED = (Dyn(beta=2.0, reading="printed"), Scaffold(reading="printed"), WmsamMomentum(reading="printed"))


@pytest.mark.parametrize("method", [only(p) for p in PRINTED], ids=repr)
def test_printed_readings_diverge(method):
    """Alg. 2 and 3 of the FedFFT paper and FedWMSAM's poster as printed, on the same quadratics."""
    far = distance(method, 60)
    assert far > 1e2
    assert distance(method, 90) > 10 * far


# Readings


@pytest.mark.parametrize(
    "make, allowed",
    [
        (lambda: Dyn(reading="poster"), "corrected, printed"),
        (lambda: Dyn(reading="released"), "corrected, printed"),
        (lambda: Scaffold(reading="Released"), "corrected, released, printed"),
        (lambda: ClientMomentum(reading="printed"), "corrected, released"),
    ],
)
def test_a_reading_that_a_part_does_not_have_is_refused(make, allowed):
    with pytest.raises(BadReading, match=rf"reading = '.*': must be one of {allowed}$"):
        make()


@pytest.mark.parametrize("kind", [Dyn, Scaffold, ClientMomentum])
def test_the_default_reading_is_the_first(kind):
    assert kind().reading == kind.readings[0] == "corrected"
