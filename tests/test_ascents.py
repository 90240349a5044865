"""Ascents that remember: FedLESAM, FedSMOO, FedGloSS, FedWMSAM and FedFSA, worked out by hand on quadratics."""

from dataclasses import field
from itertools import pairwise

import pytest
import torch
from pytest import approx
from quadratics import QuadraticRounds, Quadratics, heterogeneous, one_round, quadratic, vector
from test_identities import MASK, gap, run
from torch import Tensor

from fednb.algorithms.catalogue import (
    FEDAVG,
    FEDCM,
    FEDDYN,
    FEDFSA,
    FEDGLOSS,
    FEDLESAM,
    FEDLESAM_D,
    FEDLESAM_S,
    FEDSAM,
    FEDSAM_FSA,
    FEDSMOO,
    FEDSPEED,
    FEDSPEED_FSA,
    FEDWMSAM,
    MOFEDSAM,
    SCAFFOLD,
)
from fednb.algorithms.parts import (
    ClientRate,
    FlexibleRadius,
    FsaMomentum,
    Gloss,
    Lesam,
    SmooDual,
    WmsamAscent,
    WmsamMomentum,
    WmsamWeight,
)
from fednb.core.cost import cost
from fednb.core.record import Cohort
from fednb.core.rounds import Method, Part, part
from fednb.core.vectors import Layout, norm

CLOSE = dict(atol=1e-12, rtol=0)
UNEQUAL = dict(w=1.0, steps=(3, 5, 2, 4), n=(1, 2, 3, 4))
COMERS = [present.nonzero().view(-1).tolist() for present in MASK]  # [0, 2], [1, 2, 3], [0, 1], [0, 2, 3]


@part
class Diary(Part):
    """Note each step's weights, perturbation and rate."""

    w: list = field(default_factory=list)
    delta: list = field(default_factory=list)
    lr: list = field(default_factory=list)

    def perturb(self, k, s, delta):
        """note w_k, δ"""
        self.w.append(k.w)
        self.delta.append(delta)
        return delta

    def correct(self, k, s, v):
        """note η"""
        self.lr.append(k.lr.view(-1).tolist())
        return v


def federation(*parts: Part, clients: Quadratics | None = None, **numbers) -> tuple[QuadraticRounds, Diary]:
    """Four clients that disagree, or other ones, and a diary of their steps."""
    diary = Diary()
    return QuadraticRounds(Method("m", *parts, diary), clients or heterogeneous(), **numbers), diary


def noted(f: QuadraticRounds, diary: Diary, ids=None) -> tuple[Cohort, list[Tensor]]:
    """One more round, and the perturbations of its steps."""
    before = len(diary.delta)
    return f.round(ids), diary.delta[before:]


def along(x: Tensor, length: float) -> Tensor:
    """length · x / (‖x‖ + 1e-7), as FL-Simulator has it."""
    return length * x / (x.norm(dim=-1, keepdim=True) + 1e-7)


# FedLESAM


def test_lesam_by_hand():
    """Minima 1 and 3, w = 0, η = ρ = 0.1: w = 0.2 as in FedAvg, then δ = ρ sign(0 − 0.2) = −0.1 and g = 0.1 − a."""
    f, diary = federation(Lesam(rho=0.1), clients=quadratic(1.0, 3.0))
    assert f.round().w.view(-1).tolist() == approx([0.1, 0.3], abs=1e-15)
    k, (delta,) = noted(f, diary)
    assert delta.view(-1).tolist() == approx([-0.1, -0.1], abs=1e-7)
    assert k.w.view(-1).tolist() == approx([0.2 + 0.1 * 0.9, 0.2 + 0.1 * 2.9], abs=1e-7)


def test_lesam_looks_back_to_what_each_client_last_received():
    """Both receive w_0, only client 1 receives w_1: in round 2 they look towards w_0 and towards w_1."""
    f, diary = federation(Lesam(rho=0.1))
    w = []
    for ids in ([0, 1], [1]):
        w.append(f.s.w)
        f.round(ids)
    now = f.s.w
    _, (delta,) = noted(f, diary, [0, 1])
    assert torch.allclose(delta, torch.stack([along(w[0] - now, 0.1), along(w[1] - now, 0.1)]), **CLOSE)
    assert (delta[0] - delta[1]).norm() > 1e-2


@pytest.mark.parametrize("first, length", [("zero", 0.0), ("w0", 0.1)])
def test_lesams_first_participation(first, length):
    """Who comes first in round 2 has no w_old: no perturbation, or one towards the first model."""
    f, diary = federation(Lesam(rho=0.1, first=first), w=1.0)
    _, (delta,) = noted(f, diary, [0, 1])
    assert (delta == 0).all()  # w_old = w in round 0, under either rule
    f.round([0, 1])
    now = f.s.w
    _, (delta,) = noted(f, diary, [0, 2])
    assert torch.allclose(delta[1], along(torch.ones(3).double() - now, length), **CLOSE)
    assert delta[0].norm().item() == approx(0.1, rel=1e-6)


@pytest.mark.parametrize("reading", ["paper", "released"])
def test_lesams_perturbation_is_one_for_the_round(reading):
    """All of a round's steps look to the same side while the weights move, each client's to its own end."""
    f, diary = federation(Lesam(rho=0.1, reading=reading), steps=(3, 5, 2, 4))
    f.round()
    _, deltas = noted(f, diary)
    assert len(deltas) == 5
    assert all(torch.equal(delta, deltas[0]) for delta in deltas)
    assert (diary.w[-1] - diary.w[-5]).abs().max() > 0.1
    assert norm(deltas[0]).view(-1).tolist() == approx([0.1] * 4, rel=1e-5)


