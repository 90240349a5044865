"""FedCR: the bottleneck, its loss and the Gaussians that clients share, by hand and against torch's distributions."""

import pytest
import torch
from torch import Tensor, nn
from torch.distributions import Normal, kl_divergence
from torch.nn import functional

import fednb as fn
from fednb.algorithms.parts import ClassGaussians, PrivateHead, Uniform
from fednb.algorithms.parts.cr import BANK, bank, divergence
from fednb.core.rounds import BadParameter, Method
from fednb.engines.replay import replay
from fednb.engines.setting import Setting
from fednb.models import build
from fednb.models.bottleneck import Bottleneck
from fednb.runs.experiment import NoFittingModel, fitted

Z, CLASSES = 2, 3


def network(raw_bias: float | None = None) -> Bottleneck:
    """3 → (μ, σ) of two numbers → 3 classes."""
    model = Bottleneck(nn.Linear(3, 2 * Z), latent=Z, classes=CLASSES).double()
    with torch.no_grad():
        for p, rng in zip(model.parameters(), range(9), strict=False):
            p.copy_(0.4 * torch.randn(p.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(rng)))
        if raw_bias is not None:
            model.body.weight[Z:] = 0.0
            model.body.bias[Z:] = raw_bias
    return model


def weights(model: nn.Module) -> Tensor:
    return torch.cat([p.detach().reshape(-1) for p in model.parameters()])


def batches(rounds=1, clients=1, epochs=1, steps=1, n=4) -> tuple[Tensor, Tensor]:
    """Inputs, and labels that leave out class 2."""
    rng = torch.Generator().manual_seed(0)
    shape = (rounds, clients, epochs, steps, n)
    return torch.randn(*shape, 3, dtype=torch.float64, generator=rng), torch.randint(0, 2, shape, generator=rng)


def fedcr(**numbers) -> Method:
    return Method("FedCR", PrivateHead(), Uniform(), ClassGaussians(**numbers))


def one_run(method: Method, model: nn.Module, X: Tensor, Y: Tensor, lr: float = 1e-300, **how):
    return replay(method, model, weights(model), X, Y, torch.ones(X.shape[:2], dtype=torch.bool), lr=lr, **how)


def posterior(model: Bottleneck, x: Tensor) -> Normal:
    with torch.no_grad():
        mean, raw = model.body(x).chunk(2, -1)
    return Normal(mean, functional.softplus(raw))


def test_divergence_is_the_textbook_one():
    """KL ≥ 0, and 0 for identical Gaussians; elsewhere what torch.distributions has."""
    rng = torch.Generator().manual_seed(3)
    a, b = torch.randn(2, 50, Z, dtype=torch.float64, generator=rng)
    r, s = 0.1 + torch.rand(2, 50, Z, dtype=torch.float64, generator=rng)
    assert torch.allclose(divergence(a, r, b, s), kl_divergence(Normal(a, r), Normal(b, s)).sum(-1), atol=1e-12)
    assert (divergence(a, r, b, s) > 0).all()
    assert (divergence(a, r, a, r) == 0).all()


