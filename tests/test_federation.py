"""Any method on clients that are known by their gradients: rounds by hand, what is counted, and what is refused."""

from math import nan

import pytest
import torch
from pytest import approx
from quadratics import QuadraticRounds as ByHand
from quadratics import heterogeneous

import fednb as fn
from fednb.algorithms.catalogue import CATALOGUE, UnknownMethod
from fednb.core.vectors import Layout
from fednb.engines.federation import BadFederation, Federation
from fednb.engines.setting import BadSetting, Setting

MINIMA = torch.tensor([[0.0], [4.0], [8.0]], dtype=torch.float64)


def parabolas(**others) -> Federation:
    """L_k(w) = ½ (w − a_k)², a = 0, 4, 8, from w = 10."""
    return Federation(lambda w: w - MINIMA, [10.0], clients=3, **others)


def test_fedavg_by_hand():
    """η = 0.1: each step leaves 0.9 of the distance, so that T rounds of E steps end at 4 + 6 · 0.9^(TE)."""
    out = parabolas().run("FedAvg", rounds=4, steps=2, lr=0.1)
    assert out.w.view(-1).tolist() == approx([4 + 6 * 0.81**t for t in range(5)])
    assert out.w.dtype == torch.float64 and out.w.shape == (5, 1) and len(out.rounds) == 4
    first = out.rounds[0]
    assert first.moves.view(-1).tolist() == approx([-10 * 0.19, -6 * 0.19, -2 * 0.19])
    assert (first.participants, first.gradients.tolist(), first.looks.tolist()) == ((0, 1, 2), [2, 2, 2], [0, 0, 0])
    assert (first.down, first.up, first.state) == (1, 1, {})


def test_state_is_given_by_name():
    """SCAFFOLD after one step from 10: c_k = ∇L_k(10) = 10, 6, 2, and c is their mean; both travel."""
    (seen,) = parabolas().run("SCAFFOLD", rounds=1).rounds
    assert seen.state["k.c_k"].view(-1).tolist() == approx([10, 6, 2]) and seen.state["s.c"].item() == approx(6)
    assert (seen.down, seen.up) == (2, 2)


def test_numbers_of_training_have_their_effect():
    """One client at a = 0 from 10, η = 0.1: w − η (w + ½ w), w − η · 2, half of the move, a second round of half η."""

    def end(rounds=1, **numbers):
        return Federation(lambda w: w, 10.0, clients=1).run("FedAvg", rounds, lr=0.1, **numbers).w[-1].item()

    assert end(weight_decay=0.5) == approx(8.5) and end(clip_norm=2.0) == approx(9.8, abs=1e-6)
    assert end(server_lr=0.5) == approx(9.5) and end(rounds=2, lr_decay=0.5) == approx(9 * 0.95)


def test_steps_differ_by_client_and_losses_are_means_over_them():
    """Clients of 1, 2 and 3 steps; L_0 is seen at 10 alone, L_1 at 10 and 9.4 (½ · 36 and ½ · 5.4²)."""
    with_loss = parabolas(loss=lambda w: 0.5 * (w - MINIMA).square().squeeze(-1))
    (seen,) = with_loss.run("FedSAM", rounds=1, steps=[1, 2, 3]).rounds
    assert seen.gradients.tolist() == [2, 4, 6]
    (seen,) = with_loss.run("FedAvg", rounds=1, steps=[1, 2, 3]).rounds
    assert seen.cohort.loss.view(-1).tolist()[:2] == approx([50.0, (18 + 0.5 * 5.4**2) / 2])
    assert seen.moves.view(-1).tolist() == approx([-1.0, -6 * 0.19, -2 * 0.271])


def test_participants_are_drawn_or_named():
    """Client 2 by itself goes from 10 to 8 + 2 · 0.9; a count is drawn anew each round, and by the seed."""
    out = parabolas().run("FedAvg", rounds=1, participants=lambda t: [2])
    assert out.rounds[0].participants == (2,) and out.w[-1].item() == approx(9.8)
    one, again, other = (
        [r.participants for r in parabolas().run("FedAvg", 20, participants=2, seed=s).rounds] for s in (0, 0, 1)
    )
    assert one == again != other and {len(who) for who in one} == {2} and len(set(one)) == 3


def test_sizes_weigh_clients():
    """Sizes 1, 1, 2 pull towards (0 + 4 + 2 · 8) / 4 = 5."""
    assert parabolas(sizes=[1, 1, 2]).run("FedAvg", 200).w[-1].item() == approx(5.0)


def test_a_round_at_a_time_is_a_run():
    rounds = parabolas().start("FedCM", steps=2)
    seen = torch.stack([rounds.next().w for _ in range(3)])
    assert torch.equal(parabolas().run("FedCM", 3, steps=2).w[1:], seen)