def test_lesam_released_looks_along_the_last_global_update():
    """δ = ρ unit(w_1 − w_2) for everyone in round 2: who came last time, who did not, and who never came."""
    f, diary = federation(Lesam(rho=0.1, reading="released"))
    _, (delta,) = noted(f, diary, [0, 1])
    assert (delta == 0).all()
    before = f.s.w
    f.round([1])
    now = f.s.w
    _, (delta,) = noted(f, diary, [0, 1, 2])
    assert torch.allclose(delta, along(before - now, 0.1).expand(3, 3), **CLOSE)


# FedSMOO


@pytest.mark.parametrize("steps, same", [(1, True), (2, False)])
def test_smoos_first_step_is_fedspeeds(steps, same):
    """μ_k = s = 0 before the first step; after it μ_k = δ turns the second perturbation."""
    (left, _), (right, _) = (one_round(m, heterogeneous(), w=1.0, steps=steps) for m in (FEDSMOO, FEDSPEED))
    far = (left.w - right.w).abs().max().item()
    assert far < 1e-15 if same else far > 1e-6


def test_smoos_second_perturbation_by_hand():
    """H = diag(1, 2), a = (3, 2), w = 0, η = 0.1, ρ = 5: g = (−3, −4), e = ρ g/5 = (−3, −4) = μ.

    The step goes against H (e − a) = (−6, −12) to (0.6, 1.2). There g = (−2.4, −1.6) and q = g − μ = (0.6, 2.4).
    """
    f, diary = federation(SmooDual(rho=5.0), clients=quadratic([3.0, 2.0], curvature=[1.0, 2.0]), steps=2)
    k, (first, second) = noted(f, diary)
    assert first[0].tolist() == approx([-3, -4], abs=1e-6)
    assert diary.w[1][0].tolist() == approx([0.6, 1.2], abs=1e-6)
    q = vector(0.6, 2.4)
    e = 5 * q / q.norm()
    assert torch.allclose(second[0], e, atol=1e-5)
    assert torch.allclose(k.mu[0], vector(-3, -4) + e, atol=1e-5)


def test_smoos_dual_and_common_perturbation_turn_the_ascent():
    """g = (−3, −4), μ = (−3, 0), s = (0, −8): q = g − μ − s = (0, 4), δ = (0, ρ), and μ becomes (−3, ρ + 8)."""
    f, diary = federation(SmooDual(rho=0.1), clients=quadratic([3.0, 4.0]))
    f.table.scatter([0], {"mu": vector(-3, 0)[None]})
    f.s.s = vector(0, -8)
    k, (delta,) = noted(f, diary)
    assert delta[0].tolist() == approx([0, 0.1], abs=1e-8)
    assert k.mu[0].tolist() == approx([-3, 8.1], abs=1e-8)


def test_smoos_dual_grows_by_the_perturbation_less_s():
    """μ_k ← μ_k + e − s at each of a client's own 3, 5, 2 or 4 steps; s is zero in the first round only."""
    f, diary = federation(SmooDual(rho=0.1), **UNEQUAL)
    taken = torch.tensor([[3.0], [5.0], [2.0], [4.0]], dtype=torch.float64)
    for t in range(3):
        before, s = f.kept("mu"), f.s.s
        k, deltas = noted(f, diary)
        moved = sum(torch.where(step < taken, delta, 0.0) for step, delta in enumerate(deltas))
        assert torch.allclose(k.mu, before + moved - taken * s, **CLOSE)
        assert (s.norm() > 0) == (t > 0)


def test_smoos_common_perturbation_has_the_radius():
    """s = ρ unit(mean μ_k) over those who came, so that ‖s‖ = ρ after every aggregation."""
    f, _ = federation(SmooDual(rho=0.1), **UNEQUAL)
    for ids in COMERS:
        k = f.round(ids)
        assert f.s.s.norm().item() == approx(0.1, rel=1e-5)
        assert torch.allclose(f.s.s, along(f.kept("mu")[ids].mean(0), 0.1), **CLOSE)
        assert torch.equal(k.mu, f.kept("mu")[ids])


@pytest.mark.parametrize("m", [SmooDual(rho=0.1), FlexibleRadius(rho=0.1, rho_larger=0.1)], ids=repr)
def test_ascents_along_a_gradient_have_the_radius(m):
    f, diary = federation(m, w=1.0, steps=3)
    for _ in range(2):
        for delta in noted(f, diary)[1]:
            assert norm(delta).view(-1).tolist() == approx([0.1] * 4, rel=1e-5)


# FedGloSS


