"""FedSCAM: the pilot, the radius, the weights, the conflicts and the sketch in which directions are compared."""

import numpy as np
import pytest
import torch
from pytest import approx
from quadratics import QuadraticRounds, Quadratics, heterogeneous, one_round, quadratic, vector
from torch import Tensor, nn

import fednb
from fednb.algorithms.catalogue import FEDAVG, FEDSAM, FEDSCAM, FEDSCAM_SAM, FEDSCAM_WA
from fednb.algorithms.parts import ScamConflict, ScamPilot, ScamRadius, ScamWeights
from fednb.algorithms.parts.scam import sketch
from fednb.core.record import Cohort, LocalTraining, Server
from fednb.core.rounds import BadParameter, Method, blank, observed_local, server_round
from fednb.core.vectors import Layout, norm, unit
from fednb.data.plan import ExplicitPlan
from fednb.engines.loop import Loop
from fednb.engines.objective import Objective
from fednb.engines.problem import Problem
from fednb.engines.replay import replay
from fednb.engines.stacked import Stacked

PRESENT = ([0, 2, 3], [1, 2], [0, 1, 3], [0, 1, 2, 3])


def only(*parts) -> Method:
    return Method("m", *parts)


def run(made: Method, clients: Quadratics | None = None, n=(3, 2, 2, 11)) -> Tensor:
    """The global model after each of four rounds, of unequal clients of whom some stay away."""
    f = QuadraticRounds(made, clients or heterogeneous(P=6), w=1.0, steps=(3, 5, 2, 4), n=n)
    return torch.stack([(f.round(ids), f.s.w)[1] for ids in PRESENT])


def received(made: Method, move=None, *, n=None, b=None, **rows) -> tuple[Cohort, Server]:
    """A server that has received the moves and numbers of C clients."""
    C = len(next(x for x in (move, *rows.values()) if x is not None))
    move = torch.zeros(C, 2, dtype=torch.float64) if move is None else torch.as_tensor(move, dtype=torch.float64)
    w, n = torch.zeros(move.shape[1], dtype=torch.float64), torch.ones(C) if n is None else torch.tensor(n)
    b = torch.zeros(C, 0, dtype=torch.float64) if b is None else torch.as_tensor(b, dtype=torch.float64)
    layout = Layout(("w",), ((len(w),),))
    given = {name: torch.as_tensor(x, dtype=torch.float64).view(C, -1) for name, x in rows.items()}
    k = Cohort(
        range(C), blank(made, layout, w, b[0], C) | {"delta": move, "w": move, "b": b} | given, layout=layout, n=n,
        steps=torch.ones(C), oracle=lambda *_: pytest.fail("the server has no data"), training=LocalTraining(lr=0.1),
        p=(n.double() / n.sum()).view(-1, 1),
    )  # fmt: skip
    s = Server(w, torch.zeros_like(b[0]), made.buffers("on_server", layout, w), t=0, N=C, lr=1.0)
    for p in made.parts:
        if isinstance(p, ScamConflict):
            p.finish(k, s)
    return k, s


def weights(*parts, **given) -> list[float]:
    k, s = received(only(*parts), **given)
    return only(*parts).fold("weigh", k, s, k.p).view(-1).tolist()


# The sketch


def test_the_sketch_is_linear():
    rng = torch.Generator().manual_seed(0)
    x, y = torch.randn(2, 3, 50, dtype=torch.float64, generator=rng)
    assert torch.allclose(sketch(2 * x - 3 * y, 8), 2 * sketch(x, 8) - 3 * sketch(y, 8), atol=1e-13)
    assert not torch.allclose(sketch(x, 8), sketch(y, 8))


def test_every_coordinate_goes_to_one_cell_with_a_sign():
    """R e_i has one entry, ±1; 400 coordinates use all 16 cells, and about half have a minus."""
    R = sketch(torch.eye(400, dtype=torch.float64), 16)
    assert R.shape == (400, 16)
    assert (R.abs().sum(-1) == 1).all() and (R.abs().amax(-1) == 1).all()
    assert (R.abs().sum(0) > 0).all()
    assert abs(R.sum()) < 4 * 400**0.5


