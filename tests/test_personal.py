"""Personalised learning: private heads, mixed models, each client judged by its own model on its own split."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from pytest import approx
from quadratics import QuadraticRounds, heterogeneous, one_round, quadratic, vector
from torch import Tensor
from torch.func import functional_call

import fednb
from fednb.algorithms.catalogue import FEDALA, FEDAVG, FEDPER, method
from fednb.algorithms.parts import LocalAggregation, OnlyHead, PrivateHead, Sam, Uniform
from fednb.core.record import Cohort, Table
from fednb.core.rounds import BadParameter, Method, observed_server
from fednb.core.vectors import Layout, NoSuchLayer
from fednb.data.sources import load
from fednb.engines.loop import Loop
from fednb.engines.problem import clients_of, data_of, own_split, participants, problem_of
from fednb.engines.setting import Setting
from fednb.engines.stacked import Stacked
from fednb.models import build
from fednb.runs.checkpoints import Session
from fednb.runs.evaluate import tuning
from fednb.runs.experiment import run_of

NET = Layout(("body.weight", "head.weight", "head.bias"), ((2, 1), (1,), (1,)))  # two numbers of body, two of head
PAIR = Layout(("body.weight", "head.weight"), ((1,), (1,)))
PRESENT = ([0, 2, 3], [1, 2], [0, 1, 3], [0, 1, 2, 3])


def federation(made: Method, clients=None, **numbers) -> QuadraticRounds:
    given = {"w": 1.0, "steps": (3, 5, 2, 4), "n": (3, 2, 2, 11), "layout": NET} | numbers
    return QuadraticRounds(made, clients or heterogeneous(P=4), **given)


def run(made: Method, **numbers) -> Tensor:
    """The global model after each of four rounds, of unequal clients of whom some stay away."""
    f = federation(made, **numbers)
    return torch.stack([(f.round(ids), f.s.w)[1] for ids in PRESENT])


# PrivateHead (FedPer)


def test_private_heads_by_hand():
    """a = (1, 1) and (3, 3), w = 0, η = 0.1; the second number is the head.

    Round 0: w_k = (0.1, 0.1) and (0.3, 0.3); the body becomes 0.2, the heads stay 0.1 and 0.3.
    Round 1: bodies 0.28 and 0.48 from 0.2, heads 0.19 and 0.57 from their own; the server's head is still 0.
    """
    f = QuadraticRounds(
        FEDPER, quadratic([1.0, 1.0], [3.0, 3.0]), layout=Layout(("body.weight", "head.weight"), ((1,),) * 2)
    )
    f.round()
    assert f.s.w.tolist() == approx([0.2, 0.0])
    k = f.round()
    assert k.w.tolist() == [approx([0.28, 0.19]), approx([0.48, 0.57])]
    assert f.s.w.tolist() == approx([0.38, 0.0])


def test_the_servers_head_never_moves():
    """It is the common first model, from which a newcomer starts."""
    for w in run(FEDPER):
        assert w[2:].tolist() == [1.0, 1.0]
        assert (w[:2] != 1.0).all()


def test_a_newcomer_starts_from_the_first_head():
    """Client 1 comes in round 2: body from the server, head 0 from the first model; one step towards a = 3: 0.3."""
    f = QuadraticRounds(
        FEDPER, quadratic([1.0, 1.0], [3.0, 3.0]), layout=Layout(("body.weight", "head.weight"), ((1,),) * 2)
    )
    f.round([0])
    f.round([0])
    k = f.round([1])
    assert k.w[0].tolist() == approx([0.19 + 0.1 * (3 - 0.19), 0.3])


def test_heads_of_those_who_stay_away_stay():
    f = federation(FEDPER)
    f.round([0, 2, 3])
    before = f.kept("own")
    f.round([1, 2])
    now = f.kept("own")
    assert torch.equal(now[[0, 3]], before[[0, 3]])
    assert (now[[1, 2], 2:] != before[[1, 2], 2:]).all()


def test_identical_clients_keep_equal_heads():
    """Clients 0 and 1 have the same data and come together: equal heads, bit for bit; client 2's is another."""
    f = QuadraticRounds(FEDPER, quadratic([1.0] * 4, [1.0] * 4, [-2.0] * 4), steps=3, layout=NET)
    for _ in range(3):
        f.round()
        own = f.kept("own")
        assert torch.equal(own[0], own[1])
        assert not torch.allclose(own[0, 2:], own[2, 2:])