@pytest.mark.parametrize(
    "reading, rounds",
    [
        ("paper", [(0.4, 0.3, -0.02), (0.936, 0.836, -0.0368)]),
        ("released", [(0.3, 0.2, -0.01), (0.667, 0.567, -0.0189)]),
    ],
)
def test_gloss_by_hand(reading, rounds):
    """Minima 1 and 3, w = 0, η = ρ = 0.1, ρ_l = 0, β = 10, one step; (w, w̃, σ) after two rounds. In [] as released.

    Round 0: Δ = 0.1, 0.3, so σ_k = −0.01, −0.03 and σ = −0.4/(10·2) [half of that, as |S| = 2]; w = 0.2 − 10σ and
    w̃ = w − ρ, back where the model came from.
    Round 1 from w̃ = 0.3 [0.2]: v = −0.7 + 0.01, −2.7 + 0.03 [−0.8 + 0.01, −2.8 + 0.03], so Δ = 0.069, 0.267 [0.079,
    0.277], σ = −0.02 − 0.336/20 [−0.01 − 0.356/40], and w grows by 0.168 − 10σ [0.178 − 10σ].
    """
    f, _ = federation(Gloss(rho=0.1, rho_l=0.0, beta=10.0, reading=reading), clients=quadratic(1.0, 3.0))
    for wanted in rounds:
        f.round()
        assert (f.s.w.item(), f.s.w_sent.item(), f.s.sigma.item()) == approx(wanted, abs=1e-6)


@pytest.mark.parametrize("reading", ["paper", "released"])
def test_glosss_clients_start_uphill(reading):
    """In round 0 at w; then at w̃ with ‖w̃ − w‖ = ρ, against the last weighted move; Δ_k is counted from there."""
    f, diary = federation(Gloss(rho=0.3, rho_l=0.1, beta=5.0, reading=reading), **UNEQUAL)
    f.round()
    assert torch.equal(diary.w[0], torch.ones(4, 3).double())
    for _ in range(3):
        moved, w, sent, at = f.s.delta, f.s.w, f.s.w_sent, len(diary.w)
        assert torch.allclose(sent - w, -0.3 * moved / moved.norm(), **CLOSE)
        k = f.round()
        assert torch.equal(diary.w[at], sent.expand(4, 3))
        assert torch.allclose(k.delta, k.w - sent, **CLOSE)
        assert (sent - w).norm().item() == approx(0.3, rel=1e-12)


def test_glosss_server_dual_is_the_mean_of_all_clients():
    """σ = Σ σ_k / N after every round, whoever came and however clients count."""
    f, _ = federation(Gloss(rho=0.3, rho_l=0.1, beta=5.0), **UNEQUAL)
    for ids in COMERS:
        f.round(ids)
        assert torch.allclose(f.s.sigma, f.kept("sigma").mean(0), **CLOSE)
    assert f.s.sigma.norm() > 1e-2


def test_glosss_released_dual_is_smaller_by_the_number_of_clients_that_came():
    """The mean of σ_k changes |S| times as much as σ, so that they part unless everyone comes alone."""
    f, _ = federation(Gloss(rho=0.3, rho_l=0.1, beta=5.0, reading="released"), **UNEQUAL)
    for ids in ([0], *COMERS):
        before, mean = f.s.sigma, f.kept("sigma").mean(0)
        f.round(ids)
        assert torch.allclose(f.kept("sigma").mean(0) - mean, len(ids) * (f.s.sigma - before), **CLOSE)
    assert (f.s.sigma - f.kept("sigma").mean(0)).norm() > 1e-2


@pytest.mark.parametrize(
    "reading, server", [("paper", [0.001, 0.1505, 0.3, 0.3]), ("released", [0.001, 0.3495, 0.3495, 0.3])]
)
def test_glosss_radii_rise(reading, server):
    """ρ0 + (ρ − ρ0) t/2 for two rounds. The released server stands at ρ_l + (ρ − ρ0)/2 = 0.2 + 0.1495 instead."""
    part = Gloss(rho=0.3, rho_l=0.2, rho0=0.001, warmup=2, reading=reading)
    assert [part.server_radius(t) for t in range(4)] == approx(server, abs=1e-15)
    assert [part.ramp(t, part.rho_l) for t in range(4)] == approx([0.001, 0.1005, 0.2, 0.2], abs=1e-15)


@pytest.mark.parametrize("reading, server", [("paper", [0.1505, 0.3, 0.3]), ("released", [0.3495, 0.3495, 0.3])])
def test_gloss_uses_its_radii(reading, server):
    """Clients in round t look ρ_l(t) uphill; w̃, made in round t for the next, lies ρ(t + 1) from w."""
    part = Gloss(rho=0.3, rho_l=0.2, rho0=0.001, warmup=2, reading=reading)
    f, diary = federation(part, w=9.0)
    for mine, theirs in zip(server, (0.001, 0.1005, 0.2), strict=True):
        _, (delta,) = noted(f, diary)
        assert norm(delta).view(-1).tolist() == approx([theirs] * 4, rel=1e-5)
        assert (f.s.w_sent - f.s.w).norm().item() == approx(mine, rel=1e-5)


@pytest.mark.parametrize("warmup", [0, 1])
@pytest.mark.parametrize("reading", ["paper", "released"])
def test_gloss_without_warm_up(reading, warmup):
    part = Gloss(rho=0.3, rho_l=0.2, warmup=warmup, reading=reading)
    assert [part.server_radius(t) for t in range(3)] == [0.3] * 3
    assert [part.ramp(t, part.rho_l) for t in range(3)] == [0.2] * 3


def settled(m: Method, rounds: int, **numbers) -> float:
    """How far a method is from the optimum of clients that disagree, when everyone has come for long."""
    clients = heterogeneous()
    f = QuadraticRounds(m, clients, **({"steps": 3} | numbers))
    for _ in range(rounds):
        f.round()
    return (f.s.w - clients.optimum).abs().max().item()