@pytest.mark.parametrize("d", [16, 64])
def test_the_sketch_keeps_inner_products_on_average(d):
    """⟨Rx, Ry⟩ over 600 seeds has mean ⟨x, y⟩ and variance Σ_{i≠j} (x_i² y_j² + x_i y_i x_j y_j) / d, about 1/d."""
    rng = torch.Generator().manual_seed(1)
    x, y = (unit(v) for v in torch.randn(2, 120, dtype=torch.float64, generator=rng))
    y = unit(x + y)
    seen = torch.stack([sketch(x, d, seed) @ sketch(y, d, seed) for seed in range(600)])
    true = x @ y
    spread = ((1 + true**2 - 2 * (x**2 * y**2).sum()) / d).sqrt()
    assert 0.6 < true < 0.8
    assert abs(seen.mean() - true) < 4 * spread / 600**0.5
    assert seen.std() == approx(spread.item(), rel=0.12)


def test_the_error_of_a_cosine_is_about_one_over_the_root_of_d():
    """Orthogonal directions, d = 256: standard deviation 1/16 over 300 seeds."""
    rng = torch.Generator().manual_seed(2)
    x = torch.randn(2000, dtype=torch.float64, generator=rng)
    y = torch.randn(2000, dtype=torch.float64, generator=rng)
    y = y - (x @ y) / (x @ x) * x
    found = torch.stack([torch.cosine_similarity(sketch(x, 256, i), sketch(y, 256, i), dim=0) for i in range(300)])
    assert found.std().item() == approx(1 / 16, rel=0.15)
    assert abs(found.mean()) < 4 / 16 / 300**0.5


