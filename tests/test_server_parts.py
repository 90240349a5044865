"""What the server makes of the mean move: momentum, fairness and shrinking layers, worked out by hand."""

from itertools import pairwise

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from pytest import approx
from quadratics import QuadraticRounds, Quadratics, heterogeneous, one_round, quadratic, vector
from torch import Tensor

import fednb
from fednb.algorithms.catalogue import FEDAVG, FEDAVGM, FEDLWS, QFEDAVG, UNIFORM
from fednb.algorithms.parts import Fairness, LayerShrink, Sam, ServerMomentum
from fednb.algorithms.parts.server import groups
from fednb.core.record import Cohort, LocalTraining, Server
from fednb.core.rounds import BadParameter, Method, blank, server_round
from fednb.core.vectors import Layout
from fednb.data.sources import load
from fednb.engines.loop import Loop
from fednb.engines.problem import problem_of
from fednb.engines.setting import Setting
from fednb.engines.stacked import Stacked
from fednb.models import build


class Slopes(Quadratics):
    """Clients whose gradient is −a_k everywhere: with η = 0.1 every step is 0.1 a_k, round after round."""

    def gradient(self, w, ids):
        return -self.a[ids]


def slopes(*at) -> Slopes:
    made = quadratic(*at)
    return Slopes(made.H, made.a)


def run(made: Method, rounds: int = 4, **numbers) -> Tensor:
    """The global model after each round, of unequal clients of whom some stay away."""
    f = QuadraticRounds(made, heterogeneous(P=4), w=1.0, steps=(3, 5, 2, 4), n=(3, 2, 2, 11), layout=LAYERS, **numbers)
    present = ([0, 2, 3], [1, 2], [0, 1, 3], [0, 1, 2, 3])
    return torch.stack([(f.round(present[t]), f.s.w)[1] for t in range(rounds)])


LAYERS = Layout(("a.weight", "a.bias", "b.weight", "b.bias"), ((1,), (1,), (1,), (1,)))


def received(
    made: Method, move, *, w, n=None, b=None, layout: Layout | None = None, server_lr: float = 1.0, **rows
) -> tuple[Cohort, Server]:
    """A server that has received the moves `[C, P]` of C clients, before its half of the round."""
    move, w = torch.as_tensor(move, dtype=torch.float64), torch.as_tensor(w, dtype=torch.float64)
    C, n = len(move), torch.ones(len(move)) if n is None else torch.tensor(n)
    b = torch.zeros(C, 0, dtype=torch.float64) if b is None else torch.as_tensor(b, dtype=torch.float64)
    layout = layout or Layout(("w",), ((len(w),),))
    values = {"delta": move, "w": w + move, "w0": w.expand(C, -1), "b": b} | {
        name: torch.as_tensor(x, dtype=torch.float64).view(C, -1) for name, x in rows.items()
    }
    k = Cohort(
        range(C), blank(made, layout, w, b[0], C) | values, layout=layout, n=n, steps=torch.ones(C),
        oracle=lambda *_: pytest.fail("the server has no data"), training=LocalTraining(lr=0.1),
        p=(n.double() / n.sum()).view(-1, 1),
    )  # fmt: skip
    own = made.buffers("on_server", layout, w)
    return k, Server(w, torch.zeros_like(b[0]), own, t=0, N=C, lr=server_lr)


def after(made: Method, move, **given) -> Tensor:
    """The model after the server's half of a round."""
    k, s = received(made, move, **given)
    server_round(made, k, s)
    return s.w


# ServerMomentum (FedAvgM)


def test_momentum_by_hand():
    """d = 0.1 in every round, β = ½: v = 0.1, 0.15, 0.175, so w = 0.1, 0.25, 0.425."""
    f = QuadraticRounds(FEDAVGM.but(beta=0.5), slopes(1.0))
    assert [(f.round(), f.s.w.item())[1] for _ in range(3)] == approx([0.1, 0.25, 0.425])