def test_gloss_without_radii_reaches_the_optimum():
    """A fixed point has Δ_k = 0 and σ = 0: ∇L_k = σ_k, which add up to zero. FedAvg's clients pull it elsewhere."""
    assert settled(FEDGLOSS.but(rho=0.0, rho_l=0.0, beta=1.0), 300) < 1e-10
    assert settled(FEDAVG, 300) > 1e-2


def test_gloss_without_radii_is_feddyn():
    """σ_k = −h_k/β in every round: FedGloSS's duals are FedDyn's with another scale."""
    gloss, dyn = (QuadraticRounds(m, heterogeneous(), **UNEQUAL) for m in (FEDGLOSS.but(rho=0.0, rho_l=0.0), FEDDYN))
    for ids in COMERS:
        gloss.round(ids), dyn.round(ids)
        assert torch.allclose(gloss.kept("sigma"), -dyn.kept("h") / 10, **CLOSE)
        assert torch.allclose(gloss.s.w, dyn.s.w, **CLOSE)


# FedWMSAM


def test_wmsams_momentum_by_hand():
    """Minima 1 and 3, w = 0, η = 0.1, α = 0.3, γ = 0.5, one step.

    Round 0: v = 0.3 g = −0.3, −0.9, so Δ = 0.03, 0.09; c_k = −Δ/η = −0.3, −0.9, c = −0.6, m = γ · (−0.6) = −0.3.
    Round 1: w = 0.06, m_k = m + 3/7 (c − c_k) = −0.3 ∓ 0.9/7, v = 0.3 g + 0.7 m_k = 0.3 (g ∓ 0.3) − 0.21.
    """
    f, _ = federation(WmsamMomentum(alpha=0.3), clients=quadratic(1.0, 3.0), lr_decay=0.5)
    k = f.round()
    assert k.c_k.view(-1).tolist() == approx([-0.3, -0.9], abs=1e-14)
    assert (f.s.c.item(), f.s.m.item(), f.s.w.item()) == approx((-0.6, -0.3, 0.06), abs=1e-14)
    k = f.round()
    assert k.m_k.view(-1).tolist() == approx([-0.3 - 0.9 / 7, -0.3 + 0.9 / 7], abs=1e-14)
    v = [0.3 * (0.06 - 1 - 0.3) - 0.21, 0.3 * (0.06 - 3 + 0.3) - 0.21]
    assert k.delta.view(-1).tolist() == approx([-0.1 * x for x in v], abs=1e-14)
    assert k.c_k.view(-1).tolist() == approx([0.3 + v[0], -0.3 + v[1]], abs=1e-14)  # c_k − c − Δ/η = c_k − c + v


def test_wmsam_looks_where_momentum_would_lead():
    """δ_b = ρ unit(w + b m_k − w_k): nothing at b = 0, then of length ρ; with m = 0 in round 0 back to w."""
    f, diary = federation(WmsamAscent(rho=0.1), WmsamMomentum(alpha=0.3), w=1.0, steps=4)
    for t in range(3):
        at, start = len(diary.w), f.s.w
        k, deltas = noted(f, diary)
        assert (k.m_k.norm() > 0) == (t > 0)
        assert (deltas[0] == 0).all()
        for b in (1, 2, 3):
            assert torch.allclose(deltas[b], along(start + b * k.m_k - diary.w[at + b], 0.1), **CLOSE)
            assert norm(deltas[b]).view(-1).tolist() == approx([0.1] * 4, rel=1e-4)


def test_wmsams_readings_look_opposite_ways():
    """The first step is common; at the second, from the same weights, δ of the code is −δ of the poster."""
    (_, poster), (_, code) = (
        (f.round(), diary)
        for f, diary in (
            federation(WmsamAscent(rho=0.1, reading=r), WmsamMomentum(), steps=3) for r in ("poster", "released")
        )
    )
    assert torch.equal(poster.w[1], code.w[1])
    assert torch.equal(poster.delta[1], -code.delta[1])
    assert norm(code.delta[1]).min() > 0.09
    assert (poster.w[2] - code.w[2]).abs().max() > 1e-4


def test_wmsams_momentum_points_uphill():
    """Two clients on the same hill, far from the minimum: from round 1 on the poster's δ has a positive slope."""
    slopes = {}
    for reading in ("poster", "released"):
        clients = quadratic([30.0, 40.0], [30.0, 40.0])
        f, diary = federation(WmsamAscent(rho=0.1, reading=reading), WmsamMomentum(), clients=clients, steps=2, lr=0.01)
        f.round()
        _, deltas = noted(f, diary)
        slopes[reading] = (deltas[1] * clients.gradient(diary.w[-1], [0, 1])).sum(-1).tolist()
    assert min(slopes["poster"]) > 0 > max(slopes["released"])


def test_wmsams_server_variate_is_the_mean_of_all_clients():
    """c = Σ c_k / N after every round, those who stayed away included."""
    f, _ = federation(*FEDWMSAM.parts, **UNEQUAL)
    for ids in COMERS:
        f.round(ids)
        assert torch.allclose(f.s.c, f.kept("c_k").mean(0), **CLOSE)
    assert f.s.c.norm() > 1e-2


@pytest.mark.parametrize("alpha", [0.0, 0.1, 0.3, 0.9])
def test_wmsams_weight_after_round_0(alpha):
    """There is no momentum to agree with: α_1 = 0.99 α_0 + 0.01 · 0.1."""
    f, _ = federation(WmsamWeight(), WmsamMomentum(alpha=alpha))
    f.round()
    assert f.s.alpha.item() == approx(0.99 * alpha + 0.001, abs=1e-15)