def test_the_sketch_is_the_same_for_everyone():
    """The seed alone decides: a stack of vectors is each vector by itself, in single precision too."""
    x = torch.randn(3, 40, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert torch.equal(sketch(x, 8)[1], sketch(x[1].clone(), 8))
    assert torch.allclose(sketch(x.float(), 8).double(), sketch(x, 8), atol=1e-6)
    assert not torch.equal(sketch(x, 8, seed=1), sketch(x, 8, seed=0))


# ScamPilot: h, c, h_adj


def test_heterogeneity_by_hand():
    """w = 0, a = (3, 4) and (0, 1), H = 1: ‖g‖ = 5 and 1 on every batch; in round 0 c = 0 and h_adj = h."""
    k, _ = one_round(only(ScamPilot()), quadratic([3.0, 4.0], [0.0, 1.0]), steps=4)
    assert k.het.view(-1).tolist() == approx([5.0, 1.0])
    assert k.c.view(-1).tolist() == [0.0, 0.0]
    assert torch.equal(k.h_adj, k.het)


def test_a_client_with_few_batches_has_the_mean_of_those():
    """One batch of three wanted: h = 5, without the 1e9 that the kit gives where no batch is left."""
    k, _ = one_round(only(ScamPilot(batches=3)), quadratic([3.0, 4.0], [3.0, 4.0]), steps=(1, 6))
    assert k.het.view(-1).tolist() == approx([5.0, 5.0])


@pytest.mark.parametrize("engine", [Loop, Stacked])
@pytest.mark.parametrize("batches", [1, 3])
def test_heterogeneity_is_the_mean_norm_over_the_first_batches(engine, batches):
    """On a network: ‖∇L‖ at the received model on batches 0 to B − 1 of the round, each by itself."""
    made, X, Y, model = only(ScamPilot(batches=batches, d=8)), *tiny()
    four = torch.tensor([4, 4])
    objective = Objective(model)
    problem = Problem(
        objective, lambda t, ids: ExplicitPlan(X[ids], Y[ids]), layout=objective.layout, sizes=3 * four, steps=four,
        training=LocalTraining(lr=0.1),
    )  # fmt: skip
    w, b = problem.objective.start(torch.float64, torch.device("cpu"))
    k, _ = engine(problem).train(made, problem.server(made, w, b), [0, 1], {})
    for i in range(2):
        norms = []
        for step in range(batches):
            model.zero_grad()
            nn.functional.cross_entropy(model(X[i, step]), Y[i, step]).backward()
            norms.append(torch.cat([p.grad.flatten() for p in model.parameters()]).norm().item())
        assert k.het[i].item() == approx(np.mean(norms), rel=1e-10)


def tiny() -> tuple[Tensor, Tensor, nn.Module]:
    """Two clients with four batches of three samples, for a network 4 → 3."""
    rng = torch.Generator().manual_seed(0)
    X = torch.randn(2, 4, 3, 4, dtype=torch.float64, generator=rng)
    Y = torch.randint(3, (2, 4, 3), generator=rng)
    model = nn.Sequential(nn.Linear(4, 3)).double()
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(0.3 * torch.randn(p.shape, dtype=torch.float64, generator=rng))
    return X, Y, model


def test_a_client_that_pulls_with_the_last_step_has_cosine_one():
    """One client with H = 1: every gradient lies along w − a, as does the last step, so c = 1 from the second round.

    h = 5 · 0.9 then, and κ = ½ halves it.
    """
    f = QuadraticRounds(only(ScamPilot(kappa=0.5)), quadratic([3.0, 4.0]))
    f.round()
    k = f.round()
    assert k.c.item() == approx(1.0, abs=1e-6)
    assert k.het.item() == approx(4.5)
    assert k.h_adj.item() == approx(2.25, abs=1e-5)


def test_a_client_that_pulls_against_it_has_cosine_minus_one():
    """a = +1 with nine samples takes the model to 0.08; a = −1 pulls back: c = 1 and −1, h_adj = ½ h and 1.5 h."""
    f = QuadraticRounds(only(ScamPilot(kappa=0.5)), quadratic(1.0, -1.0), n=(9, 1))
    f.round()
    k = f.round()
    assert k.c.view(-1).tolist() == approx([1.0, -1.0], abs=1e-5)
    assert k.het.view(-1).tolist() == approx([0.92, 1.08], abs=1e-6)
    assert k.h_adj.view(-1).tolist() == approx([0.46, 1.62], abs=1e-5)


def test_the_pilot_is_compared_with_the_servers_step_in_the_sketch():
    """u = R(step/‖step‖) after every round, here of the step 0.1 (1, 2) that the server made."""
    _, s = one_round(only(ScamPilot(d=16, seed=3)), quadratic([1.0, 2.0]))
    assert s.u.shape == (16,)
    assert torch.allclose(s.u, sketch(vector(1, 2) / 5**0.5, 16, 3), atol=1e-6)


def test_the_pilots_gradient_is_taken_uphill():
    """H = diag(1, 4), w = (3, 1), a = 0: g = (3, 4), h = 5; ρ_max = 12, α = 1: radius ½ · 12/6 = 1, δ = (0.6, 0.8).

    The pilot is −(3.6, 7.2); against u along (−1, 0) its cosine is 1/√5, that of the plain gradient 3/5.
    """
    clients = quadratic([0.0, 0.0], curvature=[1.0, 4.0])
    for sam, expected in ((True, 5**-0.5), (False, 0.6)):
        f = QuadraticRounds(only(ScamPilot(rho_max=12.0, sam=sam, d=4096)), clients, w=[3.0, 1.0])
        f.s.u = sketch(vector(-1, 0), 4096)
        assert f.round().c.item() == approx(expected, abs=1e-5)


def test_without_kappa_alignment_does_not_adjust():
    f = QuadraticRounds(FEDSCAM.but(kappa=0.0), heterogeneous(P=6), w=1.0)
    for _ in range(3):
        k = f.round()
        assert torch.equal(k.h_adj, k.het)
    assert k.c.abs().max() > 0.1


def test_adjusted_heterogeneity_is_never_negative():
    """κ = 2 and c = 1: h max(0, 1 − 2) = 0."""
    f = QuadraticRounds(only(ScamPilot(kappa=2.0)), quadratic([3.0, 4.0]))
    f.round()
    assert f.round().h_adj.item() == 0.0


def test_in_the_first_round_nobody_is_aligned():
    for made in (FEDSCAM, FEDSCAM_WA, FEDSCAM_SAM):
        k, _ = one_round(made, heterogeneous(P=6), w=1.0, steps=(3, 5, 2, 4))
        assert (k.c == 0).all()


# The pilot only looks


class Normed(nn.Module):
    """A network whose BatchNorm keeps statistics of what it has seen."""

    def __init__(self):
        super().__init__()
        self.norm, self.fc = nn.BatchNorm1d(4), nn.Linear(4, 3)

    def forward(self, x):
        return self.fc(self.norm(x))


def test_the_pilot_touches_neither_buffers_nor_weights():
    """BatchNorm's statistics and all models after three rounds are FedAvg's to the bit."""
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(3, 2, 1, 4, 5, 4)), rng.integers(0, 3, size=(3, 2, 1, 4, 5))
    w0, everyone = 0.3 * rng.normal(size=8 + 15), np.ones((3, 2), dtype=bool)
    plain, pilot = (replay(m, Normed().double(), w0, X, Y, everyone, lr=0.1) for m in (FEDAVG, only(ScamPilot(d=8))))
    assert torch.equal(plain.w, pilot.w) and torch.equal(plain.local, pilot.local)
    assert torch.equal(plain.buffers, pilot.buffers)
    assert not torch.equal(plain.buffers[0], plain.buffers[1])
    assert (pilot.gradients - plain.gradients == 3 + 2).all()


