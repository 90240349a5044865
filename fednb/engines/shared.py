"""Tensors that several processes see: files mapped into memory, unlinked once everyone has opened them."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor

Description = dict[str, tuple[str, tuple[int, ...], torch.dtype]]  # name -> file, shape, dtype


@contextmanager
def shared(tensors: dict[str, Tensor]) -> Iterator[tuple[dict[str, Tensor], Description]]:
    """Copies of tensors in shared memory, and how to open them elsewhere before the context ends."""
    fast = Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(prefix="fednb-", dir=fast if fast.is_dir() else None))
    try:
        about = {name: (str(folder / str(i)), tuple(x.shape), x.dtype) for i, (name, x) in enumerate(tensors.items())}
        views = opened(about)
        for name, x in tensors.items():
            views[name].copy_(x)
        yield views, about
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def opened(about: Description) -> dict[str, Tensor]:
    """The tensors of a description, mapped into this process."""
    return {name: _mapped(*where) for name, where in about.items()}


def _mapped(path: str, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    size = torch.Size(shape).numel()
    if size == 0:
        return torch.zeros(shape, dtype=dtype)
    return torch.from_file(path, shared=True, size=size, dtype=dtype).view(shape)
