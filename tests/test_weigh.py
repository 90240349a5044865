"""How much each client counts: the weights of every aggregation rule, worked out by hand."""

from itertools import pairwise
from math import e, exp, log

import pytest
import torch
from pytest import approx
from quadratics import QuadraticRounds, heterogeneous, one_round, quadratic, vector
from torch import Tensor

import fednb
from fednb.algorithms.catalogue import FEDAVG, FEDAWA, FEDDISCO, FEDLW, FEDLWSAM, FEDNOLOWE, FEDSAM, UNIFORM, method
from fednb.algorithms.parts import AdaptiveWeights, Discrepancy, LossWeights, NormalisedLoss, Sam, Uniform
from fednb.core.record import Cohort, LocalTraining, Server
from fednb.core.rounds import BadParameter, Method, Part, blank
from fednb.core.vectors import Layout
from fednb.engines.setting import Setting


def column(*numbers: float) -> Tensor:
    return vector(*numbers).view(-1, 1)


def uploads(
    rule: Part, n=None, loss=None, labels=None, move=None, w=None, samples: int | None = None, logit=None
) -> tuple[Cohort, Server]:
    """What the server has on its desk: sizes, training losses, class counts and moves of C clients."""
    given = next(x for x in (n, loss, labels, move) if x is not None)
    C = len(given)
    n = torch.ones(C, dtype=torch.int64) if n is None else torch.as_tensor(n)
    move = torch.zeros(C, 2, dtype=torch.float64) if move is None else torch.as_tensor(move, dtype=torch.float64)
    w = vector(*[1.0] * move.shape[1]) if w is None else w
    layout, made = Layout(("w",), ((len(w),),)), Method("m", rule)
    rows = blank(made, layout, w, w[:0], C) | {
        name: x.expand(C, -1) for name, x in made.buffers("per_client", layout, w).items()
    }
    rows |= {"w0": w.expand(C, -1), "w": w + move, "delta": move}
    rows |= {} if loss is None else {"loss": column(*loss)}
    rows |= {} if logit is None else {"logit": column(*logit), "weighed": torch.ones(C, 1, dtype=torch.float64)}
    k = Cohort(
        range(C), rows, layout=layout, oracle=lambda *_: pytest.fail("the server has no data"), n=n,
        steps=torch.ones(C), training=LocalTraining(lr=0.1), p=(n.double() / n.sum()).view(-1, 1),
        labels=None if labels is None else torch.as_tensor(labels),
    )  # fmt: skip
    return k, Server(w, w[:0], {}, t=0, N=C, lr=1.0, samples=int(n.sum()) if samples is None else samples)


def weights(rule: Part, **given) -> list[float]:
    k, s = uploads(rule, **given)
    return rule.weigh(k, s, k.p).view(-1).tolist()


# Every rule

RULES = [
    Uniform(),
    LossWeights(),
    LossWeights(form="softmax"),
    NormalisedLoss(),
    Discrepancy(),
    Discrepancy(a=2.0, b=0.0),
    AdaptiveWeights(),
]
N, LOSS = [5, 1, 3, 11], [0.3, 2.0, 1.1, 0.7]
LABELS = [[5, 0, 0], [1, 2, 3], [2, 2, 2], [9, 1, 4]]
MOVE = [[0.3, -1.0], [0.2, 0.4], [-0.7, 0.1], [0.5, 0.9]]
DESK = {"n": N, "loss": LOSS, "labels": LABELS, "move": MOVE}


@pytest.mark.parametrize("rule", RULES, ids=repr)
def test_weights_are_shares(rule):
    p = weights(rule, **DESK)
    assert sum(p) == approx(1, abs=1e-15)
    assert min(p) >= 0


@pytest.mark.parametrize("rule", RULES, ids=repr)
def test_clients_in_another_order_have_their_weights_in_that_order(rule):
    order = [2, 0, 3, 1]
    turned = {name: [x[i] for i in order] for name, x in DESK.items()}
    p = weights(rule, **DESK)
    assert weights(rule, **turned) == approx([p[i] for i in order], abs=1e-15)


