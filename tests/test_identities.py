"""What the papers imply about one another: exact limits, laws of conservation, counts, norms."""

from functools import cache

import numpy as np
import pytest
import torch
from pytest import approx
from quadratics import QuadraticRounds, heterogeneous, one_round, quadratic, vector
from torch import Tensor, nn

from fednb.algorithms.catalogue import (
    FEDAVG,
    FEDCM,
    FEDDYN,
    FEDFFT,
    FEDFFT_D,
    FEDFFT_S,
    FEDGAMMA,
    FEDPROX,
    FEDSAM,
    FEDSPEED,
    MOFEDSAM,
    SCAFFOLD,
    SPECGRADFILTER,
    method,
    spec_grad_filter,
)
from fednb.algorithms.parts import ClientMomentum, Dyn, FilterGradient, FilterPerturbation, Prox, Sam, Scaffold
from fednb.core.record import P
from fednb.core.rounds import Method, Part, part
from fednb.core.vectors import Layout, norm
from fednb.engines.replay import Replay, replay
from fednb.filters import HighPass, LocalAverage, LowPass, Rescale

MASK = torch.tensor([[1, 0, 1, 0], [0, 1, 1, 1], [1, 1, 0, 0], [1, 0, 1, 1]], dtype=torch.bool)
EVERYONE = torch.ones(4, 4, dtype=torch.bool)
SIZES = torch.tensor([12, 7, 12, 30])  # how clients count


def network() -> nn.Module:
    """6 → 5 → 3 with tanh: layers of 30, 5, 15 and 3 numbers."""
    return nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3)).double()


@cache
def problem() -> tuple[Tensor, Tensor, Tensor]:
    """Four rounds of four clients, two epochs of three batches of four samples, each client with its own mean."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(4, 4, 2, 3, 4, 6)) + rng.normal(size=(1, 4, 1, 1, 1, 6))
    Y = rng.integers(0, 3, size=X.shape[:-1])
    return torch.tensor(0.4 * rng.normal(size=53)), torch.tensor(X), torch.tensor(Y)


@cache
def run(m: Method, everyone: bool = False, by_size: bool = True, **numbers) -> Replay:
    """A method on a network: unequal clients, partial participation, decaying rate, weight decay."""
    w0, X, Y = problem()
    numbers = dict(lr=0.3, lr_decay=0.9, weight_decay=0.01, clip_norm=10.0) | numbers
    return replay(m, network(), w0, X, Y, EVERYONE if everyone else MASK, n=SIZES if by_size else None, **numbers)


@cache
def rounds(m: Method) -> Tensor:
    """The same method on quadratics, where clients make 3, 5, 2 and 4 steps: global weights after each round."""
    f = QuadraticRounds(m, heterogeneous(P=8), w=1.0, steps=(3, 5, 2, 4), n=(1, 2, 3, 4), weight_decay=0.01,
                   layout=Layout(("a", "b"), ((5,), (3,))))  # fmt: skip
    out = []
    for present in MASK:
        f.round(present.nonzero().view(-1).tolist())
        out.append(f.s.w)
    return torch.stack(out)


def gap(left: Method, right: Method) -> float:
    """The largest difference between two methods' runs, over both kinds of problem."""
    a, b = run(left), run(right)
    return max((a.w - b.w).abs().max().item(), (a.local - b.local)[MASK].abs().max().item(),
               (rounds(left) - rounds(right)).abs().max().item())  # fmt: skip


SMALL = 0.06  # of at most 16 frequencies this is none

