"""Runs made on a Dask cluster: handed to workers that are admitted, taken back into our store, each of them once."""

from __future__ import annotations

import asyncio
import queue
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import closing, suppress
from dataclasses import replace
from typing import Any

from fednb.base.inputs import one_line
from fednb.base.processes.shared import NotSendable, packed
from fednb.runs.cluster import failures
from fednb.runs.cluster.admission import Admission, Say, on_stderr, token
from fednb.runs.cluster.connection import Connection, NoCluster, by_name, checked, in_thread, killed_worker
from fednb.runs.cluster.orders import Answer, Order, bundles, bytes_of, task_of
from fednb.runs.cluster.worker import GPU, MEMORY, scratch
from fednb.runs.experiment import Run, run_of
from fednb.runs.merging import import_runs
from fednb.runs.together import OnRound, Wanted

LOOK = 0.2  # seconds between two looks at the cluster
MOST_CANCELLED = 3  # times that somebody else may cancel a task before we give it up
MAKE = by_name("fednb.runs.cluster.worker", "make")
NOBODY = 60.0  # seconds for which a cluster may have no worker but those that were refused


Tell = Callable[[str, int], None]


class RunFailed(RuntimeError):
    """A run that could not be made on the cluster: why, and on which worker."""


class RunsFailed(RuntimeError):
    """Several runs of a grid failed; all others were made. One line each."""


def run_all(
    wanted: Sequence[Wanted],
    on: str,
    *,
    device: str = "auto",
    engine: str = "auto",
    needs_gpu: bool = False,
    until: float | None = None,
    on_round: OnRound | None = None,
    say: Say = on_stderr,
) -> Iterator[tuple[int, Run | Exception]]:
    """Make runs on the cluster at `on`, and give each with its place among the wanted as it ends, or its error.

    A run that the store has is given at once. device: "cpu", "cuda", or "auto" for the GPUs of the cluster where some
    worker has one, and needs_gpu to wait for such a worker. until: a `time.monotonic()` after which runs at work are
    saved, and not given. on_round is told the place of a run and its last round.

    A lost worker's runs go to others, as often as Dask allows it (`distributed.scheduler.allowed-failures`, 3). A run
    that fails by itself is not tried again. Leaving the iteration early takes back what nobody else wants: runs at work
    stop after their present round. Where this process is lost, the scheduler notices and does the same.
    """
    checked(on)  # said also where the store has every run
    runs = [run_of(each.setting, each.method, each.seed, each.probe) for each in wanted]
    places: dict[str, list[int]] = {}
    for i, run in enumerate(runs):
        if run.entry.unfinished:
            places.setdefault(run.key, []).append(i)
        else:
            yield i, run
    if not places:
        return
    failures.forget(places)
    with (
        token() as name,
        closing(Connection(on)) as connection,
        closing(_Work(wanted, runs, connection, name, say)) as work,
    ):
        work.device, work.engine, work.waits_for_gpu = device, engine, needs_gpu or device == "cuda"
        for key, error in work.ended(set(places), until, _telling(on_round, places)):
            for i in places[key]:
                yield i, (error or replace(runs[i]))


def _telling(on_round: OnRound | None, places: dict[str, list[int]]) -> Callable[[str, int], None]:
    """A function of a run's key and its finished rounds, which tells `on_round`."""

    def tell(key: str, rounds: int) -> None:
        for i in places.get(key, ()):
            if on_round is not None and rounds:
                on_round(i, {"round": rounds - 1})

    return tell