def test_without_draws_the_answer_is_the_limit_of_many():
    """The mean of logits over 4096 draws is the logit of the mean, up to σ / √4096."""
    model = network()
    x = torch.randn(5, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    many, mean, std = model(x, bank(Z, torch.float64, torch.device("cpu"))[:, None].expand(-1, 5, -1))
    assert (many.mean(0) - model(x)).abs().max() < 0.1 * (many - model(x)).abs().max()
    assert torch.allclose(model(x), model.decoder(mean))
    assert (std > 0).all()


@pytest.mark.parametrize("kl", ["prior_first", "encoder_first"])
def test_the_first_loss_by_hand(kl):
    """Round 0, u = 0, s = 1: L = mean over draws of the cross entropy + β KL, with the draws of the bank."""
    model, (X, Y) = network(), batches()
    x, y = X[0, 0, 0, 0], Y[0, 0, 0, 0]
    beta, M = 0.3, 5
    q, prior = posterior(model, x), Normal(torch.zeros(4, Z).double(), torch.ones(4, Z).double())
    told, found = {}, []
    original = ClassGaussians.start

    class Watched(ClassGaussians):
        def start(self, k, s):
            original(self, k, s)
            told["first"] = int(k.told[0].rows[0, -1])

        def finish(self, k, s):
            found.append(float(k.loss))

    one_run(Method("m", Watched(beta=beta, samples=M, kl=kl)), model, X, Y)
    at = (told["first"] + torch.arange(4 * M)) % BANK
    draws = bank(Z, torch.float64, torch.device("cpu"))[at].view(4, M, Z)
    with torch.no_grad():
        logits = model.decoder(q.mean[:, None] + q.stddev[:, None] * draws)
    fit = torch.stack([functional.cross_entropy(logits[:, m], y) for m in range(M)]).mean()
    pair = (prior, q) if kl == "prior_first" else (q, prior)
    assert found[0] == pytest.approx(float(fit + beta * kl_divergence(*pair).sum(-1).mean()), abs=1e-12)


def product(q: Normal, y: Tensor, label: int) -> tuple[Tensor, Tensor]:
    """1/s² and u/s² of the product of one class's posteriors, multiplied one after another."""
    precision = pull = torch.zeros(Z, dtype=torch.float64)
    for i in (y == label).nonzero().view(-1):
        precision, pull = precision + q.stddev[i] ** -2, pull + q.mean[i] * q.stddev[i] ** -2
    return precision, pull


def test_class_gaussians_are_products_of_experts():
    """Two clients: 1/s² = 1 + Σ 1/σ(x)², u = s² Σ μ(x)/σ(x)²; class 2, which nobody holds, stays (0, 1)."""
    model, (X, Y) = network(), batches(clients=2, n=6)
    r = one_run(fedcr(), model, X, Y)
    mean, std = r.server["class_mean"][0].view(CLASSES, Z), r.server["class_std"][0].view(CLASSES, Z)
    for label in (0, 1):
        each = [product(posterior(model, X[0, k, 0, 0]), Y[0, k, 0, 0], label) for k in range(2)]
        precision = 1 + sum(p for p, _ in each)
        assert torch.allclose(std[label], precision.rsqrt(), atol=1e-12)
        assert torch.allclose(mean[label], sum(q for _, q in each) / precision, atol=1e-12)
    assert (std[:2] < 1).all()
    assert (std[2] == 1).all()
    assert (mean[2] == 0).all()


def test_the_product_is_no_wider_than_any_factor():
    model, (X, Y) = network(), batches(clients=2, n=6)
    std = one_run(fedcr(), model, X, Y).server["class_std"][0].view(CLASSES, Z)
    for k in range(2):
        q = posterior(model, X[0, k, 0, 0])
        assert (std[Y[0, k, 0, 0]] <= q.stddev).all()


def test_gaussians_are_made_in_the_last_epoch():
    """At a rate of nothing, two epochs over different batches leave what the second alone leaves."""
    model, (X, Y) = network(), batches(epochs=2, steps=2)
    both, second = (one_run(fedcr(), model, X[:, :, e:], Y[:, :, e:]).server for e in (0, 1))
    first = one_run(fedcr(), model, X[:, :, :1], Y[:, :, :1]).server
    assert torch.allclose(both["class_std"], second["class_std"], atol=1e-14)
    assert not torch.allclose(both["class_std"], first["class_std"], atol=1e-3)


def test_beta2_is_how_far_the_server_goes():
    """β₂ = 0 keeps (0, 1), the code's default, which disables it; β₂ = ½ goes half the way."""
    model, (X, Y) = network(), batches()
    still, half, whole = (one_run(fedcr(beta2=b), model, X, Y).server for b in (0.0, 0.5, 1.0))
    assert (still["class_std"] == 1).all()
    assert (still["class_mean"] == 0).all()
    assert torch.allclose(half["class_std"], (1 + whole["class_std"]) / 2)
    assert torch.allclose(half["class_mean"], whole["class_mean"] / 2)


def test_a_sharp_bottleneck_without_the_prior_is_fedper():
    """β = 0, M = 1 and σ = softplus(−40) ≈ 0: three rounds of FedPer, with uniform weights."""
    model, (X, Y) = network(raw_bias=-40.0), batches(rounds=3, clients=2, steps=2)
    plain = one_run(Method("FedPer", PrivateHead(), Uniform()), model, X, Y, lr=0.3)
    sharp = one_run(fedcr(beta=0.0, samples=1), model, X, Y, lr=0.3)
    assert (plain.w[-1] - plain.w[0]).norm() > 0.01
    assert torch.allclose(plain.w, sharp.w, atol=1e-12)
    assert torch.allclose(plain.local, sharp.local, atol=1e-12)


def test_a_model_without_bottleneck_is_trained_as_fedpers():
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, CLASSES)).double()
    X, Y = batches(rounds=2, clients=2)
    plain = one_run(Method("FedPer", PrivateHead(), Uniform()), model, X, Y, lr=0.3)
    other = one_run(fedcr(), model, X, Y, lr=0.3)
    assert torch.allclose(plain.w, other.w, atol=1e-12)
    assert (other.server["class_std"] == 1).all()


