"""Errors of published code: what each of them does, by hand on a model of two tensors, and where it does nothing."""

import pytest
import torch
from pytest import approx
from quadratics import QuadraticRounds, heterogeneous, quadratic, vector
from test_ascents import CLOSE, COMERS, UNEQUAL, along, federation, noted
from test_catalogue import run, same

from fednb.algorithms.catalogue import CATALOGUE, method
from fednb.algorithms.parts import (
    Dyn,
    Lesam,
    LesamFlat,
    SmooDual,
    SmooSlices,
    WmsamAscent,
    WmsamFlat,
    WmsamMomentum,
    WmsamWeight,
)
from fednb.algorithms.parts.released_bugs import by_tensor_number, first_numbers
from fednb.core.cost import cost
from fednb.core.rounds import BadParameter, Method
from fednb.core.vectors import Layout, norm

TWO = Layout(("a", "b"), ((2,), (3,)))
AT = (300.0, -100.0, 500.0, 700.0, 900.0)  # one client's minimum; the first two numbers are 3 : −1
SLIPS = ("fedavg + lesamflat(0.1)", "fedavg + wmsamflat(0.01) + wmsamweight() + wmsammomentum()",
         "fedavg + smooslices(0.1) + dyn(10.0)")  # fmt: skip


# The two slips


def test_an_index_that_counts_tensors():
    """Two tensors use d[0] = 3 and d[1] = −1 alone, over |3| + |−1| = 4; the other numbers are never looked at."""
    d = vector(3, -1, 5, 7, 9)
    assert by_tensor_number(TWO, d).tolist() == approx([0.75, 0.75, -0.25, -0.25, -0.25], abs=1e-7)
    assert torch.equal(by_tensor_number(TWO, vector(3, -1, 0, 0, 0)), by_tensor_number(TWO, d))
    rows = torch.stack([d, vector(0, 0, 1, 1, 1)])
    assert by_tensor_number(TWO, rows)[1].tolist() == [0, 0, 0, 0, 0]
    assert torch.equal(by_tensor_number(TWO, rows)[0], by_tensor_number(TWO, d))


def test_an_offset_that_stays():
    """(1, 2, 3, 4, 5) cut into 2 and 3: (1, 2) and (1, 2, 3); the 4 and the 5 are lost."""
    assert first_numbers(TWO, vector(1, 2, 3, 4, 5)).tolist() == [1, 2, 1, 2, 3]
    assert first_numbers(TWO, torch.eye(5)).shape == (5, 5)


def test_a_flat_index_reaches_far_beyond_the_radius():
    """Tensors of 1 and 10,000 numbers, d = (1, 1, …): ½ everywhere, so that ‖δ‖ = ½ √10,001 = 50 ρ, not ρ."""
    layout = Layout(("a", "b"), ((1,), (100, 100)))
    assert norm(by_tensor_number(layout, torch.ones(10_001))).item() == approx(50.0, rel=1e-3)


# FedLESAM


def test_lesam_with_a_flat_index_by_hand():
    """w_0 = 0, minimum a, η = 0.1: w_1 = 0.1 a = (30, −10, …), so d = w_0 − w_1 has the first numbers −30 and 10.

    ρ = 0.4: tensor a is shifted by 0.4 · −30/40 = −0.3, tensor b by 0.4 · 10/40 = 0.1; w_2 = w_1 − 0.1 (w_1 + δ − a).
    """
    f, diary = federation(LesamFlat(rho=0.4), clients=quadratic(AT), layout=TWO)
    _, (delta,) = noted(f, diary)
    assert (delta == 0).all()  # in the first round there is no update to look back along
    k, (delta,) = noted(f, diary)
    wanted, a = vector(-0.3, -0.3, 0.1, 0.1, 0.1), vector(*AT)
    assert torch.allclose(delta[0], wanted, atol=1e-8)
    assert torch.allclose(k.w[0], 0.1 * a - 0.1 * (0.1 * a + wanted - a), atol=1e-8)