def test_where_everything_is_private_each_client_trains_alone():
    """No body: three rounds of two steps are six steps of its own, 1 − 0.9⁶ of the way; the server never moves."""
    f = QuadraticRounds(FEDPER.but(layers="*"), quadratic([1.0] * 4, [3.0] * 4), steps=2, layout=NET)
    for _ in range(3):
        f.round()
        assert f.s.w.tolist() == [0.0] * 4
    assert f.kept("own")[:, 0].tolist() == approx([1 - 0.9**6, 3 * (1 - 0.9**6)])


def test_the_head_is_the_last_module_unless_where_says_otherwise():
    parts = PrivateHead(), PrivateHead(layers="body.*"), PrivateHead(layers="head.bias")
    assert [p.private(NET) for p in parts] == [[False, True, True], [True, False, False], [False, False, True]]


def test_a_where_that_fits_nothing_is_an_error():
    with pytest.raises(NoSuchLayer, match=r"no layer fits where='fc\.\*'; the layers are body.weight, head.weight"):
        one_round(FEDPER.but(layers="fc.*"), quadratic([1.0] * 4), layout=NET)


def test_only_the_body_travels():
    """Of 10,000 numbers the cost model's head has 1,000; with the head's bias alone private 10 are saved."""
    assert (fednb.cost(FEDPER).down, fednb.cost(FEDPER).up) == (0.9, 0.9)
    assert (fednb.cost(FEDPER.but(layers="*")).down, fednb.cost(FEDPER.but(layers="*")).up) == (0.0, 0.0)
    assert (fednb.cost(FEDPER.but(layers="body.*")).down, fednb.cost(FEDPER.but(layers="body.*")).up) == (0.1, 0.1)


def test_private_heads_with_sam_share_one_norm():
    """Body and head have g = −3 and −4: ‖g‖ = 5, δ = 0.5 (−0.6, −0.8); the step is 0.1 (3.3, 4.4), the head's kept."""
    made = Method("FedPer + SAM", Sam(rho=0.5), PrivateHead())
    f = QuadraticRounds(made, quadratic([3.0, 4.0]), layout=PAIR)
    k = f.round()
    assert k.w[0].tolist() == approx([0.33, 0.44], abs=1e-7)
    assert f.s.w.tolist() == approx([0.33, 0.0], abs=1e-7)


def test_the_upload_is_the_body_alone():
    f = federation(FEDPER)
    for ids in PRESENT:
        assert (f.round(ids).delta[:, 2:] == 0).all()


# OnlyHead


@pytest.mark.parametrize("weight_decay", [0.0, 0.5])
@pytest.mark.parametrize("clip_norm", [None, 0.3])
def test_training_the_head_leaves_the_body_as_it_is(weight_decay, clip_norm):
    """The body is bit for bit what the server sent, also where weight decay would pull at it; heads move."""
    k, s = one_round(
        Method("tune", OnlyHead()), heterogeneous(P=4), w=vector(0.3, -1.7, 2.0, 0.1), layout=NET, steps=(3, 5, 2, 4),
        weight_decay=weight_decay, clip_norm=clip_norm,
    )  # fmt: skip
    assert torch.equal(k.w[:, :2], k.w0[:, :2])
    assert (k.w[:, 2:] != k.w0[:, 2:]).all()
    assert torch.equal(s.w[:2], vector(0.3, -1.7))


def test_training_the_head_by_hand():
    """w = (2, 2), a = (0, 0), wd = ½, H = 1: the head's step is 0.1 (2 + ½ · 2), the body has none."""
    k, _ = one_round(Method("tune", OnlyHead()), quadratic([0.0, 0.0]), w=2.0, layout=PAIR, weight_decay=0.5)
    assert k.w[0].tolist() == approx([2.0, 1.7])


