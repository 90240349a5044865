"""The pool's worker processes: messages are dealt out to whoever is free; a worker that is lost is replaced."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from fednb.base.processes import child
from fednb.base.processes.member import Lost, Member, WorkerFailed, heard

LOSSES = 3  # workers that a run may lose and replace


class Crew:
    """Workers that all know the same. They outlive runs and end with this process."""

    def __init__(self, workers: int) -> None:
        self.owner = os.getpid()  # a fork of this process has no workers
        self.orders: list[tuple] = []  # what every worker has been told, in order
        self.data: object = None  # the data set that they hold
        self.own: dict[str, int] = {}  # the models of a user that they were told, by name
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
        """Send one message to all workers and wait for all; it replaces the last of its kind and all after it."""
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