def test_the_pilot_leaves_the_training_loss():
    plain, pilot = (one_round(m, heterogeneous(P=6), w=1.0, steps=(3, 5, 2, 4))[0] for m in (FEDAVG, only(ScamPilot())))
    assert torch.equal(plain.loss, pilot.loss)
    assert torch.equal(plain.w, pilot.w)


@pytest.mark.parametrize("made, extra", [(FEDSCAM, 5), (FEDSCAM_SAM, 5), (FEDSCAM_WA, 4), (FEDSCAM.but(batches=1), 3)])
def test_gradients_beside_the_steps(made, extra):
    """B = 3 norms and the two passes of the pilot; one pass where it is a plain gradient."""
    seen = fednb.cost(made)
    assert seen.extra == extra
    assert seen.passes == (1.0 if made is FEDSCAM_WA else 2.0)


def test_gradients_of_a_client_with_fewer_batches():
    """Two steps with SAM, 4 gradients; two batches of the three wanted, and the pilot's two."""
    k, _ = one_round(FEDSCAM, heterogeneous(P=6), steps=(2, 5, 3, 4))
    assert k.evaluations.view(-1).tolist() == [4 + 4, 10 + 5, 6 + 5, 8 + 5]


def test_traffic_is_a_few_numbers_more():
    """Down u (256), up h_adj, c and z (258) on top of a model of 10,000 numbers: 1.03 each way."""
    seen = fednb.cost(FEDSCAM)
    assert (seen.down, seen.up) == (1.03, 1.03)


# ScamRadius


def test_the_radius_by_hand():
    """‖g‖ = 5 and 1, α = 1, c = 0: ρ = 0.06/6 = 0.01 and 0.06/2 = 0.03; with H = 1 the step is 0.1 (‖g‖ + ρ)."""
    made = only(ScamPilot(rho_max=0.06), ScamRadius(rho_max=0.06))
    k, _ = one_round(made, quadratic([3.0, 4.0], [0.0, 1.0]))
    assert k.rho_k.view(-1).tolist() == approx([0.01, 0.03])
    assert norm(k.delta).view(-1).tolist() == approx([0.501, 0.103], abs=1e-8)