def test_lesams_flat_index_is_the_same_for_who_stayed_away():
    """One vector for all, w_{t−1} − w_t, whenever a client last came."""
    f, diary = federation(LesamFlat(rho=0.1), layout=Layout(("a", "b"), ((1,), (2,))))
    for ids in ([0, 1], [1]):
        before = f.s.w
        f.round(ids)
    d = before - f.s.w
    _, (delta,) = noted(f, diary, [0, 1, 3])
    wanted = 0.1 * torch.stack([d[0], d[1], d[1]]) / d[:2].abs().sum()
    assert torch.allclose(delta, wanted.expand(3, -1), atol=1e-6)


def ends(m: Method, layout: Layout, P: int = 3) -> torch.Tensor:
    """The server's models of four rounds, with clients of unequal length of whom some stay away."""
    f = QuadraticRounds(m, heterogeneous(P=P), layout=layout, **UNEQUAL)
    return torch.stack([(f.round(ids), f.s.w)[1] for ids in COMERS])


SINGLES = Layout(("a", "b", "c"), ((1,), (1,), (1,)))
ONE = Layout(("w",), ((3,),))


def test_lesams_flat_index_is_right_where_every_tensor_has_one_number():
    """Then tensor j is number j, and the sum of |d[j]| that of the layers' norms; with two numbers in one it is not."""
    right = Method("m", Lesam(rho=0.5, reading="released", norm_of="layers"))
    slip = Method("m", LesamFlat(rho=0.5))
    assert torch.allclose(ends(slip, SINGLES), ends(right, SINGLES), **CLOSE)
    pair = Layout(("a", "b"), ((2,), (1,)))
    assert (ends(slip, pair) - ends(right, pair)).abs().max() > 1e-2


# FedWMSAM


def test_wmsams_flat_index_by_hand():
    """α = 0.1, no momentum yet: the first step moves by η α a = 0.01 a, so d = w − w_k = −0.01 a, first numbers −3, 1.

    The code's sign is minus: with ρ = 0.4 tensor a is shifted by −0.4 · −3/4 = 0.3, tensor b by −0.4 · 1/4 = −0.1. In
    the first step d = 0 and nothing is.
    """
    f, diary = federation(WmsamFlat(rho=0.4), WmsamMomentum(alpha=0.1), clients=quadratic(AT), layout=TWO, steps=2)
    _, (first, second) = noted(f, diary)
    assert (first == 0).all()
    assert torch.allclose(second[0], vector(0.3, 0.3, -0.1, -0.1, -0.1), atol=1e-7)


def test_wmsams_flat_index_looks_ahead_along_the_momentum():
    """From the second round on d = w + b m_k − w_k with b the step, as without the slip."""
    f, diary = federation(WmsamFlat(rho=0.4), WmsamMomentum(), layout=Layout(("a", "b"), ((1,), (2,))), steps=3)
    f.round()
    k, deltas = noted(f, diary)
    d = k.w0 + 2 * k.m_k - diary.w[-1]
    wanted = -0.4 * torch.stack([d[:, 0], d[:, 1], d[:, 1]], dim=1) / d[:, :2].abs().sum(1, keepdim=True)
    assert k.m_k.norm() > 0.1 and torch.allclose(deltas[2], wanted, atol=1e-6)


def test_wmsams_flat_index_is_right_for_a_model_of_one_number():
    """|d| is the sum of |d[0]|; with two numbers the norm and the sum already differ."""
    others = (WmsamWeight(), WmsamMomentum())
    right, slip = (Method("m", p, *others) for p in (WmsamAscent(rho=0.3, reading="released"), WmsamFlat(rho=0.3)))
    one = Layout(("w",), ((1,),))
    assert torch.allclose(ends(slip, one, P=1), ends(right, one, P=1), **CLOSE)
    assert (ends(slip, ONE) - ends(right, ONE)).abs().max() > 1e-3


# FedSMOO


