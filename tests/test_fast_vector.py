"""Vectors without their lowest frequencies: every form of the projection against the plain transform."""

from math import pi

import pytest
import torch
from pytest import approx
from torch import Tensor
from torch.func import grad, vmap
from torch.fx.experimental.proxy_tensor import make_fx

from fednb.filters import HighPass, cut
from fednb.filters.fast.constants import constants
from fednb.filters.fast.vector import (
    SMALL,
    Blocks,
    Waves,
    block,
    by_transform,
    cheapest,
    functions_inside,
    high_passed,
    projection,
)

CPU = torch.device("cpu")
RATIOS = [0.005, 0.01, 0.05, 0.1, 0.5, 1.0]
SIZES = [1, 2, 37, 198, 405, 432, 512, 1009, 2304, 4608, 9973, 10125, 36864, 147456]  # 1009, 9973: prime
BY_WAVES, BY_BLOCKS, BY_TRANSFORM = (1024, 5), (36864, 184), (9973, 249)  # n, count: HighPass(0.01), (0.01), (0.05)


def noise(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(shape[-1])).to(dtype)


def off(x: Tensor, y: Tensor) -> float:
    """The largest difference between two tensors."""
    assert x.shape == y.shape
    return (x - y).abs().max().item()


def in_blocks(n: int, count: int, b: int, dtype: torch.dtype = torch.float64) -> Blocks:
    return Blocks.of(n, count, functions_inside(b, 2 * pi * (count - 1) / n, SMALL[dtype]), dtype, CPU)


def wave(n: int, k: int) -> Tensor:
    return torch.cos(2 * pi * k / n * torch.arange(n, dtype=torch.float64) + 0.3)


# The projection


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("ratio", RATIOS)
def test_it_is_the_transform_with_zeros(n, ratio):
    """irfft(rfft(x) with the first bins zero), to 12 digits, whichever form is taken; float32 to 6."""
    count = cut(ratio, n)
    x = noise(2, n)
    wanted = by_transform(x, count)
    assert off(high_passed(x, count), wanted) < 1e-12
    single = high_passed(x.float(), count)
    assert single.dtype == torch.float32
    assert (single - wanted).norm().item() <= 1e-6 * x.norm().item()


def test_it_is_the_transform_on_the_largest_layer_of_a_resnet18():
    n, count = 2359296, cut(0.05, 2359296)
    x = noise(n, dtype=torch.float32)
    assert isinstance(projection(n, count, x.dtype, x.device), Blocks)
    assert (high_passed(x, count) - by_transform(x, count)).norm().item() < 1e-6 * x.norm().item()