@pytest.mark.parametrize(
    "minima, target",
    [((100.0,) * 3, 0.1), ((-100.0,) * 3, 0.9), ((100.0, 100.0, -100.0), 2 / 3), ((100.0, -100.0, -100.0), 0.9)],
)
def test_wmsam_trusts_momentum_while_clients_agree_with_it(minima, target):
    """m = −1 has carried the model upwards. 1 + cos(Δ_k, m) is 0 for who goes on up and 2 for who turns back.

    The mean is 0, 2, 2/3 or 4/3, cut to [0.1, 0.9]; α goes half of the way there.
    """
    f, _ = federation(WmsamWeight(lam=0.5), WmsamMomentum(alpha=0.5), clients=quadratic(*minima))
    f.s.m = -1.0
    f.round()
    assert f.s.alpha.item() == approx(0.5 * 0.5 + 0.5 * target, abs=1e-6)


@pytest.mark.parametrize("lam", [0.0, 0.01, 0.5])
@pytest.mark.parametrize("alpha", [0.1, 0.5, 0.9])
def test_wmsams_weight_stays_in_its_range(alpha, lam):
    """α in [0.1, 0.9] and |α_{t+1} − α_t| ≤ 0.8 λ; it stands still where λ = 0, and at 0.1 while clients agree."""
    f, _ = federation(*FEDWMSAM.but(alpha=alpha, lam=lam).parts, **UNEQUAL)
    seen = [alpha]
    for ids in COMERS * 2:
        f.round(ids)
        seen.append(f.s.alpha.item())
    assert all(0.1 - 1e-12 <= a <= 0.9 + 1e-12 for a in seen)
    assert all(abs(b - a) <= 0.8 * lam + 1e-12 for a, b in pairwise(seen))
    assert (len(set(seen)) == 1) == (lam == 0 or alpha == 0.1)


PLAIN_WMSAM = FEDWMSAM.but(rho=0.0, lam=0.0, personal=False)


def test_plain_wmsam_is_fedcm():
    """ρ = 0, λ = 0, no variates: FedCM, where the rate does not decay."""
    left, right = (run(m, lr_decay=1.0) for m in (PLAIN_WMSAM, FEDCM))
    assert torch.allclose(left.w, right.w, **CLOSE)
    assert (left.clients["c_k"] == 0).all() and (left.server["c"] == 0).all()
    assert (run(FEDWMSAM, lr_decay=1.0).w - right.w).abs().max() > 1e-4


def test_wmsams_momentum_has_the_decay_once_too_often():
    """Where the rate decays by γ = 0.9 a round, m is FedCM's times 0.9 after round 0, and the runs part from there."""
    left, right = run(PLAIN_WMSAM), run(FEDCM)
    assert torch.allclose(left.server["m"][0], 0.9 * right.server["m"][0], **CLOSE)
    assert torch.allclose(left.w[1], right.w[1], **CLOSE)
    assert (left.w[2] - right.w[2]).abs().max() > 1e-4


def test_wmsam_without_radius_reaches_the_optimum():
    """c − c_k takes the difference out of the clients' gradients; momentum alone, FedCM's, leaves a bias."""
    assert settled(FEDWMSAM.but(rho=0.0, alpha=0.3), 400) < 1e-10
    assert settled(FEDCM.but(alpha=0.3), 400) > 1e-2


# FedFSA

LAYERS = Layout(
    (
        "a.weight",
        "a.bias",
        "BN.weight",
        "gn.scale",
        "x.downsample.0.weight",
        "shortcut.weight",
        "norm.proj",
        "b.weight",
    ),
    ((2, 2), (1, 2), (1, 2), (2,), (1, 2), (2, 1), (1, 2), (1, 3)),
)  # of these only the first and the last can be selected
P = LAYERS.total


def chosen(k: Cohort) -> list[list[int]]:
    """The numbers of the selected layers, per client."""
    return [row.nonzero().view(-1).tolist() for row in k.large]


@pytest.mark.parametrize("top", [2, 3, 99])
def test_fsa_selects_weights_only(top):
    """top ≥ the number of weights: all of them get ρ_larger, but no bias, norm layer or shortcut."""
    clients = heterogeneous(P=P)
    f, diary = federation(FlexibleRadius(0.1, 0.2, top=top), clients=clients, layout=LAYERS, w=1.0)
    assert chosen(f.round()) == [[0, 7]] * 4
    _, (delta,) = noted(f, diary)
    radius = vector(*[0.2] * 4, *[0.1] * 12, *[0.2] * 3)
    assert torch.allclose(delta, radius * along(clients.gradient(diary.w[-1], range(4)), 1.0), **CLOSE)


def test_fsas_first_participation_has_no_large_layer():
    """δ = ρ unit(g) at a client's first participation, in whichever round; at its second some layer is larger."""
    f, diary = federation(FlexibleRadius(0.1, 0.2, top=1), clients=heterogeneous(P=P), layout=LAYERS, w=1.0)
    _, (first,) = noted(f, diary, [0, 1])
    _, (second,) = noted(f, diary, [1, 2])
    _, (third,) = noted(f, diary, [0, 1, 3])
    assert [norm(x).view(-1).tolist()[i] for x, i in ((first, 0), (first, 1), (second, 1), (third, 2))] == approx(
        [0.1] * 4, rel=1e-6
    )
    assert all(norm(x).view(-1)[i] > 0.101 for x, i in ((second, 0), (third, 0), (third, 1)))