def test_the_clip_sees_the_head_alone():
    """g = (100, 3): only the head's 3 is measured against the clip at 10, so it is not shortened."""
    k, _ = one_round(Method("tune", OnlyHead()), quadratic([-100.0, -3.0]), layout=PAIR, clip_norm=10.0)
    assert k.w[0].tolist() == approx([0.0, -0.3])


def test_a_networks_body_stays_bit_equal():
    """cnn-small on digits, two epochs with weight decay 0.1: only its last linear layer moves."""
    setting = Setting(clients=2, epochs=2, batch=50, samples=200, partition="iid", weight_decay=0.1)
    problem, made = problem_of(setting, seed=0), Method("tune", OnlyHead())
    w, b = problem.objective.start(torch.float32, torch.device("cpu"))
    k, _ = Loop(problem).train(made, problem.server(made, w, b), [0, 1], {})
    layers = problem.objective.layout.layers(k.w - w)
    *body, weight, bias = layers
    assert (weight, bias) == ("fc2.weight", "fc2.bias") and "fc1.weight" in body
    assert all((layers[name] == 0).all() for name in body)
    assert all((layers[name] != 0).any() for name in (weight, bias))


def test_statistics_of_batchnorm_stay_as_they_were_received():
    """small-cnn-bn on digits: weights and statistics of the body are the server's, bit for bit, and are judged by."""
    setting = Setting(clients=2, epochs=2, batch=20, samples=200, partition="iid", model="small-cnn-bn")
    problem, made = problem_of(setting, seed=0), tuning(FEDAVG)
    w, b = problem.objective.start(torch.float32, torch.device("cpu"))
    k, _ = Loop(problem).train(made, problem.server(made, w, b), [0, 1], {})
    head = problem.objective.layout.spread(torch.tensor(problem.objective.layout.select("@head")))
    assert len(b) and torch.equal(k.b, b.expand(2, -1))
    assert torch.equal(k.w[:, ~head], w[~head].expand(2, -1)) and (k.w[:, head] != w[head]).any()


def test_each_clients_own_rate_stays_while_the_head_is_trained():
    """η_0 = 0.1, γ = ½, 0 and 2 epochs so far: 0.1 and 0.025 for both of two epochs; a head at 1: 1 − (1 − η)²."""
    f = QuadraticRounds(
        Method("tune", OnlyHead(own_rate=True)), quadratic([1.0, 1.0], [1.0, 1.0]), layout=PAIR, steps=2, epochs=2,
        lr=0.03, first_lr=0.1, lr_decay=0.5,
    )  # fmt: skip
    f.table.scatter([1], {"epochs_done": torch.tensor([[2.0]], dtype=torch.float64)})
    assert f.round().w.tolist() == [[0.0, approx(1 - 0.9**2)], [0.0, approx(1 - 0.975**2)]]


@pytest.mark.parametrize("clipped, far", [(True, 1.0), (False, 4.0)])
def test_a_head_may_be_trained_without_clip(clipped, far):
    """g = −40, clip at 10, η = 0.1."""
    k, _ = one_round(Method("tune", OnlyHead(clipped)), quadratic([0.0, 40.0]), layout=PAIR, clip_norm=10.0)
    assert k.w[0].tolist() == [0.0, approx(far)]


OWN = "clientrate(reading='released')"


@pytest.mark.parametrize("made, head", [
    (method("fedavg"), OnlyHead()),
    (method("fedfsa"), OnlyHead()),
    (method("fedfsa", reading="released"), OnlyHead(clipped=False, own_rate=True)),
    (method("fedfsa", reading="released", top=0), OnlyHead(clipped=False, own_rate=True)),
    (method("fedala + fsa", reading="released"), OnlyHead(own_rate=True)),
    (method(f"fedspeed + {OWN}"), OnlyHead(own_rate=True)),
])  # fmt: skip
def test_rate_and_clip_of_the_tuning_follow_the_reading(made, head):
    """FedFSA's code: norm 10 for FedAvg, FedALA and FedSpeed, none for FedFSA; each client's own rate for all."""
    assert tuning(made).parts == (head,)