def test_damped_momentum_by_hand():
    """v ← ½ v + ½ d: 0.05, 0.075, 0.0875, so w = 0.05, 0.125, 0.2125."""
    f = QuadraticRounds(FEDAVGM.but(beta=0.5, damped=True), slopes(1.0))
    assert [(f.round(), f.s.w.item())[1] for _ in range(3)] == approx([0.05, 0.125, 0.2125])


@pytest.mark.parametrize("damped", [False, True])
def test_without_momentum_fedavg_is_left(damped):
    assert torch.equal(run(FEDAVGM.but(beta=0.0, damped=damped)), run(FEDAVG))
    assert not torch.allclose(run(FEDAVGM.but(damped=damped)), run(FEDAVG))


@pytest.mark.parametrize("damped, gain", [(False, 10.0), (True, 1.0)])
def test_a_constant_move_tends_to_its_gain(damped, gain):
    """d = 0.1 (1, −3) a round, β = 0.9: the step after t rounds is gain · d (1 − 0.9^t), in the limit 10 d, or d."""
    f = QuadraticRounds(FEDAVGM.but(beta=0.9, damped=damped), slopes([1.0, -3.0]))
    for t in range(1, 201):
        before = f.s.w
        f.round()
        if t in (1, 5, 200):
            step = gain * (1 - 0.9**t) * 0.1
            assert (f.s.w - before).tolist() == approx([step, -3 * step], rel=1e-9)
    assert (f.s.w - before).tolist() == approx([0.1 * gain, -0.3 * gain], rel=1e-8)


@pytest.mark.parametrize("beta", [0.3, 0.9])
def test_damped_momentum_is_the_classic_with_a_smaller_server_rate(beta):
    """v_damped = (1 − β) v, so that η_g (1 − β) with the classic form makes the same steps."""
    damped = run(FEDAVGM.but(beta=beta, damped=True), server_lr=0.8)
    classic = run(FEDAVGM.but(beta=beta), server_lr=0.8 * (1 - beta))
    assert torch.allclose(damped, classic, atol=1e-14, rtol=0)


def test_momentum_is_of_the_weighted_mean():
    """Sizes 1 and 3, moves 0.1 and 0.3: d = 0.25, and in the second round v = 0.9 · 0.25 + 0.25."""
    f = QuadraticRounds(FEDAVGM, slopes(1.0, 3.0), n=(1, 3))
    f.round()
    f.round()
    assert f.s.v.item() == approx(0.475)
    assert f.s.w.item() == approx(0.725)


def test_buffers_have_no_momentum():
    """Running variances 1 and 3 of clients with 1 and 3 samples: 2.5, although v = 10 goes on for the weights."""
    k, s = received(FEDAVGM, [[0.0], [0.0]], w=[0.0], n=[1, 3], b=[[1.0], [3.0]])
    s.v = vector(10.0)
    server_round(FEDAVGM, k, s)
    assert (s.w.item(), s.b.item()) == approx((9.0, 2.5))


@pytest.mark.parametrize("beta", [1.0, -0.1])
def test_a_momentum_that_never_ends_is_refused(beta):
    with pytest.raises(BadParameter, match=r"ServerMomentum.beta = .*: must be at least 0 and below 1"):
        ServerMomentum(beta=beta)


# Fairness (q-FedAvg)


def test_fairness_by_hand():
    """a = 1 and 2 from w = 0, one step: F = ½ and 2, g = −1 and −2, 1/η = 10, q = 1.

    Σ F g = −½ − 4; Σ (g² + 10 F) = (1 + 5) + (4 + 20); w = 4.5/30 = 0.15, which is the uniform mean by chance.
    q = 2: Σ F² g = −¼ − 8; Σ (2 F g² + 10 F²) = (1 + 2.5) + (16 + 40); w = 8.25/59.5.
    """
    assert one_round(QFEDAVG.but(q=1.0), quadratic(1.0, 2.0))[1].w.item() == approx(0.15)
    assert one_round(QFEDAVG.but(q=2.0), quadratic(1.0, 2.0))[1].w.item() == approx(8.25 / 59.5)


