"""Which workers of a cluster may make the runs of a grid: those with our version, our data and what the runs need."""

from __future__ import annotations

import os
import secrets
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from typing import Any

from fednb.base.files import atomically, new_folder
from fednb.base.inputs import one_line
from fednb.base.version import __version__
from fednb.data.identity import identity
from fednb.data.sources import available
from fednb.runs.cluster import worker
from fednb.runs.cluster.connection import Connection, in_thread, waking
from fednb.runs.cluster.worker import GPU, MEMORY, Report
from fednb.runs.keys import RESULTS, key_of

PLENTY = 1e9  # of what is no matter of quantity
OLD = 7 * 86400  # seconds after which a token is one that a client left behind
EVERY = 1.0  # seconds between two looks at who is there
Say = Callable[[str], None]


def on_stderr(line: str) -> None:
    """Print a line to stderr."""
    print(f"fednb: {line}", file=sys.stderr, flush=True)


@contextmanager
def token() -> Iterator[str]:
    """The name of a file in our store, there for the block: a worker that finds it has the same store."""
    folder = new_folder(worker.cluster_folder())
    for left in folder.glob("token-*"):
        with suppress(OSError):
            if time.time() - left.stat().st_mtime > OLD:
                left.unlink()
    path = folder / f"token-{secrets.token_hex(8)}"
    atomically(path, f"{os.getpid()}")
    try:
        yield path.name
    finally:
        path.unlink(missing_ok=True)


class Admission:
    """Looks at every worker that joins, before it gets runs; each that is not admitted is named in one line."""

    def __init__(self, connection: Connection, token: str, data: Sequence[str], say: Say) -> None:
        self.connection, self.token, self.say = connection, token, say
        self.data = tuple(dict.fromkeys(data))
        self.samples = {name: identity(name)["sha256"] for name in self.data if available(name)}
        self.offers: dict[str, dict[str, float]] = {}  # by address, of those that are admitted
        self.refused: dict[str, str] = {}  # by address: why
        self.told: dict[str, dict[str, Any]] = {}  # what the scheduler said last of its workers
        self._looks: dict[str, Future[Any]] = {}
        self._telling: Future[Any] | None = None
        self._next = 0.0
        self._said: set[str] = set()

    def forget(self) -> None:
        """Begin anew, with another scheduler."""
        self.offers, self.refused, self.told, self._looks, self._telling = {}, {}, {}, {}, None
        self._next = 0.0

    @property
    def resource(self) -> str:
        """The name by which an admitted worker is known to the scheduler: it stands for these very samples."""
        return f"fednb {key_of([RESULTS, sorted(self.samples.items())])}"

    def slots(self, gpu: bool) -> int:
        """How many tasks the admitted workers can work on at a time."""
        if gpu:
            return int(sum(offer.get(GPU, 0) for offer in self.offers.values()))
        return sum(self.told[address]["nthreads"] for address in self.offers if address in self.told)

    def is_looking(self) -> bool:
        """True while it is not known of some worker whether it is admitted."""
        return bool(self._looks)

    def look_around(self) -> None:
        """Ask who is there, look at those who are new and admit those who have answered; waits for nobody."""
        client, now = self.connection.client, time.monotonic()
        if self._telling is None and now >= self._next:
            self._telling, self._next = in_thread(self.connection.workers), now + EVERY
        if self._telling is not None and self._telling.done():
            telling, self._telling = self._telling, None
            if telling.exception() is None:
                self._meet(telling.result())
        fresh = []
        for address in [a for a, answer in self._looks.items() if answer.done()]:
            answer = self._looks.pop(address)
            report = answer.exception() or answer.result().get(address, OSError("gone"))
            if isinstance(report, Report):
                fresh += [address] * self._judge(address, report)
            elif address in self.told:
                self._refuse(address, f"cannot be asked: {one_line(str(report)) or type(report).__name__}")
        if fresh:
            client.run_on_scheduler(waking(fresh))

    def _meet(self, told: dict[str, dict[str, Any]]) -> None:
        """Forget workers that are gone, and ask those that have come."""
        self.told = told
        for known in (self.offers, self.refused):
            for address in set(known) - set(told):
                known.pop(address)
        for address in set(told) - set(self.offers) - set(self.refused) - set(self._looks):
            self._looks[address] = in_thread(
                self.connection.client.run, worker.look, self.token, self.data, workers=[address], on_error="return"
            )

    def _judge(self, address: str, report: Report) -> bool:
        """Admit a worker, or refuse it and say why."""
        for name, found in report.samples.items():
            self.samples.setdefault(name, found)  # not here: the first worker's are the ones
        why = self._objection(report)
        if why:
            self._refuse(address, why)
            return False
        offer = {GPU: report.resources.get(GPU, 0), MEMORY: report.resources[MEMORY], self.resource: PLENTY}
        done = self.connection.client.run(worker.admit, offer, workers=[address], on_error="return")
        if done.get(address) is not None:  # it was lost meanwhile; if it is still there, it is looked at again
            return False
        self.offers[address] = offer
        return True

    def _objection(self, report: Report) -> str:
        if (report.version, report.results) != (__version__, RESULTS):
            return f"has fednb {report.version}, and we have {__version__}"
        if report.missing:
            name, why = next(iter(report.missing.items()))
            return f"has no {name!r}: {why}"
        others = [name for name in self.data if report.samples[name] != self.samples[name]]
        return "".join(f"has another {name!r} (fingerprint {report.samples[name]}) than we have ({self.samples[name]})"
                       for name in others[:1])  # fmt: skip

    def _refuse(self, address: str, why: str) -> None:
        self.refused[address] = why
        name = self.told.get(address, {}).get("name", address)
        line = f"worker {name} at {address} {why}; it gets no runs"
        if line not in self._said:
            self.say(line)
        self._said.add(line)

    def reasons(self) -> str:
        """Why workers were refused, in a few words."""
        counted = Counter(self.refused.values())
        return "; ".join(f"{n} of them: {why}" for why, n in counted.items())