def test_radii_lie_below_the_largest_and_fall_with_heterogeneity():
    f = QuadraticRounds(FEDSCAM, heterogeneous(P=6), w=1.0)
    for _ in range(3):
        k = f.round()
        assert (k.rho_k > 0).all() and (k.rho_k <= 0.05).all()
        by_h = k.h_adj.view(-1).argsort()
        fall = k.rho_k.view(-1)[by_h]
        assert (fall[1:] < fall[:-1]).all()


def test_a_client_without_heterogeneity_has_the_whole_radius():
    """κ = 2, c = 1: h_adj = 0, so ρ = ρ_max."""
    f = QuadraticRounds(FEDSCAM.but(kappa=2.0), quadratic([3.0, 4.0]))
    f.round()
    assert f.round().rho_k.item() == 0.05


# ScamWeights


def test_weights_by_hand():
    """n = 1, 2, 3; h = 0, 1, 2, γ = 1; c = 0, ½, −1, β = 0.8: 1, 2 · ½ · 1.4 and 3 · ⅓ · 0.2 of 2.6."""
    p = weights(ScamWeights(), n=[1, 2, 3], h_adj=[0.0, 1.0, 2.0], c=[0.0, 0.5, -1.0])
    assert p == approx([1 / 2.6, 1.4 / 2.6, 0.2 / 2.6])


def test_who_pulls_back_hard_does_not_count():
    """β = 2: max(0, 1 − 2) = 0 for c = −1."""
    assert weights(ScamWeights(beta=2.0), h_adj=[1.0, 1.0, 1.0], c=[0.0, 0.0, -1.0]) == approx([0.5, 0.5, 0.0])


def test_where_nobody_counts_sizes_decide():
    assert weights(ScamWeights(beta=2.0), n=[1, 3], h_adj=[1.0, 1.0], c=[-1.0, -1.0]) == approx([0.25, 0.75])


def test_without_gamma_and_beta_sizes_decide():
    p = weights(ScamWeights(gamma=0.0, beta=0.0), n=[1, 2, 5], h_adj=[3.0, 0.0, 9.0], c=[-1.0, 0.3, 1.0])
    assert p == approx([1 / 8, 2 / 8, 5 / 8])


DESK = {
    "move": [[1.0, 0.2], [-0.4, 0.1], [0.3, -0.9], [0.1, 0.8]],
    "n": [5, 1, 3, 11],
    "h_adj": [0.3, 2.0, 1.1, 0.7],
    "c": [0.9, -0.5, 0.1, -1.0],
}
ALL = (ScamWeights(), ScamConflict(d=64, clusters=2))


def test_weights_are_shares():
    p = weights(*ALL, **DESK)
    assert sum(p) == approx(1, abs=1e-15)
    assert min(p) >= 0


def test_a_common_factor_of_all_sizes_changes_nothing():
    assert weights(*ALL, **(DESK | {"n": [50 * n for n in DESK["n"]]})) == approx(weights(*ALL, **DESK), abs=1e-15)
    assert torch.allclose(run(FEDSCAM, n=(6, 4, 4, 22)), run(FEDSCAM, n=(3, 2, 2, 11)), atol=1e-14, rtol=0)


@pytest.mark.parametrize("order", [[1, 0, 2, 3], [3, 2, 1, 0], [2, 0, 3, 1]])
def test_swapped_clients_have_swapped_weights(order):
    p = weights(*ALL, **DESK)
    turned = {name: [x[i] for i in order] for name, x in DESK.items()}
    assert weights(*ALL, **turned) == approx([p[i] for i in order], abs=1e-12)


# ScamConflict


EAST, WEST, NORTH = [2.0, 0.0], [-1.0, 0.0], [0.0, 3.0]
ONE = {"clusters": 1, "d": 64}