LIMITS = [
    (FEDSAM.but(rho=0.0), FEDAVG),
    (MOFEDSAM.but(rho=0.0), FEDCM),
    (FEDGAMMA.but(rho=0.0), SCAFFOLD),
    (FEDSPEED.but(rho=0.0), FEDDYN),
    (FEDFFT.but(rho=0.0), FEDAVG),
    (FEDCM.but(alpha=1.0), FEDAVG),
    (MOFEDSAM.but(alpha=1.0), FEDSAM),
    (FEDPROX.but(mu=0.0), FEDAVG),
    (FEDPROX.but(mu=0.0, prox_in_clip=True), FEDAVG),
    (FEDPROX.but(prox_in_clip=True), FEDPROX),
    (FEDDYN.but(prox_in_clip=True), FEDDYN),
    *[(FEDFFT.but(ratio=r), FEDSAM) for r in (0.0, SMALL)],
    *[(FEDFFT_S.but(ratio=r), FEDGAMMA) for r in (0.0, SMALL)],
    *[(FEDFFT_D.but(ratio=r), FEDSPEED) for r in (0.0, SMALL)],
    (FEDFFT.but(ratio=1.0), FEDAVG),
    (FEDFFT_S.but(ratio=1.0), SCAFFOLD),
    (FEDFFT_D.but(ratio=1.0), FEDDYN),
    *[
        (spec_grad_filter(base, HighPass(r)), base)
        for base in (FEDAVG, FEDPROX, SCAFFOLD, FEDDYN, FEDCM, FEDSAM, FEDGAMMA)
        for r in (0.0, SMALL)
    ],
    (Method("L2-norm rescaling", Sam(0.1), FilterPerturbation(Rescale(0.1))), FEDSAM),
    (Method("zeroth", FilterGradient(HighPass(0.3)), FilterGradient(HighPass(0.2))), SPECGRADFILTER.but(ratio=0.3)),
    (Method("SAM first", Sam(), Prox(0.0), Scaffold()), Method("SAM last", Scaffold(), Prox(0.0), Sam())),
]


@pytest.mark.parametrize("left, right", LIMITS, ids=lambda m: repr(m))
def test_limits_the_papers_imply(left, right):
    """Exact to 1e-12 in double precision, with unequal clients of whom some stay away."""
    assert gap(left, right) < 1e-12


@pytest.mark.parametrize(
    "left, right",
    [
        (FEDSAM, FEDAVG),
        (MOFEDSAM, FEDCM),
        (FEDGAMMA, SCAFFOLD),
        (FEDSPEED, FEDDYN),
        (FEDCM, FEDAVG),
        (MOFEDSAM, FEDSAM),
        (FEDPROX, FEDAVG),
        (FEDFFT.but(ratio=0.2), FEDSAM),
        (FEDFFT_S.but(ratio=0.2), FEDGAMMA),
        (FEDFFT_D.but(ratio=0.2), FEDSPEED),
        *[(spec_grad_filter(base, HighPass(0.2)), base) for base in (FEDAVG, FEDPROX, SCAFFOLD, FEDDYN, FEDCM)],
        (spec_grad_filter(FEDAVG, LowPass(0.2)), spec_grad_filter(FEDAVG, HighPass(0.2))),
        (spec_grad_filter(FEDAVG, LocalAverage(5)), FEDAVG),
        (Method("order", Prox(0.1), ClientMomentum(0.1)), Method("order", ClientMomentum(0.1), Prox(0.1))),
    ],
    ids=lambda m: repr(m),
)
def test_away_from_the_limit_they_differ(left, right):
    """The same problems tell the methods apart: 1e-5 and more, ten million times what the limits allow."""
    assert gap(left, right) > 1e-5


@pytest.mark.parametrize("left, right", [("FedSAM-S", FEDGAMMA), ("FedSAM-D", FEDSPEED)])
def test_two_names_for_one_algorithm(left, right):
    """FedFFT's FedSAM-S is FedGAMMA, its FedSAM-D is FedSpeed as released (specs section 7, item 8)."""
    assert method(left) == right


@pytest.mark.parametrize("left, right", [(SCAFFOLD, FEDAVG), (FEDGAMMA, FEDSAM), (FEDFFT_S, FEDFFT)], ids=str)
def test_variates_start_at_zero(left, right):
    """Round 0 is the base method's; from round 1 on they part."""
    a, b = run(left), run(right)
    assert torch.allclose(a.w[1], b.w[1], atol=1e-12, rtol=0)
    assert (a.w[2] - b.w[2]).abs().max() > 1e-4