def test_without_q_all_clients_count_alike():
    """Sizes 1 and 3 have no say: the mean of 0.1 and 0.3, as of `Uniform`, to the last digits."""
    assert one_round(QFEDAVG.but(q=0.0), quadratic(1.0, 3.0), n=(1, 3))[1].w.item() == approx(0.2, rel=1e-15)
    assert torch.allclose(run(QFEDAVG.but(q=0.0)), run(UNIFORM), atol=1e-14, rtol=0)
    assert not torch.allclose(run(QFEDAVG), run(UNIFORM), atol=1e-3)


def test_without_q_the_losses_have_no_say():
    moves = [[0.1, 0.2], [-0.3, 0.5]]
    one, other = (after(QFEDAVG.but(q=0.0), moves, w=[1.0, 1.0], F=F) for F in ([0.5, 2.0], [50.0, 200.0]))
    assert torch.equal(one, other)
    assert one.tolist() == approx([0.9, 1.35])


def test_equal_losses_shorten_the_uniform_step():
    """a = (1, 0) and (0, 1) from 0: F = ½, ‖g‖ = 1, q = 1: (½, ½) / (2 (1 + 5)) = (1/24, 1/24), short of 0.05."""
    _, s = one_round(QFEDAVG.but(q=1.0), quadratic([1.0, 0.0], [0.0, 1.0]))
    assert s.w.tolist() == approx([1 / 24, 1 / 24])


@pytest.mark.parametrize("q", [0.1, 1.0, 5.0])
def test_equal_losses_keep_the_direction_of_the_uniform_mean(q):
    """Three unlike moves, F = 0.7 each: the step is c times their mean, 0 < c < 1, the smaller the larger q."""
    moves, w = torch.tensor([[0.3, -1.0], [0.2, 0.4], [-0.7, 0.1]], dtype=torch.float64), vector(0.0, 0.0)
    scale = [after(QFEDAVG.but(q=x), moves, w=w, F=[0.7] * 3) / moves.mean(0) for x in (q / 2, q)]
    for c in scale:
        assert c[0] == approx(c[1].item())
        assert 0 < c[0] < 1
    assert scale[1][0] < scale[0][0]


def test_the_worst_off_move_the_model_most():
    """Moves 0.1 and −0.1, F = 1 and 4, q = 1: (0.1 − 0.4) · 10 / (1 + 10 + 1 + 40) = −3/52."""
    assert after(QFEDAVG.but(q=1.0), [[0.1], [-0.1]], w=[0.0], F=[1.0, 4.0]).item() == approx(-3 / 52)


def test_the_loss_is_that_of_the_received_model():
    """Two steps towards a = 1 from 0: F = ½, although the training loss is (½ + 0.405)/2."""
    k, _ = one_round(QFEDAVG, quadratic(1.0), steps=2)
    assert k.F.item() == approx(0.5)
    assert k.loss.item() == approx(0.4525)


SIZES = (14, 16, 24, 9)
DIGITS = Setting(data="digits", model="cnn-small", clients=4, epochs=2, batch=8, precision="fp64", augment=False)


@pytest.mark.parametrize("engine", [Loop, Stacked])
def test_fairness_asks_all_data_once(engine):
    """Clients of 14, 16, 24 and 9 digits in batches of 8, two epochs: F is the mean over the samples, not over batches.

    One more gradient for each of the ⌈n/8⌉ batches: 2, 2, 3 and 2 beside the 4, 4, 6 and 4 of training.
    """
    parts = np.split(np.random.default_rng(0).permutation(63), np.cumsum(SIZES)[:-1])
    problem, data = problem_of(DIGITS, seed=0, parts=parts), load("digits")
    w, b = problem.objective.start(torch.float64, torch.device("cpu"))
    k, _ = engine(problem).train(QFEDAVG, problem.server(QFEDAVG, w, b), [0, 1, 2, 3], {})
    model = build("cnn-small", data.classes, data.input, seed=0).double()
    x = (data.x.double() / data.scale - torch.tensor(data.mean).view(-1, 1, 1)) / torch.tensor(data.std).view(-1, 1, 1)
    expected = [F.cross_entropy(model(x[p]), data.y[p]).item() for p in parts]
    assert len({round(v, 4) for v in expected}) == 4
    assert k.F.view(-1).tolist() == approx(expected, rel=1e-7)
    assert k.evaluations.view(-1).tolist() == [6, 6, 9, 6]