@pytest.mark.parametrize("rule", RULES, ids=repr)
def test_where_clients_are_alike_so_are_their_weights(rule):
    """Equal sizes, losses, histograms and moves: 1/3 each."""
    alike = {"n": [4] * 3, "loss": [0.7] * 3, "labels": [[3, 1]] * 3, "move": [[0.5, 1.0]] * 3}
    assert weights(rule, **alike) == approx([1 / 3] * 3, abs=1e-15)


@pytest.mark.parametrize("rule", RULES, ids=repr)
def test_a_client_alone_is_the_model(rule):
    assert weights(rule, n=[7], loss=[0.3], labels=[[4, 3]], move=[[1.0, 2.0]]) == [1.0]


@pytest.mark.parametrize("made", [UNIFORM, FEDLW, FEDNOLOWE, FEDDISCO, FEDAWA], ids=str)
def test_rules_ask_for_no_gradient(made):
    assert (fednb.cost(made).passes, fednb.cost(made).extra) == (1.0, 0.0)


# Uniform and FedAvg


def test_uniform_does_not_heed_sizes():
    """Moves 0.1 and 0.3 of clients with 1 and 3 samples: 0.2, where FedAvg has 0.25."""
    _, s = one_round(UNIFORM, quadratic(1.0, 3.0), n=(1, 3))
    assert s.w.item() == approx(0.2)


def test_equal_clients_make_uniform_fedavg_to_the_bit(tmp_path, monkeypatch):
    """Three clients with 60 digits each: n_k / Σ n = 60/180 and 1/3 are the same float."""
    monkeypatch.setenv("FEDNB_STORE", str(tmp_path))
    setting = Setting(clients=3, participation=1.0, rounds=2, epochs=1, batch=30, samples=180, partition="iid")
    runs = [fednb.run(setting, m, engine="loop", progress=False) for m in (FEDAVG, UNIFORM)]
    assert runs[0].key != runs[1].key
    assert runs[0].weights_sha256 == runs[1].weights_sha256


# LossWeights (FedLW) and FedLWSAM


def test_inverse_loss_by_hand():
    """L = 1, 2, 4: 1/L = 1, ½, ¼ of 7/4 are 4/7, 2/7, 1/7."""
    assert weights(LossWeights(), loss=[1.0, 2.0, 4.0]) == approx([4 / 7, 2 / 7, 1 / 7])


def test_a_loss_ten_times_lower_takes_over_half_among_ten():
    """10 / (10 + 9) = 0.526."""
    p = weights(LossWeights(), loss=[0.1] + [1.0] * 9)
    assert p == approx([10 / 19] + [1 / 19] * 9)
    assert p[0] == approx(0.526, abs=5e-4)


def test_inverse_loss_has_no_scale():
    assert weights(LossWeights(), loss=[500 * x for x in LOSS]) == approx(weights(LossWeights(), loss=LOSS), rel=1e-7)


def test_a_loss_of_zero_takes_all():
    """1/(L + 1e-8) stays finite: 1e8 against 1."""
    assert weights(LossWeights(), loss=[0.0, 1.0]) == approx([1.0, 0.0], abs=2e-8)


def test_softmax_of_losses_by_hand():
    """exp(−L) for L = 0 and ln 3 is 1 and 1/3: ¾ and ¼; at T = ½ 1 and 1/9: 0.9 and 0.1."""
    assert weights(LossWeights("softmax"), loss=[0.0, log(3)]) == approx([0.75, 0.25])
    assert weights(LossWeights("softmax", temperature=0.5), loss=[0.0, log(3)]) == approx([0.9, 0.1])


def test_softmax_of_losses_heeds_only_differences():
    shifted = weights(LossWeights("softmax"), loss=[x + 5 for x in LOSS])
    assert shifted == approx(weights(LossWeights("softmax"), loss=LOSS))


