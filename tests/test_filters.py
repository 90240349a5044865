"""Filters: linear projections and their controls, each held against its definition."""

from dataclasses import FrozenInstanceError, replace
from fractions import Fraction
from math import ceil, pi

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pytest import approx
from quadratics import vector
from scipy.ndimage import gaussian_filter1d
from torch import Tensor

from fednb import filters
from fednb.core.vectors import Layout, norm, unit
from fednb.filters import (
    Centralize,
    ClipToMedian,
    Filter,
    GaussianDetrend,
    HighPass,
    LocalAverage,
    LowPass,
    MeanOnly,
    NormMatched,
    Permuted,
    Plane,
    RandomBand,
    Rescale,
    cut,
)
from fednb.filters.fast.vector import Blocks, Waves, projection

KERNEL = (4, 3, 3, 3)  # the shape of a small convolution: 108 numbers

ALL = [
    HighPass(0.2),
    LowPass(0.2),
    RandomBand(0.2, seed=3),
    LocalAverage(5),
    GaussianDetrend(2.0),
    Plane(0.05),
    Permuted(HighPass(0.2), "3210"),
    Permuted(HighPass(0.2), "random", seed=1),
    Rescale(0.5),
    ClipToMedian(2.0),
    Centralize(),
    MeanOnly(0.2),
    NormMatched(HighPass(0.2)),
    NormMatched(Plane(0.3), "layer"),
]
PROJECTIONS = [
    HighPass(0.2),
    MeanOnly(0.2),
    LowPass(0.2),
    RandomBand(0.2, seed=3),
    Plane(0.3),
    Permuted(HighPass(0.2), "2031"),
    Centralize(),
]
LINEAR = [*PROJECTIONS, LocalAverage(5), GaussianDetrend(2.0), Permuted(LocalAverage(5), "random")]
KILL_CONSTANTS = [
    HighPass(0.2),
    MeanOnly(0.2),
    NormMatched(HighPass(0.2)),
    LocalAverage(5),
    GaussianDetrend(2.0),
    Plane(0.05),
    Permuted(HighPass(0.2)),
    Centralize(),
]


