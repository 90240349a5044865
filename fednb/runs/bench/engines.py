"""Every engine and a bare PyTorch loop on the same model, data and batches, turn by turn in one process."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from statistics import median
from typing import Any, Protocol

import torch
from torch import Tensor

from fednb.algorithms.parts.ascend import Sam
from fednb.core.record import Table
from fednb.core.rounds import Method, observed_server
from fednb.engines import ENGINES, BadEngine, Engine, cores
from fednb.engines.loop import Loop
from fednb.engines.objective import arithmetic, wait_for
from fednb.engines.pool import Pool, dismiss
from fednb.engines.problem import participants
from fednb.engines.stacked import MODES, Stacked
from fednb.models import build
from fednb.runs.bench.bare import BareLoop, Batches
from fednb.runs.bench.workload import SEED, Say, Workload

BARE = ("bare", "bare:threads")  # one thread, as the engines' clients have; or all cores of a CPU
NAMES = (*BARE, *ENGINES[1:])
HEADS = {
    "label": "engine", "seconds_per_round": "s/round", "min": "min", "max": "max", "n": "n",
    "faster_than_loop": "speed / loop", "faster_than_bare": "speed / bare", "times_first": "x first method",
    "first_round": "first round",
    "seconds_evaluation": "evaluation", "difference": "differs by",
}  # fmt: skip


class Runner(Protocol):
    """Something that takes federated rounds."""

    def round(self) -> float:
        """One round; its training loss."""
        ...

    def evaluate(self) -> float:
        """Accuracy on the test set."""
        ...

    def weights(self) -> Tensor:
        """The server's, as one vector."""
        ...


class EngineRun:
    """An engine at work on a method: what `run` does in a round, without its files."""

    def __init__(self, engine: Engine, work: Workload, method: Method) -> None:
        self.engine, self.work, self.method = engine, work, method
        problem = engine.problem
        dtype, device = next((p.dtype, p.device) for p in problem.objective.model.parameters())
        w, b = problem.objective.start(dtype, device)
        self.s = problem.server(method, w, b)
        self.table = Table(method.buffers("per_client", problem.objective.layout, w))

    def round(self) -> float:
        ids = participants(self.work.setting, SEED, self.s.t)
        k, _ = self.engine.train(self.method, self.s, ids, self.table.gather(ids))
        observed_server(self.method, k, self.s)
        self.table.scatter(ids, k.values(self.table.start))
        return float(k.values(["loss"])["loss"].double().mean())

    def evaluate(self) -> float:
        return self.engine.evaluate(*self.s.values(("w", "b")).values())[0]

    def weights(self) -> Tensor:
        return self.s.values(["w"])["w"]


class Bare:
    """The bare loop on the same clients and batches."""

    def __init__(self, work: Workload, method: Method, threads: bool = False) -> None:
        self.work, self.threads, self.t = work, threads, 0
        data, setting, objective = work.dataset, work.setting, work.problem.objective
        model = build(setting.model, data.classes, data.input, seed=SEED)
        model.to(work.device, next(objective.model.parameters()).dtype)
        rho = radius(method)
        assert rho is not None
        self.loop = BareLoop(
            model, setting.lr, setting.weight_decay, setting.clip_norm, rho, half=setting.precision == "bf16"
        )

    def round(self) -> float:
        ids = participants(self.work.setting, SEED, self.t)
        shares = self.work.problem.shares(ids).view(-1).tolist()
        with self._arithmetic():
            loss = self.loop.round((share, batches(self.work, self.t, i)) for share, i in zip(shares, ids, strict=True))
        self.t += 1
        return loss

    def evaluate(self) -> float:
        problem = self.work.problem
        assert problem.test is not None
        pieces = zip(*(part.split(problem.chunk) for part in problem.test), strict=True)
        with self._arithmetic():
            return self.loop.accuracy((problem.inputs(x), y) for x, y in pieces)

    def weights(self) -> Tensor:
        names = [name for name, _ in self.loop.model.named_parameters()]
        return torch.cat([self.loop.state[name].reshape(-1) for name in names])

    def _arithmetic(self) -> AbstractContextManager[None]:
        return all_threads() if self.threads else arithmetic(self.work.precision)


@contextmanager
def all_threads() -> Iterator[None]:
    """As many torch threads as there are cores: what a program has that says nothing."""
    before = torch.get_num_threads()
    torch.set_num_threads(cores())
    try:
        yield
    finally:
        torch.set_num_threads(before)


