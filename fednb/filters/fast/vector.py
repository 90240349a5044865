"""The high-pass of a vector, from its lowest frequencies alone where that costs less than a whole transform.

The lowest `count` frequencies of n numbers are m = 2 count − 1 waves: the constant, cosines and sines. P, the
projection on them, comes in three forms that differ in rounding only:

    waves       P x = Q Qᵀ x with the waves as columns of Q: for short vectors and few waves
    blocks      the same in two stages, for long vectors: see `Blocks`
    transform   the whole real transform, zeros, and back: for what is left, such as lengths without divisors

The form follows from n, count, dtype and device alone, so that a vector gets the same form alone and in a batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log, pi, sqrt

import numpy as np
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import _disable_current_modes

from fednb.filters.fast.constants import constants

SMALL = {torch.float32: 1e-8, torch.float64: 1e-15}  # singular values of a block's waves that count as nothing
MOST_WAVES = 1_000_000  # numbers in Q on a GPU, up to which two products are faster (one H200, ResNet-20, 10 clients)
Inside = tuple[np.ndarray, np.ndarray]  # even and odd functions of the numbers in a block


def high_passed(x: Tensor, count: int) -> Tensor:
    """x − P x, along the last axis: x without its frequencies 0 to count − 1.

    >>> high_passed(torch.tensor([1.0, 2.0, 3.0, 6.0]), 1)   # frequency 0 is the mean
    tensor([-2., -1.,  0.,  3.])
    """
    n = x.shape[-1]
    if count == 0:
        return x
    if count > n // 2:  # all there are
        return torch.zeros_like(x)
    if count == 1:
        return x - x.mean(-1, keepdim=True)
    if isinstance(x, FakeTensor):  # a trace of shapes, which cannot hold constants
        return by_transform(x, count)
    P = projection(n, count, x.dtype, x.device)
    return by_transform(x, count) if P is None else x - P(x)


def by_transform(x: Tensor, count: int) -> Tensor:
    """x − P x by the whole real transform."""
    z = torch.fft.rfft(x)
    z[..., :count].zero_()
    return torch.fft.irfft(z, n=x.shape[-1])


@dataclass(frozen=True, eq=False)
class Waves:
    """P = Q Qᵀ, where Q `[n, m]` has orthonormal waves as columns."""

    there: Tensor
    back: Tensor

    @classmethod
    def of(cls, n: int, count: int, dtype: torch.dtype, device: torch.device) -> Waves:
        turns = np.outer(np.arange(n), np.arange(1, count)) % n * (2 * pi / n)  # whole turns off before rounding
        scale = sqrt(2 / n)
        q = np.concatenate([np.full((n, 1), sqrt(1 / n)), scale * np.cos(turns), scale * np.sin(turns)], axis=1)
        there = _constant(q, dtype, device)
        return cls(there, there.T.contiguous())  # BLAS wants it in order

    def __call__(self, x: Tensor) -> Tensor:
        return x @ self.there @ self.back


@dataclass(frozen=True, eq=False)
class Blocks:
    """P of n = a b numbers, in a blocks of b.

    Number r of block q has the place j = q b + r. There wave k is e^{2πi jk/n} = e^{2πi qk/a} e^{2πi rk/n}, and the
    second factors, functions inside a block, span nearly nothing but R ≪ b dimensions, as they turn slowly: to all
    digits that a float has, they are combinations of R orthonormal functions B `[b, R]`. Measured from the middle of
    the block, with s_r = r − (b − 1)/2,

        e^{−2πi s_r k/n} = Σ_ρ B_rρ c_ρk        c_k = Bᵀ e^{−2πi s k/n}
        u = x B  [a, R]                          what the blocks of x have of these functions
        U_h = Σ_q e^{−2πi qh/a} u_q              transforms of length a, h = 0 … ⌊a/2⌋
        V_h = (1/b) Σ_k c̄_k (c_kᵀ U_h)           over the waves |k| < count that blocks see as h: k ≡ h (mod a)
        P x = irfft(V) Bᵀ

    The functions are even, with real c, or odd, with imaginary c, so that c̄ is c with a sign: it stands in `back`.
    """

    there: Tensor  # B [b, R]
    back: Tensor  # Bᵀ [R, b], odd functions with a minus
    waves: Tensor  # c / √b [h, R, k]: for each h its waves; zero where there are fewer

    @classmethod
    def of(cls, n: int, count: int, inside: Inside, dtype: torch.dtype, device: torch.device) -> Blocks:
        even, odd = inside
        real, imaginary = wave_coefficients(n, count, inside)
        c = np.concatenate([real, -1j * imaginary], axis=1) / sqrt(len(even))
        return cls(
            _constant(np.concatenate([even, odd], axis=1), dtype, device),
            _constant(np.concatenate([even, -odd], axis=1).T, dtype, device),
            _constant(c, dtype.to_complex(), device),
        )

    def __call__(self, x: Tensor) -> Tensor:
        a, b = x.shape[-1] // len(self.there), len(self.there)
        u = torch.fft.rfft(x.reshape(-1, a, b) @ self.there, dim=-2)[:, : len(self.waves)]
        v = u.transpose(0, 1) @ self.waves @ self.waves.transpose(1, 2)
        low = torch.fft.irfft(v, n=a, dim=0).transpose(0, 1) @ self.back
        return low.reshape(x.shape)


def wave_coefficients(n: int, count: int, inside: Inside) -> tuple[np.ndarray, np.ndarray]:
    """Coefficients of waves in a block's even and odd functions B, `[h, ·, k]`: Bᵀ cos(2πsk/n) and Bᵀ sin(2πsk/n).

    For each h that blocks tell apart: the waves |k| < count with k ≡ h (mod a), and zeros where there are fewer.
    """
    b = len(inside[0])
    a = n // b
    h = np.arange(min(count, a // 2 + 1))[:, None]
    k = h + a * np.arange(-((count - 1 + len(h) - 1) // a), (count - 1) // a + 1)
    angle = np.multiply.outer(np.arange(b) - (b - 1) / 2, k) * (2 * pi / n)
    even, odd = (np.tensordot(f.T, wave, 1) for f, wave in zip(inside, (np.cos(angle), np.sin(angle)), strict=True))
    return tuple((seen * (np.abs(k) < count)).transpose(1, 0, 2) for seen in (even, odd))


def functions_inside(b: int, fastest: float, small: float) -> Inside:
    """Orthonormal even and odd functions `[b, ·]` that make every wave of at most `fastest` radians per number.

    They are the singular vectors of many such waves on half a block: the other half is a mirror image.
    """
    half = np.arange(b // 2, b)[:, None] - (b - 1) / 2
    times = np.where(half == 0, 1.0, sqrt(2))  # how often a number counts: the middle of an odd block has no image
    count = int(2 * b * fastest / pi) + 40
    some = fastest * (1 - np.cos(pi * (np.arange(count) + 0.5) / count)) / 2  # denser at the ends, as polynomials want
    out = []
    for wave, sign in ((np.cos, 1), (np.sin, -1)):
        u, s, _ = np.linalg.svd(times * wave(half * some), full_matrices=False)
        right = u[:, s > small * sqrt(b * count)] / times
        out.append(np.concatenate([sign * right[::-1][: b // 2], right]))
    return out[0], out[1]


@constants(64)
def projection(n: int, count: int, dtype: torch.dtype, device: torch.device) -> Waves | Blocks | None:
    """P in the form that costs least, with its constants on the device; none where that is the whole transform."""
    if dtype not in SMALL:
        return None
    b = block(n, min(64, n / count))
    inside = functions_inside(b, 2 * pi * (count - 1) / n, SMALL[dtype])
    form = cheapest(n, count, b, sum(f.shape[1] for f in inside), device.type == "cpu")
    with _disable_current_modes(), torch.inference_mode(False):  # no part of the trace that may be the first to ask
        if form == "waves":
            return Waves.of(n, count, dtype, device)
        return Blocks.of(n, count, inside, dtype, device) if form == "blocks" else None


def block(n: int, wanted: float, most: int = 128) -> int:
    """The divisor of n from 8 to the most that is nearest to the wanted one; 1 if there is none."""
    return min((b for b in range(8, most + 1) if n % b == 0), key=lambda b: abs(log(b / wanted)), default=1)


def cheapest(n: int, count: int, b: int, functions: int, cpu: bool) -> str:
    """Which form to take: on a CPU by µs for one vector (fitted on one core of a Neoverse-N1, float32, n to 2 million).

    On a GPU, where layers are better done at once, see `fednb.filters.fast.layers`: waves as long as Q is small.
    """
    m = 2 * count - 1
    if not cpu:
        return "waves" if n * m <= MOST_WAVES else "transform"
    times = {"waves": 20 + 0.0006 * n * m, "transform": 35 + 0.022 * n}
    if b > 1:
        alike = m * b / n + 1  # waves that look the same between blocks
        times["blocks"] = 130 + n * (0.0005 + functions * (0.0005 + (0.01 + 0.004 * alike) / b))
    return min(times, key=times.__getitem__)


def _constant(x: np.ndarray, dtype: torch.dtype, device: torch.device) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(x)).to(device, dtype)