def test_the_shorter_of_two_that_pull_apart_is_damped():
    """East 2 and west 1, in one cluster: cos = −1, west is shorter; ½ p and renormalised: ⅔ and ⅓."""
    assert weights(ScamConflict(**ONE), move=[EAST, WEST]) == approx([2 / 3, 1 / 3])


def test_damping_the_update_shortens_the_step():
    """The same conflict with weights ½ and ¼, which add up to ¾: step 1 − ¼ instead of ⅔ · 2 − ⅓."""
    made = only(ScamConflict(dampen="update", **ONE))
    k, s = received(made, [EAST, WEST])
    server_round(made, k, s)
    assert k.p.view(-1).tolist() == approx([0.5, 0.25])
    assert s.w.tolist() == approx([0.75, 0.0])
    made = only(ScamConflict(dampen="weight", **ONE))
    k, s = received(made, [EAST, WEST])
    server_round(made, k, s)
    assert s.w.tolist() == approx([1.0, 0.0])


def test_damped_updates_leave_buffers_whole():
    """Both clients have a running variance of 1: the server's is 1, although weights add up to ¾."""
    made = only(ScamConflict(dampen="update", **ONE))
    k, s = received(made, [EAST, WEST], b=[[1.0], [1.0]])
    server_round(made, k, s)
    assert s.b.item() == approx(1.0)


@pytest.mark.parametrize("dampen", ["weight", "update"])
def test_right_angles_and_agreement_are_no_conflict(dampen):
    """cos = 1 between (2, 0) and (5, 0): nobody is marked, sizes stand; d is large, so that the sketch is exact."""
    rule = ScamConflict(clusters=1, d=4096, dampen=dampen)
    assert weights(rule, move=[EAST, [5.0, 0.0]], n=[1, 3]) == approx([0.25, 0.75])
    assert weights(rule, move=[EAST, [1.0, 0.5], NORTH], n=[1, 2, 1]) == approx([0.25, 0.5, 0.25])


def test_a_client_in_two_conflicts_is_damped_once():
    """West 1 against two in the east: ½, not ¼: weights ⅓, ⅓ and ⅙."""
    p = weights(ScamConflict(dampen="update", **ONE), move=[EAST, [3.0, 0.0], WEST])
    assert p == approx([1 / 3, 1 / 3, 1 / 6])


@pytest.mark.parametrize("dampen", ["weight", "update"])
def test_clusters_of_one_have_no_conflicts(dampen):
    """As many clusters as clients, or more."""
    for clusters in (3, 10):
        rule = ScamConflict(clusters=clusters, d=64, dampen=dampen)
        assert weights(rule, move=[EAST, WEST, NORTH], n=[1, 2, 5]) == approx([1 / 8, 2 / 8, 5 / 8])


def test_clients_of_different_clusters_do_not_conflict():
    """Two clusters split east from west; one cluster has the conflict."""
    apart = [EAST, [3.0, 0.1], WEST, [-4.0, 0.1]]
    assert weights(ScamConflict(clusters=2, d=4096), move=apart) == approx([0.25] * 4)
    assert weights(ScamConflict(clusters=1, d=4096), move=apart) != approx([0.25] * 4)


def test_lambda_of_one_damps_nothing():
    assert weights(ScamConflict(lam=1.0, **ONE), move=[EAST, WEST], n=[1, 3]) == approx([0.25, 0.75])


def test_directions_go_up_as_sketches():
    """z_k = R(Δ_k/‖Δ_k‖), whatever the length of the move."""
    short, _ = one_round(only(ScamConflict(d=16)), quadratic([3.0, 4.0]))
    long, _ = one_round(only(ScamConflict(d=16)), quadratic([30.0, 40.0]))
    assert torch.allclose(short.z, long.z, atol=1e-6)
    assert torch.allclose(short.z[0], sketch(vector(0.6, 0.8), 16), atol=1e-6)


# Limits of the whole


PLAIN = {"beta": 0.0, "gamma": 0.0, "lam": 1.0}