def noise(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def close(x: Tensor, y: Tensor, atol: float = 1e-12) -> bool:
    return torch.allclose(x, y, atol=atol, rtol=0)


@st.composite
def cuts(draw):
    """A length n, a count of frequencies c, and a ratio in the middle of those that cut exactly c."""
    n = draw(st.integers(1, 300))
    count = draw(st.integers(0, n // 2 + 1))
    return n, count, min(1.0, (count + 0.5) / (n // 2 + 1))


quick = settings(max_examples=60, deadline=None)


def spectrum(x: Tensor) -> np.ndarray:
    """The two-sided transform, by numpy."""
    return np.fft.fft(x.numpy())


def removed(filter: Filter, n: int) -> list[int]:
    """Which of the ⌊n/2⌋ + 1 frequencies a filter takes from white noise."""
    x = noise(n, seed=n)
    before, after = (np.abs(spectrum(v))[: n // 2 + 1] for v in (x, filter(x)))
    assert (before > 1e-6).all()
    return np.flatnonzero(after < 1e-9 * before.max()).tolist()


# Definitions, and the fast forms behind them


LENGTHS = [1, 2, 3, 4, 5, 8, 37, 108, 198, 199, 405, 512, 1009, 2303, 2304, 9973, 36864, 147456]  # 1009, 9973: prime
RATIOS = [0.0, 0.005, 0.01, 0.05, 0.29, 0.5, 0.9, 0.99, 1.0]


def agree(filter: HighPass | GaussianDetrend, x: Tensor) -> bool:
    """Whether call and definition are the definition in double precision, as near as rounding lets them.

    Single: 1e-6 of the norm of x, 8 ε; rounding in a transform adds up to about ε √log₂ n, 4 ε at 150 thousand numbers.
    Double: 1e-13, 450 ε; there and back without any zeros loses up to 160 ε where n has a prime factor above 100.
    """
    most = {torch.float32: 1e-6, torch.float64: 1e-13}[x.dtype] * norm(x.double())
    wanted = filter.definition(x.double())
    both = filter(x), filter.definition(x)
    assert all(y.shape == x.shape and y.dtype == x.dtype for y in both)
    return all(bool((norm(y.double() - wanted) <= most).all()) for y in both)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("n", LENGTHS)
def test_highpass_is_its_definition(n, dtype):
    """Transform, zeros, transform back: alone, in a stack of clients, and in one with another axis."""
    for ratio in RATIOS:
        for clients in ((), (3,), (2, 3)) if n < 100_000 else ((2,),):
            assert agree(HighPass(ratio), noise(*clients, n, seed=n).to(dtype)), (ratio, clients)


@quick
@given(cuts())
def test_highpass_is_its_definition_at_every_cut(case):
    n, _, ratio = case
    assert agree(HighPass(ratio), noise(2, n, seed=n)) and agree(HighPass(ratio), noise(2, n, seed=n).float())


def test_every_form_of_highpass_is_held_against_the_definition():
    """Lengths and ratios above have a form each: products with waves, with blocks, or the whole transform."""
    counts = ((n, cut(ratio, n)) for n in LENGTHS for ratio in RATIOS)
    forms = {type(projection(n, c, torch.float32, torch.device("cpu"))) for n, c in counts if 2 <= c <= n // 2}
    assert forms == {Waves, Blocks, type(None)}


@pytest.mark.parametrize("n", [1, 2, 3, 4, 7, 10])
@pytest.mark.parametrize("ratio", [0.0, 0.2, 0.5, 0.8, 1.0])
def test_the_definition_of_highpass_in_sums(n, ratio):
    """x_j = (1/n) Σ_f X_f e^{2πi fj/n} over the frequencies f and −f that stay, X_f = Σ_j x_j e^{−2πi fj/n}."""
    x = noise(n, seed=n)
    wave = np.exp(2j * pi * np.outer(np.arange(n), np.arange(n)) / n)
    folded = np.minimum(np.arange(n), n - np.arange(n))
    stays = folded >= int(ratio * (n // 2 + 1))
    wanted = (wave[:, stays] @ (wave.conj().T @ x.numpy())[stays]).real / n
    assert close(HighPass(ratio).definition(x), torch.from_numpy(wanted), atol=1e-13)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("n", [1, 2, 3, 31, 32, 33, 64, 1000, 5000])
def test_gaussian_detrend_is_its_definition(n, dtype):
    """A convolution, however the fast form cuts vectors into pieces of 32 to 1024 numbers."""
    for sigma in (0.3, 2.0, 5.3, 8.1, 40.0):
        for clients in ((), (3,), (2, 3)):
            assert agree(GaussianDetrend(sigma), noise(*clients, n, seed=n).to(dtype)), (sigma, clients)


# What the papers' filters have in common


@pytest.mark.parametrize("filter", LINEAR, ids=repr)
def test_linear(filter):
    """F(2u − 3v) = 2 F(u) − 3 F(v)."""
    u, v = noise(108, seed=1), noise(108, seed=2)
    assert close(filter(2 * u - 3 * v, KERNEL), 2 * filter(u, KERNEL) - 3 * filter(v, KERNEL))


@pytest.mark.parametrize("filter", PROJECTIONS, ids=repr)
def test_orthogonal_projection(filter):
    """F(F(x)) = F(x) ≠ x, ⟨Fu, v⟩ = ⟨u, Fv⟩, so that ‖x‖² = ‖Fx‖² + ‖x − Fx‖²."""
    u, v = noise(108, seed=1), noise(108, seed=2)
    once = filter(u, KERNEL)
    assert not close(once, u, atol=1e-3)
    assert close(filter(once, KERNEL), once)
    assert (once @ v).item() == approx((u @ filter(v, KERNEL)).item(), abs=1e-12)
    assert (once @ once + (u - once) @ (u - once)).item() == approx((u @ u).item(), rel=1e-12)


@pytest.mark.parametrize("filter", ALL, ids=repr)
def test_sign_flip(filter):
    """F(−x) = −F(x), also for those that are not linear."""
    x = noise(108)
    assert close(filter(-x, KERNEL), -filter(x, KERNEL))


@pytest.mark.parametrize("filter", KILL_CONSTANTS, ids=repr)
def test_constants_are_removed(filter):
    """A constant is all lowest frequency: F(7 · 1) = 0."""
    assert close(filter(torch.full((108,), 7.0, dtype=torch.float64), KERNEL), torch.zeros(108, dtype=torch.float64))


@pytest.mark.parametrize("filter", ALL, ids=repr)
@pytest.mark.parametrize("shape", [KERNEL, (5, 7), (11,), (1,)], ids=str)
def test_a_stack_of_clients_is_filtered_one_by_one(filter, shape):
    x = noise(3, int(np.prod(shape)))
    assert close(filter(x, shape), torch.stack([filter(row, shape) for row in x]), atol=1e-14)
    deeper = x.expand(2, *x.shape)
    assert close(filter(deeper, shape), filter(x, shape).expand_as(deeper), atol=1e-14)


@pytest.mark.parametrize("filter", ALL, ids=repr)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_shape_and_dtype_are_kept_and_the_input_is_not_touched(filter, dtype):
    """107 is odd: the inverse transform must be told."""
    for n, shape in ((108, KERNEL), (107, (107,))):
        x = noise(2, n).to(dtype)
        before = x.clone()
        y = filter(x, shape)
        assert (y.shape, y.dtype) == (x.shape, dtype)
        assert torch.equal(x, before)


@pytest.mark.parametrize("filter", [f for f in ALL if not f.whole], ids=repr)
def test_a_single_number_passes_unchanged(filter):
    """numel = 1 has one frequency, and ⌊ratio · 1⌋ = 0 for every ratio below 1."""
    assert filter(vector(3.0), (1,)).tolist() == [3.0]


@pytest.mark.parametrize("filter", [*ALL, HighPass(0.01), Permuted(HighPass(0.01)), RandomBand(0.0)], ids=repr)
@pytest.mark.parametrize("shape", [(22, 1, 3, 3), (2, 11, 3, 3), (197,), (1,)], ids=str)
def test_what_a_filter_calls_idle_passes_unchanged(filter, shape):
    """0.01 of 100 frequencies is one, of 99 none: 197 numbers are idle, 198 are not."""
    n = int(np.prod(shape))
    if filter.idle(n):
        assert torch.equal(filter(noise(n), shape), noise(n))
    if filter in (HighPass(0.01), Permuted(HighPass(0.01))):
        assert filter.idle(n) == (n < 198)


@pytest.mark.parametrize("filter", [f for f in ALL if not f.whole], ids=repr)
def test_layers_give_the_same_together_as_alone(filter):
    """Two kernels of one shape, a third of the same size and another shape, and vectors between them."""
    layout = Layout(("a", "b", "c", "d", "e"), (KERNEL, (5,), KERNEL, (3, 4, 3, 3), (5,)))
    x = noise(2, layout.total)
    alone = [filter(piece, shape) for piece, shape in zip(layout.layers(x).values(), layout.shapes, strict=True)]
    assert close(layout.map(filter, x), torch.cat(alone, dim=-1), atol=1e-14)


# Bands of the real transform


@quick
@given(st.floats(-1e3, 1e3), st.floats(0.0, 1.0, exclude_max=True))
def test_highpass_of_a_single_number_is_the_identity_below_one(number, ratio):
    """n = 1 has one frequency, and ⌊ratio · 1⌋ = 0."""
    x = vector(number)
    assert torch.equal(HighPass(ratio)(x), x)
    assert HighPass(1.0)(x).tolist() == [0.0]


def test_the_cut_is_the_definition():
    """⌊p/100 · (⌊n/2⌋ + 1)⌋ coefficients wherever the product is not a whole number; there the double decides.

    0.29 is a little less than 29/100 as a double, so 0.29 of 100 frequencies are 28, as in anybody's `int(r * n)`.
    """
    for p in range(101):
        for n in (*range(1, 700), 4998, 36864):
            exact, rest = divmod(p * (n // 2 + 1), 100)
            assert filters.cut(p / 100, n) in ((exact,) if rest else (exact, exact - 1)), (p, n)
    assert (filters.cut(0.29, 198), filters.cut(0.7, 178), filters.cut(0.05, 38)) == (28, 62, 1)


@pytest.mark.parametrize("ratio", [0.01, 0.05, 0.2, 0.5, 0.99, 1.0])
@pytest.mark.parametrize("n", [1, 2, 3, 4, 9, 10, 37, 38, 197, 198, 199, 400])
def test_bands_remove_as_many_frequencies_as_the_definition_says(ratio, n):
    """HighPass the first, LowPass the last, RandomBand any: always ⌊ratio · (⌊n/2⌋ + 1)⌋ of them."""
    bins = n // 2 + 1
    count = Fraction(str(ratio)) * bins // 1
    assert removed(HighPass(ratio), n) == list(range(count))
    assert removed(LowPass(ratio), n) == list(range(bins - count, bins))
    assert len(removed(RandomBand(ratio), n)) == count


@pytest.mark.parametrize("n, untouched", [(196, True), (197, True), (198, False), (199, False)])
def test_fedffts_ratio_needs_198_numbers(n, untouched):
    """0.01 · (⌊n/2⌋ + 1) reaches 1 at n = 198 (specs 2.13)."""
    x = noise(n)
    assert torch.equal(HighPass(0.01)(x), x) == untouched


def test_highpass_by_hand():
    """n = 4 has 3 frequencies. Half of them: ⌊1.5⌋ = 1, the mean goes. (1, 2, 3, 6) has mean 3.

    At 0.7, ⌊2.1⌋ = 2 go and only the alternating one stays: (1 − 2 + 3 − 6) / 4 = −1.
    """
    x = vector(1, 2, 3, 6)
    assert HighPass(0.5)(x).tolist() == approx([-2, -1, 0, 3])
    assert HighPass(0.7)(x).tolist() == approx([-1, 1, -1, 1])
    assert HighPass(1.0)(x).tolist() == [0, 0, 0, 0]


def test_lowpass_by_hand():
    """At 0.7 LowPass leaves the mean of (1, 2, 3, 6) alone, at 0.5 it takes the alternating (−1, 1, −1, 1) away."""
    x = vector(1, 2, 3, 6)
    assert LowPass(0.7)(x).tolist() == approx([3, 3, 3, 3])
    assert LowPass(0.5)(x).tolist() == approx([2, 1, 4, 5])


@quick
@given(cuts())
def test_highpass_and_its_mirror_share_the_spectrum(case):
    """What HighPass keeps of c removed and what LowPass keeps of bins − c removed are all of x."""
    n, count, ratio = case
    bins = n // 2 + 1
    x, rest = noise(n, seed=n), LowPass(min(1.0, (bins - count + 0.5) / bins))
    assert close(HighPass(ratio)(x) + rest(x), x)


@quick
@given(cuts())
def test_highpass_keeps_the_energy_of_the_kept_frequencies(case):
    """Parseval: ‖Fx‖² = (1/n) Σ |X_f|² over the kept |f|; each counts twice but 0 and, for even n, the last."""
    n, count, ratio = case
    x = noise(n, seed=n)
    energy = np.abs(spectrum(x)) ** 2
    folded = np.minimum(np.arange(n), n - np.arange(n))
    kept = energy[folded >= count].sum() / n
    assert norm(HighPass(ratio)(x)).item() ** 2 == approx(kept, rel=1e-10, abs=1e-12)


@quick
@given(cuts())
def test_highpass_is_zero_mean_once_anything_is_cut(case):
    """And the identity, bit for bit, as long as nothing is; the length stays, odd or even."""
    n, count, ratio = case
    x = noise(n, seed=n) + 5
    y = HighPass(ratio)(x)
    assert y.shape == (n,)
    if count:
        assert y.mean().item() == approx(0.0, abs=1e-12)
    else:
        assert torch.equal(y, x)


@quick
@given(st.integers(8, 200), st.integers(0, 1000))
def test_bands_are_self_adjoint_at_any_length(n, seed):
    u, v = noise(n, seed=seed), noise(n, seed=seed + 1)
    for filter in (HighPass(0.3), LowPass(0.3), RandomBand(0.3, seed=seed)):
        assert (filter(u) @ v).item() == approx((u @ filter(v)).item(), abs=1e-10)
        assert close(filter(filter(u)), filter(u))


@pytest.mark.parametrize("filter", [HighPass(0.2), LowPass(0.2), LocalAverage(5), GaussianDetrend(2.0)], ids=repr)
def test_the_flattening_order_matters(filter):
    """F(Πx) ≠ Π F(x): neighbours in memory are what a frequency is made of."""
    x, order = noise(108), torch.from_numpy(np.random.default_rng(0).permutation(108))
    assert not close(filter(x[order]), filter(x)[order], atol=1e-2)


def test_removing_the_mean_alone_does_not_depend_on_the_order():
    """With one frequency cut the filter is x − mean, the one case in which the order is nothing."""
    x, order = noise(19), torch.from_numpy(np.random.default_rng(0).permutation(19))
    one = HighPass(0.1)  # ⌊0.1 · 10⌋ = 1
    assert close(one(x), x - x.mean())
    assert close(one(x[order]), one(x)[order])


def test_random_band_is_a_function_of_its_seed():
    """Fixed by seed and length; over many seeds every frequency is taken about as often as any other."""
    assert removed(RandomBand(0.2, seed=5), 101) == removed(RandomBand(0.2, seed=5), 101)
    assert removed(RandomBand(0.2, seed=5), 101) != removed(RandomBand(0.2, seed=6), 101)
    taken = np.zeros(11)
    for seed in range(300):
        taken[RandomBand(0.5, seed=seed).removed(20)] += 1
    assert taken.sum() == 300 * 5
    assert taken.min() > 90, "each of 11 is expected 136 times, give or take 9"


# Smoothing filters


def test_local_average_by_hand():
    """Kernel 3, ends repeated: averages of (1, 2, 3, 6, 8) are (4/3, 2, 11/3, 17/3, 22/3)."""
    assert (3 * LocalAverage(3)(vector(1, 2, 3, 6, 8))).tolist() == approx([-1, 0, -2, 1, 2])


def test_local_average_of_a_line_is_zero_inside():
    """A line is its own moving average where the kernel does not reach the ends, so 1-D trends go, not only means."""
    y = LocalAverage(5)(torch.arange(20, dtype=torch.float64))
    assert close(y[2:-2], torch.zeros(16, dtype=torch.float64))
    assert y[:2].tolist() == approx([-3 / 5, -1 / 5])


@pytest.mark.parametrize("n", [2, 10, 17])
def test_local_average_of_a_short_layer_takes_its_mean(n):
    """A layer no longer than the kernel loses its mean, as with one frequency cut."""
    x = noise(n)
    assert close(LocalAverage(17)(x), x - x.mean())


def test_gaussian_detrend_by_hand():
    """Kernel of σ = 1 cut at 1σ: weights e^−½, 1, e^−½ over their sum; an impulse leaves 1 − centre and −side."""
    side = np.exp(-0.5) / (1 + 2 * np.exp(-0.5))
    y = GaussianDetrend(sigma=1.0, truncate=1.0)(vector(0, 0, 1, 0, 0))
    assert y.tolist() == approx([0, -side, 2 * side, -side, 0])


@pytest.mark.parametrize("n", [2, 31, 32, 33, 64, 1000, 5000])
@pytest.mark.parametrize("sigma", [0.3, 2.0, 5.3, 8.1, 400.0])
def test_gaussian_detrend_is_a_convolution(n, sigma):
    """However vectors are cut into pieces: SciPy's filter, which repeats ends and normalises as we do."""
    x = noise(3, n)
    wanted = x - torch.from_numpy(gaussian_filter1d(x.numpy(), sigma, mode="nearest", radius=ceil(4 * sigma)))
    assert close(GaussianDetrend(sigma)(x), wanted)


@pytest.mark.parametrize("n", [2, 5, 40])
def test_gaussian_detrend_reaches_beyond_short_layers(n):
    """Ends are repeated as far as the kernel reaches, 22 numbers: a constant still becomes zero."""
    assert close(GaussianDetrend()(torch.full((n,), 3.0, dtype=torch.float64)), torch.zeros(n, dtype=torch.float64))


def passed(filter: Filter, frequency: float, n: int = 2001) -> float:
    """How much of a sine passes, measured far from the ends."""
    at = torch.arange(n, dtype=torch.float64) - n // 2
    wave = torch.cos(2 * pi * frequency * at)
    return (filter(wave)[n // 2] / wave[n // 2]).item()


@pytest.mark.parametrize("filter", [LocalAverage(), GaussianDetrend()], ids=repr)
def test_smoothers_half_power_lies_at_the_edge_of_specgradfilters_cut(filter):
    """HighPass(0.05) ends at 0.05 · ½ = 0.025 cycles per weight. There the smooth copy has power ½ (within 10%).

    Below it the filter takes more, above less; at a fifth of the edge nearly everything goes.
    """
    power = {f: (1 - passed(filter, f)) ** 2 for f in (0.005, 0.02, 0.0235, 0.0275, 0.03)}
    assert power[0.0235] > 0.5 > power[0.0275]
    assert power[0.02] > 0.6
    assert power[0.03] < 0.4
    assert passed(filter, 0.005) < 0.05


def test_highpass_edge_on_sines():
    """n = 2000 has 1001 frequencies; ⌊50.05⌋ = 50 go, 0 to 49 whole turns: 49 is taken, 50 (0.025 a weight) passes."""
    at = torch.arange(2000, dtype=torch.float64)
    below, above = (torch.sin(2 * pi * turns / 2000 * at) for turns in (49, 50))
    assert norm(HighPass(0.05)(below)).item() < 1e-10
    assert close(HighPass(0.05)(above), above)


def test_gaussian_response_is_a_gaussian():
    """1 − exp(−2π²σ²f²), up to what lies beyond 4σ."""
    for f in (0.01, 0.05, 0.1):
        assert passed(GaussianDetrend(3.0), f) == approx(1 - np.exp(-2 * (pi * 3.0 * f) ** 2), abs=1e-3)


# Kernels


def test_plane_takes_exactly_the_mean_of_a_3x3_kernel():
    """⌊0.05 · 3 · 2⌋ = 0, but at least the mean goes; nothing else does."""
    x = noise(108)
    kernels = x.view(4, 3, 3, 3)
    assert close(Plane(0.05)(x, KERNEL), (kernels - kernels.mean((2, 3), keepdim=True)).reshape(-1))


@pytest.mark.parametrize("height, width", [(3, 3), (5, 5), (2, 2), (3, 4), (7, 7), (1, 3)])
@pytest.mark.parametrize("ratio", [0.05, 0.3, 0.5, 0.9])
def test_plane_is_a_real_projection_on_any_kernel(height, width, ratio):
    """Removing whole circles of frequencies leaves kernels real: the two-sided transform has no imaginary remainder."""
    shape = (2, 3, height, width)
    u, v = noise(6 * height * width, seed=1), noise(6 * height * width, seed=2)
    once = Plane(ratio)(u, shape)
    assert close(Plane(ratio)(once, shape), once)
    assert (once @ v).item() == approx((u @ Plane(ratio)(v, shape)).item(), abs=1e-12)
    before = np.fft.fft2(u.view(shape).numpy())
    after = np.fft.fft2(once.view(shape).numpy())
    gone = np.abs(after) < 1e-10
    assert gone[..., 0, 0].all()
    assert (gone == gone[0, 0]).all(), "every kernel loses the same frequencies"
    assert np.allclose(after[~gone], before[~gone], atol=1e-12), "and keeps the others as they were"


def test_plane_removes_low_frequencies_first():
    """5x5 has 15 frequencies; ⌊0.3 · 15⌋ = 4: (0,0), then length 0.2: (±1, 0) and (0, ±1). Diagonals stay."""
    after = np.fft.fft2(Plane(0.3)(noise(25), (1, 1, 5, 5)).view(5, 5).numpy())
    gone = {(int(y), int(x)) for y, x in np.argwhere(np.abs(after) < 1e-10)}
    assert gone == {(0, 0), (0, 1), (0, 4), (1, 0), (4, 0)}


def test_plane_at_zero_does_nothing_and_at_one_takes_all():
    x = noise(108)
    assert torch.equal(Plane(0.0)(x, KERNEL), x)
    assert close(Plane(1.0)(x, KERNEL), torch.zeros(108, dtype=torch.float64))


@pytest.mark.parametrize("shape", [(12, 9), (108,), (54, 2, 1, 1), None], ids=str)
def test_plane_without_a_kernel_is_highpass(shape):
    """Linear layers, vectors and 1x1 convolutions: ⌊0.2 · 55⌋ = 11 frequencies of the flat layer."""
    assert close(Plane(0.2)(noise(108), shape), HighPass(0.2)(noise(108)))


# Flattening orders


@pytest.mark.parametrize("inner", [HighPass(0.2), LowPass(0.1), LocalAverage(5), GaussianDetrend(2.0)], ids=repr)
def test_memory_order_is_the_filter_itself(inner):
    assert torch.equal(Permuted(inner, "0123")(noise(108), KERNEL), inner(noise(108), KERNEL))


@pytest.mark.parametrize("order", ["3210", "2301", "1023", "0132"])
def test_an_order_is_permute_flatten_filter_and_back(order):
    """Axes from slowest to fastest; the inverse of a permutation puts every number back in its place."""
    axes = [int(i) for i in order]
    turned = noise(108).view(KERNEL).permute(axes)
    wanted = HighPass(0.2)(turned.reshape(-1)).view(turned.shape).permute(np.argsort(axes).tolist()).reshape(-1)
    assert close(Permuted(HighPass(0.2), order)(noise(108), KERNEL), wanted, atol=1e-15)
    assert not close(wanted, HighPass(0.2)(noise(108)), atol=1e-2)


@pytest.mark.parametrize("shape", [(12, 9), (108,)], ids=str)
def test_other_layers_keep_memory_order(shape):
    assert torch.equal(Permuted(HighPass(0.2), "3210")(noise(108), shape), HighPass(0.2)(noise(108)))


def test_random_order_is_a_function_of_its_seed():
    """The same order whenever it is asked for and for every layer of that length, whatever its shape."""
    x = noise(108)
    first = Permuted(HighPass(0.2), "random", seed=1)(x, KERNEL)
    assert torch.equal(Permuted(HighPass(0.2), "random", seed=1)(x, (12, 9)), first)
    assert not close(Permuted(HighPass(0.2), "random", seed=2)(x, KERNEL), first, atol=1e-2)
    assert not close(HighPass(0.2)(x), first, atol=1e-2)


def test_random_order_removes_as_much():
    """A permutation is orthogonal, so the projection keeps its rank: the trace is 108 − (1 + 2 · 10) for 11 of 55."""
    filter = Permuted(HighPass(0.2), "random")
    assert filter(torch.eye(108, dtype=torch.float64), (108,)).trace().item() == approx(108 - 21)


@pytest.mark.parametrize("inner", [Plane(0.05), Centralize(), Rescale(0.5), HighPass(0.2, where="fc.*")], ids=repr)
def test_permuted_does_not_turn_a_filter_into_another(inner):
    """One that needs the layer's shape, the whole model, or its own layers would lose that: it is refused by name."""
    with pytest.raises(ValueError, match=rf"filter = {type(inner).__name__}\(.*only a filter of one flat layer"):
        Permuted(inner, "3210")


# Controls


def test_rescale_by_hand():
    """(3, 4) has length 5: at radius 1 it becomes (0.6, 0.8), at radius 6 it stays, at radius 0 it vanishes."""
    assert Rescale(1.0)(vector(3, 4)).tolist() == approx([0.6, 0.8])
    assert Rescale(6.0)(vector(3, 4)).tolist() == [3, 4]
    assert Rescale(0.0)(vector(3, 4)).tolist() == [0, 0]
    assert Rescale(1.0)(vector(0, 0)).tolist() == [0, 0]


@quick
@given(st.integers(0, 10**6), st.floats(1e-4, 1e4), st.floats(1e-3, 10.0))
def test_rescale_does_nothing_to_a_sam_perturbation(seed, size, rho):
    """‖ρ g / (‖g‖ + 1e-7)‖ < ρ: FedFFT's "L2-norm rescaling" row is FedSAM."""
    delta = rho * unit(size * noise(20, seed=seed))
    assert torch.equal(Rescale(rho)(delta), delta) or close(Rescale(rho)(delta) / rho, delta / rho, atol=1e-15)


def test_rescale_sees_the_whole_vector():
    """Two layers (3) and (4) together have length 5; layer by layer each would be cut to 1."""
    layout = Layout(("a", "b"), ((1,), (1,)))
    assert layout.map(Rescale(1.0), vector(3, 4)).tolist() == approx([0.6, 0.8])
    assert layout.map(Rescale(1.0, where="b"), vector(3, 4)).tolist() == approx([3, 1])


def test_clip_to_median_by_hand():
    """Magnitudes 1, 2, 3, 10, 20 have median 3; at 2 medians everything beyond ±6 is cut."""
    assert ClipToMedian(2.0)(vector(1, -2, 3, -10, 20)).tolist() == [1, -2, 3, -6, 6]


def test_clip_to_median_has_each_clients_and_layers_own_median():
    x = torch.stack([vector(1, 1, 9), vector(10, 10, 90)])
    assert ClipToMedian(3.0)(x).tolist() == [[1, 1, 3], [10, 10, 30]]
    layout = Layout(("a", "b"), ((3,), (3,)))
    assert layout.map(ClipToMedian(3.0), vector(1, 1, 9, 10, 10, 90)).tolist() == [1, 1, 3, 10, 10, 30]


def test_clip_to_median_leaves_mostly_zero_layers_alone():
    """The median of (0, 0, 5) is zero: there is no scale to clip at."""
    assert ClipToMedian(3.0)(vector(0, 0, 5)).tolist() == [0, 0, 5]


def test_three_medians_are_two_standard_deviations():
    """The median of |N(0, 1)| is 0.6745, three are 2.02: 4.3% of a Gaussian lie beyond."""
    x = noise(100_000)
    share = (ClipToMedian()(x) != x).double().mean().item()
    assert share == approx(0.043, abs=0.003)


@pytest.mark.parametrize("shape", [KERNEL, (12, 9)], ids=str)
def test_centralize_takes_one_number_per_output(shape):
    """The mean over all axes but the first is zero, and what was taken is that mean."""
    x = noise(108)
    y = Centralize()(x, shape)
    rows, before = y.view(shape[0], -1), x.view(shape[0], -1)
    assert rows.mean(1).abs().max().item() < 1e-15
    assert close(before - rows, before.mean(1, keepdim=True).expand_as(before))


@pytest.mark.parametrize("shape", [(108,), None], ids=str)
def test_centralize_leaves_vectors_alone(shape):
    assert torch.equal(Centralize()(noise(108), shape), noise(108))


@pytest.mark.parametrize("n", [10, 11, 300])
def test_mean_only_takes_the_first_of_the_frequencies_that_highpass_takes(n):
    """x − mean, in any order of the weights, and nothing from a layer of which HighPass takes nothing."""
    x, order = noise(n), torch.from_numpy(np.random.default_rng(0).permutation(n))
    assert close(MeanOnly(0.2)(x), x - x.mean()) and removed(MeanOnly(0.2), n) == [0]
    assert close(MeanOnly(0.2)(x[order]), MeanOnly(0.2)(x)[order])
    assert torch.equal(MeanOnly(0.9 / (n // 2 + 1))(x), x)


def test_norm_matched_by_hand():
    """(1, 2, 3, 6) has length √50 and, without its mean 3, √14: every number times √(14/50)."""
    x = vector(1, 2, 3, 6)
    assert NormMatched(HighPass(0.5))(x).tolist() == approx([(14 / 50) ** 0.5 * v for v in (1, 2, 3, 6)])
    assert NormMatched(HighPass(0.5))(vector(0, 0, 0, 0)).tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize("per", ["model", "layer"])
def test_norm_matched_in_two_layers(per):
    """Layers (1, 2, 3, 6) and (0, 4): HighPass(0.5) leaves √14 of √50, and (−2, 2), √8 of 4.

    The whole model has one factor, √(22/66); or each layer its own, √(14/50) and √(8/16).
    """
    layout, x = Layout(("a", "b"), ((4,), (2,))), vector(1, 2, 3, 6, 0, 4)
    one, two = ((22 / 66) ** 0.5,) * 2 if per == "model" else ((14 / 50) ** 0.5, 0.5**0.5)
    got = layout.map(NormMatched(HighPass(0.5), per), x)
    assert got.tolist() == approx([one, 2 * one, 3 * one, 6 * one, 0, 4 * two])
    assert norm(got).item() == approx(norm(layout.map(HighPass(0.5), x)).item())
    only = layout.map(NormMatched(HighPass(0.5), per, where="b"), x)
    assert only.tolist() == approx([1, 2, 3, 6, 0, 4 * 0.5**0.5])


@pytest.mark.parametrize(
    "inner", [HighPass(0.2), Centralize(), Plane(0.3), Permuted(HighPass(0.2), "random")], ids=repr
)
def test_norm_matched_has_the_filters_norm_and_its_own_direction(inner):
    """Over kernels, matrices and vectors, client by client: ‖·‖ as behind the filter, cosine 1 with the gradient."""
    layout = Layout(("conv.weight", "fc.weight", "fc.bias"), (KERNEL, (12, 9), (12,)))
    x = noise(3, layout.total)
    whole = layout.map(NormMatched(inner), x)
    assert close(norm(whole), norm(layout.map(inner, x)))
    assert close(unit(whole), unit(x), atol=1e-6)
    for name, piece in layout.layers(layout.map(NormMatched(inner, "layer"), x)).items():
        wanted = norm(layout.layers(layout.map(inner, x))[name])
        assert close(norm(piece), wanted), name
        assert close(unit(piece), unit(layout.layers(x)[name]), atol=1e-6), name


@pytest.mark.parametrize("inner, per", [(Rescale(1.0), "model"), (HighPass(where="@head"), "layer"), (0.05, "model"),
                                        (HighPass(), "tensor")])  # fmt: skip
def test_norm_matched_refuses_what_it_cannot_match(inner, per):
    with pytest.raises(ValueError, match=r"must be a filter of single layers|must be 'model' or 'layer'"):
        NormMatched(inner, per)


# Filters as values


@pytest.mark.parametrize("filter", [*ALL, HighPass(0.03, where="!fc.*"), Permuted(RandomBand(0.1, seed=2))], ids=repr)
def test_repr_is_the_filter(filter):
    """The key of a run in the store holds reprs: they must say everything."""
    again = eval(repr(filter), vars(filters).copy())
    assert again == filter
    assert repr(again) == repr(filter)


def test_filters_are_frozen_and_compare_by_value():
    assert HighPass(0.1) == HighPass(ratio=0.1) != HighPass(0.2)
    assert HighPass(0.1) != LowPass(0.1)
    assert HighPass(0.1) != HighPass(0.1, where="fc.*")
    assert len({HighPass(0.1), HighPass(0.1), replace(HighPass(0.2), ratio=0.1)}) == 1
    with pytest.raises(FrozenInstanceError):
        HighPass(0.1).ratio = 0.2


def test_short_names_tell_filters_apart():
    assert HighPass(0.05).short == "HighPass(0.05)"
    assert LocalAverage(9).short == "LocalAverage(9)"
    assert Permuted(HighPass(0.05), "random").short == "HighPass(0.05) in order random"


@pytest.mark.parametrize(
    "make, name",
    [
        (lambda: HighPass(-0.01), "ratio"),
        (lambda: HighPass(1.01), "ratio"),
        (lambda: HighPass(float("nan")), "ratio"),
        (lambda: LowPass(2.0), "ratio"),
        (lambda: RandomBand(-1.0), "ratio"),
        (lambda: Plane(1.5), "ratio"),
        (lambda: LocalAverage(4), "kernel"),
        (lambda: LocalAverage(0), "kernel"),
        (lambda: LocalAverage(-3), "kernel"),
        (lambda: LocalAverage(3.5), "kernel"),
        (lambda: GaussianDetrend(0.0), "sigma"),
        (lambda: GaussianDetrend(-1.0), "sigma"),
        (lambda: GaussianDetrend(float("nan")), "sigma"),
        (lambda: GaussianDetrend(1.0, truncate=0.0), "truncate"),
        (lambda: Permuted(order="0122"), "order"),
        (lambda: Permuted(order="012"), "order"),
        (lambda: Permuted(order="Random"), "order"),
        (lambda: Rescale(-0.1), "radius"),
        (lambda: Rescale(float("nan")), "radius"),
        (lambda: ClipToMedian(0.0), "factor"),
        (lambda: ClipToMedian(-3.0), "factor"),
        (lambda: ClipToMedian(float("nan")), "factor"),
    ],
)
def test_bad_values_name_their_field(make, name):
    """NaN, which lies neither above nor below a limit, is refused like the others."""
    with pytest.raises(ValueError, match=rf"{name} = .*must"):
        make()