def test_private_heads_are_tuned_by_their_owners():
    assert tuning(method(f"fedper + {OWN}")).parts == (PrivateHead(), OnlyHead(own_rate=True))


def test_engines_tune_at_each_clients_own_rate():
    """Clients 0 and 1 have trained 0 and 3 epochs: loop and stacked give what a run with that very rate gives."""
    setting = SMALL.but(clients=2, epochs=2, lr_decay=0.5, precision="fp64")
    made = tuning(method("fedfsa", reading="released"))
    problem = problem_of(setting, seed=0)
    w, b = problem.objective.start(torch.float64, torch.device("cpu"))
    rows = {"epochs_done": torch.tensor([[0.0], [3.0]], dtype=torch.float64)}
    loop, stacked = (
        engine(problem).train(made, problem.server(made, w, b), [0, 1], rows)[0].w for engine in (Loop, Stacked)
    )
    assert torch.allclose(loop, stacked, rtol=0, atol=1e-12)
    for client, rate in ((0, 0.1), (1, 0.0125)):
        plain = replace(problem, training=replace(problem.training, lr=rate, clip_norm=None))
        k, _ = Loop(plain).train(Method("tune", OnlyHead()), plain.server(made, w, b), [client], {})
        assert torch.allclose(loop[client], k.w[0], rtol=0, atol=1e-12)


# LocalAggregation (FedALA)


def test_mixing_by_hand():
    """a = 1 and 3 from 0: θ = 0.1 and 0.3, w = 0.2. Round 1, one pass, η_A = 1, A = 1:

    client 0 at 0.2: g = −0.8, A ← 1 + 0.8 · 0.1 is cut to 1, so it starts from 0.2 and goes to 0.28;
    client 1 at 0.2: g = −2.8, A ← 1 − 2.8 · 0.1 = 0.72, so it starts from 0.3 − 0.1 · 0.72 = 0.228, to 0.5052.
    """
    f = QuadraticRounds(FEDALA.but(most=1), quadratic(1.0, 3.0))
    f.round()
    assert f.s.w.item() == approx(0.2)
    k = f.round()
    assert k.A.view(-1).tolist() == approx([1.0, 0.72])
    assert k.w.view(-1).tolist() == approx([0.28, 0.228 + 0.1 * (3 - 0.228)])
    assert f.s.w.item() == approx((0.28 + 0.5052) / 2)


def test_mixing_is_skipped_at_the_first_participation():
    """Client 1 comes first in round 1, when w = 0.1: it takes w as it is, although the first model was 0, and A = 1."""
    f = QuadraticRounds(FEDALA, quadratic(1.0, 3.0))
    f.round([0])
    k = f.round([1])
    assert k.A.item() == 1.0
    assert k.w.item() == approx(0.1 + 0.1 * 2.9)
    assert k.evaluations.item() == 1


def test_without_learning_fedavg_is_left():
    """η_A = 0: A stays 1 and every client starts from what it received, to the bit."""
    assert torch.equal(run(FEDALA.but(eta=0.0)), run(FEDAVG))
    assert torch.equal(run(FEDALA.but(eta=0.0, tensors=9)), run(FEDAVG))
    assert not torch.allclose(run(FEDALA), run(FEDAVG), atol=1e-3)


def test_weights_of_zero_on_all_tensors_are_local_training():
    """A = 0 frozen: three rounds of two steps are six steps of each client's own, 1 − 0.9⁶ of the way."""
    f = QuadraticRounds(FEDALA.but(eta=0.0, tensors=3), quadratic([1.0] * 4, [3.0] * 4), steps=2, layout=NET)
    f.table.scatter([0, 1], {"A": torch.zeros(2, 4, dtype=torch.float64)})
    for _ in range(3):
        f.round()
    assert f.kept("theta")[:, 0].tolist() == approx([1 - 0.9**6, 3 * (1 - 0.9**6)])
    assert (f.kept("A") == 0).all()


