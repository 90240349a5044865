"""Event files for TensorBoard, written by hand: no package is needed to write them, and no server is asked."""

from __future__ import annotations

import re
import struct
import time
from pathlib import Path
from typing import Any, BinaryIO

from fednb.base.files import new_folder
from fednb.runs.callbacks.callback import Callback, numbers
from fednb.runs.result import Run

POLYNOMIAL = 0x82F63B78  # of CRC-32C, bits reversed


def _table() -> tuple[int, ...]:
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = (byte >> 1) ^ (POLYNOMIAL if byte & 1 else 0)
        table.append(byte)
    return tuple(table)


TABLE = _table()


class TensorBoard(Callback):
    """Write every number of every round to FOLDER/METHOD-seedN-KEY, where `tensorboard --logdir FOLDER` finds it.

    >>> setting = fn.Setting(samples=100, clients=4, rounds=2, epochs=1, batch=25)
    >>> log = fn.callbacks.TensorBoard(fn.page("mine/01_first", "smoke").folder)
    >>> run = fn.run(setting, "FedAvg", progress=False, on_round=log)
    >>> log.path.parent.name == f"FedAvg-seed0-{run.key[:8]}"
    True
    """

    def __init__(self, folder: str | Path = "tensorboard") -> None:
        self.folder = Path(folder)
        self.path = self.folder
        self._file: BinaryIO | None = None

    def start(self, run: Run) -> None:
        """Begin the run's file; one that is there, with the same rounds or fewer, is written anew."""
        name = re.sub(r"[^\w.-]+", "_", run.method.name)[:80]
        place = new_folder(self.folder / f"{name}-seed{run.seed}-{run.key[:8]}")
        self.path = place / f"events.out.tfevents.0.fednb.{run.key}"
        self._file = self.path.open("wb")
        self._write(_bytes(3, b"brain.Event:2"))

    def __call__(self, row: dict[str, Any]) -> None:
        """A round as one event: a scalar for each of its numbers."""
        summary = b"".join(_bytes(1, _bytes(1, k.encode()) + _float(2, v)) for k, v in numbers(row).items())
        self._write(_varint(2 << 3) + _varint(int(row["round"]) + 1) + _bytes(5, summary))

    def end(self, run: Run) -> None:
        """Close the file."""
        if self._file:
            self._file.close()
        self._file = None

    def _write(self, event: bytes) -> None:
        """A record: its length and its bytes, each with a checksum; flushed, so that a board at work sees it."""
        assert self._file is not None
        data = struct.pack("<Bd", 1 << 3 | 1, time.time()) + event
        length = struct.pack("<Q", len(data))
        self._file.write(length + _checksum(length) + data + _checksum(data))
        self._file.flush()


def _varint(number: int) -> bytes:
    """A whole number as protocol buffers write it: seven bits a byte, the least first."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def _bytes(field: int, data: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(data)) + data


def _float(field: int, value: float) -> bytes:
    return _varint(field << 3 | 5) + struct.pack("<f", value)


def _checksum(data: bytes) -> bytes:
    """The masked CRC-32C that TensorFlow's records have.

    >>> from fednb.runs.callbacks.tensorboard import crc32c
    >>> hex(crc32c(b"123456789"))
    '0xe3069283'
    """
    crc = crc32c(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def crc32c(data: bytes) -> int:
    """CRC-32C (Castagnoli) of some bytes."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF
