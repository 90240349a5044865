"""All layers at once: the same as each by the plain transform."""

from itertools import accumulate

import pytest
import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from fednb.core.vectors import Layout
from fednb.engines.objective import arithmetic
from fednb.filters import HighPass, MeanOnly, NormMatched, cut
from fednb.filters.fast import layers_high_passed, suits_kernels
from fednb.filters.fast.blocks import block_coefficients
from fednb.filters.fast.layers import SMALL_IN_TF32, pairs_inside, planned
from fednb.filters.fast.mixed import Mixed
from fednb.filters.fast.tiles import ROWS
from fednb.filters.fast.vector import SMALL, by_transform, functions_inside

FINE = SMALL[torch.float32]
SIZES = (37, 432, 64, 2304, 2304, 10, 36864, 1009, 9216, 640, 10, 36864, 147456)  # 1009: a prime, for no blocks


def counts(ratio: float, sizes: tuple[int, ...] = SIZES) -> tuple[int, ...]:
    return tuple(cut(ratio, n) for n in sizes)


def noise(*shape: int, device: str = "cpu") -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(shape[-1])).to(device)


def one_by_one(x: Tensor, sizes: tuple[int, ...], each: tuple[int, ...]) -> Tensor:
    pieces = zip(x.double().split(sizes, -1), each, strict=True)
    return torch.cat([by_transform(piece, count) if count else piece for piece, count in pieces], -1)


def layer_errors(y: Tensor, wanted: Tensor, sizes: tuple[int, ...]) -> list[float]:
    pairs = zip(y.double().split(sizes, -1), wanted.split(sizes, -1), strict=True)
    return [((a - b).norm() / b.norm()).item() for a, b in pairs]


@pytest.mark.parametrize("ratio", [0.002, 0.01, 0.05, 0.2])
@pytest.mark.parametrize("clients", [1, 3])
def test_every_layer_loses_its_own_lowest_frequencies(ratio, clients):
    x = noise(clients, sum(SIZES))
    y = layers_high_passed(x, SIZES, counts(ratio))
    assert y.shape == x.shape
    assert max(layer_errors(y, one_by_one(x, SIZES, counts(ratio)), SIZES)) < 1e-6


@pytest.mark.parametrize("ratio", [0.01, 0.05])
def test_every_layer_is_the_filters_definition(ratio, monkeypatch):
    """HighPass on all layers at once, as on a GPU: transform, zeros, transform back of each in double precision."""
    monkeypatch.setattr("fednb.filters.bands.suits_kernels", lambda x: True)
    x, filter = noise(2, sum(SIZES)), HighPass(ratio)
    wanted = torch.cat([filter.definition(layer) for layer in x.double().split(SIZES, -1)], -1)
    y = filter.at_once(x, SIZES, range(len(SIZES)))
    assert y.dtype == torch.float32
    assert max(layer_errors(y, wanted, SIZES)) < 1e-6


@pytest.mark.parametrize("filter, in_one", [
    (NormMatched(HighPass(0.05)), True), (NormMatched(HighPass(0.05), where="b.*"), False),
    (NormMatched(HighPass(0.05), "layer"), False), (NormMatched(MeanOnly(0.05)), False),
])  # fmt: skip
def test_a_vector_as_short_as_behind_the_filter_is_the_same_at_once(filter, in_one, monkeypatch):
    """As on a GPU, where the filter inside takes all layers in one operation; the factor is that of each by itself."""
    layout = Layout(("a.weight", "b.weight", "c"), ((48, 48), (36, 64), (10,)))
    x = noise(3, layout.total)
    wanted = layout.map(filter, x.double())
    monkeypatch.setattr("fednb.filters.bands.suits_kernels", lambda x: True)
    calls = []
    monkeypatch.setattr(
        "fednb.filters.bands.layers_high_passed", lambda *a: calls.append(a[1]) or layers_high_passed(*a)
    )
    torch.testing.assert_close(layout.map(filter, x).double(), wanted, rtol=1e-6, atol=1e-7)
    assert calls == [layout.sizes] * in_one


def test_any_number_of_axes():
    x = noise(2, 3, 2304 + 10)
    y = layers_high_passed(x, (2304, 10), (57, 0))
    torch.testing.assert_close(y[1, 2], layers_high_passed(x[1, 2], (2304, 10), (57, 0)), rtol=0, atol=1e-6)
    assert torch.equal(y[..., 2304:], x[..., 2304:])


def test_all_frequencies_none_and_only_the_mean():
    """Counts of 0, 1, and all there are: untouched, without its mean, zero; also where no layer has blocks."""
    x = noise(2, 64 + 64 + 40)
    y = layers_high_passed(x, (64, 64, 40), (0, 1, 21))
    assert torch.equal(y[:, :64], x[:, :64])
    torch.testing.assert_close(y[:, 64:128], x[:, 64:128] - x[:, 64:128].mean(-1, keepdim=True))
    assert y[:, 128:].abs().max() == 0
    x = noise(2, 1009)
    torch.testing.assert_close(layers_high_passed(x, (1009,), (25,)), by_transform(x, 25))


