"""Both values of every switch in how clients are weighed, summed up and mixed, worked out by hand."""

from math import log

import pytest
import torch
from pytest import approx
from quadratics import QuadraticRounds, one_round, quadratic, vector
from test_catalogue import run, same
from test_methods import lines
from test_scam import EAST, NORTH, ONE, WEST
from test_scam import weights as damped
from test_server_parts import after, slopes
from test_weigh import MOVE, N, logits, uploads, weights
from torch import Tensor

import fednb as fn
from fednb.algorithms.catalogue import FEDALA, FEDAVGM, FEDAWA, FEDDISCO, FEDLWS, FEDSCAM
from fednb.algorithms.parts import (
    AdaptiveWeights,
    Discrepancy,
    LayerShrink,
    LocalAggregation,
    ScamConflict,
    ScamPilot,
    ServerMomentum,
)
from fednb.algorithms.parts.scam import sketch
from fednb.core.record import Server
from fednb.core.rounds import BadParameter, Method, Part
from fednb.core.vectors import Layout

# FedAvgM, FedLWS


@pytest.mark.parametrize("damped, ws", [(False, [0.15, 0.325, 0.5125]), (True, [0.075, 0.1625, 0.25625])])
def test_nesterovs_step_by_hand(damped, ws):
    """d = 0.1 in every round, β = ½: v = 0.1, 0.15, 0.175 and steps d + ½ v = 0.15, 0.175, 0.1875; damped half."""
    f = QuadraticRounds(FEDAVGM.but(beta=0.5, damped=damped, nesterov=True), slopes(1.0))
    assert [(f.round(), f.s.w.item())[1] for _ in range(3)] == approx(ws)


def test_nesterovs_step_is_pytorchs():
    """torch.optim.SGD(momentum, nesterov) with the gradient −d: FL-bench's server."""
    moves = torch.tensor([[0.3, -1.0], [0.2, 0.4], [-0.7, 0.1]], dtype=torch.float64)
    x = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    sgd = torch.optim.SGD([x], lr=1.0, momentum=0.9, nesterov=True)
    made = Method("m", ServerMomentum(beta=0.9, nesterov=True))
    s = Server(vector(0, 0), vector(), {"v": vector(0, 0)}, t=0, N=1, lr=1.0)
    for d in moves:
        x.grad = -d
        sgd.step()
        s.delta = d
        made.each("server", None, s)
        s.w = s.w + s.step
    assert torch.allclose(s.w, x.detach(), atol=1e-12, rtol=0)


LINEAR = Layout(("a.weight", "a.bias"), ((1,), (1,)))


@pytest.mark.parametrize(
    "factor_per, moved, fresh", [("group", [30 / 6.5, 20 / 6.5], [18 / 7, 6 / 7]), ("tensor", [4.0, 4.0], [3.0, 0.0])]
)
def test_factors_of_groups_and_of_tensors(factor_per, moved, fresh):
    """τ = ½. w = (3, 4), step (3, 0): γ = 5/(5 + 1.5) for the group; 3/(3 + 1.5) and 1 for its tensors.

    A bias of zero that moves by 1 beside a weight of 3: γ = 3/3.5 for the group; the tensor of zeros stays zero.
    """
    made = FEDLWS.but(beta=0.0, least=0.5, most=1.0, factor_per=factor_per)
    assert after(made, [[3.0, 0.0]] * 2, w=[3.0, 4.0], layout=LINEAR).tolist() == approx(moved)
    assert after(made, [[0.0, 1.0]] * 2, w=[3.0, 0.0], layout=LINEAR).tolist() == approx(fresh)


# FedDisco


@pytest.mark.parametrize(
    "distance, d",
    [
        ("kl", [2 / 3, 1 / 3]), ("raw-kl", [log(4), log(2)]), ("l1", [1.5, 1.0]), ("l2", [0.75**0.5, 0.5]),
        ("cosine", [0.5, 1 - 0.5**0.5]),
    ],
)  # fmt: skip
def test_distances_from_uniform_classes(distance, d):
    """Of 4 classes one client has one, the other two: D = (1, 0, 0, 0) and (½, ½, 0, 0). a = 0.1: p ∝ ½ − 0.1 d."""
    p = weights(Discrepancy(a=0.1, b=0.0, distance=distance), n=[8, 8], labels=[[8, 0, 0, 0], [4, 4, 0, 0]])
    left = [0.5 - 0.1 * x for x in d]
    assert p == approx([x / sum(left) for x in left], abs=1e-6)