@pytest.mark.parametrize("rule", [LossWeights(), LossWeights("softmax"), NormalisedLoss()], ids=repr)
def test_the_lower_the_loss_the_higher_the_weight(rule):
    """0.3 < 0.7 < 1.1 < 2.0, whatever the sizes."""
    p = weights(rule, loss=LOSS, n=N)
    assert p[0] > p[3] > p[2] > p[1]


def test_the_loss_that_counts_is_the_rounds_mean():
    """½ (w − a)² along w = 0, 0.1 for a = 1 and 0, 0.2 for a = 2: (½ + 0.405)/2 = 0.4525 and four times that: ⅘, ⅕."""
    k, s = one_round(FEDLW, quadratic(1.0, 2.0), steps=2)
    assert k.loss.view(-1).tolist() == approx([0.4525, 1.81])
    assert k.p.view(-1).tolist() == approx([0.8, 0.2])
    assert s.w.item() == approx(0.8 * 0.19 + 0.2 * 0.38)


def test_fedlwsam_weighs_by_the_loss_before_the_ascent():
    """L = ½ and 2 at w = 0; at w + δ, with ρ = ½, it would be ½ · 1.5² and ½ · 2.5², a ratio of 2.8 and not 4."""
    k, _ = one_round(FEDLWSAM.but(rho=0.5), quadratic(1.0, 2.0))
    assert k.p.view(-1).tolist() == approx([0.8, 0.2])


def run(made: Method) -> Tensor:
    """The global model after each of three rounds, of unequal clients (of 16, 4 and 16 samples) who come and go."""
    f = QuadraticRounds(made, heterogeneous(), w=1.0, steps=(3, 5, 2, 4), n=(3, 2, 2, 11))
    return torch.stack([(f.round(ids), f.s.w)[1] for ids in ([0, 2, 3], [1, 2], [0, 1, 3])])


def test_fedlwsam_without_a_radius_is_fedlw():
    assert torch.equal(run(FEDLWSAM.but(rho=0.0)), run(FEDLW))
    assert not torch.allclose(run(FEDLWSAM), run(FEDLW))


def test_fedlwsam_on_equal_losses_is_uniform_fedsam():
    """a = ±1, from w = 0: equal losses, so that clients of 1 and 9 samples count alike and w stays 0."""
    sam = Method("uniform SAM", Sam(0.05), Uniform())
    for made in (FEDLWSAM, sam):
        assert one_round(made, quadratic(1.0, -1.0), n=(1, 9))[1].w.item() == approx(0, abs=1e-12)
    by_size = one_round(FEDSAM.but(rho=0.05), quadratic(1.0, -1.0), n=(1, 9))[1].w.item()
    assert by_size == approx(-0.8 * 0.1 * 1.05, rel=1e-6)


@pytest.mark.parametrize("wrong", [{"form": "sofmax"}, {"temperature": 0.0}, {"temperature": -1.0}])
def test_forms_that_do_not_exist_are_refused(wrong):
    with pytest.raises(BadParameter, match=f"LossWeights.{next(iter(wrong))} = .*: must be"):
        LossWeights(**wrong)


# NormalisedLoss (FedNoLoWe)


def test_normalised_loss_by_hand():
    """L = 1, 2, 5: shares ⅛, ¼, ⅝; (1 − l)/2 is 7/16, 6/16, 3/16."""
    assert weights(NormalisedLoss(), loss=[1.0, 2.0, 5.0]) == approx([7 / 16, 6 / 16, 3 / 16])


def test_two_clients_swap_their_shares_of_the_loss():
    """m = 2: p_1 = L_2 / (L_1 + L_2)."""
    assert weights(NormalisedLoss(), loss=[3.0, 1.0]) == approx([0.25, 0.75])