TWO = Layout(("a.weight", "b.weight"), ((2, 1), (1, 4)))


@pytest.mark.parametrize(
    "moves, mean, released",
    [
        ((2.0, 0.0, 1.2, 1.2, 1.2, 1.2), 0, 0),  # means of squares 2 and 1.44, though b's sum is larger; ½ and 0
        ((2.0, 2.0, 0.3, 0.0, 0.0, 0.0), 0, 1),  # 4 and 0.0225; shifted alike, a is 0 once scaled, b is ¼
        ((0.1, 0.0, 3.0, 0.0, 0.0, 0.0), 1, 0),  # 0.005 and 2.25; scaled ½ and ¼
    ],
)
def test_fsas_sensitivity_by_hand(moves, mean, released):
    """From w = 0 (scaled: 0) one step of η = 0.1 against w − a moves each number by a/10."""
    for layer_score, wanted in (("mean", mean), ("released", released)):
        part = FlexibleRadius(0.0, 0.0, top=1, layer_score=layer_score)
        k, _ = one_round(Method("m", part), quadratic([10 * x for x in moves]), layout=TWO)
        assert torch.allclose(k.delta[0], vector(*moves), **CLOSE)
        assert chosen(k) == [[wanted]]


def test_fsas_released_score_by_hand():
    """Layer a goes from (0, 1, 2, 4) to (1, 3, 5, 9): scaled (0, ¼, ½, 1) and again (0, ¼, ½, 1), so its score is 0.

    Layer b goes from (0, 4) to (4, 0): (0, 1) becomes (1, 0), a mean of 1 and a sum of 2; of the raw squares 16 and 32.
    The code's score is the default, and the whole method's reading="released" has it too.
    """
    layout = Layout(("a.weight", "b.weight"), ((1, 4), (1, 2)))
    start, end = vector(0, 1, 2, 4, 0, 4), vector(1, 3, 5, 9, 4, 0)
    scaled, raw = {"mean": [0, 1], "sum": [0, 2]}, {"mean": [39 / 4, 16], "sum": [39, 32]}
    for how, wanted in (
        ({}, scaled["mean"]), ({"layer_score": "released"}, scaled["mean"]), ({"reading": "released"}, scaled["mean"]),
        *(({"layer_score": name}, raw[name]) for name in raw),
        *(({"layer_score": name, "reading": "released"}, scaled[name]) for name in scaled),
    ):  # fmt: skip
        part = FlexibleRadius(0.0, 0.0, top=1, **how)
        k, _ = one_round(Method("m", part), quadratic(end.tolist()), w=start, lr=1.0, layout=layout)
        assert k.sensitivity[0].tolist() == approx(wanted, abs=1e-12), how


@pytest.mark.parametrize("layer_score, power", [("sum", 2), ("mean", 2), ("released", 0)])
def test_fsas_score_under_shifts_and_scales(layer_score, power):
    """A constant added to a layer before and after changes neither score; a factor c gives c² or, as released, 1."""
    layout = Layout(("a.weight", "b.weight"), ((3, 1), (1, 4)))
    rng = torch.Generator().manual_seed(1)
    w, a = torch.randn(2, 7, dtype=torch.float64, generator=rng)
    part = FlexibleRadius(0.0, 0.0, top=1, layer_score=layer_score)

    def score(shift: Tensor, scale: float) -> Tensor:
        here, there = scale * w + shift, scale * a + shift
        k, _ = one_round(Method("m", part), quadratic(there.tolist()), w=here, layout=layout)
        return k.sensitivity[0]

    shift = layout.spread(vector(5, -7))
    plain = score(0 * shift, 1.0)
    assert plain.min() > 1e-5
    assert torch.allclose(score(shift, 1.0), plain, atol=1e-12)
    assert torch.allclose(score(0 * shift, 3.0), 3.0**power * plain, atol=1e-12)


@pytest.mark.parametrize(
    "scheme, top, wanted",
    [
        ("fsa", 1, [3]), ("fsa", 2, [0, 3]), ("fsa", 3, [0, 2, 3]), ("fsa", 4, [0, 1, 2, 3]), ("fsa", 0, []),
        ("reverse", 1, [2]), ("reverse", 2, [0, 2]), ("reverse", 4, [0, 2, 3]), ("reverse", 0, []),
    ],
)  # fmt: skip
def test_fsas_schemes(scheme, top, wanted):
    """Layers move by 2, 0, 1, 3: the largest first, or the smallest first but never one that stands still."""
    layout = Layout(("a.weight", "b.weight", "c.weight", "d.weight"), ((1, 1),) * 4)
    part = FlexibleRadius(0.0, 0.0, top=top, scheme=scheme, layer_score="sum")  # of one number, scaled is no change
    k, _ = one_round(Method("m", part), quadratic([20.0, 0.0, 10.0, 30.0]), layout=layout)
    assert chosen(k) == [wanted]


MANY = Layout((*(f"{x}.weight" for x in "abcdefgh"), "z.bias"), (*((1, 2),) * 8, (2,)))


def drawn(seed: int, *comers: list[int], **numbers) -> dict[tuple[int, int], list[int]]:
    """What scheme "random" selects, by round and client."""
    part = FlexibleRadius(top=3, scheme="random", seed=seed)
    f, _ = federation(part, clients=heterogeneous(P=18), layout=MANY, **numbers)
    return {(t, i): row for t, ids in enumerate(comers) for i, row in zip(ids, chosen(f.round(ids)), strict=True)}


