"""Local optimisers and schedules as parts: torch's own steps and rates, with any method, on every engine."""

import pytest
import torch
from pytest import approx
from quadratics import QuadraticRounds, heterogeneous, one_round
from test_lanes import SMALL, alone, same, together, trained

import fednb as fn
from fednb.algorithms.parts import Adam, AdamW, CosineRate, LocalMomentum, StepRate, WarmUp
from fednb.algorithms.parts.optimiser import rate_factor
from fednb.core.rounds import BadParameter, Method
from fednb.engines import choose

CLOSE = {"rtol": 0, "atol": 1e-12}
CLIENTS = heterogeneous(clients=1)


def steps_of(optimiser, steps, clip_norm, **numbers):
    """The weights after some steps of an optimiser of torch's on the first client, from 1."""
    x = torch.ones(3, dtype=torch.float64, requires_grad=True)
    torchs = optimiser([x], **numbers)
    for _ in range(steps):
        x.grad = CLIENTS.gradient(x.detach()[None], [0])[0]
        if clip_norm is not None:
            torch.nn.utils.clip_grad_norm_([x], clip_norm)
        torchs.step()
    return x.detach()


@pytest.mark.parametrize("clip_norm", [None, 2.0])
@pytest.mark.parametrize(("kind", "optimiser"), [(Adam, torch.optim.Adam), (AdamW, torch.optim.AdamW)])
def test_adam_is_pytorchs(kind, optimiser, clip_norm):
    """Seven steps with weight decay; the gradient is clipped before Adam sees it, as `clip_grad_norm_` does."""
    made = Method("m", kind(beta1=0.8, beta2=0.95, eps=1e-3))
    k, _ = one_round(made, CLIENTS, w=1.0, steps=7, weight_decay=0.1, clip_norm=clip_norm, lr=0.05)
    wanted = steps_of(optimiser, 7, clip_norm, lr=0.05, betas=(0.8, 0.95), eps=1e-3, weight_decay=0.1)
    assert torch.allclose(k.w[0], wanted, **CLOSE)


def test_momentum_is_pytorchs_with_any_gradient_before_it():
    k, _ = one_round(Method("m", LocalMomentum(0.9)), CLIENTS, w=1.0, steps=7, weight_decay=0.1, lr=0.05)
    wanted = steps_of(torch.optim.SGD, 7, None, lr=0.05, momentum=0.9, weight_decay=0.1)
    assert torch.allclose(k.w[0], wanted, **CLOSE)


def test_adams_direction_is_not_clipped():
    """At the first step v = sign(g) has the norm √3; a clip at 1 would shorten the step."""
    k, _ = one_round(Method("m", Adam(eps=1e-12)), CLIENTS, w=1.0, steps=1, clip_norm=1.0, lr=0.1)
    assert (k.w[0] - 1).abs().tolist() == approx([0.1] * 3)


def test_moments_begin_at_rest_in_every_round():
    f = QuadraticRounds(Method("m", Adam()), CLIENTS, w=1.0, steps=4, lr=0.05)
    first = f.round().w[0].clone()
    again = QuadraticRounds(Method("m", Adam()), CLIENTS, w=first, steps=4, lr=0.05).round().w[0]
    assert torch.equal(f.round().w[0], again)


def rates_of(scheduler, rounds):
    """Learning rates of a scheduler of torch's, from 0.4, round by round."""
    sgd = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.4)
    schedule, seen = scheduler(sgd), []
    for _ in range(rounds):
        seen.append(sgd.param_groups[0]["lr"])
        sgd.step()
        schedule.step()
    return seen


LR = torch.optim.lr_scheduler
SCHEDULES = [
    ([CosineRate(over=9)], lambda o: LR.CosineAnnealingLR(o, T_max=9)),
    ([CosineRate(over=9, low=0.1)], lambda o: LR.CosineAnnealingLR(o, T_max=9, eta_min=0.04)),
    ([StepRate(at=(2, 5), by=0.3)], lambda o: LR.MultiStepLR(o, milestones=[2, 5], gamma=0.3)),
    ([WarmUp(over=4, first=0.2)], lambda o: LR.LinearLR(o, start_factor=0.2, total_iters=4)),
    ([WarmUp(over=3, first=0.25), StepRate(at=(5,), by=0.5)],
     lambda o: LR.ChainedScheduler([LR.LinearLR(o, 0.25, total_iters=3), LR.MultiStepLR(o, [5], gamma=0.5)])),
]  # fmt: skip


@pytest.mark.parametrize(("parts", "scheduler"), SCHEDULES)
def test_rates_are_those_of_torch(parts, scheduler):
    """Nine rounds of the rate that clients have, and that the history tells."""
    made = Method("m", *parts)
    f = QuadraticRounds(made, CLIENTS, w=1.0, steps=1, lr=0.4)
    wanted = rates_of(scheduler, 9)
    assert [f.round().lr.item() for _ in range(9)] == approx(wanted, rel=1e-12, abs=1e-15)
    assert [0.4 * rate_factor(made, t) for t in range(9)] == approx(wanted, rel=1e-12, abs=1e-15)


