"""Tensors that several processes see: in memory without a name, which is free again when the last of them has ended."""

from __future__ import annotations

import mmap
import os
import tempfile
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle, send_handle
from typing import Any

import cloudpickle
import torch
from torch import Tensor

from fednb.base.inputs import one_line

PAGE = 4096  # every tensor begins where a page does


class NotSendable(ValueError):
    """An object that cannot be copied to another process, such as an open file."""


@dataclass(frozen=True)
class Description:
    """Where tensors lie in shared memory: name -> offset, shape, dtype; and the bytes of all."""

    places: dict[str, tuple[int, tuple[int, ...], torch.dtype]]
    size: int

    @classmethod
    def of(cls, tensors: Mapping[str, Tensor]) -> Description:
        places, size = {}, 0
        for name, x in tensors.items():
            places[name] = (size, tuple(x.shape), x.dtype)
            size += -(-x.numel() * x.element_size() // PAGE) * PAGE
        return cls(places, size)


class Shared(dict[str, Tensor]):
    """Copies of tensors in shared memory, by name. Whoever is sent this object's descriptor can map the same memory."""

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        self.about = Description.of(tensors)
        self.handle = nameless_file(self.about.size)
        weakref.finalize(self, os.close, self.handle)
        super().__init__(mapped(self.about, self.handle))
        for name, x in tensors.items():
            self[name].copy_(x)

    __hash__ = object.__hash__  # type: ignore[assignment]  # a weak reference goes by the object, not by its contents
    __eq__ = object.__eq__


def nameless_file(size: int) -> int:
    """The descriptor of a file of `size` zeros that no folder has: in memory on Linux, else a temporary one."""
    if hasattr(os, "memfd_create"):
        handle = os.memfd_create("fednb")
    else:
        with tempfile.TemporaryFile() as file:
            handle = os.dup(file.fileno())
    os.ftruncate(handle, size)
    return handle


def mapped(about: Description, handle: int) -> dict[str, Tensor]:
    """The tensors of a description, in the memory behind a descriptor."""
    whole = mmap.mmap(handle, about.size) if about.size else b""
    return {name: _view(whole, *place) for name, place in about.places.items()}


def _view(whole: mmap.mmap | bytes, offset: int, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    count = torch.Size(shape).numel()
    if count == 0:
        return torch.zeros(shape, dtype=dtype)
    return torch.frombuffer(whole, dtype=dtype, count=count, offset=offset).view(shape)


def packed(thing: Any) -> bytes:
    """A thing as bytes for another process; NotSendable where it has none.

    Functions and classes of a notebook or script, which no other process can import, travel with their code.
    """
    try:
        return cloudpickle.dumps(thing)
    except Exception as error:  # whatever an object raises that cannot be copied
        why = f"{type(error).__name__}: {one_line(str(error))}"
        raise NotSendable(f"worker processes cannot be told: {why}; use engine='loop'") from error


def send(line: Connection, message: tuple, pid: int) -> None:
    """Send a message to process `pid`; of shared tensors it gets the description, and then the descriptor."""
    line.send_bytes(packed(tuple(x.about if isinstance(x, Shared) else x for x in message)))
    for x in message:
        if isinstance(x, Shared):
            send_handle(line, x.handle, pid)


def receive(line: Connection) -> list:
    """The next message, with shared tensors mapped into this process."""
    return [_opened(line, x) if isinstance(x, Description) else x for x in line.recv()]


def _opened(line: Connection, about: Description) -> dict[str, Tensor]:
    handle = recv_handle(line)
    try:
        return mapped(about, handle)
    finally:
        os.close(handle)