@pytest.mark.parametrize("distance", ["kl", "raw-kl", "l1", "l2", "cosine"])
def test_balanced_clients_have_no_distance(distance):
    assert weights(Discrepancy(a=0.5, b=0.0, distance=distance), n=[4, 12], labels=[[2, 2], [6, 6]]) == approx(
        [0.25, 0.75], abs=1e-6
    )


# FedAWA


def learned(T: Tensor, move: Tensor, w: Tensor, optimiser: torch.optim.Optimizer, steps: int, distance: str) -> Tensor:
    """T after some steps of PyTorch's own optimiser down J, written out client by client."""
    for _ in range(steps):
        p = torch.softmax(T, 0)
        mean = sum(share * d for share, d in zip(p, move, strict=True))
        J = torch.zeros((), dtype=torch.float64)
        for share, d in zip(p, move, strict=True):
            far = d.square().mean() if distance == "euclidean" else 1 - torch.cosine_similarity(w, w + d, dim=0)
            J = J + share * ((d - mean).norm() + far)
        optimiser.zero_grad()
        J.backward()
        optimiser.step()
    return T.detach()


@pytest.mark.parametrize("distance", ["cosine", "euclidean"])
@pytest.mark.parametrize("steps", [1, 2, 5])
@pytest.mark.parametrize("optimiser", ["adam", "sgd"])
def test_logits_are_learned_as_by_pytorch(optimiser, steps, distance):
    """Adam with betas 0.5 and 0.999, or SGD with momentum 0.9 and weight decay 5e-4, new in every round."""
    move, w = torch.tensor(MOVE, dtype=torch.float64), vector(1.0, 2.0)
    T = vector(0.3, -0.2, 0.1, 0.5).requires_grad_()
    kinds = {
        "adam": lambda: torch.optim.Adam([T], lr=0.01, betas=(0.5, 0.999)),
        "sgd": lambda: torch.optim.SGD([T], lr=0.01, momentum=0.9, weight_decay=5e-4),
    }
    rule = AdaptiveWeights(lr=0.01, learning_steps=steps, optimiser=optimiser, model_distance=distance)
    k, s = uploads(rule, move=MOVE, w=w, logit=T.tolist())
    rule.weigh(k, s, k.p)
    wanted = learned(T, move, w, kinds[optimiser](), steps, distance)
    assert k.logit.view(-1).tolist() == approx(wanted.tolist(), abs=1e-7)
    assert abs(wanted[0] - 0.3) > 1e-4


@pytest.mark.parametrize("use", ["before", "after"])
def test_weights_from_before_or_after_the_step(use):
    """A huge lr: p is the softmax of the logits that the round began with, or of those that it ends with."""
    rule = AdaptiveWeights(lr=1.0, use=use)
    k, s = uploads(rule, move=MOVE, logit=[0.3, -0.2, 0.1, 0.5])
    began = k.logit
    p = rule.weigh(k, s, k.p)
    assert torch.equal(p, torch.softmax(began if use == "before" else k.logit, 0))
    assert (k.logit - began).abs().min() > 0.9


def test_logarithms_of_shares_start_at_fedavg():
    """Sizes 5, 1, 3, 11 of 40 in all: softmax(log(n/40)) = n/20 among the participants."""
    k, s = uploads(AdaptiveWeights(first_logit="log"), n=N, move=MOVE, samples=40)
    assert AdaptiveWeights(first_logit="log").weigh(k, s, k.p).view(-1).tolist() == approx([x / 20 for x in N])
    assert logits(0.0, n=N, move=MOVE, samples=40)[2] != approx([x / 20 for x in N], abs=0.1)


# FedSCAM


@pytest.mark.parametrize("pilot, c, h_adj", [("update", 1.0, 2.25), ("gradient", -1.0, 6.75)])
def test_a_pilot_of_gradients_turns_the_alignment_around(pilot, c, h_adj):
    """One client follows its own last step: −∇L has cosine 1 with it, ∇L −1. h = 4.5, κ = ½: h_adj = h (1 ∓ ½)."""
    f = QuadraticRounds(Method("m", ScamPilot(kappa=0.5, pilot=pilot)), quadratic([3.0, 4.0]))
    f.round()
    k = f.round()
    assert (k.c.item(), k.het.item(), k.h_adj.item()) == approx((c, 4.5, h_adj), abs=1e-5)


