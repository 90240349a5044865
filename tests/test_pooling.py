"""2x2 max-pooling gives the bits of torch's, values and gradients, whichever way it goes."""

import pytest
import torch
from torch.func import grad, vmap
from torch.nn import functional

from fednb.models.pooling import halved

SHAPES = [(5, 16, 28, 28), (3, 2, 7, 9), (2, 3, 2, 2), (1, 1, 3, 2)]


def images(shape, dtype=torch.float32):
    """Numbers of which many are equal, so that a tie has to be decided, and some are below zero."""
    return torch.randint(-3, 4, shape, generator=torch.Generator().manual_seed(0)).to(dtype) / 3


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_values_and_gradients_have_the_bits_of_torchs(shape, dtype):
    x = images(shape, dtype)
    assert halved(x).equal(functional.max_pool2d(x, 2))
    ours, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
    y, z = functional.relu(halved(ours)), functional.max_pool2d(functional.relu(theirs), 2)
    assert y.equal(z) and y.is_contiguous()
    g = images(y.shape, dtype)
    assert torch.autograd.grad(y, ours, g)[0].equal(torch.autograd.grad(z, theirs, g)[0])


def test_what_is_not_a_number_stays_so():
    x = images((2, 2, 4, 4))
    x[0, 0, 1, 1], x[1, 1, 2, 3] = torch.nan, torch.inf
    expected = functional.max_pool2d(x, 2)
    assert torch.equal(halved(x).nan_to_num(nan=99.0), expected.nan_to_num(nan=99.0)) and expected.isnan().sum() == 1
    assert halved(x.requires_grad_()).isnan().equal(expected.isnan())


def test_under_vmap_and_grad():
    x = images((3, 2, 2, 6, 6))

    def first(pool):
        return vmap(grad(lambda each: (pool(each) ** 2).sum()))(x)

    assert first(halved).equal(first(lambda each: functional.max_pool2d(each, 2)))
    assert vmap(halved)(x).equal(vmap(lambda each: functional.max_pool2d(each, 2))(x))


def test_a_second_derivative():
    def second(pool):
        x = images((2, 2, 4, 4), torch.float64).requires_grad_()
        (g,) = torch.autograd.grad((pool(x) ** 3).sum(), x, create_graph=True)
        return torch.autograd.grad((g**2).sum(), x)[0]

    assert second(halved).equal(second(lambda x: functional.max_pool2d(x, 2)))
