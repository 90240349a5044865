"""What layers' coefficients become between the two products with their blocks: transform, mix, transform back.

One layer is too small for a GPU, so that groups of layers are done side by side, each in a stream of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from fednb.filters.fast.vector import wave_coefficients

OF_GRAPHS = -2  # a priority of streams; graphs themselves are captured on streams of −1


@dataclass(frozen=True, eq=False)
class Mixed:
    """What `Blocks` does between its products, for rows u of a complex numbers for every two functions.

    Of each pair of real series, an even function's and an odd one's, one complex transform is taken: Z = E + i O. As
    E_h = (Z_h + Z̄_−h) / 2 and −i O_h = (Z̄_−h − Z_h) / 2, and as the waves' c are real where odd functions are turned by
    −i, everything between Z and the answer Y is one real matrix for each h: (Y_h, Ȳ_−h) = mix_h (Z_h, Z̄_−h).
    """

    mix: Tensor  # [R, R, H]: from, to, h
    a: int

    @classmethod
    def of(cls, n: int, count: int, even: np.ndarray, odd: np.ndarray) -> Mixed:
        one = np.eye(even.shape[1])
        there = np.block([[one, one], [-one, one]]) / 2
        back = np.block([[one, -one], [one, one]])
        c = np.concatenate(wave_coefficients(n, count, (even, odd)), axis=1)
        mix = back @ (c @ c.transpose(0, 2, 1) / n) @ there  # 1/n: of 1/b in `Blocks` and 1/a of the inverse transform
        return cls(torch.from_numpy(mix).permute(2, 1, 0).contiguous(), n // len(even))

    def __call__(self, u: Tensor) -> Tensor:
        z = torch.fft.fft(torch.view_as_complex(u.view(-1, len(self.mix) // 2, self.a, 2)))
        y = mixed(torch.view_as_real(z), self.mix)
        return torch.view_as_real(torch.fft.ifft(torch.view_as_complex(y), norm="forward")).flatten(1)

    def matrix(self) -> Tensor:
        """M with `self(u)` = u M."""
        return self(torch.eye(self.a * len(self.mix), dtype=self.mix.dtype))


def mixed(z: Tensor, mix: Tensor) -> Tensor:
    """Y of Z `[N, R / 2, a, 2]`, its last axis the parts of a complex number; zero for h that the mix does not have."""
    if z.is_cuda:
        from fednb.filters.fast.kernels import mix_into  # Triton takes a second to import, and is not everywhere

        y = z.new_empty(z.shape)
        mix_into(z.contiguous(), mix, y)
        return y
    a, (R, _, H) = z.shape[2], mix.shape
    minus = torch.cat([z[:, :, :1], z[:, :, a - H + 1 :].flip(2)], dim=2)  # −h for h = 0 … H − 1
    both = torch.cat([z[:, :, :H], _conjugate(minus)], dim=1)  # [N, R, H, 2]
    new = mix.permute(2, 1, 0) @ both.permute(2, 1, 0, 3).reshape(H, R, -1)
    plus, minus = new.view(H, R, -1, 2).permute(2, 1, 0, 3).chunk(2, dim=1)
    twins = min(H - 1, (a - 1) // 2)  # those with an h and a −h of their own
    none = plus.new_zeros(1).expand(*plus.shape[:2], a - H - twins, 2)
    return torch.cat([plus, none, _conjugate(minus[:, :, 1 : 1 + twins]).flip(2)], dim=2)


def _conjugate(z: Tensor) -> Tensor:
    return torch.stack([z[..., 0], -z[..., 1]], dim=-1)


@torch.library.custom_op("fednb::mixed_coefficients", mutates_args=())
def mixed_coefficients(u: Tensor, mixes: list[Tensor], sizes: list[int], numbers: list[int]) -> Tensor:
    """v: the coefficients u of groups of layers after mixing.

    For each group: its mix or matrix, the size of a layer's row, and how many numbers of u are its own.
    """
    parts = zip(u.split(numbers), mixes, sizes, strict=True)
    return torch.cat([_one_group(part.view(-1, size), mix).view(-1) for part, mix, size in parts])


def _one_group(u: Tensor, mix: Tensor) -> Tensor:
    return u @ mix if mix.dim() == 2 else Mixed(mix, u.shape[1] // len(mix))(u)


@mixed_coefficients.register_fake
def _(u: Tensor, mixes: list[Tensor], sizes: list[int], numbers: list[int]) -> Tensor:
    return torch.empty_like(u)


@mixed_coefficients.register_kernel("cuda")
def _(u: Tensor, mixes: list[Tensor], sizes: list[int], numbers: list[int]) -> Tensor:
    v, now = torch.empty_like(u), torch.cuda.current_stream(u.device)
    captured = torch.cuda.is_current_stream_capturing()
    parts = list(zip(u.split(numbers), v.split(numbers), mixes, sizes, strict=True))
    others = [part for part in parts if part[2].dim() == 3]
    for stream, (own, to, mix, size) in zip(_streams(u.device, len(others), captured), others, strict=True):
        stream.wait_stream(now)
        with torch.cuda.stream(stream):
            to.view(-1, size).copy_(_one_group(own.view(-1, size), mix))
    for own, to, mix, size in (part for part in parts if part[2].dim() == 2):
        torch.mm(own.view(-1, size), mix, out=to.view(-1, size))
    for stream in _streams(u.device, len(others), captured):
        now.wait_stream(stream)
    return v


@lru_cache(maxsize=8)
def _streams(device: torch.device, many: int, captured: bool) -> tuple[torch.cuda.Stream, ...]:
    """Streams beside the current one. Torch gives out few, again and again: another thread may work on the same.

    What it launches there while a graph is captured would become a part of that graph, hence a kind that nobody else
    has.
    """
    return tuple(torch.cuda.Stream(device, priority=OF_GRAPHS if captured else 0) for _ in range(many))
