"""What happens on a worker: it says what it has, makes the runs of an order, and stops where nobody wants them.

Dask calls these functions in the worker's process by their names, so that workers need the fednb of the client. The
scheduler needs Dask alone.
"""

from __future__ import annotations

import asyncio
import pickle
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from fednb.base.files import new_folder
from fednb.base.inputs import one_line
from fednb.base.locks import Busy
from fednb.base.version import __version__
from fednb.data.identity import identity
from fednb.runs import together
from fednb.runs.archive import CannotExport, export_runs
from fednb.runs.cluster.orders import Answer, Order
from fednb.runs.experiment import Run, run_of
from fednb.runs.keys import RESULTS
from fednb.runs.store import Entry, StoreError, home
from fednb.runs.together import TimeIsUp

GPU, MEMORY = "GPU", "MEMORY"  # Dask's resources: graphics cards, and bytes
WORKS = ("running", "paused")  # of a worker that is not about to end
LOOK = 0.2  # seconds between two looks at a lock, and at whether the run is still wanted
AT_WORK: dict[str, dict[str, float]] = {}  # by key, what `_begun` tells


@dataclass(frozen=True)
class Report:
    """What a worker has: its versions, data sets by fingerprint or what is wrong with them, store and resources."""

    version: str
    results: int
    shared: bool
    resources: dict[str, float]
    samples: dict[str, str] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)


def cluster_folder() -> Path:
    """The store's folder for what clusters need: tokens of clients, and why runs failed."""
    return home() / "cluster"


async def look(token: str, data: tuple[str, ...], dask_worker: Any = None) -> Report:
    """Say what this worker has. Data sets that are not here are fetched, where the catalogue can."""
    dask_worker.metrics["fednb"] = _at_work  # travels with every heartbeat
    known = dict(dask_worker.state.total_resources)
    limit = dask_worker.memory_manager.memory_limit
    return await asyncio.to_thread(_report, token, data, {MEMORY: float(limit or 1e18)} | known)


def _at_work(worker: Any) -> dict[str, dict[str, float]]:
    now = time.monotonic()
    return {key: known | {"seconds": now - known["since"]} for key, known in list(AT_WORK.items())}


def _report(token: str, data: tuple[str, ...], resources: dict[str, float]) -> Report:
    if GPU not in resources and torch.cuda.is_available():
        resources = resources | {GPU: 1.0}
    samples, missing = {}, {}
    for name in data:
        try:
            samples[name] = identity(name)["sha256"]
        except Exception as error:  # whatever a reader of data raises; the client names it
            missing[name] = one_line(str(error)) or type(error).__name__
    shared = (cluster_folder() / token).exists()
    return Report(__version__, RESULTS, shared, resources, samples, missing)


async def admit(resources: dict[str, float], dask_worker: Any = None) -> None:
    """Offer these resources to the scheduler, beside those that the worker was started with."""
    lacking = {name: n for name, n in resources.items() if name not in dask_worker.state.total_resources}
    if lacking:
        await dask_worker.set_resources(**lacking)


def make(packed: bytes) -> list[Answer]:
    """Make the runs of an order, or as much of them as is wanted; gives what became of each."""
    from distributed import get_worker

    order: Order = pickle.loads(packed)
    if order.device == "cpu":
        torch.set_num_threads(1)  # a worker's threads are runs
    worker = get_worker()
    wish = Wish(worker, str(worker.get_current_task()))
    where = f"{worker.name}" if str(worker.name) == worker.address else f"{worker.name} ({worker.address})"
    return [_answer(order, key, outcome, where) for key, outcome in _made(order, wish)]


@dataclass(frozen=True)
class Wish:
    """Whether a task that is at work is still wanted: somebody waits for it, and its worker is not about to end."""

    worker: Any
    task: str

    def is_over(self) -> bool:
        known = self.worker.state.tasks.get(self.task)
        return known is None or known.state == "cancelled" or self.worker.status.name not in WORKS


def _made(order: Order, wish: Wish) -> Iterator[tuple[str, Run | Exception | None]]:
    """Each run of an order with what became of it; None where it was stopped."""
    runs = [run_of(each.setting, each.method, each.seed, each.probe) for each in order.wanted]
    foreign = [i for i, (run, key) in enumerate(zip(runs, order.keys, strict=True)) if run.key != key]
    yield from ((order.keys[i], OtherCode()) for i in foreign)
    own = [i for i in range(len(runs)) if i not in foreign]
    stopped = dict.fromkeys(order.keys[i] for i in own)

    def watch(at: int, row: dict[str, Any]) -> None:
        known = AT_WORK[order.keys[own[at]]]
        known["round"] = max(known["round"], min(row["round"] + 1, known["rounds"]))
        if row["round"] + 1 < known["rounds"] and wish.is_over():
            raise TimeIsUp

    try:
        for i in own:
            AT_WORK[order.keys[i]] = _begun(runs[i])
            _wait_for(runs[i].entry, wish)
        made = together.run_all([order.wanted[i] for i in own], device=order.device, engine=order.engine,
                                on_round=watch)  # fmt: skip
        for at, outcome in made:
            stopped.pop(order.keys[own[at]])
            yield order.keys[own[at]], outcome
    except TimeIsUp:
        pass
    finally:
        for key in order.keys:
            AT_WORK.pop(key, None)
    yield from stopped.items()


def _begun(run: Run) -> dict[str, float]:
    """What is told of a run at work: its finished rounds, how many those were before, and since when it is here."""
    done = 0
    with suppress(StoreError):  # which is said when the run is made
        done = run.rounds_done
    return {"round": done, "first": done, "rounds": run.setting.rounds, "since": time.monotonic()}


class OtherCode(RuntimeError):
    """A run that would be another one here than the client means."""

    def __str__(self) -> str:
        return ("code that the run needs is another one on the worker, or cannot be read there; put it into a module "
                "that the workers import, too")  # fmt: skip


def _wait_for(entry: Entry, wish: Wish) -> None:
    """Wait while another process is at work on a run, such as one that is about to end; TimeIsUp where nobody waits."""
    while True:
        try:
            with entry.lock(wait=False):
                return
        except Busy:
            if wish.is_over():
                raise TimeIsUp from None
            time.sleep(LOOK)


def _answer(order: Order, key: str, outcome: Run | Exception | None, where: str) -> Answer:
    if outcome is None:
        return Answer(key, where)
    if isinstance(outcome, Exception):
        return Answer(key, where, why=one_line(str(outcome)) or type(outcome).__name__)
    if (cluster_folder() / order.token).exists():
        return Answer(key, where, outcome.status)
    try:
        return Answer(key, where, outcome.status, archive=_archive(outcome.entry))
    except (StoreError, CannotExport) as error:
        return Answer(key, where, why=one_line(str(error)))


def _archive(entry: Entry) -> bytes:
    """A finished run, whole, as `fednb store export --weights` writes it."""
    with scratch() as folder:
        export_runs([entry], folder / "run.zip", weights=True, probes=True)
        return (folder / "run.zip").read_bytes()


@contextmanager
def scratch() -> Iterator[Path]:
    """A folder of the store for a file on its way, which is gone at the end of the block."""
    with tempfile.TemporaryDirectory(dir=new_folder(cluster_folder())) as folder:
        yield Path(folder)