def test_smoos_wrong_slices_by_hand():
    """Minimum −(2, 1, 2, 0, 0), w = 0, ρ = 0.3: δ = 0.3 · (2, 1, 2, 0, 0)/3 = (0.2, 0.1, 0.2, 0, 0) = μ = s.

    Nothing is cut yet in the first round. In the second the client is sent (0.2, 0.1 | 0.2, 0.1, 0.2) for both, so that
    δ = ρ unit(∇L − 2 (0.2, 0.1, 0.2, 0.1, 0.2)), and μ = μ' + δ − s' = δ.
    """
    a = -vector(2, 1, 2, 0, 0)
    f, diary = federation(SmooSlices(rho=0.3), clients=quadratic(a.tolist()), layout=TWO)
    _, (delta,) = noted(f, diary)
    assert delta[0].tolist() == approx([0.2, 0.1, 0.2, 0, 0], abs=1e-7)
    assert f.kept("mu")[0].tolist() == approx(delta[0].tolist())
    sent, w = vector(0.2, 0.1, 0.2, 0.1, 0.2), f.s.w
    _, (delta,) = noted(f, diary)
    assert torch.allclose(delta[0], along(w - a - 2 * sent, 0.3), atol=1e-6)
    assert torch.allclose(f.kept("mu")[0], delta[0], atol=1e-6)


def test_smoos_slices_are_cut_once_a_round():
    """Within a round μ_k grows in the right places: δ of two steps less twice s', from the wrong start."""
    f, diary = federation(SmooSlices(rho=0.3), clients=quadratic(AT), layout=TWO, steps=2)
    f.round()
    start, s = first_numbers(TWO, f.kept("mu")[0]), first_numbers(TWO, f.s.s)
    _, (one, two) = noted(f, diary)
    assert torch.allclose(f.kept("mu")[0], start + one[0] + two[0] - 2 * s, **CLOSE)


def test_smoos_slices_are_right_where_the_model_is_one_tensor():
    right, slip = (Method("m", p, Dyn(beta=5.0)) for p in (SmooDual(rho=0.3), SmooSlices(rho=0.3)))
    assert torch.allclose(ends(slip, ONE), ends(right, ONE), **CLOSE)
    assert (ends(slip, SINGLES) - ends(right, SINGLES)).abs().max() > 1e-3


# What holds for all of them


def test_a_slip_is_a_term_of_a_sum_and_in_no_catalogue_line():
    assert [method(name).parts for name in SLIPS] == [
        (LesamFlat(rho=0.1),), (WmsamFlat(rho=0.01), WmsamWeight(), WmsamMomentum()), (SmooSlices(rho=0.1), Dyn(10.0)),
    ]  # fmt: skip
    used = {type(p) for entry in CATALOGUE.values() for p in entry.method.parts}
    assert not used & {LesamFlat, WmsamFlat, SmooSlices}


@pytest.mark.parametrize("name", SLIPS)
def test_a_slip_runs_alike_on_both_engines(name):
    left, right = (run(method(name), engine) for engine in ("loop", "stacked"))
    assert left.w.isfinite().all()
    same(left, right, atol=1e-12)


@pytest.mark.parametrize("slip, right", [*zip(SLIPS, ("fedlesam", "fedwmsam", "fedsmoo"), strict=True)])
def test_a_slip_costs_what_the_right_form_costs(slip, right):
    """Gradients and traffic; in FedLESAM's code, right or wrong, the server sends what it would look back to."""
    wrong, good = cost(method(slip)), cost(method(right, **({"reading": "released"} if right == "fedlesam" else {})))
    assert (wrong.passes, wrong.down, wrong.up) == (good.passes, good.down, good.up)


@pytest.mark.parametrize("slip", [LesamFlat, WmsamFlat, SmooSlices])
def test_a_radius_below_zero_is_refused(slip):
    with pytest.raises(BadParameter, match=r"rho = -1\.0: must be at least 0"):
        slip(rho=-1.0)