def test_without_its_weights_the_mean_is_by_size():
    f = QuadraticRounds(FEDSCAM.but(**PLAIN), heterogeneous(P=6), w=1.0, n=(3, 2, 2, 11))
    for ids in PRESENT:
        n = f.n[ids].double()
        assert f.round(ids).p.view(-1).tolist() == approx((n / n.sum()).tolist(), abs=1e-7)


def test_without_weights_and_radius_fedavg_is_left():
    assert torch.allclose(run(FEDSCAM.but(rho_max=0.0, **PLAIN)), run(FEDAVG), atol=1e-12, rtol=0)
    assert not torch.allclose(run(FEDSCAM.but(rho_max=0.0)), run(FEDAVG), atol=1e-3, rtol=0)


@pytest.mark.parametrize("rho", [0.05, 0.3])
def test_without_weights_and_alpha_fedsam_is_left(rho):
    sam = run(FEDSAM.but(rho=rho))
    assert torch.allclose(run(FEDSCAM.but(rho_max=rho, alpha_rho=0.0, **PLAIN)), sam, atol=1e-12, rtol=0)
    assert torch.allclose(run(FEDSCAM_SAM.but(rho_max=rho, alpha_rho=0.0)), sam, atol=1e-12, rtol=0)
    assert not torch.allclose(run(FEDSCAM.but(rho_max=rho, **PLAIN)), sam, atol=1e-4, rtol=0)


def test_the_weights_only_variant_trains_as_fedavg_does():
    """FedSCAM (WA): the models of round 0 are FedAvg's, only their weights differ."""
    scam, plain = (one_round(m, heterogeneous(P=6), w=1.0, steps=(3, 5, 2, 4))[0] for m in (FEDSCAM_WA, FEDAVG))
    assert torch.equal(scam.w, plain.w)
    assert not torch.allclose(scam.p, plain.p, atol=1e-3)


def test_the_radius_only_variant_weighs_by_size():
    k, _ = one_round(FEDSCAM_SAM, heterogeneous(P=6), n=(1, 1, 2, 4))
    assert k.p.view(-1).tolist() == [0.125, 0.125, 0.25, 0.5]


def test_without_conflicts_damping_is_idle():
    """Clients that all pull east: FedSCAM with and without λ is one run."""
    clients = quadratic([5.0, 0.1, 0.0], [6.0, 0.0, 0.1], [7.0, 0.1, 0.1], [9.0, 0.0, 0.0])
    idle, strict = (run(FEDSCAM.but(lam=lam), clients) for lam in (1.0, 0.1))
    assert torch.equal(idle, strict)


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: ScamPilot(rho_max=-1.0), r"ScamPilot.rho_max = -1.0: must be at least 0"),
        (lambda: ScamPilot(batches=0), r"ScamPilot.batches = 0: must be at least 1"),
        (lambda: ScamConflict(lam=1.5), r"ScamConflict.lam = 1.5: must be between 0 and 1"),
        (lambda: ScamConflict(dampen="both"), r"ScamConflict.dampen = 'both': must be weight or update"),
        (lambda: ScamConflict(clusters=0), r"ScamConflict.clusters = 0: must be at least 1"),
    ],
)
def test_numbers_out_of_range_are_refused(make, message):
    with pytest.raises(BadParameter, match=message):
        make()


def test_what_the_clients_cannot_write():
    """The pilot reads u from the server and writes only its own row: the locked server would refuse."""
    made = only(ScamPilot(d=8))
    f = QuadraticRounds(made, quadratic([3.0, 4.0]))
    f.round()
    before = f.s.u
    k, _ = received(made, [[0.0, 0.0]])
    vars(k).update(oracle=lambda w, b, step: (w - 1, torch.ones(1, 1), torch.ones(1, 1), b))
    down = observed_local(made, k, f.s)
    assert torch.equal(f.s.u, before)
    assert down == 2 + 8