def test_nobody_counts_more_than_one_over_the_others():
    """p ≤ 1/(m − 1), reached where a loss is zero; zero where a client has all of it."""
    assert weights(NormalisedLoss(), loss=[0.0, 1.0, 1.0, 1.0]) == approx([1 / 3] + [2 / 9] * 3)
    assert weights(NormalisedLoss(), loss=[1.0, 0.0, 0.0, 0.0]) == approx([0.0] + [1 / 3] * 3)
    assert max(weights(NormalisedLoss(), loss=LOSS)) < 1 / 3


def test_normalised_loss_is_nearly_uniform_among_many():
    """Ten clients, one loss ten times lower, Σ L = 9.1: (1 − 0.1/9.1)/9 = 0.110 against (1 − 1/9.1)/9 = 0.099."""
    p = weights(NormalisedLoss(), loss=[0.1] + [1.0] * 9)
    assert p == approx([(9.0 / 9.1) / 9] + [(8.1 / 9.1) / 9] * 9)
    assert (round(p[0], 3), round(p[1], 3)) == (0.110, 0.099)


def test_without_any_loss_all_count_alike():
    assert weights(NormalisedLoss(), loss=[0.0, 0.0, 0.0], n=[1, 2, 3]) == approx([1 / 3] * 3)


# Discrepancy (FedDisco)


def test_discrepancy_by_hand():
    """Histograms (1, 1) and (4, 0), sizes 2 and 4: KL = 0 and ln 2, d = 0 and 1.

    p − d/2 + 1/4: 1/3 + 1/4 = 7/12 and 2/3 − 1/2 + 1/4 = 5/12.
    """
    assert weights(Discrepancy(a=0.5, b=0.25), n=[2, 4], labels=[[1, 1], [4, 0]]) == approx([7 / 12, 5 / 12])


def test_discrepancies_are_divided_by_their_sum():
    """Of 4 classes a client has one or two: KL = ln 4 and ln 2, so d = ⅔ and ⅓ whatever the base of the logarithm.

    a = 0.3, b = 0: ½ − 0.2 and ½ − 0.1, so 3/7 and 4/7.
    """
    assert weights(Discrepancy(a=0.3, b=0.0), n=[8, 8], labels=[[8, 0, 0, 0], [4, 4, 0, 0]]) == approx([3 / 7, 4 / 7])


def test_without_its_terms_fedavg_is_left():
    assert weights(Discrepancy(a=0.0, b=0.0), n=N, labels=LABELS) == approx([x / 20 for x in N], abs=1e-15)
    assert torch.equal(run(FEDDISCO.but(a=0.0, b=0.0)), run(FEDAVG))
    assert not torch.allclose(run(FEDDISCO), run(FEDAVG))


def test_balanced_clients_have_no_discrepancy():
    """D = uniform: d = 0 for all, p ∝ n + b: with b = 0 FedAvg; with b = ¼ and shares ¼, ¾: ½ and 1, so ⅓ and ⅔."""
    balanced = {"n": [2, 6], "labels": [[1, 1], [3, 3]]}
    assert weights(Discrepancy(a=0.5, b=0.0), **balanced) == approx([0.25, 0.75])
    assert weights(Discrepancy(a=0.5, b=0.25), **balanced) == approx([1 / 3, 2 / 3])


def test_equally_skewed_clients_share_the_discrepancy():
    """d = ½ each, so all lose a/2 and win b: shares ¼ and ¾ stay where b = a/2, and come closer where b is more.

    a = 0.4: b = 0.2 leaves ¼, ¾; b = 0.45 gives ½ and 1, so ⅓ and ⅔.
    """
    skewed = {"n": [4, 12], "labels": [[3, 1], [9, 3]]}
    assert weights(Discrepancy(a=0.4, b=0.2), **skewed) == approx([0.25, 0.75])
    assert weights(Discrepancy(a=0.4, b=0.45), **skewed) == approx([1 / 3, 2 / 3])


def test_a_large_b_makes_all_alike():
    """p + b with b = 1e9: ¼ up to 1e-9."""
    assert weights(Discrepancy(a=0.5, b=1e9), n=N, labels=LABELS) == approx([0.25] * 4, abs=1e-9)