class _Work:
    """What is wanted, what is handed out and what has come back."""

    def __init__(
        self, wanted: Sequence[Wanted], runs: Sequence[Run], connection: Connection, token: str, say: Say
    ) -> None:  # fmt: skip
        self.wanted, self.keys = wanted, [run.key for run in runs]
        self.connection, self.token, self.say = connection, token, say
        self.by_key = dict(zip(self.keys, wanted, strict=True))
        self.entries = {run.key: run.entry for run in runs}
        self.device = self.engine = "auto"
        self.gpu = self.waits_for_gpu = False
        self.admission = Admission(connection, token, [each.setting.data for each in wanted], say)
        self.todo: deque[tuple[str, list[str]]] | None = None  # tasks and their runs; None before it is decided on what
        self.open: set[str] = set()  # keys that are not made
        self.flight: dict[str, tuple[Any, list[str]]] = {}  # by task: its future and the keys
        self.cancelled: Counter[str] = Counter()
        self.back: queue.SimpleQueue[tuple[Any, list[Answer] | BaseException]] = queue.SimpleQueue()
        self.lonely = time.monotonic()
        self.said: set[str] = set()

    def ended(self, keys: set[str], until: float | None, tell: Tell) -> Iterator[tuple[str, Exception | None]]:
        """Each key when its run is there, or with the error that ended it."""
        self.open = keys
        while self.open and (until is None or time.monotonic() < until):
            if self.connection.is_lost():
                self._restore()
            with suppress(OSError, TimeoutError, CancelledError):  # of a scheduler that is being lost
                self.admission.look_around()
                yield from self._hand_out()
            self._tell(tell)
            with suppress(queue.Empty):
                yield from self._settle(*self.back.get(timeout=LOOK))
                while True:
                    yield from self._settle(*self.back.get_nowait())

    def close(self) -> None:
        """Take back what was handed out; what another client wants stays."""
        with suppress(Exception):  # of a scheduler that is gone
            self.connection.client.cancel([future for future, _ in self.flight.values()])

    def _restore(self) -> None:
        """Find the scheduler again; what was handed out is wanted again."""
        self.say(f"{self.connection.on}: the scheduler was lost; looking for it again")
        self.connection.restore()
        self.say(f"{self.connection.on}: the scheduler is there again; what is not finished is handed out again")
        self.admission.forget()
        if self.todo is not None:
            self.todo.extendleft(reversed([(task, keys) for task, (_, keys) in self.flight.items()]))
        self.flight.clear()

    def _hand_out(self) -> Iterator[tuple[str, Exception | None]]:
        """Submit as many tasks as the workers can take; what somebody else has made meanwhile is given."""
        if not self.admission.offers:
            self._say_nobody()
            return
        self.lonely = time.monotonic()
        if self.todo is None:
            self._decide()
        assert self.todo is not None
        slots = self.admission.slots(self.gpu)
        if self.gpu and not slots:
            self._say_once("no worker offers a GPU yet; waiting for one. --device cpu takes those without")
        while self.todo and len(self.flight) < slots:  # Dask blames a lost worker on all that it had, begun or not
            task, keys = self.todo[0]
            over: list[tuple[str, Exception | None]] = [(key, None) for key in keys if not self.entries[key].unfinished]
            missing = [key for key in keys if key not in dict(over)]
            over += self._submit(task, missing) if missing else []
            self.todo.popleft()  # not before: where the scheduler is lost, the task is still to be done
            self.open.difference_update(key for key, _ in over)
            yield from over

    def _decide(self) -> None:
        """On a GPU or not; from then on it stays so."""
        offered = any(offer.get(GPU) for offer in self.admission.offers.values())
        self.gpu = self.waits_for_gpu or (self.device == "auto" and offered)
        tasks = {task_of(keys): keys for keys in bundles(self.wanted, self.keys, self.gpu)}
        missing = ((task, [key for key in keys if key in self.open]) for task, keys in tasks.items())
        self.todo = deque((task, keys) for task, keys in missing if keys)

    def _submit(self, task: str, missing: list[str]) -> list[tuple[str, Exception]]:
        """Hand a task out; gives its runs with an error where they cannot be sent."""
        device = "cuda" if self.gpu else "cpu"
        engine = "loop" if self.engine == "auto" and not self.gpu else self.engine  # a worker's cores are all taken
        order = Order(tuple(self.by_key[key] for key in missing), tuple(missing), device, engine, self.token)
        needs = {self.admission.resource: 1.0, MEMORY: float(max(map(bytes_of, order.wanted)))}
        self._say_too_large(needs[MEMORY], missing)
        try:
            content = packed(order)
        except NotSendable as error:
            why = RunFailed(f"cannot be sent to a worker: {one_line(str(error.__cause__))}")
            return [(key, why) for key in missing]
        needs |= {GPU: 1.0} if self.gpu else {}
        future = self.connection.client.submit(MAKE, content, key=task, resources=needs, pure=False)
        self.flight[task] = future, missing
        future.add_done_callback(lambda future: in_thread(self._fetch, future))  # which may take long
        return []

    def _fetch(self, future: Any) -> None:
        try:
            self.back.put((future, future.result()))
        except BaseException as error:  # also a task that was cancelled
            self.back.put((future, error))

    def _settle(self, future: Any, got: list[Answer] | BaseException) -> Iterator[tuple[str, Exception | None]]:
        """What came back of a task: runs that are made or failed are given, others are handed out again."""
        if future.key not in self.flight or self.flight[future.key][0] is not future or self.connection.is_lost():
            return
        task: str = future.key
        _, keys = self.flight.pop(task)
        future.release()
        if isinstance(got, BaseException):
            why, answers = self._reason(task, got), {}
        else:
            why, answers = "", {each.key: each for each in got}
        again = [] if why else [key for key in keys if key not in answers or answers[key].stopped]
        for key in (key for key in keys if key not in again):
            error = RunFailed(why) if why else self._taken(answers[key])
            if error is not None:
                failures.note(key, str(error))
            self.open.discard(key)
            yield key, error
        if again and self.todo is not None:
            self.todo.append((task, again))

    def _taken(self, answer: Answer) -> Exception | None:
        """Put a run into our store, where it is not there already; the error of one that failed."""
        if answer.why:
            return RunFailed(f"{answer.why} (on {answer.where})")
        if answer.archive is not None:
            with scratch() as folder:
                (folder / "run.zip").write_bytes(answer.archive)
                done = import_runs(folder / "run.zip")
            if done.refused:
                return RunFailed(done.refused[0])
        entry = self.entries[answer.key]
        return RunFailed(f"{answer.where} made it, but it is not in {entry.folder}") if entry.unfinished else None

    def _reason(self, task: str, error: BaseException) -> str:
        """Why Dask has no answer of a task, in words; nothing where it is to be tried again."""
        if isinstance(error, CancelledError | asyncio.CancelledError):
            self.cancelled[task] += 1
            return "somebody else cancels it time and again" * (self.cancelled[task] > MOST_CANCELLED)
        if isinstance(error, killed_worker()):
            n, last = error.allowed_failures + 1, error.last_worker.address
            return f"{n} workers were lost while they had it, the last one at {last}"
        return f"{type(error).__name__}: {one_line(str(error))}"

    def _tell(self, tell: Tell) -> None:
        """Pass on how far runs at work are, as the workers' heartbeats have it."""
        for about in self.admission.told.values():
            for key, known in about["metrics"].get("fednb", {}).items():
                if key in self.open:
                    tell(key, int(known["round"]))

    def _say_once(self, line: str) -> None:
        if line not in self.said:
            self.say(f"{self.connection.on}: {line}")
        self.said.add(line)

    def _say_nobody(self) -> None:
        """Say that there is nobody to make the runs; where all who are there were refused for long, give up."""
        if self.admission.told or self.admission.is_looking():
            if not self.admission.refused or self.admission.is_looking():
                self.lonely = time.monotonic()
            elif time.monotonic() - self.lonely > NOBODY:
                raise NoCluster(f"{self.connection.on}: no worker can make these runs; {self.admission.reasons()}")
        elif time.monotonic() - self.lonely > 5 * LOOK:
            self._say_once("has no workers yet; waiting for them")

    def _say_too_large(self, needed: float, keys: list[str]) -> None:
        most = max(offer[MEMORY] for offer in self.admission.offers.values())
        if needed > most:
            self._say_once(f"runs such as {keys[0]} need about {needed / 1e9:.1f} GB, and no worker offers more than "
                           f"{most / 1e9:.1f}; waiting for one that does")  # fmt: skip