def test_fedcm_starts_with_a_tenth_of_the_step():
    """m = 0 in round 0: without weight decay and in one step, FedCM moves α times as far as FedAvg."""
    clients = heterogeneous()
    (k, _), (plain, _) = one_round(FEDCM, clients), one_round(FEDAVG, clients)
    assert torch.allclose(k.delta, 0.1 * plain.delta, atol=1e-15)


def alone(m: Method) -> Tensor:
    """One client by itself, six rounds of three steps."""
    f = QuadraticRounds(m, heterogeneous(1), w=1.0, steps=3, weight_decay=0.01)
    return torch.stack([(f.round(), f.s.w)[1] for _ in range(6)])


@pytest.mark.parametrize("left, right", [(SCAFFOLD, FEDAVG), (FEDGAMMA, FEDSAM)], ids=str)
def test_one_client_needs_no_variate(left, right):
    """N = 1: c = c_k always, so that SCAFFOLD is FedAvg in every round."""
    assert torch.allclose(alone(left), alone(right), atol=1e-12, rtol=0)


@pytest.mark.parametrize("other", [FEDCM, FEDDYN], ids=str)
def test_one_client_with_momentum_or_a_dual_is_not_fedavg(other):
    assert (alone(other) - alone(FEDAVG)).abs().max() > 1e-2


# Conservation


@pytest.mark.parametrize("m", [SCAFFOLD, FEDGAMMA, FEDFFT_S, spec_grad_filter(SCAFFOLD)], ids=str)
def test_the_servers_variate_is_the_mean_of_all_clients(m):
    """c = Σ c_k / N after every round, those who stayed away included."""
    r = run(m)
    assert r.server["c"].abs().max() > 1e-2
    assert torch.allclose(r.server["c"], r.clients["c_k"].mean(1), atol=1e-12, rtol=0)


DUALS = [FEDDYN, FEDSPEED, FEDFFT_D, spec_grad_filter(FEDDYN), FEDDYN.but(prox_in_clip=True)]


@pytest.mark.parametrize("m", DUALS, ids=repr)
def test_duals_add_up_the_moves(m):
    """Σ_k h_k = Σ over rounds and present clients of Δ_k; the server's h is their mean over all N."""
    r = run(m)
    moves = torch.where(MASK[..., None], r.local - r.w[:-1, None], 0.0).sum(1).cumsum(0)
    assert torch.allclose(r.clients["h"].sum(1), moves, atol=1e-12, rtol=0)
    assert torch.allclose(r.server["h"], moves / 4, atol=1e-12, rtol=0)


@pytest.mark.parametrize("m", DUALS, ids=repr)
def test_dyns_model_is_the_mean_model_plus_the_mean_dual(m):
    """w_{t+1} = mean over the present of w_k + mean over all of h_k, of this round, where clients count alike."""
    r = run(m, by_size=False)
    for t, present in enumerate(MASK):
        assert torch.allclose(r.w[t + 1], r.local[t, present].mean(0) + r.clients["h"][t].mean(0), atol=1e-12, rtol=0)


@pytest.mark.parametrize("m", DUALS, ids=repr)
def test_dyns_law_when_everyone_comes(m):
    """w_{t+1} = w_t + 2 ū + mean of h before the round."""
    r = run(m, everyone=True, by_size=False)
    before = torch.zeros(53, dtype=torch.float64)
    for t in range(4):
        ubar = (r.local[t] - r.w[t]).mean(0)
        assert torch.allclose(r.w[t + 1], r.w[t] + 2 * ubar + before, atol=1e-12, rtol=0)
        before = r.clients["h"][t].mean(0)
    assert before.abs().max() > 1e-2


def test_dyn_without_its_pull_is_not_fedavg():
    """λ = 1/β → 0: clients train as in FedAvg, but h still adds up, so that round 0 moves twice as far."""
    free, plain = (run(m, everyone=True, by_size=False) for m in (FEDDYN.but(beta=1e15), FEDAVG))
    assert torch.allclose(free.local[0], plain.local[0], atol=1e-12, rtol=0)
    assert torch.allclose(free.w[1] - free.w[0], 2 * (plain.w[1] - plain.w[0]), atol=1e-12, rtol=0)
    assert (free.w[1] - plain.w[1]).abs().max() > 1e-2