@pytest.mark.parametrize("a", [0.0, 0.1, 0.5, 2.0])
def test_the_more_skewed_the_less(a):
    """Equal sizes, from balanced to one class only: weights never rise; with a = 2 the last ones are zero."""
    labels = [[4, 4, 4], [6, 4, 2], [8, 4, 0], [12, 0, 0]]
    p = weights(Discrepancy(a=a, b=0.1), n=[12] * 4, labels=labels)
    assert all(x >= y for x, y in pairwise(p))
    assert (p[0] > p[-1]) == (a > 0)
    assert (p[-1] == 0) == (a == 2.0)


def test_where_all_weights_vanish_sizes_decide():
    """Shares ¼ and ¾, d = ½ each, a = 2, b = 0: both are at most ¾ − 1 < 0."""
    assert weights(Discrepancy(a=2.0, b=0.0), n=[4, 12], labels=[[4, 0], [12, 0]]) == approx([0.25, 0.75])


# AdaptiveWeights (FedAWA)


def objective(logit: Tensor, move: Tensor, w: Tensor) -> float:
    """J = Σ p_k (‖Δ_k − Σ p_j Δ_j‖ + 1 − cos(w, w + Δ_k)), one client after the other."""
    p = [exp(x) for x in logit.tolist()]
    p = [x / sum(p) for x in p]
    mean = sum(share * d for share, d in zip(p, move, strict=True))
    near = [float(w @ (w + d) / (w.norm() * (w + d).norm())) for d in move]
    far = [float((d - mean).norm()) for d in move]
    return sum(share * (f + 1 - n) for share, f, n in zip(p, far, near, strict=True))


def logits(lr: float, **given) -> tuple[list[float], list[float], list[float]]:
    """The logits before and after one round, and the weights that it used."""
    k, s = uploads(AdaptiveWeights(lr=lr), **given)
    before = k.logit.view(-1).tolist()
    p = AdaptiveWeights(lr=lr).weigh(k, s, k.p)
    return before, k.logit.view(-1).tolist(), p.view(-1).tolist()


def test_the_slope_is_that_of_the_objective():
    """Central differences of J give its gradient to 1e-9; Adam's first step is lr g/(|g| + 1e-8)."""
    move, w, T, small = torch.tensor(MOVE, dtype=torch.float64), vector(1.0, 2.0), vector(0.3, -0.2, 0.1, 0.5), 1e-6
    g = [(objective(T + small * u, move, w) - objective(T - small * u, move, w)) / (2 * small)
         for u in torch.eye(4, dtype=torch.float64)]  # fmt: skip
    assert min(map(abs, g)) > 1e-3 and min(g) < 0 < max(g)
    before, after, _ = logits(0.01, move=MOVE, w=w, logit=T.tolist())
    moved = [b - a for a, b in zip(after, before, strict=True)]
    assert moved == approx([0.01 * x / (abs(x) + 1e-8) for x in g], abs=1e-8)


def test_small_slopes_show_how_steep_they_are():
    """Moves of 1e-8: g is near Adam's 1e-8, so that the step is shorter than lr, by g/(|g| + 1e-8)."""
    move, w, T, small = 1e-8 * torch.tensor(MOVE, dtype=torch.float64), vector(1.0, 2.0), vector(0, 0, 0, 0), 1e-3
    p_far = [(objective(T + small * u, move, w) - objective(T - small * u, move, w)) / (2 * small)
             for u in torch.eye(4, dtype=torch.float64)]  # fmt: skip
    before, after, _ = logits(1.0, move=move.tolist(), w=w, logit=[0.0] * 4)
    moved = [b - a for a, b in zip(after, before, strict=True)]
    assert moved == approx([x / (abs(x) + 1e-8) for x in p_far], abs=2e-2)
    assert max(map(abs, moved)) < 0.9