@pytest.mark.parametrize("n", [12, 16, 24, 27, 30, 36, 40, 45, 60, 72])
def test_mixed_for_every_count_and_block(n):
    """Between x B and v Bᵀ lies the projection, for every b that divides n: a even, odd or 1, waves many or few."""
    x = noise(3, n).double()
    for count in range(1, n // 2 + 1):
        for b in (b for b in range(2, n + 1) if n % b == 0):
            both = functions_inside(b, 2 * torch.pi * (count - 1) / n, 1e-15)
            most = max(f.shape[1] for f in both)
            even, odd = (torch.nn.functional.pad(torch.from_numpy(f), (0, most - f.shape[1])) for f in both)
            B = torch.stack([even, odd], dim=2).flatten(1)
            mixed = Mixed.of(n, count, even.numpy(), odd.numpy())
            u = (x.view(3, -1, b) @ B).unflatten(-1, (-1, 2)).transpose(1, 2)  # [C, R / 2, a, 2]
            v = mixed(u.flatten(1)).view(u.shape)
            low = v.transpose(1, 2).flatten(2) @ B.T
            assert (x - low.flatten(1) - by_transform(x, count)).abs().max() < 1e-12, (count, b)
            torch.testing.assert_close(u.flatten(1) @ mixed.matrix(), v.flatten(1), rtol=1e-11, atol=1e-11)


def test_few_functions_are_enough_where_products_are_coarse():
    """The largest layer of a ResNet-18 at 5%: 28 of 256 functions for 7 digits, 20 for those of tf32."""
    n = 2359296
    fine, coarse = (pairs_inside(n, cut(0.05, n), small) for small in (FINE, SMALL_IN_TF32))
    assert (2 * fine[0].shape[1], 2 * coarse[0].shape[1]) == (28, 20)
    x = noise(1, 36864)
    with arithmetic("tf32"):  # on a CPU products stay fine
        y = layers_high_passed(x, (36864,), (921,))
    (error,) = layer_errors(y, one_by_one(x, (36864,), (921,)), (36864,))
    assert 1e-6 < error < SMALL_IN_TF32


def test_tiles_cover_every_number_once():
    plan = planned(SIZES, counts(0.05), False, torch.device("cpu"))
    seen = torch.zeros(sum(SIZES), dtype=torch.int64)
    for start, many, b, *_ in [*plan.tiles.tolist(), *plan.passing.tolist()]:
        assert many <= ROWS * b
        seen[start : start + many] += 1
    assert seen.unique().tolist() == [1]
    assert [here.start for here, _ in plan.rest] == [list(accumulate(SIZES))[6]]
    numbers = sum(g.numbers for g in plan.groups)
    x = noise(1, len(seen))
    u = block_coefficients(x, plan.tiles, plan.functions, plan.width, numbers, plan.aligned, False)
    assert len(u) < 0.13 * len(seen)


def test_a_trace_holds_three_operators_and_makes_no_constants():
    planned.cache_clear()
    x = noise(2, sum(SIZES))
    traced = make_fx(lambda x: layers_high_passed(x, SIZES, counts(0.05)))(x)
    named = [str(node.target) for node in traced.graph.nodes if node.op == "call_function"]
    assert [name for name in named if "fednb" in name] == [
        f"fednb.{name}.default" for name in ("block_coefficients", "mixed_coefficients", "subtract_blocks")
    ]
    assert not any(kind in name for name in named for kind in ("arange", "_to_copy", "svd", "cos"))
    y = noise(2, sum(SIZES)).flip(0)
    assert torch.equal(traced(y), layers_high_passed(y, SIZES, counts(0.05)))


def test_on_a_cpu_layers_are_done_one_by_one():
    assert not suits_kernels(noise(2, 8))


def test_a_filter_takes_only_layers_of_its_choice(monkeypatch):
    """HighPass(where=...) at once, as on a GPU: the same as layer by layer."""
    layout = Layout(("a.weight", "b.weight", "c"), ((48, 48), (48, 48), (10,)))
    x = noise(2, layout.total)
    filter = HighPass(0.05, where="b.*")
    wanted = layout.map(filter, x)
    monkeypatch.setattr("fednb.filters.bands.suits_kernels", lambda x: True)
    calls = []
    monkeypatch.setattr(
        "fednb.filters.bands.layers_high_passed", lambda *a: calls.append(a[2]) or layers_high_passed(*a)
    )
    torch.testing.assert_close(layout.map(filter, x), wanted, rtol=0, atol=1e-6)
    assert calls == [(0, 57, 0)]