def test_a_cosine_begins_behind_its_warm_up():
    found = [rate_factor(Method("m", WarmUp(over=3, first=0.25), CosineRate(over=6, after=3)), t) for t in range(9)]
    warm, falling = [0.25, 0.5, 0.75], [rate_factor(Method("m", CosineRate(over=6)), t) for t in range(6)]
    assert found == approx(warm + falling, rel=1e-12)


def test_a_rate_that_has_fallen_stays_above_zero():
    """SCAFFOLD divides by the rate: rounds behind the cosine's end still have finite variates."""
    f = QuadraticRounds(Method("m", fn.parts.Scaffold(), CosineRate(over=2)), CLIENTS, w=1.0, steps=2)
    for _ in range(5):
        k = f.round()
    assert k.lr.item() > 0 and k.c_k.isfinite().all()


SUMS = [
    "fedsam + localmomentum(0.9) + warmup(3)",
    "scaffold + adam + cosinerate(4)",
    "fedfft + adamw + steprate((1,), 0.5)",
    "feddyn + adam + warmup(2) + cosinerate(5)",
    "fedcm + adamw + cosinerate(3)",
]


@pytest.mark.parametrize("text", SUMS)
def test_lanes_have_the_weights_of_the_loop(text):
    """Two seeds in the same lanes, over two rounds with different rates."""
    m, setting = fn.method(text), SMALL.but(lr=0.01, clip_norm=1.0)
    runs = [(setting, m, seed) for seed in (0, 1)]
    found, shared = together(runs)
    for each, run in zip(found, runs, strict=True):
        same(each, alone(*run))
    assert len(shared.known) == 1


def test_adams_numbers_differ_between_runs_in_the_same_lanes():
    setting = SMALL.but(lr=0.01)
    runs = [(setting, fn.method("fedavg + adam", beta1=beta1), 0) for beta1 in (0.5, 0.9)]
    found, shared = together(runs)
    for each, run in zip(found, runs, strict=True):
        same(each, alone(*run))
    assert len(shared.known) == 1
    assert not torch.allclose(found[0][0], found[1][0], atol=1e-6)


def test_the_pool_has_the_bits_of_the_loop():
    m, setting = fn.method("scaffold + adam + warmup(2)"), SMALL.but(lr=0.01)
    pooled = trained(choose("pool", setting, m, 0, workers=1), setting, m, 0)
    assert torch.equal(pooled[0], alone(setting, m, 0)[0])


def test_a_step_of_a_sum_is_adams_step_on_the_corrected_gradient():
    """FedProx and FedSAM before Adam: by hand, the gradient uphill plus the pull, through torch's Adam."""
    mu, rho, lr = 0.3, 0.05, 0.1
    made = Method("m", fn.parts.Sam(rho=rho), fn.parts.Prox(mu=mu), Adam())
    k, _ = one_round(made, CLIENTS, w=1.0, steps=3, lr=lr)
    x = torch.ones(3, dtype=torch.float64, requires_grad=True)
    adam = torch.optim.Adam([x], lr=lr)
    for _ in range(3):
        w = x.detach()
        g = CLIENTS.gradient(w[None], [0])[0]
        delta = rho * g / (g.norm() + 1e-7)
        x.grad = CLIENTS.gradient((w + delta)[None], [0])[0] + mu * (w - 1.0)
        adam.step()
    assert torch.allclose(k.w[0], x.detach(), **CLOSE)


def test_nothing_is_sent_and_one_gradient_taken():
    assert fn.cost(fn.method("scaffold + adam + warmup + cosinerate")) == fn.cost(fn.method("scaffold"))


def test_the_card_shows_them():
    text = fn.card("fedavg + adam + steprate").text
    assert "AdamW" not in text.splitlines()[0] and "m̂ / (√û + ε)" in text and "η ← η byⁿ" in text


def test_the_history_has_the_scheduled_rate(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDNB_STORE", str(tmp_path))
    setting = fn.Setting(samples=100, clients=4, rounds=3, epochs=1, batch=25, lr_decay=0.5, lr=0.4)
    made = fn.run(setting, "fedavg + steprate((1,), 0.5)", progress=False)
    assert made.history["lr"].tolist() == approx([0.4, 0.1, 0.05])


@pytest.mark.parametrize(("make", "said"), [
    (lambda: Adam(beta1=1.0), "Adam.beta1 = 1.0: must be at least 0 and below 1"),
    (lambda: Adam(eps=0.0), "Adam.eps = 0.0: must be above 0"),
    (lambda: CosineRate(over=0), "CosineRate.over = 0: must be a whole number of at least 1"),
    (lambda: StepRate(at=()), "StepRate.at = (): must be rounds, such as (50, 75)"),
    (lambda: StepRate(at=5), "StepRate.at = 5: must be rounds, such as (50, 75)"),
    (lambda: WarmUp(first=0.0), "WarmUp.first = 0.0: must be above 0 and at most 1"),
])  # fmt: skip
def test_wrong_numbers_are_refused(make, said):
    with pytest.raises(BadParameter) as error:
        make()
    assert str(error.value) == said


def test_rounds_given_as_a_list_make_the_same_part():
    assert StepRate(at=[3, 4]) == StepRate(at=(3, 4))
