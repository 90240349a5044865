"""On a GPU: kernels do what plain torch does. Run with `pytest -m gpu tests/test_gpu_fast.py`."""

import pytest
import torch
from test_fast_layers import SIZES, counts, layer_errors, noise, one_by_one
from torch.func import vmap
from torch.fx.experimental.proxy_tensor import make_fx

from fednb.engines.objective import arithmetic
from fednb.filters.fast import layers_high_passed, suits_kernels
from fednb.filters.fast.blocks import block_coefficients, subtract_blocks
from fednb.filters.fast.layers import planned
from fednb.filters.fast.mixed import mixed

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")]


@pytest.mark.parametrize("precision, most", [("fp32", 2e-6), ("tf32", 1e-3)])
@pytest.mark.parametrize("gap", [0, 6])
def test_kernels_do_what_plain_torch_does(precision, most, gap):
    """Both operators, and all of it; gap: numbers between rows, as compilers leave them."""
    x = noise(5, sum(SIZES) + gap, device="cuda")[:, : sum(SIZES)]
    with arithmetic(precision):
        tf32 = precision == "tf32"
        there, here = (planned(SIZES, counts(0.05), tf32, torch.device(d)) for d in ("cuda", "cpu"))
        args = lambda p: (p.functions, p.width)  # noqa: E731
        numbers = sum(group.numbers for group in here.groups)
        u = block_coefficients(x, there.tiles, *args(there), numbers, there.aligned, tf32)
        plain = block_coefficients(x.cpu(), here.tiles, *args(here), numbers, here.aligned, tf32)
        assert (u.cpu() - plain).norm() < most * plain.norm()
        y = subtract_blocks(x, u, there.tiles, there.passing, *args(there), there.aligned, tf32)
        plain = subtract_blocks(x.cpu(), u.cpu(), here.tiles, here.passing, *args(here), here.aligned, tf32)
        assert (y.cpu() - plain).norm() < most * plain.norm()
        assert suits_kernels(x)
        y = layers_high_passed(x, SIZES, counts(0.05))
    wanted = one_by_one(x.cpu(), SIZES, counts(0.05))
    assert max(layer_errors(y.cpu(), wanted, SIZES)) < most


@pytest.mark.parametrize("N, pairs, a, H", [(9, 10, 288, 145), (5, 6, 9, 5), (3, 2, 64, 7), (4, 1, 2, 2), (1, 4, 1, 1)])
def test_mixing_does_what_plain_torch_does(N, pairs, a, H):
    """For odd and even lengths, for some h and for all; with tails of all that programs take at a time."""
    z, mix = noise(N, pairs, a, 2, device="cuda"), noise(2 * pairs, 2 * pairs, H, device="cuda")
    torch.testing.assert_close(mixed(z, mix).cpu(), mixed(z.cpu(), mix.cpu()), rtol=0, atol=1e-4)


def test_compiled_it_is_the_same():
    x = noise(4, sum(SIZES), device="cuda")
    wanted = layers_high_passed(3 * x, SIZES, counts(0.05))
    traced = make_fx(lambda x: 2 * layers_high_passed(3 * x, SIZES, counts(0.05)))(x)
    y = torch.compile(traced, dynamic=False)(x) / 2
    assert (y - wanted).norm() < 1e-6 * wanted.norm()


def test_what_does_not_fit_goes_one_by_one():
    """Doubles, vectors under vmap, and those of which derivatives are wanted."""
    x = noise(2, 2304, device="cuda")
    assert suits_kernels(x) and not suits_kernels(x.double()) and not suits_kernels(x.clone().requires_grad_())
    assert not vmap(lambda row: row * 0 + suits_kernels(row))(x).any()