@pytest.mark.parametrize(
    "dampen, per_conflict, wanted",
    [
        ("update", False, [1 / 3, 1 / 3, 1 / 6]), ("update", True, [1 / 3, 1 / 3, 1 / 12]),
        ("weight", False, [0.4, 0.4, 0.2]), ("weight", True, [4 / 9, 4 / 9, 1 / 9]),
    ],
)  # fmt: skip
def test_damped_once_or_for_each_conflict(dampen, per_conflict, wanted):
    """West 1 loses to two in the east, λ = ½: a half or a quarter of its third; renormalised or not."""
    rule = ScamConflict(dampen=dampen, per_conflict=per_conflict, **ONE)
    assert damped(rule, move=[EAST, [3.0, 0.0], WEST]) == approx(wanted)


@pytest.mark.parametrize("cosine_of, wanted", [("summaries", [1 / 3, 2 / 3]), ("updates", [0.5, 0.5])])
def test_who_points_apart_in_summaries_or_in_updates(cosine_of, wanted):
    """East and north are at right angles, no conflict. In one number, d = 1, a sketch can only tell signs apart:

    with a seed that gives them different ones, the shorter, east, seems to pull against the other.
    """
    east, north = torch.eye(2, dtype=torch.float64)
    seed = next(i for i in range(50) if sketch(east, 1, i) * sketch(north, 1, i) < 0)
    rule = ScamConflict(clusters=1, d=1, seed=seed, cosine_of=cosine_of)
    assert damped(rule, move=[EAST, NORTH]) == approx(wanted)


# FedALA


@pytest.mark.parametrize("newcomers, A, w", [("take", 1.0, -0.21), ("mix", 0.69, 0.069 - 0.1 * 3.069)])
def test_newcomers_take_or_mix(newcomers, A, w):
    """Client 0 takes w from 0 to 0.1; client 1, a = −3, comes next. As it is: 0.1 − 0.1 · 3.1.

    Mixed with its own model, the first: ∇L(0.1) = 3.1, A = 1 − 3.1 · 0.1 = 0.69, so that it starts from 0.069.
    """
    f = QuadraticRounds(FEDALA.but(most=1, newcomers=newcomers), quadratic(1.0, -3.0))
    f.round([0])
    k = f.round([1])
    assert (k.A.item(), k.w.item()) == approx((A, w))


def test_newcomers_who_mix_have_their_first_phase_then():
    """Five passes at the first mixing, one at each later one; nobody mixes in round 0, where w is the first model."""
    for newcomers, counts in (("mix", [[6, 6, 6], [2, 2, 2]]), ("take", [[6, 6, 1], [2, 2, 6]])):
        f = QuadraticRounds(FEDALA.but(most=5, threshold=0.0, newcomers=newcomers), quadratic(1.0, 2.0, -3.0))
        assert f.round([0, 1]).evaluations.view(-1).tolist() == [1, 1]
        assert [f.round().evaluations.view(-1).tolist() for _ in range(2)] == counts


def test_who_alone_made_the_model_has_nothing_to_mix():
    """Client 0 came alone, so that w is its own model: the released rule skips it, and it mixes when w has moved."""
    f = QuadraticRounds(FEDALA.but(most=5, threshold=0.0, newcomers="mix"), quadratic(1.0, -3.0))
    f.round([0])
    assert [f.round().evaluations.view(-1).tolist() for _ in range(2)] == [[1, 6], [6, 2]]


# All switches


SWITCHED = [
    (FEDAVGM, FEDAVGM.but(nesterov=True)),
    (FEDLWS, FEDLWS.but(factor_per="tensor")),
    *((FEDDISCO, FEDDISCO.but(distance=d)) for d in ("raw-kl", "l1", "l2", "cosine")),
    *((FEDAWA.but(lr=0.1), FEDAWA.but(lr=0.1, **{name: x}))
      for name, x in dict(learning_steps=3, optimiser="sgd", use="after", first_logit="log").items()),
    (FEDAWA.but(lr=0.1, optimiser="sgd"), FEDAWA.but(lr=0.1, optimiser="sgd", model_distance="euclidean")),
    (FEDSCAM, FEDSCAM.but(pilot="gradient")),
    (FEDALA, FEDALA.but(newcomers="mix")),
]  # fmt: skip


@pytest.mark.parametrize("plain, switched", SWITCHED, ids=lambda m: repr(m))
def test_engines_agree_on_switches(plain, switched):
    """One client at a time and all at once give the same weights and state, with some away; the default another run."""
    one = run(switched)
    same(one, run(switched, "stacked"), atol=1e-12)
    assert (one.w - run(plain).w).abs().max() > 1e-7


WRONG = [
    (LayerShrink, "factor_per"), (Discrepancy, "distance"), (AdaptiveWeights, "optimiser"), (AdaptiveWeights, "use"),
    (AdaptiveWeights, "model_distance"), (AdaptiveWeights, "first_logit"), (ScamPilot, "pilot"),
    (ScamConflict, "cosine_of"), (LocalAggregation, "newcomers"),
]  # fmt: skip


@pytest.mark.parametrize("kind, name", WRONG)
def test_values_that_a_switch_does_not_have_are_refused(kind, name):
    with pytest.raises(BadParameter, match=rf"{kind.__name__}\.{name} = 'whatever': must be \w+.* or \w+"):
        kind(**{name: "whatever"})


@pytest.mark.parametrize("steps", [0, 1.5])
def test_learning_takes_whole_steps(steps):
    with pytest.raises(BadParameter, match=r"learning_steps = .*: must be a whole number from 1 to 10000"):
        AdaptiveWeights(learning_steps=steps)


CARDS = [
    (ServerMomentum(nesterov=True), "server", "v ← β v + Σ p_k Δ_k;  step ← η_g (Σ p_k Δ_k + β v)"),
    (Discrepancy(distance="raw-kl"), "weigh", "p_k ∝ max(0, p_k − a d_k + b),  d_k = KL(D_k ‖ uniform)"),
    (Discrepancy(distance="l2"), "weigh", "p_k ∝ max(0, p_k − a d_k + b),  d_k = ‖D_k − uniform‖₂"),
    (AdaptiveWeights(use="after", optimiser="sgd"), "weigh",
     "T_k ← n_k / n the first time;  T ← T − lr ∂J/∂T,  J = Σ p_k (‖Δ_k − Σ p_j Δ_j‖ + d(w, w_k));  p ← softmax(T)"),
    (AdaptiveWeights(first_logit="log"), "weigh", "T_k ← log(n_k / n) the first time;  p ← softmax(T);  "
     "T ← T − lr sign(∂J/∂T),  J = Σ p_k (‖Δ_k − Σ p_j Δ_j‖ + d(w, w_k))"),
    (ScamPilot(pilot="gradient"), "start",
     "h ← mean ‖∇L(w)‖ over B batches;  c ← cos(R(∇L(w + δ_pilot)), u);  h_adj ← h max(0, 1 − κ c)"),
    (ScamConflict(per_conflict=True), "weigh",
     "p_k ← λ^m p_k, m the updates of its cluster that are longer and point apart from it;  p ← p / Σ p_k"),
    (ScamConflict(per_conflict=True, dampen="update"), "weigh",
     "p_k ← λ^m p_k, m the updates of its cluster that are longer and point apart from it"),
]  # fmt: skip


@pytest.mark.parametrize("p, stage, shown", CARDS, ids=lambda x: repr(x) if isinstance(x, Part) else "")
def test_a_card_shows_the_switch(p, stage, shown):
    own = [line for line in lines(str(fn.card(Method("m", p))), stage) if line.endswith(type(p).__name__)]
    assert [line.removesuffix(type(p).__name__).strip() for line in own] == [shown]


def test_one_round_of_the_defaults_is_what_it_was():
    """FedDisco, FedAWA and FedSCAM with every switch written out are the catalogue's."""
    assert FEDDISCO.but(distance="kl") == FEDDISCO
    assert FEDAWA.but(learning_steps=1, optimiser="adam", use="before", model_distance="cosine") == FEDAWA
    assert FEDSCAM.but(pilot="update", per_conflict=False, cosine_of="summaries") == FEDSCAM
    assert one_round(FEDAWA.but(first_logit="share"), quadratic(1.0, 3.0))[1].w.item() == approx(0.2)