def test_fsas_random_layers_are_a_function_of_seed_round_and_client():
    """The same draw whoever else comes and wherever the weights are; another seed, round or client draws anew."""
    all_come = drawn(0, *[[0, 1, 2, 3]] * 6)
    assert drawn(0, [3, 1], [2], [1], [0, 3], w=5.0, lr=0.01).items() <= all_come.items()
    assert drawn(1, *[[0, 1, 2, 3]] * 6) != all_come
    assert len({tuple(all_come[t, 0]) for t in range(6)}) > 1
    assert len({tuple(all_come[0, i]) for i in range(4)}) > 1


def test_fsas_random_layers_are_weights_and_every_weight_comes():
    """Three different weights each time, never the bias; of 24 draws of 3 out of 8, each has its share of 9, ± 3 sd."""
    rows = drawn(0, *[[0, 1, 2, 3]] * 6).values()
    assert all(len(row) == 3 and 8 not in row for row in rows)
    counts = [sum(i in row for row in rows) for i in range(8)]
    assert sum(counts) == 72
    assert all(abs(n - 9) < 3 * (24 * 3 / 8 * 5 / 8) ** 0.5 for n in counts)


def test_fsas_perturbation_lies_between_the_radii():
    """ρ ≤ ‖δ‖ ≤ ρ_larger, and more layers with ρ_larger cannot make it shorter."""
    lengths = []
    for top in range(4):
        f, diary = federation(FlexibleRadius(0.1, 0.3, top=top), clients=heterogeneous(P=P), layout=LAYERS, w=1.0)
        f.round()
        _, (delta,) = noted(f, diary)  # the first round is the same for every top
        lengths.append(norm(delta).view(-1))
    lengths = torch.stack(lengths)
    assert (lengths <= 0.3).all() and (lengths >= 0.1 - 1e-7).all()
    assert (lengths.diff(dim=0)[:2] > 1e-3).all() and (lengths[3] == lengths[2]).all()
    assert lengths[0].tolist() == approx([0.1] * 4, rel=1e-6)


def test_who_stays_away_keeps_its_large_layers():
    f, _ = federation(FlexibleRadius(top=1), clients=heterogeneous(P=P), layout=LAYERS, w=1.0)
    f.round([0, 1])
    before = f.kept("large")
    f.round([2])
    after = f.kept("large")
    assert before.sum(1).tolist() == [1, 1, 0, 0]
    assert after.sum(1).tolist() == [1, 1, 1, 0]
    assert torch.equal(before[:2], after[:2])


def test_released_rates_decay_with_each_clients_own_epochs():
    """η = 0.1, γ = ½, two epochs: client 0 has one step per epoch, client 1 two. Who stays away keeps its rate.

    A client that has finished stands still: 0.05 at client 0 while client 1 goes on.
    """
    f, diary = federation(ClientRate("released"), clients=quadratic(1.0, 3.0), steps=(2, 4), epochs=2, lr_decay=0.5)
    k = f.round()
    assert diary.lr == [[0.1, 0.1], [0.05, 0.1], [0.05, 0.05], [0.05, 0.05]]
    assert k.lr.view(-1).tolist() == [0.05, 0.05]
    f.round([1])
    assert diary.lr[4:] == [[0.025], [0.025], [0.0125], [0.0125]]
    f.round()
    assert diary.lr[8] == [0.025, 0.00625]
    assert f.kept("epochs_done").view(-1).tolist() == [4, 6]


def test_the_rate_that_is_noted_is_the_rate_that_is_used():
    """One client at a = 1 from w = 0, γ = ½, two epochs of a step: 0.1, then 0.1 + 0.05 · 0.9."""
    k, _ = one_round(Method("m", ClientRate("released")), quadratic(1.0), steps=2, epochs=2, lr_decay=0.5)
    assert k.w.item() == approx(0.145, abs=1e-15)


def test_released_rates_start_at_the_first_rounds():
    """A client that comes first when the round's rate is 0.02 still begins at η_0 = 0.1."""
    f, diary = federation(ClientRate("released"), clients=quadratic(1.0), lr=0.02, first_lr=0.1, lr_decay=0.5)
    f.round()
    f.round()
    assert diary.lr == [[0.1], [0.05]]


def test_the_papers_rate_is_the_rounds():
    f, diary = federation(ClientRate("paper"), clients=quadratic(1.0, 3.0), steps=(2, 4), epochs=2, lr_decay=0.5)
    f.round()
    f.round()
    assert diary.lr == [[0.1, 0.1]] * 8


def test_fsas_momentum_by_hand():
    """Minima 1 and 3, w = 0, η = 0.05 by now, η_0 = 0.1, γ = 0.8, α = 0.5, steps 1 and 2.

    v = 0.5 g: Δ_0 = 0.025; Δ_1 = 0.075 + 0.025 · 2.925. m = −½ (Δ_0/1 + Δ_1/2) / η, or γ/η_0 = 8 times as released.
    """
    moves = 0.025, 0.075 + 0.025 * 2.925
    mean = (moves[0] + moves[1] / 2) / 2
    for reading, wanted in (("paper", -mean / 0.05), ("released", -mean * 0.8 / 0.1), ("printed", mean / 0.05)):
        part = FsaMomentum(alpha=0.5, reading=reading)
        k, s = one_round(Method("m", part), quadratic(1.0, 3.0), steps=(1, 2), lr=0.05, first_lr=0.1, lr_decay=0.8)
        assert k.delta.view(-1).tolist() == approx(moves, abs=1e-15)
        assert s.m.item() == approx(wanted, abs=1e-14)


