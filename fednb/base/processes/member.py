"""A child process that answers messages, on both ends of the line, and how it is noticed that it is lost."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
import traceback
from collections.abc import Collection
from math import inf
from multiprocessing.connection import Connection, wait
from struct import pack
from typing import Any

from fednb.base.processes import child
from fednb.base.processes.shared import nameless_file, receive, send

SLICE = 1.0  # seconds between two looks at workers that say nothing
KEPT_MEMORY = {"MALLOC_MMAP_THRESHOLD_": f"{32 << 20}", "MALLOC_TRIM_THRESHOLD_": f"{256 << 20}"}
# glibc keeps so many freed bytes for the next step: fresh pages from the system cost more than a convolution


class BadTimeout(ValueError):
    """FEDNB_WORKER_TIMEOUT is not a number of seconds."""


class WorkerFailed(RuntimeError):
    """A worker process raised an error, or too many of them ended."""


class Refused(WorkerFailed):
    """A worker answered with an error. The first argument is its last line; `told` is all of it."""

    def __init__(self, reason: str, told: str) -> None:
        super().__init__(f"a client's training failed in a worker process:\n{told}")
        self.reason = reason


class Lost(RuntimeError):
    """A process that will not answer any more: what happened to it, and the likely reason."""

    def __init__(self, what: str, likely: str) -> None:
        super().__init__(what)
        self.likely = likely


def patience() -> float:
    """The seconds after which a worker that does not run at all is replaced: FEDNB_WORKER_TIMEOUT, 0 for never."""
    text = os.environ.get("FEDNB_WORKER_TIMEOUT") or "600"
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < inf:
        raise BadTimeout(f"FEDNB_WORKER_TIMEOUT = {text!r}: must be a number of seconds, at least 0 (0: wait for ever)")
    return seconds or inf


class Member:
    """One child process, a line to it, and its beat: a counter that goes up for as long as the process runs."""

    def __init__(self, module: str, dies_by: int, deaf: Collection[int], **environment: str) -> None:
        self.patience, self.quiet, self.stuck = patience(), 0.0, False
        self.seen, self.looked = 0, time.monotonic()
        self.beat = nameless_file(8)
        ours, theirs = socket.socketpair()
        if self.patience < inf:  # a stopped process does not read either
            seconds = max(1, int(self.patience))
            ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, pack("@ll", seconds, 0))
        with theirs, child.undisturbed():
            self.process = subprocess.Popen(
                child.python("-m", module, str(theirs.fileno()), dies_by=dies_by, deaf=deaf, beat=self.beat),
                pass_fds=[theirs.fileno(), self.beat],
                env={**KEPT_MEMORY, **os.environ, **environment},
                stdin=subprocess.DEVNULL,
            )
            self.line = Connection(ours.detach())

    def send(self, message: tuple) -> None:
        """Send a message; where that fails, `answer` will tell."""
        try:
            send(self.line, message, self.process.pid)
        except BlockingIOError:
            self.stuck = True
        except (BrokenPipeError, ConnectionResetError):
            pass  # the line is at its end

    def is_silent(self) -> bool:
        """Whether the process has not run for too long. Time in which nobody looked does not count."""
        now, count = time.monotonic(), int.from_bytes(os.pread(self.beat, 8, 0), "little")
        self.quiet = 0.0 if count != self.seen else self.quiet + min(now - self.looked, 2 * SLICE)
        self.seen, self.looked = count, now
        return self.stuck or self.quiet >= self.patience

    def answer(self) -> Any:
        """What the process answers; Lost where it does not."""
        if self.stuck or not self.line.poll():
            raise Lost(f"has not run for {self.patience:g} s (FEDNB_WORKER_TIMEOUT)", "was it stopped?")
        try:
            how, *what = self.line.recv()
        except (EOFError, ConnectionResetError):
            raise Lost(*_cause(self.process.wait())) from None
        if how == "failed":
            raise Refused(*what)
        return what[0]

    def end(self, by: int = signal.SIGKILL, within: float = child.GRACE) -> None:
        """End the process by a signal, and by SIGKILL where that takes too long."""
        try:
            self.process.send_signal(by)
            self.process.send_signal(signal.SIGCONT)  # one that is stopped hears nothing else
            self.process.wait(within)
        except subprocess.TimeoutExpired:
            pass
        finally:
            self.process.kill()
            self.process.wait()
            self.line.close()
            if self.beat >= 0:
                os.close(self.beat)
                self.beat = -1


def _cause(status: int) -> tuple[str, str]:
    """What an exit status means, and the likely reason."""
    if status >= 0:
        return f"ended with exit status {status}", "what did it write last?"
    name = signal.Signals(-status).name
    likely = "was there not enough memory?" if name in ("SIGKILL", "SIGBUS") else "a fault of its libraries?"
    return f"was ended by {name}", likely


def heard(members: Collection[Member]) -> list[Member]:
    """Wait until somebody answers, ends or has been silent for too long; returns them."""
    while True:
        ready = wait([m.line for m in members], min(SLICE, min(m.patience for m in members)))
        if found := [m for m in members if m.line in ready or m.is_silent()]:
            return found


def serve(line: Connection, worker: object) -> None:
    """Answer messages by the methods of an object until the parent hangs up."""
    while True:
        try:
            what, *given = receive(line)
        except (EOFError, ConnectionResetError):
            return
        except Exception as error:  # a message that cannot be read here, and what comes after it neither
            line.send(("failed", f"{type(error).__name__}: {error}", traceback.format_exc()))
            return
        try:
            answer: tuple[Any, ...] = ("done", getattr(worker, what)(*given))
        except Exception as error:
            answer = ("failed", f"{type(error).__name__}: {error}", traceback.format_exc())
        try:
            line.send(answer)
        except (BrokenPipeError, ConnectionResetError):
            return