def test_fairness_costs_one_pass_more():
    """Three batches beside the three steps, and one number more up."""
    seen = fednb.cost(QFEDAVG)
    assert (seen.passes, seen.extra) == (1.0, 3.0)


def test_fairness_does_not_disturb_the_training():
    """Only the server's step differs from FedAvg's: clients move alike, with the same training losses."""
    fair, plain = (QuadraticRounds(m, heterogeneous(), steps=(3, 5, 2, 4)).round() for m in (QFEDAVG, FEDAVG))
    assert torch.equal(fair.w, plain.w)
    assert torch.equal(fair.loss, plain.loss)


def test_fairness_on_top_of_sam():
    """q = 0: the uniform mean of SAM's moves."""
    fair = Method("fair SAM", Sam(0.1), Fairness(q=0.0))
    sam, s = one_round(Method("SAM", Sam(0.1)), heterogeneous(), w=1.0)
    _, t = one_round(fair, heterogeneous(), w=1.0, n=(1, 2, 3, 4))
    assert torch.allclose(t.w, 1 + sam.delta.mean(0), atol=1e-14)
    assert torch.allclose(s.w, t.w, atol=1e-14)


# LayerShrink (FedLWS)


def gamma(made: Method, move, w, **given) -> Tensor:
    """w⁺ / (w + mean move): the factor of every weight."""
    w = torch.as_tensor(w, dtype=torch.float64)
    return after(made, move, w=w, **given) / (w + torch.as_tensor(move, dtype=torch.float64).mean(0))


def test_groups_end_with_a_bias():
    """A convolution without bias and its norm are one group; a last layer without bias is a group of its own."""
    names = ("conv1.weight", "gn1.weight", "gn1.bias", "conv2.weight", "conv2.bias", "fc.weight", "fc.bias", "scale")
    assert groups(Layout(names, ((1,),) * 8)) == [0, 0, 0, 1, 1, 2, 2, 3]


def test_the_groups_of_a_resnet():
    """resnet20-gn: a group for each of its norms, and the linear layer."""
    model = build("resnet20-gn", 10, (3, 32, 32))
    found = groups(Layout.of_parameters(model))
    norms = sum(name.endswith("bias") for name, _ in model.named_parameters()) - 1
    assert max(found) == norms
    assert found == sorted(found)
    assert found.count(max(found)) == 2


def test_shrinking_by_hand():
    """w = (3, 4), both clients move by (3, 4): no disagreement, τ = least = ½, γ = 5/(5 + ½ · 5) = ⅔: (4, 16/3)."""
    made = FEDLWS.but(beta=0.0, least=0.5, most=1.0)
    assert after(made, [[3.0, 4.0]] * 2, w=[3.0, 4.0]).tolist() == approx([4.0, 16 / 3])


def test_disagreement_by_hand():
    """Moves (1, 0) ± (0, 2): each is 2 from the mean, τ = 0.1 · 2; w = (3, 4), ‖step‖ = 1: γ = 5/5.2."""
    made = FEDLWS.but(beta=0.1, least=0.0, most=1.0)
    assert after(made, [[1.0, 2.0], [1.0, -2.0]], w=[3.0, 4.0]).tolist() == approx([20 / 5.2, 20 / 5.2])


def test_groups_shrink_by_themselves():
    """Layers a and b with ‖w‖ = 5 and 13: only a moves, by its own norm; γ = ⅔ with τ = ½, and 1 for b."""
    layout = Layout(("a.weight", "a.bias", "b.weight", "b.bias"), ((1,), (1,), (1,), (1,)))
    made = FEDLWS.but(beta=0.0, least=0.5, most=1.0)
    w = [3.0, 4.0, 5.0, 12.0]
    factor = gamma(made, [[3.0, 4.0, 0.0, 0.0]] * 2, w, layout=layout)
    assert factor.tolist() == approx([2 / 3, 2 / 3, 1.0, 1.0])


def test_without_its_floor_and_slope_fedavg_is_left():
    """The default floor 0.01 is never FedAvg, even where clients agree."""
    assert torch.allclose(run(FEDLWS.but(beta=0.0, least=0.0)), run(FEDAVG), atol=1e-14, rtol=0)
    assert not torch.allclose(run(FEDLWS.but(beta=0.0)), run(FEDAVG), atol=1e-4, rtol=0)


def test_nobody_moves_and_nothing_shrinks():
    """w_k = w: γ = 1 exactly, whatever the floor."""
    w = [0.3, -2.0, 7.0, 0.1]
    assert after(FEDLWS.but(least=0.2), torch.zeros(3, 4), w=w, layout=LAYERS).tolist() == w


def test_opposite_moves_shrink_nothing():
    """The mean stands still: ‖step‖ = 0, so that γ = 1 however far apart clients are."""
    assert after(FEDLWS, [[3.0, 1.0], [-3.0, -1.0]], w=[1.0, 2.0]).tolist() == [1.0, 2.0]


def test_factors_are_above_zero_and_at_most_one():
    rng = torch.Generator().manual_seed(0)
    for scale in (1e-6, 1.0, 1e6):
        move = scale * torch.randn(5, 4, dtype=torch.float64, generator=rng)
        factor = gamma(FEDLWS, move, torch.randn(4, dtype=torch.float64, generator=rng), layout=LAYERS)
        assert (factor > 0).all() and (factor <= 1 + 1e-12).all()


def test_the_more_clients_disagree_the_smaller_the_factor_until_the_clip():
    """Moves (1, 0) ± (0, x), β = 0.03: τ = 0.03 x between 0.01 and 0.2, so γ falls from x = ⅓ to 20/3 and then stays.

    ‖w‖ = 5 and ‖step‖ = 1: γ = 5/(5 + τ).
    """
    at = [0.0, 0.2, 1.0, 3.0, 6.0, 7.0, 50.0]
    found = [gamma(FEDLWS, [[1.0, x], [1.0, -x]], [3.0, 4.0])[0].item() for x in at]
    assert found == approx([5 / (5 + min(max(0.03 * x, 0.01), 0.2)) for x in at], rel=1e-12)
    assert found[0] == found[1] and found[-2] == found[-1]
    assert all(left > right for left, right in pairwise(found[1:6]))


def test_disagreement_is_the_plain_mean_over_clients():
    """Moves (1, 2), (1, −2), (1, 0) of 1, 6 and 1 samples: 2, 2 and 0 from their plain mean, so τ = 0.1 · 4/3.

    The weighted step is (1, −1.25), whose length is √2.5625: γ = 5/(5 + 0.4/3 · √2.5625) on (4, 2.75).
    """
    made = FEDLWS.but(beta=0.1, least=0.0, most=1.0)
    w = after(made, [[1.0, 2.0], [1.0, -2.0], [1.0, 0.0]], w=[3.0, 4.0], n=[1, 6, 1])
    factor = 5 / (5 + 0.4 / 3 * 2.5625**0.5)
    assert w.tolist() == approx([4 * factor, 2.75 * factor])


def test_buffers_do_not_shrink():
    """Two clients with a running variance of 1: the server's is 1, while the weights shrink to ⅔ of (6, 8)."""
    made = FEDLWS.but(beta=0.0, least=0.5, most=1.0)
    k, s = received(made, [[3.0, 4.0]] * 2, w=[3.0, 4.0], b=[[1.0], [1.0]])
    server_round(made, k, s)
    assert s.w.tolist() == approx([4.0, 16 / 3])
    assert s.b.item() == 1.0


@pytest.mark.parametrize("wrong", ["beta", "least", "most"])
def test_negative_shrinking_is_refused(wrong):
    with pytest.raises(BadParameter, match=f"LayerShrink.{wrong} = -1.0: must be at least 0"):
        LayerShrink(**{wrong: -1.0})