@pytest.mark.parametrize("eta", [0.3, 1.0, 100.0])
def test_weights_stay_between_zero_and_one(eta):
    f = federation(FEDALA.but(eta=eta, tensors=3))
    for ids in PRESENT:
        f.round(ids)
        A = f.kept("A")
        assert (A >= 0).all() and (A <= 1).all()
    assert (A < 1).any()
    assert eta < 100 or (A == 0).any()


@pytest.mark.parametrize("tensors, free", [(1, 1), (2, 2), (3, 4), (9, 4)])
def test_only_the_top_tensors_are_mixed(tensors, free):
    """NET has tensors of 2, 1 and 1 numbers: the last `tensors` of them have weights that learn."""
    f = federation(FEDALA.but(tensors=tensors, eta=100.0))
    for _ in range(3):
        f.round()
    learned = (f.kept("A") < 1).any(0)
    assert learned.tolist() == [False] * (4 - free) + [True] * free


def test_the_first_phase_stops_where_losses_come_to_rest():
    """Losses of the passes differ by less than 0.1 from the start: after `window` = 10 passes it ends; then one each.

    One step a round, one batch a pass: 10 looks in the second round, 1 in the third. A threshold of 0 is never met.
    """
    f = QuadraticRounds(FEDALA, quadratic(1.0, 1.1))
    assert [f.round().evaluations.view(-1).tolist() for _ in range(4)] == [[1, 1], [11, 11], [2, 2], [2, 2]]
    f = QuadraticRounds(FEDALA.but(threshold=0.0, most=23), quadratic(1.0, 1.1))
    assert [f.round().evaluations.view(-1).tolist() for _ in range(3)] == [[1, 1], [24, 24], [2, 2]]


def test_weights_are_learned_on_a_share_of_the_batches():
    """Five and two batches an epoch: 80% are 4 and ⌈1.6⌉ = 2; 20% are 1 and 1."""
    for share, looks in ((80.0, [4, 2]), (20.0, [1, 1]), (100.0, [5, 2])):
        f = QuadraticRounds(FEDALA.but(share=share, most=1), quadratic(1.0, 3.0), steps=(5, 2))
        f.round()
        assert (f.round().evaluations.view(-1) - torch.tensor([5, 2])).tolist() == looks


def test_nobody_looks_at_batches_that_are_not_learned_on(monkeypatch):
    """Five batches, one pass over the first 80%: four looks, each for the gradient of two tensors."""
    asked = []
    look = Cohort.look
    monkeypatch.setattr(Cohort, "look", lambda *a, **how: asked.append(how["last"]) or look(*a, **how))
    f = QuadraticRounds(FEDALA.but(most=1), quadratic(1.0, 3.0), steps=5)
    f.round()
    f.round()
    assert asked == [2] * 4


def test_mixing_leaves_the_training_loss_alone():
    """Round 1 of the case by hand starts from 0.2 and 0.228: ½ · 0.8² and ½ · 2.772², whatever was looked at."""
    f = QuadraticRounds(FEDALA.but(most=1), quadratic(1.0, 3.0))
    f.round()
    assert f.round().loss.view(-1).tolist() == approx([0.32, 0.5 * 2.772**2])


def test_the_upload_is_measured_from_the_received_model():
    """The server averages models: w⁺ = Σ p_k w_k, wherever clients started from."""
    f = federation(FEDALA.but(tensors=3))
    for ids in PRESENT[:3]:  # 16, 4 and 16 samples: shares without a rounding error
        k = f.round(ids)
        assert torch.allclose(f.s.w, (k.p * k.w).sum(0), atol=1e-14)


@pytest.mark.parametrize("wrong", [{"share": 0.0}, {"share": 101.0}, {"tensors": 0}, {"window": 1}, {"most": 0}])
def test_numbers_out_of_range_are_refused(wrong):
    with pytest.raises(BadParameter, match=f"LocalAggregation.{next(iter(wrong))} = .*: must be"):
        LocalAggregation(**wrong)