@pytest.mark.parametrize("name", [name for name in CATALOGUE if name != "FedCR"])  # its own loss needs a network
def test_every_method_runs_and_agrees_with_full_oracles(name):
    """Rows of those who stay away are never seen: a gradient of all clients, and oracles of those present."""
    clients, layout = heterogeneous(P=8), Layout(("a.weight", "b.weight", "b.bias"), ((3,), (4,), (1,)))
    present = [[0, 2], [1, 2, 3], [0, 1, 2, 3]]
    by_hand = ByHand(CATALOGUE[name].method, clients, w=1.0, steps=(3, 5, 2, 4), n=(1, 2, 3, 4), layout=layout)
    labels = by_hand.population.labels
    made = Federation(
        lambda w: clients.gradient(w, range(4)), [1.0] * 8, 4, layout=layout, sizes=[1, 2, 3, 4], labels=labels,
        loss=lambda w: 0.5 * (clients.gradient(w, range(4)) * (w - clients.a)).sum(-1),
    )  # fmt: skip
    out = made.run(name, 3, steps=[3, 5, 2, 4], participants=present.__getitem__)
    assert torch.equal(out.w[1:], torch.stack([by_hand.next(ids).w for ids in present]))


def test_full_oracles_know_steps_and_buffers():
    """One client whose gradient is the number of the step, and whose buffer counts its batches: −0.1 (0 + 1 + 2)."""

    def oracle_of(t, ids):
        return lambda w, b, step, *loss, last=None: (0 * w + step, 0 * w, 0 * w + 1, b + 1)

    rounds = Federation.of_oracles(oracle_of, [1.0], clients=1, buffers=[5.0]).start("FedAvg", steps=3)
    assert rounds.next().w.item() == approx(0.7) and rounds.s.b.item() == 8.0


def test_a_tensor_keeps_its_kind_and_the_first_model_stays():
    w0 = torch.tensor([10.0])
    made = Federation(lambda w: w, w0, clients=2)
    assert made.run("FedAvg", 1).w.dtype == torch.float32 and w0.item() == 10.0 and made.w0.item() == 10.0


def gradient(w):
    return w


@pytest.mark.parametrize("given, said", [
    (dict(w0=[nan]), r"w0 = \[nan\]: must be finite"),
    (dict(w0="abc"), "w0 = 'abc': must be numbers"),
    (dict(clients=0), "clients = 0: must be a whole number of at least 1"),
    (dict(clients=2.5), "clients = 2.5"),
    (dict(gradient=3.0), "gradient = 3.0: must be a function"),
    (dict(gradient=lambda w: w[0]), r"gradient\(w\) returns has shape \(1,\): must be a tensor of shape \(2, 1\)"),
    (dict(gradient=lambda w: 0.0), r"gradient\(w\) returns is 0.0: must be a tensor"),
    (dict(gradient=lambda w: w / 0), r"gradient\(w\) is not finite at w0"),
    (dict(loss=lambda w: w.sum()), r"loss\(w\) returns has shape \(\): must be a tensor of shape \(2,\)"),
    (dict(layout=Layout(("a",), ((3,),))), "w0 has 1 numbers, the layout 3"),
    (dict(sizes=[1, 2, 3]), "sizes = .*or 2 of them"),
    (dict(sizes=[1, 0]), "sizes = "),
    (dict(labels=[[1, 2]]), r"labels has shape \(1, 2\): must have a row for each of 2 clients"),
])  # fmt: skip
def test_what_makes_no_federation_is_refused(given, said):
    with pytest.raises(BadFederation, match=said):
        Federation(**dict(gradient=gradient, w0=[1.0], clients=2) | given)


@pytest.mark.parametrize("given, error, said", [
    (dict(method="FedNobody"), UnknownMethod, "no method 'FedNobody'"),
    (dict(rounds=0), BadSetting, "rounds = 0: must be a whole number of at least 1"),
    (dict(lr=-1), BadSetting, "lr = -1: must be above 0"),
    (dict(lr=nan), BadSetting, "lr = nan"),
    (dict(clip_norm=0), BadSetting, "clip_norm = 0"),
    (dict(server_lr=0), BadSetting, "server_lr = 0"),
    (dict(steps=0), BadFederation, "steps = 0: must be a whole number of at least 1"),
    (dict(steps=[1, 2, 3]), BadFederation, "or 2 of them"),
    (dict(nominal_steps=0), BadFederation, "nominal_steps = 0"),
    (dict(participants=3), BadFederation, "participants = 3: must be from 1 to 2, or a function"),
    (dict(participants=lambda t: []), BadFederation, r"participants of round 0 = \[\]: must be some of 0 to 1"),
    (dict(participants=lambda t: [0, 0]), BadFederation, "participants of round 0"),
    (dict(participants=lambda t: [2]), BadFederation, "participants of round 0"),
])  # fmt: skip
def test_a_run_that_cannot_be_is_refused(given, error, said):
    with pytest.raises(error, match=said):
        Federation(gradient, [1.0], clients=2).run(**dict(method="FedAvg", rounds=1) | given)


def test_the_public_name():
    assert fn.Federation is Federation and "Federation" in fn.__all__


def test_a_setting_makes_the_numbers_of_local_training():
    """FL-Simulator's K: 3 epochs · 50 samples of client 0 / batches of 20 = 7.5."""
    made = Setting(lr=0.3, lr_decay=0.9, weight_decay=0.1, clip_norm=None, epochs=3, batch=20).training(samples=50)
    assert (made.lr, made.lr_decay, made.weight_decay, made.clip_norm) == (0.3, 0.9, 0.1, None)
    assert (made.epochs, made.nominal_steps, made.rate(1)) == (3, 7.5, approx(0.27))