@pytest.mark.parametrize("n", [12, 18, 27, 35, 40, 60])
def test_every_count_and_every_block(n):
    """Also where waves outnumber blocks, so that many look alike between them, with a even or odd or only 2 or 1."""
    x = noise(3, n)
    for count in range(2, n // 2 + 1):
        wanted = by_transform(x, count)
        assert off(x - Waves.of(n, count, x.dtype, CPU)(x), wanted) < 1e-13, count
        for b in (b for b in range(2, n + 1) if n % b == 0):
            assert off(x - in_blocks(n, count, b)(x), wanted) < 1e-13, (count, b)


@pytest.mark.parametrize("b", [8, 32, 36, 64, 128])
@pytest.mark.parametrize("count", [2, 23, 115, 900])
def test_long_vectors_in_blocks(b, count):
    """n = 4608. Few functions are enough inside a block of slow waves: fewer than a quarter of 64 at 1% of all."""
    x = noise(4608)
    form = in_blocks(4608, count, b)
    assert off(x - form(x), by_transform(x, count)) < 1e-13
    few = in_blocks(4608, count, b, torch.float32)
    assert (x.float() - few(x.float()) - by_transform(x, count)).norm().item() < 1e-6 * x.norm().item()
    functions = [each.there.numel() // b for each in (few, form)]
    assert functions[0] <= functions[1] <= b
    if (b, count) == (64, 23):
        assert functions[0] <= 16


@pytest.mark.parametrize("b", [50, 51, 1])
def test_functions_inside_are_orthonormal_and_make_every_slow_wave(b):
    """BᵀB = 1, and cos(θs + φ) − B Bᵀ cos(θs + φ) = 0 for all θ up to the fastest, not only those that made B."""
    even, odd = map(torch.from_numpy, functions_inside(b, 0.2, 1e-15))
    both = torch.cat([even, odd], dim=1)
    assert off(both.T @ both, torch.eye(both.shape[1], dtype=torch.float64)) < 1e-13
    assert torch.equal(even.flip(0), even)
    assert b == 1 or off(odd.flip(0), -odd) < 1e-13
    at = torch.arange(b, dtype=torch.float64)
    slow = torch.cos(torch.outer(at, torch.linspace(0, 0.2, 333, dtype=torch.float64)) + 0.3)
    assert off(both @ (both.T @ slow), slow) < 1e-12
    assert b == 1 or off(both @ (both.T @ torch.cos(at)), torch.cos(at)) > 0.1


@pytest.mark.parametrize("n, count", [BY_WAVES, BY_BLOCKS, BY_TRANSFORM])
def test_a_wave_goes_below_the_count_and_passes_from_it_on(n, count):
    for k in (0, 1, count - 1):
        assert high_passed(wave(n, k), count).abs().max().item() < 1e-11
    for k in (count, count + 1, n // 2):
        assert off(high_passed(wave(n, k), count), wave(n, k)) < 1e-11


@pytest.mark.parametrize("n, count", [BY_WAVES, BY_BLOCKS, BY_TRANSFORM])
def test_orthogonal_projection(n, count):
    """F(F(x)) = F(x) and ⟨Fu, v⟩ = ⟨u, Fv⟩."""
    u, v = noise(2, n)
    assert off(high_passed(high_passed(u, count), count), high_passed(u, count)) < 1e-12
    assert (high_passed(u, count) @ v).item() == approx((u @ high_passed(v, count)).item(), rel=1e-12)


def test_none_one_and_all():
    """No frequency: x itself. One: the mean goes. All, for odd and even n: nothing is left, not even rounding."""
    x = noise(7)
    assert high_passed(x, 0) is x
    assert torch.equal(high_passed(x, 1), x - x.mean())
    for n in (1, 2, 7, 8):
        assert high_passed(noise(n), n // 2 + 1).tolist() == [0.0] * n


# Company, views, traces


@pytest.mark.parametrize("n, count", [BY_WAVES, BY_BLOCKS, BY_TRANSFORM])
def test_a_vector_has_one_answer_in_any_company(n, count):
    """[n], [C, n], [C, L, n], and slices of a longer vector, which do not lie one behind the other."""
    x = noise(2, 3, n)
    alone = torch.stack([torch.stack([high_passed(v, count) for v in rows]) for rows in x])
    assert off(high_passed(x, count), alone) < 1e-13
    assert off(high_passed(x[:, 0], count), alone[:, 0]) < 1e-13
    wide = torch.cat([noise(2, 5), x[:, 1], noise(2, 9)], dim=-1)
    assert off(high_passed(wide[:, 5:-9], count), alone[:, 1]) < 1e-13
    assert off(high_passed(x.transpose(0, 1), count), alone.transpose(0, 1)) < 1e-13


@pytest.mark.parametrize("n, count", [BY_WAVES, BY_BLOCKS, BY_TRANSFORM])
@pytest.mark.parametrize("mode", ["real", "fake"])
def test_a_trace_holds_constants_and_does_not_make_them(n, count, mode):
    """What is traced when nothing is prepared reads constants: no node makes, moves or fills one."""
    projection.cache_clear()
    x, y = noise(2, n), noise(2, n).flip(0)
    traced = make_fx(lambda v: high_passed(v, count), tracing_mode=mode)(x)
    made = {"arange", "_to_copy", "lift_fresh_copy", "clone", "cos", "sin", "_linalg_svd"}
    assert not made & {str(node.target).split(".")[1] for node in traced.graph.nodes if node.op == "call_function"}
    assert off(traced(y), by_transform(y, count)) < 1e-12
    assert off(high_passed(y, count), by_transform(y, count)) < 1e-12, "nothing of the trace is left behind"


@pytest.mark.parametrize("n, count", [BY_WAVES, BY_BLOCKS, BY_TRANSFORM])
def test_it_can_be_mapped_and_derived(n, count):
    """vmap gives what the batch gives; the derivative of ⟨Fx, w⟩ is Fw, as F is linear and symmetric."""
    projection.cache_clear()
    with torch.inference_mode():
        high_passed(noise(n), count)  # constants made here serve outside as well
    x, w = noise(2, n), noise(2, n).flip(-1)
    assert off(vmap(lambda v: high_passed(v, count))(x), by_transform(x, count)) < 1e-12
    slope = vmap(grad(lambda v, u: (high_passed(v, count) * u).sum()))(x, w)
    assert off(slope, by_transform(w, count)) < 1e-12
    (high_passed(x.requires_grad_(), count) * w).sum().backward()
    assert off(x.grad, by_transform(w, count)) < 1e-12


# Which form


def test_the_form_is_the_cheap_one():
    """Few waves by products, long vectors in blocks, primes and halves of the spectrum by the transform."""
    for n, ratio, kind in [
        (512, 0.01, Waves), (1024, 0.05, Waves), (36864, 0.01, Blocks), (147456, 0.05, Blocks), (614400, 0.05, Blocks),
        (9973, 0.05, type(None)), (20011, 0.05, type(None)), (4608, 0.5, type(None)), (36864, 0.5, type(None)),
    ]:  # fmt: skip
        assert isinstance(projection(n, cut(ratio, n), torch.float32, CPU), kind), (n, ratio)
    assert projection(36864, 184, torch.bfloat16, CPU) is None


def test_a_gpu_takes_products_as_long_as_waves_are_few():
    """2304 · 113 = 260 thousand numbers are few, 36864 · 1841 = 68 million are not."""
    assert cheapest(2304, 57, 64, 13, cpu=False) == "waves"
    assert cheapest(36864, 921, 64, 13, cpu=False) == "transform"


def test_blocks_divide():
    """The nearest divisor by ratio: 64 of 4608 = 2⁹ 3², 45 or 75 of 10125 = 3⁴ 5³ (64/45 > 75/64), none of a prime."""
    assert (block(4608, 64), block(10125, 64), block(9973, 64), block(2 * 9973, 64)) == (64, 75, 1, 1)


def test_the_whole_transform_is_the_definition_of_highpass():
    """Bit for bit, for every count of odd and even lengths."""
    for n in (1, 2, 9, 10, 501):
        x = noise(2, n)
        for count in range(n // 2 + 2):
            ratio = min(1.0, (count + 0.5) / (n // 2 + 1))
            assert torch.equal(by_transform(x, count), HighPass(ratio).definition(x)), (n, count)


def test_highpass_is_all_but_the_lowest():
    """HighPass(0.05) takes ⌊0.05 · 18433⌋ = 921 of the frequencies of 36864 numbers."""
    x = noise(2, 36864)
    assert torch.equal(HighPass(0.05)(x), high_passed(x, 921))


def test_constants_that_a_graph_reads_are_kept_and_others_make_room(monkeypatch):
    """The second is made while a graph is captured: it is the same one after many others, the first is a new one."""
    made = []

    @constants(2)
    def tensor(value):
        made.append(value)
        return torch.tensor([value])

    tensor(1)
    with monkeypatch.context() as captured:
        captured.setattr(torch.cuda, "is_initialized", lambda: True)
        captured.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
        kept = tensor(2)
    for value in range(3, 9):
        tensor(value)
    assert tensor(2) is kept and made.count(2) == 1
    tensor(1)
    assert made.count(1) == 2