def batches(work: Workload, t: int, client: int) -> Batches:
    """The batches of one client in one round, the last of an epoch cut where it is short."""
    plan, per_epoch = work.problem.plan(t, [client]), -(-work.samples // work.batch)
    for step in range(work.steps):
        x, y, _ = plan.at(step)
        size = min(work.batch, work.samples - step % per_epoch * work.batch)
        yield x[0, :size], y[0, :size]


def radius(method: Method) -> float | None:
    """What the bare loop needs to know of a method: 0 for FedAvg, FedSAM's rho, nothing where it cannot do it."""
    if not method.parts:
        return 0.0
    only = method.parts[0]
    return only.rho if len(method.parts) == 1 and type(only) is Sam else None


def usual_engines(device: str) -> list[str]:
    """The names of all engines that can run on this device."""
    if torch.device(device).type == "cuda":
        return ["bare", "loop", *(f"stacked:{mode}" for mode in MODES)]
    return ["bare", "loop", "pool", "stacked"]


def check(name: str, device: str) -> None:
    """Refuse an engine that is not there, or not on that device."""
    gpu = torch.device(device).type == "cuda"
    if name not in NAMES:
        raise BadEngine(f"engine = {name!r}: must be one of {', '.join(NAMES)}")
    if gpu and name in ("pool", "bare:threads"):
        raise BadEngine(f"engine = {name!r} runs on the CPU; use --device cpu, or leave it out")
    if not gpu and name.partition(":")[2] in MODES[1:]:
        raise BadEngine(f"engine = {name!r}: steps are captured on a GPU; use 'stacked', or --device cuda")


def runner(name: str, work: Workload, method: Method, workers: int | None = None) -> Runner:
    """An engine, or the bare loop, by name. "stacked" alone is the mode that a long run takes."""
    check(name, work.device)
    kind, _, mode = name.partition(":")
    if kind == "bare":
        return Bare(work, method, threads=bool(mode))
    mode = mode or ("compiled" if torch.device(work.device).type == "cuda" else "eager")
    return EngineRun(_engine(kind, mode, work, workers), work, method)


def _engine(kind: str, mode: str, work: Workload, workers: int | None) -> Engine:
    if kind == "pool":
        dismiss()  # the first round has the start of the workers in it
        return Pool(work.problem, work.setting, SEED, work.dataset, work.parts, workers or cores())
    return Loop(work.problem) if kind == "loop" else Stacked(work.problem, mode, room=work.participants)


class Timed:
    """A runner under a clock. Its first round, with everything that comes before it, is kept apart."""

    def __init__(self, name: str, work: Workload, method: Method, workers: int | None = None) -> None:
        self.name, self.work, self.method = name, work, method
        self.problem = work.problem  # made before the clock starts: the data are the same for all
        began = time.perf_counter()
        self.runner = runner(name, work, method, workers)
        self.loss = self.runner.round()
        wait_for(work.device)
        self.first_round = time.perf_counter() - began
        self.first_weights = self.runner.weights().clone()
        self.runner.evaluate()
        self.seconds: list[float] = []
        self.evaluations: list[float] = []

    def turn(self) -> None:
        """One round and one evaluation."""
        self.seconds.append(self._clocked(self.runner.round))
        self.evaluations.append(self._clocked(self.runner.evaluate))

    def _clocked(self, do: Any) -> float:
        wait_for(self.work.device)
        began = time.perf_counter()
        do()
        wait_for(self.work.device)
        return time.perf_counter() - began

    def row(self) -> dict[str, Any]:
        """Its times."""
        kind, _, mode = self.name.partition(":")
        return {
            "engine": kind,
            "mode": mode_taken(getattr(self.runner, "engine", None)) or mode,
            "method": self.method.name,
            **spread(self.seconds),
            "first_round": self.first_round,
            "seconds_evaluation": median(self.evaluations),
            "loss_first_round": self.loss,
        }


def mode_taken(engine: Engine | None) -> str:
    """How a stacked engine took its steps: launch by launch where they were not captured after all."""
    if not isinstance(engine, Stacked):
        return ""
    return engine.mode if engine.shared.known and not engine.shared.refused else MODES[0]


def spread(seconds: Sequence[float]) -> dict[str, Any]:
    """Median, and how far the others were."""
    return {"seconds_per_round": median(seconds), "min": min(seconds), "max": max(seconds), "n": len(seconds)}


def ratio(others: Timed | None, own: Timed) -> float | None:
    """How many times faster than another: the median over turns, so that a slow minute of the machine cancels."""
    return None if others is None else median(a / b for a, b in zip(others.seconds, own.seconds, strict=True))


def raced(
    work: Workload, method: Method, names: Sequence[str], rounds: int, workers: int | None = None,
    say: Say = lambda text: None,
) -> list[dict[str, Any]]:  # fmt: skip
    """One row per engine, which take turns; everyone starts a turn once in a while."""
    if radius(method) is None and set(names) & set(BARE):
        say(f"the bare loop knows FedAvg and FedSAM, not {method.name}")
        names = [name for name in names if name not in BARE]
    timed = []
    for name in names:
        say(f"{method.name}: first round of {name}")
        timed.append(Timed(name, work, method, workers))
    for turn in range(rounds):
        say(f"{method.name}: turn {turn + 1} of {rounds}")
        at = turn % len(timed)
        for each in timed[at:] + timed[:at]:
            each.turn()
    return compared(timed)


def compared(timed: Sequence[Timed]) -> list[dict[str, Any]]:
    """The rows, with what the loop and the bare loop are to each."""
    known = {each.name: each for each in timed}
    loop, bare = known.get("loop"), known.get("bare")
    return [
        each.row()
        | {
            "faster_than_loop": ratio(loop, each),
            "faster_than_bare": ratio(bare, each),
            "difference": None if loop is None else float((each.first_weights - loop.first_weights).abs().max()),
        }
        for each in timed
    ]


def beside_first(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows of several methods, each with how many times as long it takes as the first method on that engine."""
    first = {
        (row["engine"], row["mode"]): row["seconds_per_round"] for row in rows if row["method"] == rows[0]["method"]
    }

    def times(row: dict[str, Any]) -> float | None:
        base = first.get((row["engine"], row["mode"]))
        return None if base is None else row["seconds_per_round"] / base

    return [row | {"times_first": times(row)} for row in rows]