# Each client's own split


SMALL = Setting(
    clients=4, participation=0.5, rounds=2, epochs=1, batch=50, samples=300, evaluation="personal", tune_epochs=0,
    partition="dirichlet-equal(0.5)",
)  # fmt: skip


@pytest.mark.parametrize("share", [0.7, 0.5])
def test_own_splits_are_disjoint_and_of_the_right_size(share):
    """300 samples for 4 clients are 75 each: round(0.7 · 75) = 52 to train and 23 to test on; each sample once."""
    setting = SMALL.but(train_share=share)
    parts = clients_of(setting, 0, data_of(setting))
    train, test = own_split(setting, 0, parts)
    assert len(train) == len(test) == 4
    for whole, left, right in zip(parts, train, test, strict=True):
        assert len(left) == round(share * 75)
        assert sorted([*left, *right]) == sorted(whole)
    every = np.concatenate([*train, *test])
    assert len(set(every.tolist())) == len(every) == 300


def test_splits_are_those_of_the_seed_and_mixed():
    parts = [np.arange(100), np.arange(100, 200)]
    train, _ = own_split(SMALL, 0, parts)
    again, _ = own_split(SMALL, 0, parts)
    other, _ = own_split(SMALL, 1, parts)
    assert all(np.array_equal(x, y) for x, y in zip(train, again, strict=True))
    assert not np.array_equal(train[0], other[0])
    assert not np.array_equal(np.sort(train[0]), np.arange(70))
    assert not np.array_equal(train[0], train[1] - 100)


def test_training_and_test_images_are_pooled():
    """A personal run has both sets of images, a global one only those to train on."""
    data = load("digits")
    assert len(data_of(SMALL).y) == len(data.y) + len(data.y_test)
    assert len(data_of(SMALL.but(evaluation="global")).y) == len(data.y)


def test_training_sees_the_training_split_alone():
    problem = problem_of(SMALL, seed=0)
    assert problem.sizes.tolist() == [52] * 4
    assert [len(own) for own in problem.own] == [23] * 4
    assert len(problem.test[1]) == 4 * 23
    assert problem.labels.sum(1).tolist() == [52] * 4


# Judged by one's own model