def test_fedcms_momentum_is_the_last_global_move():
    """m = −(w_{t+1} − w_t) / (η_g K η_t), as all clients make K = 6 steps; η_t = 0.3 · 0.9^t."""
    r = run(FEDCM, server_lr=0.5)
    for t in range(4):
        moved = r.w[t + 1] - r.w[t]
        assert torch.allclose(r.server["m"][t], -moved / (0.5 * 6 * 0.3 * 0.9**t), atol=1e-12, rtol=0)


@pytest.mark.parametrize("m", [FEDAVG, SCAFFOLD, FEDCM, FEDPROX, FEDSAM], ids=str)
def test_the_model_moves_by_the_weighted_mean(m):
    """w_{t+1} = w_t + η_g Σ n_k Δ_k / Σ n_k over those who came."""
    r = run(m, server_lr=0.5)
    for t, present in enumerate(MASK):
        n = SIZES[present].double()[:, None]
        mean = (n * (r.local[t, present] - r.w[t])).sum(0) / n.sum()
        assert torch.allclose(r.w[t + 1], r.w[t] + 0.5 * mean, atol=1e-12, rtol=0)


@pytest.mark.parametrize("m", [SCAFFOLD, FEDGAMMA, FEDDYN], ids=str)
def test_who_stays_away_keeps_what_it_had(m):
    """The rows of clients that take no part do not change, bit for bit; and everyone who takes part has new ones."""
    (rows,) = run(m).clients.values()
    before = torch.cat([torch.zeros_like(rows[:1]), rows[:-1]])
    same = (rows == before).all(-1)
    assert torch.equal(same, ~MASK)


# Counts and norms


@pytest.mark.parametrize(
    "m, passes",
    [
        (FEDAVG, 1), (FEDPROX, 1), (SCAFFOLD, 1), (FEDDYN, 1), (FEDCM, 1), (SPECGRADFILTER, 1),
        (spec_grad_filter(SCAFFOLD), 1), (spec_grad_filter(FEDDYN), 1), (spec_grad_filter(FEDAVG, LocalAverage()), 1),
        (FEDSAM, 2), (MOFEDSAM, 2), (FEDGAMMA, 2), (FEDSPEED, 2), (FEDFFT, 2), (FEDFFT_S, 2), (FEDFFT_D, 2),
        (spec_grad_filter(FEDSAM), 2), (FEDSAM.but(rho=0.0), 2),
    ],
    ids=repr,
)  # fmt: skip
def test_gradients_per_step(m, passes):
    """Six steps of one gradient, or of two with an ascent (also where ρ = 0); none for those who stay away."""
    assert torch.equal(run(m).gradients, 6 * passes * MASK)


@part
class Watch(Part):
    """Note what the other parts do: the perturbation, and the weights before and after it is made."""

    this_round = {"seen": P, "before": P, "after": P, "there": P}

    def perturb(self, k, s, delta):
        """seen ← δ"""
        if delta is None:
            k.before = k.w
        else:
            k.seen = delta
        return delta

    def gradient(self, k, s, g):
        """after ← w_k"""
        k.after, k.there = k.w, g
        return g


LAYOUT = Layout(("a", "b", "c"), ((5, 4), (7,), (1,)))


def watched(*parts: Part, **numbers):
    """One round of four clients in 28 dimensions, with the ascent watched; and their first gradients."""
    clients = heterogeneous(P=28)
    k, _ = one_round(Method("m", *parts, Watch()), clients, w=1.0, layout=LAYOUT, **numbers)
    return k, clients.gradient(torch.ones(4, 28, dtype=torch.float64), [0, 1, 2, 3])


@pytest.mark.parametrize("rho", [0.0, 0.01, 0.1, 5.0])
def test_length_of_sams_perturbation(rho):
    """‖δ‖ = ρ ‖g‖ / (‖g‖ + 1e-7), in the direction of g."""
    k, g = watched(Sam(rho))
    length = g.norm(dim=1, keepdim=True)
    assert torch.allclose(norm(k.seen), rho * length / (length + 1e-7), atol=1e-15, rtol=1e-14)
    assert torch.allclose(k.seen, rho * g / (length + 1e-7), atol=1e-15)


