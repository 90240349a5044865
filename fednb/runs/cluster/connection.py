"""The line to a Dask scheduler: found by its address or its file, and found again after it was lost."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fednb.base.imports import installed
from fednb.base.inputs import one_line, shown

if TYPE_CHECKING:
    from distributed import Client

PATIENCE = 60.0  # seconds in which a lost scheduler must be back
ATTEMPT = 5.0  # seconds of one attempt to reach it
PAUSE = 0.5  # seconds between two attempts


class NoCluster(ValueError):
    """No Dask scheduler answers at an address, or its workers cannot be used; one line says which and why."""


def checked(on: str) -> str:
    """An address such as tcp://10.0.0.1:8786, or the path of a scheduler's file; refused where it is neither.

    >>> checked("tcp://127.0.0.1:8786")
    'tcp://127.0.0.1:8786'
    """
    if "://" not in on and not Path(on).is_file():
        raise NoCluster(f"no cluster {shown(on)}: name its scheduler, such as tcp://10.0.0.1:8786, or the file that "
                        "`dask scheduler --scheduler-file FILE` wrote")  # fmt: skip
    return on


def in_thread(function: Callable[..., Any], *given: Any, **named: Any) -> Future[Any]:
    """Call a function in a thread that this process does not wait for when it ends."""
    answer: Future[Any] = Future()

    def call() -> None:
        try:
            answer.set_result(function(*given, **named))
        except BaseException as error:
            answer.set_exception(error)

    threading.Thread(target=call, name="fednb cluster", daemon=True).start()
    return answer


class Connection:
    """A client of the scheduler at one address, which is made anew where the scheduler was lost."""

    def __init__(self, on: str) -> None:
        self.on = checked(on)
        logging.getLogger("distributed.client").setLevel(logging.CRITICAL)  # what matters is said in our words
        self.client = self._made()

    def is_lost(self) -> bool:
        """True if the scheduler does not answer any more: all that was asked of it is forgotten."""
        return self.client.status != "running"

    def restore(self) -> None:
        """Reach the scheduler again, or the one in its place; NoCluster where none is there in time."""
        self.close()
        until = time.monotonic() + PATIENCE
        while True:
            try:
                self.client = self._made()
                return
            except NoCluster:
                if time.monotonic() >= until:
                    raise NoCluster(f"{self.on}: the scheduler was lost, and did not come back within {PATIENCE:g} s; "
                                    "the same command goes on from what is finished") from None  # fmt: skip
                time.sleep(PAUSE)

    def workers(self) -> dict[str, dict[str, Any]]:
        """What the scheduler tells of its workers, by address: name, nthreads, metrics and so on."""
        return self.client.scheduler_info(n_workers=-1)["workers"]

    def close(self) -> None:
        """Leave the scheduler: it forgets what nobody else wants."""
        with suppress(Exception):  # of a scheduler that is gone
            self.client.close(timeout=ATTEMPT)

    def _made(self) -> Client:
        client_of = _dask().Client
        known = {"address": self.on} if "://" in self.on else {"scheduler_file": self.on}
        try:
            return client_of(**known, name="fednb", timeout=ATTEMPT, set_as_default=False)
        except (OSError, ValueError, TypeError) as error:  # of an address that is none, too
            why = one_line(str(error)) or type(error).__name__
            raise NoCluster(f"{self.on}: no Dask scheduler answers there ({why}). Is it running, and is the address "
                            "the one that it printed?") from error  # fmt: skip


def by_name(module: str, name: str) -> Callable[..., Any]:
    """A function that imports another by its name when called; it is sent as code, so a scheduler needs no fednb."""

    def call(*given: Any) -> Any:
        from importlib import import_module

        return getattr(import_module(module), name)(*given)

    return call


def waking(addresses: list[str]) -> Callable[..., None]:
    """A function that a scheduler calls: tasks that no worker could take are offered to these workers."""

    def wake(dask_scheduler: Any = None) -> None:
        for worker in [dask_scheduler.workers[a] for a in addresses if a in dask_scheduler.workers]:
            found = dask_scheduler.bulk_schedule_unrunnable_after_adding_worker(worker)
            dask_scheduler.transitions(found, stimulus_id="fednb-admitted")

    return wake


def killed_worker() -> Any:
    """Dask's class of errors for a task whose workers were lost too often."""
    return _dask().KilledWorker


def _dask() -> Any:
    return installed("distributed", "a Dask cluster", "cluster")