def test_fsas_momentum_enters_the_next_step():
    """v = α g + (1 − α) m: m = −2, α = 0.5, g = −1 give v = −1.5 and w = 0.15."""
    f, _ = federation(FsaMomentum(alpha=0.5), clients=quadratic(1.0))
    f.s.m = -2.0
    assert f.round().w.item() == approx(0.15, abs=1e-15)


# Limits, counts, traffic

SAME = [
    (FEDSMOO.but(rho=0.0), FEDDYN),
    (FEDLESAM.but(rho=0.0), FEDAVG),
    (FEDLESAM.but(rho=0.0, reading="released"), FEDAVG),
    (FEDLESAM_S.but(rho=0.0), SCAFFOLD),
    (FEDLESAM_D.but(rho=0.0), FEDDYN),
    (FEDGLOSS.but(rho=0.0, rho_l=0.0), FEDDYN),
    (FEDFSA.but(top=0), MOFEDSAM),
    (FEDFSA.but(rho_larger=0.1), MOFEDSAM),
    (FEDFSA.but(alpha=1.0), FEDSAM_FSA),
    (FEDFSA.but(alpha=1.0, top=0), FEDSAM),
    (FEDFSA.but(alpha=1.0, rho=0.0, rho_larger=0.0), FEDAVG),
    (FEDFSA.but(rho=0.0, rho_larger=0.0), FEDCM),
    (FEDSPEED_FSA.but(top=0), FEDSPEED),
]
DIFFERENT = [
    (FEDSMOO, FEDDYN),
    (FEDSMOO, FEDSPEED),
    (FEDLESAM, FEDAVG),
    (FEDLESAM, FEDLESAM.but(reading="released")),
    (FEDLESAM, FEDLESAM.but(first="w0")),
    (FEDLESAM_S, SCAFFOLD),
    (FEDLESAM_D, FEDDYN),
    (FEDGLOSS.but(rho_l=0.0), FEDDYN),
    (FEDGLOSS.but(rho=0.0), FEDDYN),
    (FEDGLOSS, FEDGLOSS.but(reading="released")),
    (FEDWMSAM, FEDWMSAM.but(reading="released")),
    (FEDFSA, MOFEDSAM),
    (FEDFSA.but(top=0, reading="released"), MOFEDSAM),
    (FEDFSA.but(alpha=1.0), FEDSAM),
    (FEDSPEED_FSA, FEDSPEED),
]


@pytest.mark.parametrize("left, right", SAME, ids=repr)
def test_limits_the_papers_imply(left, right):
    """Exact to 1e-12, with unequal clients of whom some stay away."""
    assert gap(left, right) < 1e-12


@pytest.mark.parametrize("left, right", DIFFERENT, ids=repr)
def test_away_from_the_limit_they_differ(left, right):
    assert gap(left, right) > 1e-5


def test_fsa_released_without_decay_is_mofedsam():
    """γ = 1: then the first rate is every client's rate, and MoFedSAM's momentum is FedFSA's."""
    left, right = (run(m, lr_decay=1.0) for m in (FEDFSA.but(top=0, reading="released"), MOFEDSAM))
    assert torch.allclose(left.w, right.w, **CLOSE)


@pytest.mark.parametrize(
    "left, right",
    [(FEDLESAM, FEDAVG), (FEDLESAM_S, SCAFFOLD), (FEDLESAM_D, FEDDYN), (FEDFSA, MOFEDSAM), (FEDSPEED_FSA, FEDSPEED)],
    ids=str,
)
def test_round_0_is_the_base_methods(left, right):
    """Nothing to look back to, no layer selected yet: they part later."""
    a, b = run(left), run(right)
    assert torch.allclose(a.w[1], b.w[1], **CLOSE)
    assert (a.w[-1] - b.w[-1]).abs().max() > 1e-6


COSTS = [
    # gradients per step, numbers down and up per parameter, traffic (FedAvg = 1)
    (FEDLESAM, 1, 1, 1, 1.0),
    (FEDLESAM_S, 1, 2, 2, 2.0),
    (FEDLESAM_D, 1, 1, 1, 1.0),
    (FEDSMOO, 2, 2, 2, 2.0),
    (FEDGLOSS, 2, 1, 1, 1.0),
    (FEDGLOSS.but(reading="released"), 2, 1, 1, 1.0),
    (FEDWMSAM, 1, 2, 1, 1.5),
    (FEDWMSAM.but(reading="released"), 1, 2, 1, 1.5),
    (FEDFSA, 2, 2, 1, 1.5),
    (FEDFSA.but(reading="released"), 2, 2, 1, 1.5),
    (FEDSAM_FSA, 2, 1, 1, 1.0),
    (FEDSPEED_FSA, 2, 1, 1, 1.0),
]


@pytest.mark.parametrize("m, passes, down, up, traffic", COSTS, ids=lambda x: repr(x) if isinstance(x, Method) else "")
def test_cost(m, passes, down, up, traffic):
    """Gradients per local step and the factors of the communication table."""
    seen = cost(m)
    assert (seen.passes, seen.down, seen.up, seen.traffic, seen.extra) == (passes, down, up, traffic, 0)
    assert torch.equal(run(m).gradients, 6 * passes * MASK)