def test_the_prior_pulls_the_posteriors():
    """With β = 10 the posteriors end nearer to the first prior N(0, 1) than with β = 0."""
    model, (X, Y) = network(), batches(rounds=5, steps=4)
    far, near = (one_run(fedcr(beta=b, beta2=0.0, kl="encoder_first"), model, X, Y, lr=0.05).w[-1] for b in (0.0, 10.0))
    prior = Normal(torch.zeros(Z).double(), torch.ones(Z).double())
    distance = []
    for w in (far, near):
        nn.utils.vector_to_parameters(w, model.parameters())
        distance.append(kl_divergence(posterior(model, X.reshape(-1, 3)), prior).sum(-1).mean())
    assert distance[1] < 0.5 * distance[0]


def test_counts_of_the_paper():
    """CIFAR-10: cnn5's 2,796,352 shared numbers below fc3, fc3: 1024 → 512, fc4: 256 → 10."""
    model = build("cnn5-cr", 10, (3, 32, 32))
    assert sum(p.numel() for p in model.parameters()) == 2_806_602 - 10_250 + 1025 * 512 + 257 * 10


def test_the_setting_gets_the_form_that_fits():
    assert fitted(Setting(model="cnn5", data="cifar10"), fn.method("fedcr")).model == "cnn5-cr"
    assert fitted(Setting(model="cnn5-cr", data="cifar10"), fn.method("fedcr")).model == "cnn5-cr"
    assert fitted(Setting(model="cnn5", data="cifar10"), fn.method("fedper")).model == "cnn5"
    with pytest.raises(NoFittingModel, match=r"FedCR.*resnet20-gn.*cnn5-cr"):
        fitted(Setting(model="resnet20-gn"), fn.method("fedcr"))


def test_a_wrong_direction_is_refused():
    with pytest.raises(BadParameter, match="encoder_first"):
        ClassGaussians(kl="backwards")


def test_a_run_learns(tmp_path, monkeypatch):
    """Digits, personalised, on the form of the model that has a bottleneck."""
    monkeypatch.setenv("FEDNB_STORE", str(tmp_path))
    setting = Setting(evaluation="personal", rounds=4, tune_epochs=1)
    done = fn.run(setting, "fedcr", seed=1, engine="loop", progress=False)
    assert done.setting.model == "cnn-small-cr"
    assert done.accuracy_best > 40
