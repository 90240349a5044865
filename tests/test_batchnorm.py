"""BatchNorm with every method: statistics are averaged, never perturbed, filtered, decayed or given momentum."""

import pytest
import torch
from torch import nn

from fednb.algorithms.catalogue import CATALOGUE
from fednb.core.cost import cost
from fednb.engines import choose
from fednb.engines.problem import participants
from fednb.engines.replay import replay
from fednb.engines.setting import BadSetting, Setting
from fednb.runs.experiment import run as run_setting

N, T, E, B, b = 3, 3, 2, 3, 8


class Net(nn.Sequential):
    """12 inputs, a normalised hidden layer of 8, 3 classes."""

    def __init__(self) -> None:
        super().__init__(nn.Linear(12, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))


def run(name, lr, same_data=False):
    """Three rounds; two of three clients at a time."""
    rng = torch.Generator().manual_seed(0)
    X = torch.randn(T, N, E, B, b, 12, dtype=torch.float64, generator=rng) + 1.0
    Y = torch.randint(0, 3, (T, N, E, B, b), generator=rng)
    if same_data:
        X, Y = X[:, :1].expand_as(X), Y[:, :1].expand_as(Y)
    torch.manual_seed(0)
    net = Net().double()
    w0 = torch.cat([p.detach().reshape(-1) for p in net.parameters()])
    mask = torch.tensor([[1, 1, 0], [0, 1, 1], [1, 0, 1]], dtype=torch.bool)
    how = dict(lr=lr, weight_decay=0.01, clip_norm=10.0, n=torch.tensor([24, 24, 24]))
    return replay(at_the_model(CATALOGUE[name].method) if same_data else name, net, w0, X, Y, mask, **how)


def at_the_model(m):
    """The method with radius 0 where statistics come from a perturbed point: of its only pass, or of what is sent."""
    perturbed = cost(m).passes == 1 and any(p.ascends for p in m.parts)
    return m.but(rho=0.0) if perturbed or "w_sent" in m.declared("on_server") else m


@pytest.mark.parametrize("name", CATALOGUE)
def test_statistics_are_those_of_the_data_whatever_the_method(name):
    """Where weights stand still (rate 1e-13) and clients have the same data, every mean of statistics is FedAvg's:

    any momentum, decay, filter, weight that does not sum to one, or second update in a step would show.
    """
    mine, plain = run(name, lr=1e-13, same_data=True), run("FedAvg", lr=1e-13, same_data=True)
    assert not torch.allclose(plain.buffers[0], plain.buffers[-1], atol=1e-2)
    assert torch.allclose(mine.buffers, plain.buffers, atol=1e-4)


@pytest.mark.parametrize("name", CATALOGUE)
def test_every_method_trains_a_normalised_network(name):
    """Finite weights and statistics, positive variances, and the model has moved."""
    r = run(name, lr=0.05)
    assert r.w.isfinite().all() and r.buffers.isfinite().all()
    assert (r.buffers[:, 8:] > 0).all()
    assert (r.w[-1] - r.w[0]).norm() > 1e-3


# Batches of one sample: 11 samples of each of 10 clients, batches of 10


ONE = Setting(
    model="resnet18-bn", samples=110, clients=10, participation=0.1, rounds=1, epochs=1, batch=10, partition="iid"
)


def engine(setting):
    return choose("loop", setting, CATALOGUE["FedAvg"].method, 0, device="cpu")


def test_a_batch_of_one_is_refused_where_it_cannot_be_normalised():
    """resnet18-bn has feature maps of one pixel on digits; torch's own error would come in the middle of a round."""
    client = participants(ONE, 0, 0)[0]
    said = rf"batch = 10: client {client}, which has 11 samples, has a batch of one, .* take batch = 11 or a model with"
    with pytest.raises(BadSetting, match=said):
        engine(ONE)
    with pytest.raises(BadSetting, match="single value; take a model with GroupNorm"):
        engine(ONE.but(samples=10, batch=1))


@pytest.mark.parametrize(
    "change", [{"batch": 11}, {"samples": 120}, {"model": "resnet20-bn"}, {"model": "resnet18-gn"}]
)
def test_other_batches_and_models_are_not_refused(change):
    """Maps of two pixels by two can be normalised, one sample or more."""
    assert engine(ONE.but(**change)).problem.clients == 10


def test_only_who_takes_part_counts(monkeypatch, tmp_path):
    """All but one have 12 samples, and that one, with 11, does not come in the only round: the run finishes.

    Where it is to tune its classifier afterwards, it comes.
    """
    monkeypatch.setenv("FEDNB_STORE", str(tmp_path))
    away = 1 + max(participants(ONE, 0, 0)) % 10
    parts = [list(range(12 * i, 12 * i + 12 - (i == away))) for i in range(10)]
    monkeypatch.setattr(type(ONE.partition), "split", lambda *asked: [torch.tensor(p).numpy() for p in parts])
    setting = ONE.but(samples=None, model="resnet18-bn")
    assert run_setting(setting, "FedAvg", engine="loop", progress=False).status == "finished"
    with pytest.raises(BadSetting, match=f"client {away}"):
        engine(setting.but(rounds=30))
