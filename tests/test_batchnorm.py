"""BatchNorm with every method: statistics are averaged, never perturbed, filtered, decayed or given momentum."""

import pytest
import torch
from torch import nn

from fednb.algorithms.catalogue import CATALOGUE
from fednb.core.cost import cost
from fednb.engines.replay import replay

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
    """The method with radius 0 where its only pass is at the perturbed point, from which statistics then come."""
    return m.but(rho=0.0) if cost(m).passes == 1 and any(p.ascends for p in m.parts) else m


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
