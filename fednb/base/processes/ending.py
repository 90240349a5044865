"""How a command ends: by a signal, of which SIGTERM and SIGHUP save as Ctrl-C does, or by an error of the machine."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import torch

from fednb.base.processes.child import ENDING
from fednb.base.processes.member import WorkerFailed

LASTING = (  # errors of a GPU after which it has nothing but errors for the same process
    "illegal memory access", "device-side assert", "illegal instruction", "misaligned address", "hardware stack error",
    "invalid program counter", "unspecified launch failure", "launch timed out", "uncorrectable ECC error",
)  # fmt: skip
PATIENCE = 10.0  # seconds for which a second signal is the same wish as the first


class Ended(KeyboardInterrupt):
    """A signal asks this process to end; it saves on its way out."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


@contextmanager
def saving_signals() -> Iterator[None]:
    """In this block SIGINT, SIGTERM and SIGHUP raise `Ended`; in the main thread only.

    A signal that this process was started to ignore stays ignored, as under nohup. A second signal soon after the first
    does nothing: it would fall into the saving. A later one raises again.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    last = -PATIENCE

    def end(number: int, frame: FrameType | None) -> None:
        nonlocal last
        if time.monotonic() - last >= PATIENCE:
            last = time.monotonic()
            raise Ended(number)

    before = {n: signal.getsignal(n) for n in ENDING}
    heard = [n for n, handler in before.items() if handler not in (signal.SIG_IGN, None)]
    try:
        for n in heard:
            signal.signal(n, end)
        yield
    finally:
        for n in heard:
            signal.signal(n, before[n])


def exit_status(error: KeyboardInterrupt) -> int:
    """128 and the signal's number, as a shell has it."""
    return 128 + getattr(error, "number", signal.SIGINT)


def farewell(error: KeyboardInterrupt) -> str:
    """The line for a user who interrupted: what happened, and that the command goes on from the last round."""
    status = exit_status(error)
    how = "interrupted" if status == 130 else f"ended by {signal.Signals(status - 128).name}"
    return f"{how}; the same command goes on after the last finished round"


class DeviceFailed(RuntimeError):
    """A GPU has failed: this process gets nothing from it any more, the next one may.

    A capture that an error ends says so by an error of its own, which hides the first: that one is told too.
    """

    def __init__(self, error: Exception) -> None:
        *_, first = causes(error)
        began = "" if first is error else f"; it began with {type(first).__name__}: {_first_line(first)}"
        super().__init__(
            f"the GPU has failed ({_first_line(error)}{began}); the same command goes on after the last saved rounds"
        )


def device_failed(error: Exception) -> bool:
    """True for an error of a GPU after which this process cannot use it any more.

    What torch writes below the first line is advice, the same for every error: it speaks of device-side assertions.
    """
    return any(isinstance(e, RuntimeError) and any(text in _first_line(e) for text in LASTING) for e in causes(error))


def causes(error: BaseException) -> Iterator[BaseException]:
    """An error, and those that were on their way when it came, back to the first."""
    yield error
    if error.__context__ is not None:
        yield from causes(error.__context__)


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0]


def machine_failed(error: Exception) -> str | None:
    """The line for an error of the machine: disk, memory, processes, GPU. None for an error of the program."""
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}{error.strerror or error}. What is saved is whole; the same command goes on from there"
    if isinstance(error, MemoryError | torch.OutOfMemoryError) or _names_memory(error):
        return "not enough memory; a smaller --batch or --model, or fewer --workers or --jobs need less"
    if isinstance(error, RecursionError):
        return f"nested too deeply ({error}); FEDNB_DEBUG=1 shows where"
    if isinstance(error, WorkerFailed | DeviceFailed):
        return str(error)
    return str(DeviceFailed(error)) if device_failed(error) else None


def _names_memory(error: Exception) -> bool:
    """True for torch's error of a CPU's memory, which has no class of its own."""
    return type(error) is RuntimeError and "can't allocate memory" in str(error)


def say(line: str) -> None:
    """A line for the user, on stderr; where nobody can read it any more, as after SIGHUP, nothing."""
    try:
        print(line, file=sys.stderr, flush=True)
    except OSError:
        for stream in (sys.stdout, sys.stderr):  # the interpreter flushes both at its end
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