def test_the_odd_client_out_loses_weight():
    """Moves 0, 0, 1: leaving the third out brings J down, so its logit falls by lr and the others' rise by lr."""
    before, after, _ = logits(0.01, n=[1, 1, 1], move=[[0.0, 0.0], [0.0, 0.0], [1.0, 1.0]])
    assert [a - b for a, b in zip(after, before, strict=True)] == approx(
        [0.01 + 1 / 3, 0.01 + 1 / 3, -0.01 + 1 / 3], abs=1e-8
    )


def test_the_first_logit_is_the_share_of_all_samples():
    """Sizes 5, 1, 3, 11 of 40 in all: T = n/40, not its logarithm, and p = softmax(T)."""
    _, after, p = logits(0.0, n=N, move=MOVE, samples=40)
    assert after == approx([x / 40 for x in N])
    total = sum(exp(x / 40) for x in N)
    assert p == approx([exp(x / 40) / total for x in N])


def test_size_shares_through_a_softmax_are_nearly_uniform():
    """One client with half of all samples and one with none of them to speak of: √e = 1.65 against 1, not ∞."""
    p = weights(AdaptiveWeights(), n=[500, 1], move=[[1.0, 0.0], [0.0, 1.0]], samples=1000)
    assert p[0] / p[1] == approx(e**0.499)


def test_without_learning_equal_clients_count_alike():
    f = QuadraticRounds(FEDAWA.but(lr=0.0), heterogeneous(), steps=(3, 5, 2, 4), w=1.0)
    for _ in range(3):
        assert f.round().p.view(-1).tolist() == approx([0.25] * 4, abs=1e-15)


def test_identical_models_teach_nothing():
    """All moves alike: J does not depend on the weights, and the logits stay."""
    before, after, _ = logits(0.1, move=[[0.3, -0.7]] * 4, logit=[0.3, -0.2, 0.1, 0.5])
    assert after == approx(before, abs=1e-8)


@pytest.mark.parametrize("lr", [0.001, 0.5])
def test_a_logit_moves_by_lr_at_the_most(lr):
    f = QuadraticRounds(FEDAWA.but(lr=lr), heterogeneous(), steps=(3, 5, 2, 4), w=1.0)
    f.round()
    for _ in range(4):
        before = f.kept("logit")
        f.round()
        moved = (f.kept("logit") - before).abs()
        assert moved.max() <= lr + 1e-15
        assert moved.min() > 0.9 * lr


def test_a_round_uses_the_logits_from_before_its_step():
    """p of round 0 is softmax(n/N), of round t softmax of what round t − 1 left behind; a huge lr shows the lag."""
    f = QuadraticRounds(FEDAWA.but(lr=1.0), heterogeneous(), w=1.0)
    f.s.samples = 4
    assert f.round().p.view(-1).tolist() == approx([0.25] * 4)
    for _ in range(3):
        left = f.kept("logit")
        k = f.round()
        assert torch.allclose(k.p, torch.softmax(left, 0), atol=1e-15)
        assert not torch.allclose(k.p, torch.softmax(f.kept("logit"), 0), atol=1e-2)


def test_logits_stay_with_the_client():
    """Clients 0 and 2, then 1 and 2, then all: who is away keeps the logit, and nobody takes over another's place."""
    f = QuadraticRounds(FEDAWA.but(lr=0.1), heterogeneous(3), w=1.0, n=(2, 3, 5))
    f.s.samples = 10
    f.round([0, 2])
    first = f.kept("logit")
    assert first[1].item() == 0.0
    k = f.round([1, 2])
    assert f.kept("logit")[0] == first[0]
    assert torch.allclose(k.p, torch.softmax(torch.stack([vector(0.3), first[2]]), 0))
    now = f.kept("logit")
    assert torch.allclose(f.round().p, torch.softmax(now, 0))


def test_learned_weights_are_set_by_name():
    assert method("fedawa", lr=0.5).parts == (AdaptiveWeights(lr=0.5),)