@pytest.fixture(autouse=True)
def store(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDNB_STORE", str(tmp_path))
    return tmp_path


def personal(setting: Setting, name: str | Method, engine: str = "loop", **how) -> fednb.runs.experiment.Run:
    return fednb.run(setting, name, engine=engine, device="cpu", progress=False, **how)


def without_time(run) -> list[dict]:
    return [{name: x for name, x in row.items() if name != "seconds"} for row in run.rows]


def hits(problem, model, w: Tensor, client: int) -> tuple[int, int]:
    """Right answers and questions of a model on a client's own test split."""
    index = problem.own[client]
    out = functional_call(model, problem.objective.layout.tensors(w), (problem.inputs(problem.samples[0][index]),))
    return int((out.argmax(1) == problem.samples[1][index]).sum()), len(index)


def by_hand(setting: Setting, made: Method) -> list[tuple[float, float, list[int]]]:
    """Train round by round, keep everyone's latest model, and judge it: own mean, pooled global, who came."""
    problem = problem_of(setting, seed=0)
    data = data_of(setting)
    model = build(setting.model, data.classes, data.input, seed=0)
    w, b = problem.objective.start(torch.float32, torch.device("cpu"))
    s, latest, out = problem.server(made, w, b), dict.fromkeys(range(setting.clients), w), []
    table = Table(made.buffers("per_client", problem.objective.layout, w))
    for t in range(setting.rounds):
        ids = participants(setting, 0, t)
        k, _ = Loop(problem).train(made, s, ids, table.gather(ids))
        observed_server(made, k, s)
        table.scatter(ids, k.values(table.start))
        latest |= dict(zip(ids, k.w, strict=True))
        own = [hits(problem, model, latest[i], i) for i in range(setting.clients)]
        everyone = [hits(problem, model, s.w, i) for i in range(setting.clients)]
        pooled = 100 * sum(right for right, _ in everyone) / sum(n for _, n in everyone)
        out.append((float(np.mean([100 * right / n for right, n in own])), pooled, ids))
    return out


EQUAL = SMALL.but(batch=10)
UNEQUAL = EQUAL.but(partition="dirichlet(alpha=0.5, minimum=10)", rounds=3, participation=0.25)


@pytest.mark.parametrize("setting", [EQUAL, UNEQUAL], ids=["equal", "unequal"])
@pytest.mark.parametrize("made", [FEDAVG, FEDPER], ids=str)
def test_accuracy_is_the_plain_mean_over_all_clients(setting, made):
    """Who came has the model just trained, who stayed away the last one, who never came the first; all count alike."""
    found = personal(setting, made)
    expected = by_hand(setting, made)
    assert all(len(ids) < setting.clients for *_, ids in expected)
    assert [row["accuracy"] for row in found.rows] == approx([own for own, _, _ in expected], abs=1e-9)
    assert [row["global_accuracy"] for row in found.rows] == approx([both for _, both, _ in expected], abs=1e-9)
    assert [row["tuned"] for row in found.rows] == [0] * setting.rounds


def test_who_stays_away_keeps_the_accuracy():
    """One client of four a round: between rounds the mean moves by one client's change alone, and the store has it."""
    found = personal(UNEQUAL, FEDAVG)
    came = [participants(UNEQUAL, 0, t) for t in range(3)]
    assert all(len(ids) == 1 for ids in came)
    shorter = personal(UNEQUAL.but(rounds=2), FEDAVG)
    kept = [own_accuracies(run) for run in (shorter, found)]
    for i in set(kept[0]) - set(came[2]):
        assert kept[0][i] == kept[1][i]
    assert set(kept[1]) == {i for ids in came for i in ids}


def load_saved(entry, s, table) -> None:
    """Put what the store has of a run into s and table."""
    with entry.lock() as held:
        Session(entry, held).load(s, table)


def own_accuracies(run) -> dict[int, float]:
    """What the store keeps for every client that has come."""
    setting, made = run.setting, run.method
    problem = problem_of(setting, seed=0)
    w, b = problem.objective.start(torch.float32, torch.device("cpu"))
    table = Table(made.buffers("per_client", problem.objective.layout, w) | {"own_accuracy": torch.zeros(1).double()})
    load_saved(run.entry, problem.server(made, w, b), table)
    return {i: row["own_accuracy"].item() for i, row in table.clients.items()}


def test_tuning_adds_one_line():
    """tune_epochs = 0 adds none, 1 one with tuned = 1; the rounds before it and the server's model are the same."""
    plain, tuned = personal(SMALL, FEDAVG), personal(SMALL.but(tune_epochs=1), FEDAVG)
    assert [row["tuned"] for row in plain.rows] == [0, 0]
    assert [row["tuned"] for row in tuned.rows] == [0, 0, 1]
    assert [row["round"] for row in tuned.rows] == [0, 1, 2]
    assert without_time(tuned)[:2] == without_time(plain)
    assert tuned.weights_sha256 == plain.weights_sha256
    assert plain.summary()["rounds"] == tuned.summary()["rounds"] == 2


@pytest.mark.parametrize("made", [FEDAVG, FEDPER], ids=str)
def test_tuning_trains_everyones_head_on_the_servers_body(made):
    """The line's accuracy, from scratch: all four start from the server's model (FedPer's with their own heads)."""
    setting = SMALL.but(tune_epochs=2)
    found = personal(setting, made)
    problem = problem_of(setting.but(epochs=2), seed=0)
    model = build(setting.model, 10, load("digits").input, seed=0)
    first, b = problem.objective.start(torch.float32, torch.device("cpu"))
    own = {"own_accuracy": torch.zeros(1).double()}
    table = Table(made.buffers("per_client", problem.objective.layout, first) | own)
    s = problem.server(made, first, b)
    load_saved(found.entry, s, table)
    tune = Method("tune", *made.parts, OnlyHead())
    k, _ = Loop(problem).train(tune, s, [0, 1, 2, 3], table.gather(range(4), tune.declared("per_client")))
    body = problem.objective.layout.sizes[:-2]
    assert torch.equal(k.w[:, : sum(body)], s.w[: sum(body)].expand(4, -1))
    own = [hits(problem, model, k.w[i], i) for i in range(4)]
    assert found.rows[-1]["accuracy"] == approx(float(np.mean([100 * right / n for right, n in own])), abs=1e-9)


def test_tuned_heads_are_not_kept():
    """The store after tuning has the server and the clients of the last round: a longer run does not see the tuning."""
    tuned = personal(SMALL.but(tune_epochs=1), FEDPER)
    plain = personal(SMALL, FEDPER)
    assert own_accuracies(tuned) == own_accuracies(plain)


class Stop(Exception):
    pass


def interrupted(setting: Setting, made: Method, at: int) -> None:
    """Run until round `at` is in the store."""

    def watch(row):
        if row["round"] == at:
            raise Stop

    with pytest.raises(Stop):
        fednb.run(setting, made, engine="loop", device="cpu", progress=watch)


@pytest.mark.parametrize("at", [0, 1, 2])
@pytest.mark.parametrize("made", [FEDPER, FEDALA], ids=str)
def test_a_personal_run_resumes_exactly(made, at, store, monkeypatch):
    """Stopped after round 0, 1, or the last one before the tuning: the same lines and bits, the tuned line once."""
    setting = SMALL.but(tune_epochs=1, rounds=3)
    whole = personal(setting, made)
    monkeypatch.setenv("FEDNB_STORE", str(store / "other"))
    interrupted(setting, made, at)
    assert run_of(setting, made, 0).status == "running"
    resumed = personal(setting, made)
    assert without_time(resumed) == without_time(whole)
    assert [row["tuned"] for row in resumed.rows] == [0, 0, 0, 1]
    assert resumed.weights_sha256 == whole.weights_sha256
    assert own_accuracies(resumed) == own_accuracies(whole)


def test_a_crash_behind_the_tuned_line_does_not_tune_twice():
    """The line was written, its status was not: the run is taken up again and has the line once."""
    setting = SMALL.but(tune_epochs=1)
    done = personal(setting, FEDAVG)
    done.entry.describe(done.entry.about() | {"status": "running"})
    again = personal(setting, FEDAVG)
    assert again.status == "finished"
    assert without_time(again) == without_time(done)
    assert [row["tuned"] for row in again.rows] == [0, 0, 1]


@pytest.mark.parametrize("made", [FEDPER, FEDALA], ids=str)
def test_engines_agree(made, store, monkeypatch):
    """Loop and pool: the same lines, bit for bit, tuned one included; stacked: the same accuracies."""
    setting, runs = SMALL.but(tune_epochs=1), {}
    for engine in ("loop", "pool", "stacked"):
        monkeypatch.setenv("FEDNB_STORE", str(store / engine))
        runs[engine] = personal(setting, made, engine, workers=2)
        assert runs[engine].about["engine"] == engine
    assert without_time(runs["pool"]) == without_time(runs["loop"])
    assert runs["pool"].weights_sha256 == runs["loop"].weights_sha256
    assert own_accuracies(runs["pool"]) == own_accuracies(runs["loop"])
    assert [r["accuracy"] for r in runs["stacked"].rows] == approx([r["accuracy"] for r in runs["loop"].rows], abs=1.2)


def test_the_best_may_be_the_tuned_line():
    """The protocol reports the maximum over rounds, the tuned one included; the last is the tuned one."""
    found = personal(SMALL.but(tune_epochs=10, batch=10), FEDAVG)
    first, second, tuned = (row["accuracy"] for row in found.rows)
    assert tuned > max(first, second)
    assert found.accuracy_last == found.accuracy_best == tuned


def test_fedavg_ft_counts_clients_alike():
    assert method("FedAvg-FT").parts == (Uniform(),)
