"""Child processes that answer messages: dealt out to whoever is free; one that is lost is replaced."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from math import inf
from multiprocessing.connection import Connection, wait
from struct import pack
from typing import Any

from fednb.engines import child
from fednb.engines.shared import nameless_file, send

LOSSES = 3  # workers that a run may lose and replace
SLICE = 1.0  # seconds between two looks at workers that say nothing


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
                env={**os.environ, **environment},
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


class Crew:
    """Workers that all know the same. They outlive runs and end with this process."""

    def __init__(self, workers: int) -> None:
        self.owner = os.getpid()  # a fork of this process has no workers
        self.orders: list[tuple] = []  # what every worker has been told, in order
        self.data: object = None  # the data set that they hold
        self.losses = 0
        self.members: list[Member] = []
        with self._whole():
            for _ in range(workers):
                self.members.append(_hire())

    @contextmanager
    def _whole(self) -> Iterator[None]:
        """End all workers where this block is interrupted: there are answers on the lines that nobody waits for."""
        try:
            yield
        except BaseException:
            self.close()
            raise

    @property
    def pids(self) -> list[int]:
        return [m.process.pid for m in self.members]

    def tell(self, *message: Any) -> None:
        """The same message to everyone; returns when all have done it. What was told after the last such is void."""
        known = [order[0] for order in self.orders]
        self.orders[known.index(message[0]) if message[0] in known else len(known) :] = [message]
        with self._whole():
            for member in self.members:
                member.send(message)
            for member in list(self.members):
                self._settled(member, message)

    def deal(self, messages: Sequence[tuple], again: Callable[[int], None] = lambda at: None) -> list[Any]:
        """Each message to whoever is free, in order; answers in the same order.

        again(i): called before message i is given to another worker, because the first was lost over it.
        """
        answers: list[Any] = [None] * len(messages)
        todo, free = list(range(len(messages)))[::-1], self.members[::-1]
        busy: dict[Member, int] = {}
        if not self.members:
            raise WorkerFailed("the worker processes of this run were ended; run it again")
        with self._whole():
            while todo or busy:
                while todo and free:
                    member = free.pop()
                    busy[member] = todo.pop()
                    member.send(messages[busy[member]])
                for member in heard(busy):
                    at = busy.pop(member)
                    try:
                        answers[at] = member.answer()
                        free.append(member)
                    except Lost as why:
                        free.append(self._replaced(member, why, messages[at]))
                        again(at)
                        todo.append(at)
        return answers

    def _settled(self, member: Member, message: tuple) -> None:
        """Wait until a worker has done what everyone was told."""
        heard([member])
        try:
            member.answer()
        except Lost as why:
            self._replaced(member, why, message)

    def _replaced(self, lost: Member, why: Lost, message: tuple) -> Member:
        """Another worker in the place of one that was lost, with all that it must know."""
        lost.end()
        self.losses += 1
        what = f"worker process {lost.process.pid} {why} while {_doing(message)}; {why.likely}"
        if self.losses > LOSSES:
            raise WorkerFailed(f"{what} A run may lose {LOSSES}; with fewer --workers it needs less memory")
        print(f"fednb: {what} Another does that anew", file=sys.stderr)
        fresh = self.members[self.members.index(lost)] = _hire()
        for order in self.orders:
            fresh.send(order)
            heard([fresh])
            try:
                fresh.answer()
            except Lost as again:
                return self._replaced(fresh, again, order)
        return fresh

    def close(self) -> None:
        if self.owner == os.getpid():
            for member in self.members:
                member.end()
        self.members = []


def _hire() -> Member:
    """A worker. It is deaf to signals, because this process decides what they mean."""
    threads = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    return Member("fednb.engines.worker", signal.SIGKILL, child.ENDING, **threads)


def _doing(message: tuple) -> str:
    """A message to a worker, in words."""
    return f"training client {message[4]}" if message[0] == "train" else {
        "data": "opening the data", "work_on": "building the model", "arena": "opening the weights",
        "score": "scoring the test set", "score_own": "scoring a client"}[message[0]]  # fmt: skip