@pytest.mark.parametrize("ratio", [0.0, 0.2, 0.3, 0.5, 1.0])
def test_length_of_fedffts_perturbation(ratio):
    """‖δ̃‖² = ρ²/‖g‖² Σ over layers of the energy in the kept frequencies, two-sided: (1/n) Σ_{|f| ≥ cut} |G_f|².

    Layers of 20, 7 and 1 numbers have 11, 4 and 1 frequencies; 0.3 of them are 3, 1 and 0.
    """
    cuts = {0.0: (0, 0, 0), 0.2: (2, 0, 0), 0.3: (3, 1, 0), 0.5: (5, 2, 0), 1.0: (11, 4, 1)}[ratio]
    k, g = watched(Sam(0.1), FilterPerturbation(HighPass(ratio)))
    energy = np.zeros(4)
    for layer, cut in zip(np.split(g.numpy(), [20, 27], axis=1), cuts, strict=True):
        n = layer.shape[1]
        folded = np.minimum(np.arange(n), n - np.arange(n))
        energy += (np.abs(np.fft.fft(layer)) ** 2)[:, folded >= cut].sum(1) / n
    wanted = 0.1 * np.sqrt(energy) / (g.norm(dim=1).numpy() + 1e-7)
    assert norm(k.seen).view(-1).tolist() == approx(wanted.tolist(), rel=1e-12, abs=1e-15)
    assert (norm(k.seen) <= 0.1).all()


@pytest.mark.parametrize("parts", [(Sam(0.5),), (Sam(0.5), FilterPerturbation(HighPass(0.3))), (Sam(0.5), Scaffold())])
def test_looking_uphill_leaves_the_weights_where_they_are(parts):
    """After the ascent and back w_k is what it was, bit for bit, in every step; only the gradient is from up there."""
    k, _ = one_round(
        Method("m", Watch(), *parts, Watch()), heterogeneous(P=28), w=1.0, layout=LAYOUT, steps=(1, 3, 2, 4)
    )
    assert torch.equal(k.before, k.after)
    up = heterogeneous(P=28).gradient(k.after + k.seen, [0, 1, 2, 3])
    assert torch.allclose(k.there, up, atol=1e-12)
    assert (k.w - k.after).abs().max() > 1e-3


def test_one_step_on_a_quadratic():
    """w − η v with v = g = H (w − a), H (w + ρ g/‖g‖ − a), g + h/β, g + c − c_k: FedAvg, FedSAM, FedDyn, SCAFFOLD."""
    clients, w, h = heterogeneous(), vector(1, 2, 3), vector(3, -1, 2)
    here = w.expand(4, 3)
    g = clients.gradient(here, [0, 1, 2, 3])

    def end(m: Method, own: str | None = None) -> Tensor:
        f = QuadraticRounds(m, clients, w=w)
        if own:
            f.table.scatter(range(4), {own: h.expand(4, 3)})
        return f.round().w

    up = here + 0.1 * g / (g.norm(dim=1, keepdim=True) + 1e-7)
    for got, wanted in (
        (end(FEDAVG), here - 0.1 * g),
        (end(FEDSAM), here - 0.1 * clients.gradient(up, [0, 1, 2, 3])),
        (end(FEDDYN, "h"), here - 0.1 * (g + h / 10)),
        (end(SCAFFOLD, "c_k"), here - 0.1 * (g - h)),
    ):
        assert torch.allclose(got, wanted, atol=1e-14)


def test_dyn_pulls_duals_to_the_clients_gradients():
    """At the end h_k = −β ∇L_k(w*): a = 1 and 3 end at w* = 2 with h = ∓β, β = 2, gradients ±1."""
    f = QuadraticRounds(Method("m", Dyn(beta=2.0)), quadratic(1.0, 3.0), steps=3)
    for _ in range(300):
        f.round()
    assert f.s.w.item() == approx(2.0, abs=1e-10)
    assert f.kept("h").view(-1).tolist() == approx([-2.0, 2.0], abs=1e-9)
